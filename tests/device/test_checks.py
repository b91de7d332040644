"""Static checks: what is an error, what it says, and how hazards are mended."""

from __future__ import annotations

import pytest

from mlsdk.device.isa import model as m
from mlsdk.device.isa.checks import check, count_steps, insert_nops, iterations_alike
from mlsdk.device.isa.parser import parse, read
from mlsdk.device.isa.printer import format_program

# text, rule of the only finding (None: clean)
PARALLEL = [
    ("iadd $lr0 $ls0 $lm0; iand $lr0 $ls0 $ln0", "parallel"),
    ("fvadd $lr0 $ls0 $lm0; iand $lr0 $ls0 $ln0", None),
    ("nop; wait i01", None),
    ("nop; iadd $lr0 $ls0 $lm0", "parallel"),
    ("l1bmm $lb0 $lm0v; l1bmm@1 $lr0v $lb16", "parallel"),
    ("l1bmm $lbi $lm0v; l1bmm@1 $lr8v $lb16", None),  # the turnaround register is a group of its own
    ("l2bmdars $lc0@.0 $dar0; l2bmdarw; l1bmrdfadd $lr0v $lbi", None),
    ("noforward; l2bmb $lc0 $lb0; l2bmdarw; l1bmm $lbi $lm0v; l1bmriiadd $ls0v "
        "$lb256; gmmul $lx $aluf $nowrite; gmwrite $aluf $ly0; "
     "hrelu $t $t $nowrite; wait i01", None),
    ("hmmul $lx $aluf $llr0v; hmwrite $aluf $llx0", "parallel"),  # both use $lx
    ("hmmul $lx $aluf $llr0v; gmwrite $aluf $ly0", "parallel"),  # precisions differ
    ("gmmul $lx $aluf $nowrite; gmwrite $aluf $ly0; gmread $ly0 $ln0v", "parallel parallel"),
    ("fvfma $lr0v $ls0v $lm0v $ln0v; fmwrite $ls0v $lx0", None),
    ("fvfma $lr0v $ls0v $lm0v $ln0v; fmwrite $lr0v $lx0", "parallel"),  # not the second factor
    ("fvadd $lr0 $ls0 $ln0; iand $lr2 $ls0 $nowrite", "port"),
    ("fvadd $lr0v $ls0 $ln0; iand $r0v2 $ls0 $nowrite", None),  # the same addresses in every cycle
    ("fvadd $lr0v $ls0 $lr0; iand $lr0v $ls0 $lr8", "port"),
    ("fvadd $lm0v $ls0 $lm0v", None),
    ("fvadd $lm0v $ls0 $lm2v", "port"),
    ("fvadd $lmt0 $ls0 $lm0", "port"),
    ("fvadd $lr0v $ls0 $lr8v", None),
    ("iadd $lr0 $ls0 $omr1; fvadd $lr0 $ls0 $omr1", "port"),
    ("iadd $lr0 $ls0 $omr1; fvadd $lr0 $ls0 $omr2", None),
    ("iadd $lr0 $ls0 $t; fvadd $lr0 $ls0 $lt", "port"),
    ('imm f"1" $lr0; fvadd $lm0 $ls0 $ln0', "parallel"),
    ('imm f"1" $lm0', "parallel"),
    ('imm f"1" $lr0; fvadd $lr8 $ls0 $ln0', None),
]  # fmt: skip

