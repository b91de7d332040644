"""Strict mode stops where a program relies on what is not promised; each class has its own reasons."""

from __future__ import annotations

import pytest

from mlsdk.device.engine.machine import Machine
from mlsdk.device.errors import UndefinedBehaviour, Unimplemented, Unspecified
from mlsdk.device.isa.parser import parse


@pytest.fixture
def strict():
    return Machine(strict=True)


ONES = 'imm h"1" $llr0\nnop/2\nhbfn/9 $llr0 $lls0v\nnop/2\nhmwrite $lls0v $llx0\nhmwrite $lls0v $llx8\n'
GOOD = [
    'imm f"1" $lr0\nnop\nfvadd $lr0 $lr0 $ln0\nnop/2\nipassa $mauf $lm0',
    "d set $lm0n0c0b0m0p0 4 " + "0" * 64 + "\nfvpassa $lm0v $ln0v",
    "zero $lt\nnop\nzero $llr0\nzero $llm0\nnop/2\nipassa $mt0 $ln0",
    'imm ui"1" $lr0\nnop\nipassa $lr0 $omr1\nipassa $lr0 $ln0/$imr1',
    'imm ui"1" $lr0\nnop\nl1bmm@0 $lr0 $lbi\nl1bmm $lbi $ln0v',
    "r 0 0 1 0000000000000001\nmvp/n64i01 $d0@0 $lc0@0.0\nnop; wait i01\nl2bmb $lc0 $lb0\nnop\nl1bmm $lb0 $lr0v",
    ONES + "hmmul $lx $ls0v $llr16v",
]
BAD = [
    (Unspecified, "fvadd $lr0 $lr0 $ln0", "grf0 0 of every PE is read"),
    (Unspecified, 'imm f"1" $lr0\nnop\nfvadd $lr0v $lr0v $ln0v', "grf0 2 of every PE is read"),  # cycles 1.. read words 2..
    (Unspecified, "ipassa $t $ln0", "T is read"),
    (Unspecified, 'imm ui"9" $lt\nzero $llm0\nnop/2\nipassa $mt0 $ln0', "of every PE is read"),  # T points to word 9
    (Unspecified, "fvpassa $mauf $ln0", "$mauf is read"),
    (Unspecified, "zero $lr0/$imr3", "mask entry 3"),
    (Unspecified, "maskr 2", "mask entry 2"),
    (Unspecified, "l1bmm $lb0 $lr0v", "L1BM 0 is read"),
    (Unspecified, "l2bmb $lc0 $lb0", "L2BM 0 is read"),
    (Unspecified, "l1bmm $lbi $lr0v", "$lbi is read"),
    (Unspecified, "mvp/n64 $d0 $lc0@.0", "DRAM 0 of group 0"),
    (Unspecified, "gmread $lx0 $lr0v", "row 0 of the matrix register"),
    (UndefinedBehaviour, "zero $lr0\nnop\nl1bmm@0 $lr0 $lbi\nl1bmd $lbi $ln0v", "read by l1bmd, but was written by l1bmm"),
    (UndefinedBehaviour, "nop; wait i01", "no move raised this tag"),
    (UndefinedBehaviour, "mvnop/i01\nmvnop/i01", "raised again"),
    (UndefinedBehaviour, ONES + "gmmul $lx $ls0v $lr16v", "written with hmwrite is used by gmmul"),
    (UndefinedBehaviour, 'imm h"1" $llr0\nimm ui"0x3E004000" $llr4\nnop/2\nhmwrite $llr0 '
        '$llx0\nhmwrite $llr4 $llx8\nhmmul $lx $aluf $llr16v', "row 8"),
    (UndefinedBehaviour, ONES + 'imm ui"0x3E004000" $lr16\nnop/2\nhmmul $lx $lr16 $llr32v',
        "second operand of hmmul in n0c0b0m0 is"),
    (Unimplemented, "c send 1 2", "host side"),
]  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_what_is_promised_runs(strict, text):
    strict.run(parse(text))


@pytest.mark.parametrize("error,text,message", BAD)
def test_what_is_not_promised_stops(strict, error, text, message):
    with pytest.raises(error) as found:
        strict.run(parse(text))
    assert message in str(found.value) and str(found.value).startswith("line ") and "\n" not in str(found.value)
    Machine().run(parse(text))  # and runs otherwise


def test_strict_runs_compute_the_same(strict):
    text = 'imm f"1.5" $lr0\nnop/2\nfvfma $lr0 $lr0 $lr0 $ln0 $lt\nnop\nfvadd $t $mauf $lm0'
    plain = Machine()
    a, b = strict.run(parse(text)), plain.run(parse(text))
    assert a.pe_steps == b.pe_steps and (strict.read("lm0", 0, 2) == plain.read("lm0", 0, 2)).all()
