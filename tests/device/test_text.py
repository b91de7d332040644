"""The text form: parsing, printing, and what is said about malformed lines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsdk.device.errors import AssemblyError
from mlsdk.device.isa import model as m
from mlsdk.device.isa import table
from mlsdk.device.isa.parser import parse, read
from mlsdk.device.isa.printer import format_program, format_statement

LINES = """\
# a comment
#@ conv1
fvfma $lm0v -$mauf $ls8v $nowrite; ilsl $mauf $ls16 $lr8v/1000 # note
imm f"1.0" $ls0 $lr8
nop; wait i02
nop/3
nop
mvp/n64i01 $p0@0 $lc0@0.0
mvp/n64i02nd2p1 $d0 $lc0@.0
mvnop/i03
maskrs 3
maskll 0
hmfma $lx $lm0v $lr0ve $llr8v; hmwrite $aluf $lly0; hbfn/9 $lbf $nowrite; l1bmm $llb32 $nowrite
ipassa/$imr1 $lr0v $ln0v
hbfn/9/1000 $lr0v $ln0v
l1bmp/ll0110 $llb0 $lln0v
l2bmb@0/6 $lc0 $lb0
l2bmdars $lc0@.1 $dar16; l2bmdarw
l1bmd+1 $lbi $lr0v; noforward
ipassa $mt4v2 $n[0,5,1,2]/$llimr3t
ipassa $lm4j2 $mb $omr3/$imr2
hvmul $llr0vr $tr $llt
imm us"0b101" $lnb