OPERANDS = [
    ("ipassa $lr1 $ls0", "alignment"), ("ipassa $llr2 $ls0", "alignment"), ("ipassa $lr[0,2,4,5] $ls0", "alignment"),
    ("ipassa $lr0v3 $ls0", "alignment"),
    ("ipassa $r512 $ls0", "address"), ("ipassa $lr0 $lm4096", "address"), ("ipassa $lr510v $ls0", None),
    ("l1bmm $lb8192 $lr0", "address"), ("l2bmb $lc32768 $lb0", "address"),
    ("l2bmb2 $lc32 $lb16", "alignment"), ("l2bmr2ffadd $lb8 $lc64", "alignment"), ("l2bmi@0/1 $lb8 $lb16",
    "alignment"), ("l1bmr4ffadd $llr0 $llb16", "alignment"),
    ("l1bmr4ffadd $lr0 $lb16", None),
    ("gmwrite $lr0v $lx8", "address"), ("hmwrite $lr0v $lx15", None), ("hmwrite $llr0v $llx3", "alignment"),
    ("gmwrite $lr0v $llx0", "operand"),
    ("hmread $lx0 $lln0v", "operand"),
    ("zero $omr1", "mask"), ("lpassa $lr0 $omr0", "mask"), ("lpassa $lr0 $omr16", "mask"),
    ("ipassa $lr0 $ls0/1000 $lm0/0100", "mask"), ("ipassa $lr0 $ls0/1000 $lm0/ll1000", "mask"),
    ("ipassa $lr0 $ls0/1000 $lm0/$imr24", None),
    ("ipassa/1000 $lr0 $ls0; fvadd/1000 $lr0 $lr0 $ln0", "mask"),
    ("ipassa $lr0 $lls0/1000t", "mask"), ("ipassa $llr0 $lls0/ll1000t", None),
    ("mask 0", None), ("mask 3", "mask"), ("maskr 3", None),
    ("mvp/n63 $d0 $lc0@.0", "alignment"), ("mvp/n64 $d0 $lc0@0.0", "operand"), ("mvp/n64 $d536870912@0 $lc0@0.0",
    "address"), ("mvp/n64 $d0@5 $lc0@0.0", "address"),
    ("mvp/n64 $d0 $d64", "operand"), ("mvb/n64 $d0 $lc0", "operand"), ("mvb/n64 $p0 $lc0@0.0", "operand"),
    ("mvd/n64 $p0 $lc0", "alignment"),
    ("mvr4ffadd/n64 $lc0 $d0@1", "operand"), ("mvp/n65536 $d0 $lc0@.0", "address"),
    ("d get $lm4096n0 1", "address"), ("d get $lr510 2", "address"), ("d get $omr31 1", None),
    ("r 0 20000000 1 0000000000000000", "address"),
]  # fmt: skip

HAZARDS = [
    ("ipassa $lr0v $lm0v|nop/2|ipassa $lm64v $ls0v", None),
    ("ipassa $lr0v $lm0v|nop|ipassa $lm64v $ls0v", "hazard.9"),  # any address of the memory
    ("ipassa $lr0v $lm0v|nop|ipassa $lr0v $lm64v", None),  # a write after a write
    ('imm f"1" $lr0/1000|nop|ipassa $lr0 $ls0', None), ('imm f"1" $lr0/0100|nop|ipassa $lr0 $ls0', None),
    ('imm f"1" $lr0/0010|nop|ipassa $lr0 $ls0', "hazard.9"), ('imm f"1" $lr0/0001|nop|ipassa $lr0 $ls0', "hazard.9"),
    ("ipassa $ls0v $lr0v|nop|ipassa $lr0v $ls8v", None), ("ipassa $ls0v $lr0v|ipassa $lr0v $ls8v", "hazard.9"),
    ("ipassa $ls0v $lr0v|ipassa $lr8v $ls8v", None),
    ("ipassa $ls0v $lr0v|nop|ipassa $lr[6,0,2,4] $ls8v", "hazard.9"),  # written in cycle 3, read in cycle 0
    ("ipassa $s0v $r0v|ipassa $r[8,8,8,0] $ls8v", None),  # cycle 0 to cycle 3 of the next step: 7 cycles
    ("maskr 16|ipassa $ls0v $lr0v|ipassa $lr0v $ls8v", None),  # nothing is written
    ("ipassa $ls0v $lt|ipassa $t $lr8v", "hazard.9"), ("ipassa $ls0v $lt|nop|ipassa $mt0 $lr8v", None),
    ("ipassa $ls0v $lt|ipassa $mt0 $lr8v", "hazard.9"),
    ("ipassa $ls0 $omr1|ipassa $ls0 $lr0/$imr1", None), ("fvadd $lr0 $lr0 $nowrite|fvadd $mauf $lr0 $ln0", None),
    ('imm ui"4" $lnb|ipassa $ln0 $lr0', "hazard.bar"), ('imm ui"4" $lnb|nop|ipassa $ln0 $lr0', None),
    ('imm ui"4" $lnb|ipassa $lm0 $lr0', None),
    ("l1bmm@2 $lr0v $lb0|nop/2|l1bmm $lb0 $ls0v", None), ("l1bmm@2 $lr0v $lb0|nop|l1bmm $lb0 $ls0v", "hazard.8"),
    ("l1bmm@2 $lr0v $lb0|l1bmm $lb64 $ls0v", None),
    ("l1bmm@2 $lr0v $lb0|nop|l2bm@0 $lb0 $lc0", "hazard.7"), ("l1bmm@2 $lr0v $lb0|nop/2|l2bm@0 $lb0 $lc0", None),
    ("l1bmm@2 $lr0v $lb0|nop|l2bmi@0/1 $lb0 $lb1024", "hazard.7"),
    ("l2bmb $lc0 $lb0|l1bmm $lb0 $ls0v", "hazard.6"), ("l2bmb $lc0 $lb0|nop|l1bmm $lb0 $ls0v", None),
    ("l2bmb $lc0 $lb0|l1bmm $lb64 $ls0v", None),
    ("l2bm@0 $lb0 $lc0|nop/3|l2bmb $lc64 $lb64", None),
]  # fmt: skip


