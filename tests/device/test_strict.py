"""Strict mode stops where a program relies on what is not promised; each class has its own reasons, and says where."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mlsdk.device.engine.machine import Machine
from mlsdk.device.errors import UndefinedBehaviour, Unimplemented, Unspecified
from mlsdk.device.isa.parser import parse


@pytest.fixture(scope="module")
def machine():
    return Machine(strict=True)


def run(machine: Machine, text: str) -> None:
    """In strict mode, with what an earlier program left in the registers of no concern."""
    machine.source = text
    machine.mask_setting = (0, "", False)
    for memory in (*machine.state.dram, *machine.state.pdm):
        memory.pages.clear()
    machine.run(parse(text))


ONES = 'imm h"1" $llr0\nnop/2\nhbfn/9 $llr0 $lls0v\nnop/2\nhmwrite $lls0v $llx0\nhmwrite $lls0v $llx8\n'
#: entry 1 is set on PE 5 of every L1B; GRF0 word 0 on that PE only
ONE_PE = 'imm ui"5" $ls0\nnop\nixor $peid $ls0 $omr1\nipassa $s0 $r0/$imr1\nnop\n'
#: entry 1 is set on PE 0 of every MAB
FIRST = 'imm ui"0" $ls0\nnop\nixor $subpeid $ls0 $omr1\n'
#: MAB 3 of every L1B has a block float in $lr16, the others a mixed block
MIXED = ONES + (
    'imm ui"3" $ls16\nimm ui"0x3E004000" $lr16\nnop\nixor $mabid $ls16 $omr1\nlpassa $ls0 $lr16/$imr1\nnop\n'
)
ENTRY_2 = 'imm ui"{}" $ls2\nnop\nixor $peid $ls2 $omr2\n'
SENT = "zero $llr0v\nnop\nl1bmd $lr0v $lb0\nnop/2\nl2bm@0 $lb0 $lc0\nnop/3\nl2bmb@1 $lc0 $lb512\nnop\n"
LOADED = "r 0 0 1 0000000000000001\nmvp/n64i01 $d0@0 $lc0@0.0\nnop; wait i01\n"
GOOD = [
    'imm f"1" $lr0\nnop\nfvadd $lr0 $lr0 $ln0\nnop/2\nipassa $mauf $lm0',
    "d set $lm0n0c0b0m0p0 4 " + "0" * 64 + "\nfvpassa $lm0v $ln0v",
    "zero $lt\nnop\nzero $llr0\nzero $llm0\nnop/2\nipassa $mt0 $ln0",
    'imm ui"1" $lr0\nnop\nipassa $lr0 $omr1\nipassa $lr0 $ln0/$imr1',
    'imm ui"1" $lr0\nnop\nl1bmm@0 $lr0 $lbi\nl1bmm $lbi $ln0v',
    "r 0 0 1 0000000000000001\nmvb/n64i01 $d0@0 $lc0\nnop; wait i01\nl2bmb $lc0 $lb0\nnop\nl1bmm $lb0 $lr0v",
    "d set $lc0 256 " + "0" * 4096 + "\nl2bmdars $lc0@.0 $dar4\nl2bmdarw\nr 1 0 1 0000000000000001\nmvb/n64 $di4@1 $lc0",
    ONES + "hmmul $lx $ls0v $llr16v",
    "d set $lx0 4 " + "3fe0000000000000" * 4 + "\nzero $llr0v\nnop\ndmmulu $lx $lr0v $ln0v",
    # what a mask keeps from being used may be anything
    ONE_PE + "ipassa $r0 $n0/$imr1", ONE_PE + "ipassa/$imr1 $r0 $n0", ONE_PE + "maskn 1\nipassa $r0 $n0\nmask 0",
    'imm f"1" $lr0v/1000\nnop\nipassa $lr0v $ln0v/1000', "zero $t/ll1000\nnop\nipassa $t $ln0v/1000",
    MIXED + "hmmul $lx $lr16 $llr32v/$llimr1",
    # PE 5 gives to PE 6 of its MAB with msl, to PE 4 with msr
    ONE_PE + ENTRY_2.format(6) + "msl $r0 $n0/$imr2", ONE_PE + ENTRY_2.format(4) + "msr $r0 $n0/$imr2",
    # entry 2 is set everywhere, then again on some PEs
    FIRST + "ipassa $ls0 $omr2\nixor $mabid $ls0 $omr2/$imr1\nipassa $ls0 $ln0/$imr2",
    # only MAB 3 sends
    'imm ui"3" $ls0\nnop\nixor $mabid $ls0 $omr1\nzero $llr0v/$llimr1\nnop\nl1bmm@3 $lr0v $lbi\nl1bmm $lbi $ln0v',
    # L1Bs and L2Bs that hold nothing do what the others do
    SENT + 'imm ui"1" $ls0\nnop\nixor $l1bid $ls0 $omr1\nl1bmm $lb512 $ln0v/$imr1', SENT + "l1bmm $lb512 $ln0v",
    LOADED + "l2bmb $lc0 $lb0\nmvp/n64 $lc0@.0 $d0", SENT + "l2bm@1 $lb512 $lc64\nmvrffadd/n64 $lc64 $d0",
    LOADED + "mvp/n64 $d0@0 $lc0@0.1\nmvr2ffadd/n64 $lc0 $d0",
]  # fmt: skip
#: error, what comes before, the line, its column, the message
BAD = [
    (Unspecified, "", "fvadd $lr0 $lr0 $ln0", 7, "grf0 0 of every PE is read"),
    (Unspecified, 'imm f"1" $lr0\nnop\n', "fvadd $lr0v $lr0v $ln0v", 7, "grf0 2 of every PE is read"),  # cycles 1..
    (Unspecified, "", "ipassa $t $ln0", 8, "T of every PE is read"),
    (Unspecified, "zero $llm0\nnop/2\n", "ipassa $mt0 $ln0", 8, "T of every PE is read"),
    (Unspecified, 'imm ui"9" $lt\nzero $llm0\nnop/2\n', "ipassa $mt0 $ln0", 8, "lm0 9 of every PE"),  # T points to word 9
    (Unspecified, "", "  fvpassa   $mauf $ln0", 13, "$mauf is read, but its unit has not computed anything"),
    (Unspecified, "", "zero $lr0/$imr3", 6, "mask entry 3 of every PE"),
    (Unspecified, "", "maskr 2", 7, "mask entry 2 of every PE"),
    (Unspecified, "", "l1bmm $lb0 $lr0v", 7, "L1BM 0 of n0c0b0 is read"),
    (Unspecified, "", "l2bmb $lc0 $lb0", 7, "L2BM 0 of n0c0 is read"),
    (Unspecified, "", "l1bmm $lbi $lr0v", 7, "$lbi is read"),
    (Unspecified, "", "mvp/n64 $d0 $lc0@.0", 9, "DRAM 0 of group 0 is read"),
    (Unspecified, "", "mvb/n64 $di7@2 $lc0", 9, "DAR entry 7 of group 2 is read"),
    (Unspecified, "", "l2bmdarw", 1, "the DAR buffer is read"),
    (Unspecified, "", "gmread $lx0 $lr0v", 8, "row 0 of the matrix register"),
    # some PEs only
    (Unspecified, ONE_PE, "ipassa $r0 $n0", 8, "grf0 0 of n0c0b0m0p0 and 4031 more PEs is read"),
    (Unspecified, ONE_PE + ENTRY_2.format(6), "ipassa $r0 $n0/$imr2", 8, "grf0 0 of n0c0b0m1p2 and 63 more PEs"),
    (Unspecified, ONE_PE + ENTRY_2.format(4), "msl $r0 $n0/$imr2", 5, "grf0 0 of n0c0b0m1p3 and 63 more PEs"),
    (Unspecified, ONE_PE + "iinc $r0 $n0/$imr1\n", "ipassa $aluf $m0", 8, "$aluf of n0c0b0m0p0 and 4031 more PEs"),
    (Unspecified, ONE_PE, "fbfn $r0 $n0/$imr1", 6, "grf0 0 of n0c0b0m1p0 and 191 more PEs"),  # the others of the block
    (Unspecified, ONE_PE, "fvpassa $s0 $n0; ipassa/$imr1 $r0 $m0 $omr2", 31, "grf0 0 of n0c0b0m0p0"),  # flags see all
    (Unspecified, ONE_PE, "l1bmm@1 $r0 $lb0", 9, "grf0 0 of n0c0b0m1p0 and 191 more PEs"),
    (Unspecified, 'imm f"1" $lr0v/1000\nnop\n', "ipassa $lr0v $ln0v/1100", 8, "grf0 2 of every PE"),
    (Unspecified, FIRST + "ixor $mabid $ls0 $omr2/$imr1\n", "ipassa $ls0 $ln0/$imr2", 13,
     "mask entry 2 of n0c0b0m0p1 and 3071 more PEs is used"),
    # L1B 1 of each L2B has it, others are looked at
    (Unspecified, SENT + 'imm ui"2" $ls0\nnop\nixor $l1bid $ls0 $omr1\n', "l1bmm $lb512 $ln0v/$imr1", 7,
     "L1BM 512 of n0c0b2 is read"),
    (Unspecified, SENT, "l2bmrffadd $lb512 $lc64", 12, "L1BM 512 of n0c0b0 is read"),
    (Unspecified, SENT, "l2bm@2 $lb512 $lc64", 8, "L1BM 512 of n0c0b2 is read"),
    (Unspecified, LOADED, "mvp/n64 $lc0@1.0 $p0@0", 9, "L2BM 0 of n1c0 is read"),
    (Unspecified, LOADED, "mvr2ffadd/n64 $lc0 $d0", 15, "L2BM 0 of n0c1 is read"),
    (Unspecified, LOADED + "mvp/n64 $d0@0 $lc0@1.0\nmvp/n64 $d0@0 $lc0@2.0\n", "mvr4ffadd/n64 $lc0 $d0", 15,
     "L2BM 0 of n3c0 is read"),
    (Unspecified, LOADED, "mvd/n512 $lc0 $p0", 10, "L2BM 0 of n0c1 is read"),
    (UndefinedBehaviour, "zero $lr0\nnop\nl1bmm@0 $lr0 $lbi\n", "l1bmd $lbi $ln0v", 7, "read by l1bmd, but was written by l1bmm"),
    (UndefinedBehaviour, "", "nop; wait i01", 11, "no move raised this tag"),
    (UndefinedBehaviour, "mvnop/i01\n", "mvnop/i01", 1, "raised again"),
    (UndefinedBehaviour, ONES, "gmmul $lx $ls0v $lr16v", 7, "written with hmwrite is used by gmmul"),
    (UndefinedBehaviour, 'imm h"1" $llr0\nimm ui"0x3E004000" $llr4\nnop/2\nhmwrite $llr0 $llx0\nhmwrite $llr4 $llx8\n',
     "hmmul $lx $aluf $llr16v", 7, "row 8"),
    (UndefinedBehaviour, ONES + 'imm ui"0x3E004000" $lr16\nnop/2\n', "hmmul $lx $lr16 $llr32v", 11,
     "second operand of hmmul in n0c0b0m0 is"),
    (UndefinedBehaviour, ONES + 'imm ui"0x3E004000" $nowrite\n', "hmmul $lx $aluf $llr32v", 11,
     "second operand of hmmul in n0c0b0m0"),
    (UndefinedBehaviour, MIXED, "hmmul $lx $lr16 $llr32v", 11, "second operand of hmmul in n0c0b0m0 is"),
    (Unimplemented, "", "c send 1 2", 1, "host side"),
]  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_what_is_promised_runs(machine, text):
    run(machine, text)


@pytest.mark.parametrize("error,before,line,column,message", BAD)
def test_what_is_not_promised_stops(machine, error, before, line, column, message):
    text = before + line
    with pytest.raises(error) as found:
        run(machine, text)
    where, _, told = str(found.value).partition(": ")
    assert where == f"line {text.count(chr(10)) + 1}, column {column}"
    assert message in told and "\n" not in told


def test_without_the_text_the_line_is_named(machine):
    machine.source = ""
    with pytest.raises(Unspecified, match=re.escape("line 2: grf0 0 of every PE is read")):
        machine.run(parse("nop\nfvadd $lr0 $lr0 $ln0"))


def test_other_machines_run_on():
    plain = Machine()
    for _, before, line, _, _ in BAD:
        plain.run(parse(before + line))


def test_the_command_names_line_and_column(tmp_path):
    file = tmp_path / "a.vsm"
    file.write_text("nop\nfvadd $ls0 $lr0 $ln0\n")
    words = [sys.executable, "-m", "mlsdk.cli.main", "vsm", "run", "--strict", str(file)]
    out = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert out.returncode == 1 and "Unspecified: line 2, column 7: grf1 0 of every PE is read" in out.stderr


def test_strict_runs_compute_the_same(machine):
    text = 'imm f"1.5" $lr0\nnop/2\nfvfma $lr0 $lr0 $lr0 $ln0 $lt\nnop\nfvadd $t $mauf $lm0'
    plain = Machine()
    a, b = machine.run(parse(text)), plain.run(parse(text))
    assert a.pe_steps == b.pe_steps and (machine.read("lm0", 0, 2) == plain.read("lm0", 0, 2)).all()