d getf $lm0n0c0b0m0p0 2 # expect=[1.0] / Float
d get $ltc1 4
d getbh $lx0n0 16
d get $omr1n0c0b0m0p0 1
d set $lm0n0 1 0123456789abcdef
r 0 000000010 002 0123456789abcdef0000000000000001
c send 1 2
quit"""


@pytest.mark.parametrize("line", LINES.split("\n"))
def test_a_normal_line_prints_as_it_was_written(line):
    (statement,) = parse(line + "\n#")[:1] if line else (m.Comment(None),)
    assert format_statement(statement) == line


def test_a_program_survives_printing_and_parsing():
    program = parse(LINES)
    assert format_program(program) == LINES + "\n"
    assert parse(format_program(program)) == program


@pytest.mark.parametrize(
    "a,b",
    [
        ("mvp/i02n64 $d0 $lc0@.0", "mvp/n64i02 $d0 $lc0@.0"),
        ("ipassa $lr0v2 $ls0", "ipassa   $lr0v\t$ls0"),
        ("maskts 1", "maskst 1"),
        ("d set $lm0n0 2 l0000000000000001 l0000000000000002", "d set $lm0n0 2 00000000000000010000000000000002"),
        ("r 1 10 1 000000000000000a", "r 1 000000010 001 000000000000000A"),
        ("nop/1", "nop"),
    ],
)
def test_texts_that_mean_the_same(a, b):
    assert parse(a) == parse(b)


def test_lines_and_quit():
    program = parse("nop\r\nquit\nthis is not read")
    assert [s.line for s in program] == [1, 2]
    assert isinstance(program[-1], m.Quit)


def test_loops_are_printed_unrolled_and_symbols_are_resolved():
    body = (m.Bundle((m.Instruction("ipassa", (m.Operand(m.LM0, 4, 2, 2, strides=(8,)), m.Operand(m.GRF0, 0, 2))),)),)
    move = m.Move("mvp", m.Operand(m.DRAM, 64, symbol="weights"), m.Operand(m.L2BM, 0, block=1), 64)
    text = format_program((m.Loop(2, body), move), {"weights": 1000})
    assert text == "ipassa $lm4v $lr0\nipassa $lm12v $lr0\nmvp/n64 $d1064 $lc0@.1\n"
    with pytest.raises(ValueError, match="weights"):
        format_program((move,))


BAD = [
    ("fvfna $lr0v", "mnemonic", 1, "did you mean `fvfma`?"),
    ("fvadd $lr0v $ls0v", "operand", 1, ""),
    ("nop; l1bmm@3 $lb0 $lr0", "operand", 14, "a PE memory"),
    ("imm 1.0 $lr0", "operand", 5, "for instance"),
    ('imm ui"-1" $lr0', "operand", 5, "decimal"),
    ('imm s"40000" $lr0', "operand", 5, "range"),
    ('imm f"abc" $lr0', "operand", 5, ""),
    ("fvmul $lr0v $lx0 $lr0", "operand", 13, ""),
    ("wait i40", "operand", 6, "tags are i01..i3f"),
    ("nop/2; wait i01", "parallel", 1, ""),
    ("mvp/n64 $d0", "operand", 1, ""),
    ("mvp/x64 $d0 $lc0@.0", "operand", 1, "n<size>"),
    ("iadd -$lr0 $ls0 $lr0", "operand", 6, ""),
    ("frsqrt $lr0v $ls0v $nowrite", "operand", 20, ""),
    ("ipassa $lr0v/1020 $ln0v", "operand", 8, "a mask is"),
    ("ipassa $lr0v $mt0j1", "operand", 14, ""),
    ("ipassa $nt0 $lr0", "operand", 8, "$mt"),
    ("ipassa $lr $ls0", "operand", 8, "the address is missing"),
    ("ipassa $lr0 $ls0/$imr40", "operand", 13, ""),
    ("maskx 3", "syntax", 1, "mask[l|ll]"),
    ("mask 32", "mask", 6, ""),
    ("d got $lm0 1", "syntax", 1, ""),
    ("d get $lm0n4 1", "operand", 7, ""),
    ("d get $lx0 1", "operand", 7, "d getbh"),
    ("d set $lm0 2 0123", "operand", 14, ""),
    ("r 4 0 1 0000000000000000", "operand", 3, "r <group>"),
    ("l2bmb/1000 $lc0 $lb0", "mask", 1, ""),
    ("ipassa $lr0 $ls0;", "syntax", 17, "take the semicolon away"),
]  # fmt: skip


@pytest.mark.parametrize("text,rule,column,hint", BAD)
def test_a_malformed_line_is_named(text, rule, column, hint):
    statements, problems = read("nop\n" + text + "\nnop", "a.vsm")
    (problem,) = problems
    assert (problem.rule, problem.line, problem.source) == (rule, 2, "a.vsm")
    assert problem.column == column
    assert hint in problem.hint
    assert len(statements) == 2  # the rest is read


def test_all_errors_are_collected():
    with pytest.raises(AssemblyError) as error:
        parse("foo\nnop\nbar $lr0\n" * 20)
    assert len(error.value.diagnostics) == 40
    assert "and 30 more errors" in str(error.value)


def test_reading_stops_in_what_is_no_program():
    _, problems = read("\n".join(f"word{i}" for i in range(5000)))
    assert len(problems) == 1001 and "stopped" in problems[-1].message
    _, problems = read("x" * (1 << 21))
    assert "2097152 characters" in problems[0].message


def test_a_million_lines():
    lines = [f"fvadd $lm{8 * (i % 500)}v $lr{8 * (i % 60)}v $ln{8 * (i % 500)}v" for i in range(5000)]
    assert len(parse("\n".join(lines * 200))) == 1_000_000


# --- random statements -----------------------------------------------------------------------------------------------------
masks = st.one_of(
    st.none(),
    st.builds(
        lambda bits, long2, a: m.Mask(pattern=bits, long2=long2, assertion=a),
        st.tuples(*[st.sampled_from([0, 15])] * 4),
        st.booleans(),
        st.sampled_from(["", "t", "p"]),
    ),
    st.builds(lambda n, long2: m.Mask(register=n, long2=long2), st.integers(0, 31), st.booleans()),
)


@st.composite
def pe_operands(draw, destination: bool):
    width = draw(st.sampled_from([1, 2, 4]))
    space = draw(st.sampled_from([m.LM0, m.LM1, m.GRF0, m.GRF1]))
    flat = draw(st.one_of(st.none(), st.tuples(*[st.integers(0, 100).map(lambda a: a * 4)] * 4)))
    inc = 0 if flat else draw(st.sampled_from([0, width, 8, 4]))
    indirect = space == m.LM0 and draw(st.booleans())
    j = None if indirect else draw(st.one_of(st.none(), st.integers(0, 3)))
    return m.Operand(
        space,
        0 if flat else 4 * draw(st.integers(0, 100)),
        width,
        inc,
        flat,
        indirect,
        j,
        mask=draw(masks) if destination else None,
    )


@st.composite
def instructions(draw):
    name = draw(
        st.sampled_from(
            [n for n, op in table.BASE.items() if op.unit in ("alu", "mau") and not op.matrix and "imm" not in n]
        )
    )
    classes, repeats = table.forms(table.BASE[name].row)[0]
    operands = tuple(draw(pe_operands(c == "dst")) for c in classes)
    if repeats and draw(st.booleans()):
        operands += (draw(pe_operands(True)),)
    return m.Instruction(name, operands, draw(masks))


@settings(max_examples=60, deadline=None)
@given(st.lists(instructions(), min_size=1, max_size=3), st.sampled_from(["", "why"]))
def test_random_bundles_survive_printing_and_parsing(found, note):
    bundle = m.Bundle(tuple(found), note)
    assert parse(format_statement(bundle)) == (bundle,)


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet=st.characters(exclude_characters="\n"), max_size=60))
def test_any_line_gives_a_statement_or_a_diagnostic(text):
    statements, problems = read(text)
    assert len(statements) + len(problems) <= 1