@pytest.mark.parametrize("text,rule", PARALLEL + OPERANDS + HAZARDS)
def test_rules(text, rule):
    findings = check(parse(text.replace("|", "\n")))
    assert [d.rule for d in findings] == (rule.split() if rule else [])
    assert all(d.severity == "error" for d in findings if rule != "mask" or "mask" not in text[:4])


@pytest.mark.parametrize("text,rule", HAZARDS)
def test_nops_mend_hazards_and_no_more(text, rule):
    program = parse(text.replace("|", "\n"))
    mended = insert_nops(program)
    assert check(mended) == []
    assert (mended == program) == (rule is None)
    if rule:  # with one step less it would not do
        position = next(i for i, (a, b) in enumerate(zip(mended, (*program, None))) if a != b)
        less = mended[position].count - 1
        shorter = (*mended[:position], *([m.Nop(less)] if less else []), *mended[position + 1 :])
        assert check(shorter) != []


@pytest.mark.parametrize(
    "text,rule",
    [
        ("l2bm@0 $lb0 $lc0|l2bmb $lc64 $lb64", "hazard.2"), ("l2bmb $lc64 $lb64|nop|l2bm@0 $lb0 $lc0", "hazard.3"),
        ("l2bmb $lc64 $lb64|nop/2|l2bmi@0/1 $lb0 $lb16", "hazard.3"), ("l2bmi@0/1 $lb0 $lb16|l2bm@0 $lb0 $lc0", "hazard.4"),
        ("l2bmi@0/1 $lb0 $lb16|l1bmm $lb512 $lr0v", "hazard.5"),
    ],
)  # fmt: skip
def test_distances_that_are_not_settled_are_unknown(text, rule):
    program = parse(text.replace("|", "\n"))
    (finding,) = check(program)
    assert (finding.rule, finding.severity) == (rule, "unknown")
    assert insert_nops(program, unknown=False) == program
    assert check(insert_nops(program)) == []


def test_messages_say_what_to_do():
    (finding,) = check(parse("nop\nipassa $ls0v $lr0v\nipassa $lr0v $ls8v"), "a.vsm")
    assert str(finding) == (
        "a.vsm:3: error: GRF0 word 0 is read in cycle 0, 4 cycles after its write in cycle 0 of the "
        "step before (6 idle cycles between): "
        "1 step missing [hazard.9]; insert nop before this line"
    )


def test_moves_and_waits():
    findings = check(parse("mvp/n64i01 $d0 $lc0@.0\nl2bmb $lc0 $lb0\nnop; wait i01\nl2bmb $lc0 $lb64"))
    assert [d.rule for d in findings] == ["wait"] and "wait i01 first" in findings[0].hint
    assert check(parse("mvp/n64i01 $d0 $lc0@.0\nl2bmb $lc64 $lb0")) == []  # another place
    assert [d.rule for d in check(parse("mvp/n64i01 $d0 $lc0@.0\nmvp/n64i01 $d0 $lc64@.0"))] == ["tag"]
    assert check(parse("mvp/n64i01 $d0 $lc0@.0\nnop; wait i01\nmvp/n64i01 $d0 $lc64@.0")) == []
    assert [d.rule for d in check(parse("mvp/n64i01 $lc0@.0 $d0\nl2bm@0 $lb0 $lc0"))] == ["wait"]


# --- loops -----------------------------------------------------------------------------------------------------------------
def bundle(text: str, *strides: tuple[int, ...]) -> m.Bundle:
    """A step whose operands get the given strides, in order."""
    from dataclasses import replace

    (step,) = parse(text)
    (instruction,) = step.instructions
    operands = tuple(replace(o, strides=s) for o, s in zip(instruction.operands, strides))
    return m.Bundle((replace(instruction, operands=operands + instruction.operands[len(strides) :]),))


def findings_of(*statements: m.Statement) -> list[str]:
    """Rules found with the loop, which must be those found in the unrolled form."""
    looped = check(statements)
    unrolled = check(tuple(m.unroll(statements)))
    assert {d.rule for d in looped} == {d.rule for d in unrolled}
    return sorted({d.rule for d in looped})


def test_hazards_across_the_back_edge():
    assert findings_of(m.Loop(50, (bundle("ipassa $lm0v $ls0v", (8,)), bundle("ipassa $ls8v $lm0v", (), (8,))))) == [
        "hazard.9"
    ]
    assert findings_of(m.Loop(50, (bundle("ipassa $lm0v $ls0v", (8,)), bundle("ipassa $ls8v $ln0v", (), (8,))))) == []


def test_hazards_that_only_some_iterations_have():
    """Two operands approach each other: iteration 15 reads what iteration 14 wrote."""
    body = (bundle("ipassa $lr128v $ls0v", (0,), (0,)), bundle("ipassa $lm0v $lr0v", (0,), (8,)), m.Nop(1))
    assert findings_of(m.Loop(40, body)) == ["hazard.9"] or findings_of(m.Loop(40, body)) == []
    body = (bundle("ipassa $lm0v $lr0v", (0,), (8,)), bundle("ipassa $lr128v $ls0v", (0,), (0,)))
    assert findings_of(m.Loop(40, body)) == ["hazard.9"]
    assert findings_of(m.Loop(10, body)) == []


def test_alignment_of_later_iterations():
    assert findings_of(m.Loop(4, (bundle("ipassa $lm0v $lr0v", (1,)),))) == ["alignment"]
    assert findings_of(m.Loop(600, (bundle("ipassa $lm0v $lr0v", (8,)),))) == ["address"]


def test_nops_go_into_loop_bodies():
    program = (m.Loop(50, (bundle("ipassa $lm0v $ls0v", (8,)), bundle("ipassa $ls8v $lm0v", (), (8,)))),)
    mended = insert_nops(program)
    assert check(mended) == [] and check(tuple(m.unroll(mended))) == []
    assert count_steps(mended[0].body) == 4  # LM written, two steps, read: one write fits between


def test_nested_loops():
    inner = m.Loop(3, (bundle("ipassa $lr0v $lm0v", (0, 8), (8, 8)),))
    assert findings_of(m.Loop(100, (inner, bundle("ipassa $lr0v $ls0v", ())))) == []
    assert findings_of(m.Loop(100, (inner, bundle("ipassa $ls0v $lr0v", ())))) == ["hazard.9"]


@pytest.mark.parametrize(("depth", "rules"), [(100, []), (101, ["loop"]), (400, ["loop"])])
def test_loops_in_loops(depth, rules):
    loop = m.Loop(1, (bundle("ipassa $lr0v $ls0"),))
    for _ in range(depth - 1):
        loop = m.Loop(1, (loop,))
    assert [d.rule for d in check((loop,))] == rules
    assert insert_nops((loop,)) == (loop,)


def test_a_hazard_at_the_end_of_a_long_loop():
    program = (m.Loop(100_000, (bundle("ipassa $lm0v $ls0v", (0,)),)), bundle("ipassa $ls0v $lr0v"))
    assert [d.rule for d in check(program)] == ["hazard.9"]


def test_formatting_a_mended_program():
    text = format_program(insert_nops(parse("ipassa $lr0v $lm0v\nipassa $lm0v $ls0v")))
    assert text == "ipassa $lr0v $lm0v\nnop/2\nipassa $lm0v $ls0v\n"


# --- suffixes, wide reductions, the turnaround register, moves ---------------------------------------------------------
SUFFIXES = [
    ("gmfma $lx $r0ve $ls0v $ln0v", 11),  # a block float is not extended
    ("hvfma $r0ve $ls0v $llt $lln8v", 7),
    ("hvfma $lr0v $ls0v $lltr $lln8v", 19),  # z is single
    ("hmmul $lx $llr0vr $lln0v", 11),
    ("hmwrite $lr0ve $lx0", 9),
    ("l1bmriiadd $r0ve $lb0", 12),
    ("fvmul $llr0vr $ls0v $ln0v", 7),
]


@pytest.mark.parametrize("text,column", SUFFIXES)
def test_suffixes_stand_where_the_input_has_the_format(text, column):
    _, (problem,) = read(text)
    assert (problem.rule, problem.column) == ("operand", column)
    assert problem.hint


@pytest.mark.parametrize(
    "text",
    [
        "hvfma $llr0vr $lls0vr $llt $lln8v", "hvfma $lr0v $ls0v $m0ve $lln8v", "gmfma $ly $lm0v $r0ve $ln0v",
        "hmfma $lx $lm0v $lr0ve $llr8v", "dvfmau $m0ve $r0ve $n0ve $lr4v", "fmwrite $r0ve $lx0", "hmwrite $llr0vr $lx0",
        "hbfn/9 $llr0vr $ln0v", "l1bmrffaddr $lr0ve $lb0",
    ],
)  # fmt: skip
def test_suffixes_that_are_documented(text):
    statements, problems = read(text)
    assert not problems and not check(statements)


@pytest.mark.parametrize(
    "text,severity",
    [
        ("l1bmr4iiadd $llr0v $llb32", "error"), ("l1bmr4ffadd $llr0v $llb32", None), ("l1bmr4lbor $llr0v $llb32", None),
        ("l1bmriiadd $llr0v $llb32", "unknown"), ("l1bmrfmax $llr0v $llb32", None),
        ("l1bmd+2 $lr0v $lbi|l1bmd+1 $lbi $ln0v", "error"), ("l1bmd+2 $lr0v $lbi|l1bmd+2 $lbi $ln0v", None),
        ("l1bmd $lr0v $lbi|l1bmd+1 $lbi $ln0v", None), ("l1bmd $lr0v $lbi|l1bmm $lbi $ln0v", "unknown"),
        ("l1bmriiadd $lr0v $lbi|l1bmm $lbi $ln0v", None),
        ("mvp/n64 $p524224@0 $d0@0", None), ("mvp/n128 $p524224@0 $d0@0", "warning"),
        ("l2bmdars $lc0@.0 $dar1024", "error"), ("l2bmdars $lc0 $dar0", "error"), ("l2bmdars $lc0@1.0 $dar0", "error"),
        ("l2bmb $lc0@.0 $lb0", "error"), ("l2bm@0 $lb0 $lc0@1.1", "error"),
        ("l1bmd+2 $lb0 $ln0v", "unknown"), ("l1bmd-1 $lb0 $ln0v", None), ("l1bmd-3 $lr0v $lb0", None),
        ("ipassa $r8j1 $n0", "unknown"), ("ipassa $m8 $r0j1", "unknown"), ("ipassa $m8j1 $n0j3", None),
    ],
)  # fmt: skip
def test_severities(text, severity):
    assert [d.severity for d in check(parse(text.replace("|", "\n")))] == ([severity] if severity else [])


@pytest.mark.parametrize(
    "line,column",
    [
        ("lpassa $lr1 $lm0", 8), ("  fvadd $lr0 $ls0 $ln0 ; iadd   $lr2 $ls0 $nowrite", 33),
        ("fvadd $lr0 $ls0 $lm0; iadd $lr0 $ls0 $lm2 # note", 38), ("fvmul $lr0 $ls0 $omr16", 17),
        ("mvp/n64 $d0@0 $lc0@0.2", 15), ("\tmvp/n63 $d0 $lc0@.0", 2), ("d get $lm0n0 9999", 1),
        ('imm f"1" $lm0', 10), ("l1bmp $lb9000 $lr0v", 7), ("gmwrite $lr0v $lx8", 15),
    ],
)  # fmt: skip
def test_columns_point_at_the_operand(line, column):
    text = f"nop\n{line}\n"
    (finding,) = check(parse(text), "a.vsm", text)
    assert (finding.line, finding.column) == (2, column)


def test_a_hazard_points_at_what_is_read():
    text = 'imm f"1" $lr0\nlpassa  $lr0 $ln0'
    (finding,) = check(parse(text), "", text)
    assert (finding.line, finding.column, finding.rule) == (2, 9, "hazard.9")


def test_findings_are_bounded():
    text = "\n".join(["lpassa $lr1 $lm0"] * 3000 + ["l2bmi@0/1 $lb0 $lb16", "l1bmm $lb512 $lr0v"])
    found = check(parse(text))
    assert len(found) == 1002 and found[-1].severity == "error" and "2000 more" in found[-1].message
    assert sum(d.severity == "unknown" for d in found) == 1


def test_loops_of_one_stride_beside_constants_are_checked_at_once():
    """The constant at $ls0 and the words from $ls64 on are apart, so all iterations are alike."""
    step = m.Bundle((m.Instruction("fvmul", (
        m.Operand(m.GRF1, 64, 2, 2, strides=(8,)), m.Operand(m.LM0, 0, 2, 2), m.Operand(m.LM1, 0, 2, 2))),))  # fmt: skip
    load = m.Bundle((m.Instruction("lpassa", (m.Operand(m.GRF1, 0, 2), m.Operand(m.GRF0, 0, 2, 2))),))
    assert iterations_alike(m.Loop(20, (step, load)), 0)
    assert not iterations_alike(m.Loop(57, (step, load)), 0)  # 64 + 56 * 8 + 8 passes the end of GRF1
    near = m.Bundle((m.Instruction("lpassa", (m.Operand(m.GRF1, 70, 2), m.Operand(m.GRF0, 0, 2, 2))),))
    assert not iterations_alike(m.Loop(20, (step, near)), 0)


@pytest.mark.slow
def test_a_million_statements_take_seconds_and_little_memory():
    lines = [
        f"fvfma $lm{8 * (i * 7 % 500)}v $lr{8 * (i % 60)}v $ls{8 * (i % 61)}v $ln{8 * (i % 499)}v" for i in range(10**6)
    ]
    program = parse("\n".join(lines))
    import time
    import tracemalloc

    start = time.process_time()
    assert check(program) == []
    assert time.process_time() - start < 60
    tracemalloc.start()
    check(program[:200_000])
    assert tracemalloc.get_traced_memory()[1] < 400e6
