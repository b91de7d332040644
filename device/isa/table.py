"""The instruction table: one row per instruction of MN-Core 2.

Parser, printer, checks, engine dispatch, cost and docs/isa.md are derived from these rows. `lookup` turns a mnemonic as it
is written ("hbfn/9", "l1bmm@3", "uiadd") into an `Opcode`: the row with the variant's precision, operation and options.

References are to the Software Development Manual (SDM) where it documents the instruction. Marks: D documented, V agrees
with published results, A used by accepted programs, I inferred, U unknown (a choice of ours, see docs/isa.md).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from . import model as m

# --- operand classes -------------------------------------------------------------------------------------------------
PE_MEMORIES = frozenset({m.LM0, m.LM1, m.GRF0, m.GRF1, m.T})
FIXED = frozenset({m.L2BID, m.L1BID, m.MABID, m.PEID, m.SUBPEID, m.MSB1})
FORWARDS = frozenset({m.ALUF, m.MAUF, m.LBF, m.MREADF})

#: operand class -> spaces that it accepts
CLASSES: dict[str, frozenset[str]] = {
    "x": PE_MEMORIES | FORWARDS | FIXED,  # first ALU source
    "y": PE_MEMORIES | {m.ALUF, m.MAUF, m.LBF},  # other sources
    "dst": PE_MEMORIES | {m.OMR, m.BAR0, m.BAR1, m.NOWRITE},
    "reg": frozenset({m.MAT_X, m.MAT_Y}),  # matrix register, no row
    "row": frozenset({m.MAT_X, m.MAT_Y}),  # matrix register with its first row or column
    "lb": frozenset({m.L1BM, m.L1BM_TURN}),
    "lbm": frozenset({m.L1BM}),
    "lc": frozenset({m.L2BM}),
    "dar": frozenset({m.DAR}),
    "tag": frozenset({m.TAG}),
    "imm": frozenset(),
    "pdm": frozenset({m.PDM}),
    "dram": frozenset({m.DRAM, m.DRAM_INDIRECT}),
    "mv": frozenset({m.PDM, m.DRAM, m.DRAM_INDIRECT, m.L2BM}),
    "mvl": frozenset({m.L2BM}),
    "mvs": frozenset({m.PDM, m.DRAM, m.DRAM_INDIRECT}),
}

INTEGERS = ("l", "i", "s")
FLOATS = ("d", "f", "h")
BITS = {"l": 64, "d": 64, "i": 32, "f": 32, "g": 32, "s": 16, "h": 16}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    pattern     mnemonic with {u} (optional unsigned), {p} precision, {ud} PE halves, {r} optional result reduction,
                {op} reduction operation; an option that follows is named in `option`
    operands    alternatives separated by `|`, classes of CLASSES; the last class with + may repeat
    flags       what `$omrN` receives: zero, sign, choice, msb_x, msb_y, mau or "" (no flag)
    """

    pattern: str
    unit: str
    operands: str
    precisions: tuple[str, ...]
    meaning: str
    reference: str
    mark: str
    flags: str = ""
    unsigned: tuple[str, ...] = ()
    option: str = ""  # "", keep, mab, shift, shift1, set, set?, move
    flush: bool = False  # may carry a zero-flush mask
    cost: str = "1 step"


def _alu(
    pattern: str, operands: str, precisions, meaning: str, reference: str, mark: str, flags: str = "", **more
) -> Row:
    return Row(pattern, "alu", operands, tuple(precisions), meaning, reference, mark, flags, flush=True, **more)


def _mau(pattern: str, operands: str, precisions, meaning: str, reference: str, mark: str) -> Row:
    return Row(pattern, "mau", operands, tuple(precisions), meaning, reference, mark, "mau", flush=True)


INT_ALL = "lis"
ALL = "dlfish"

ROWS: tuple[Row, ...] = (
    # --- control
    Row("nop", "nop", "", (), "nothing; `nop/n` is n empty steps", "SDM 3.6.6", "D V", cost="n steps"),
    Row(
        "noforward",
        "noforward",
        "",
        (),
        "forward and turnaround registers keep their values in this step",
        "SDM 3.6.5",
        "D",
    ),
    Row(
        "wait",
        "wait",
        "tag",
        (),
        "stalls the stream until the move with this tag is done, then the step executes",
        "SDM 3.6.4",
        "D V",
    ),
    # --- ALU
    _alu("zero", "dst+", "-", "2LW of zeros", "SDM 3.6.12", "D V"),
    _alu("imm", "imm dst+", "-", "the payload in every word of the 2LW", "SDM 3.6.12", "D V"),
    _alu(
        "immu", "imm dst+", "-", "the payload in the first word of every LW, the second word is 0", "SDM 3.6.12", "D A"
    ),
    _alu("msl", "x dst+", "-", "PE p receives the MSB LW of PE p-1 of its MAB (0->1->2->3->0)", "SDM 3.6.12", "D V"),
    _alu("msr", "x dst+", "-", "PE p receives the MSB LW of PE p+1 of its MAB", "SDM 3.6.12", "D V"),
    _alu("{p}passa", "x dst+", ALL, "copies the 2LW bit by bit", "SDM 3.6.12", "D V", "zero"),
    _alu("{u}{p}inc", "x dst+", INT_ALL, "x + 1", "SDM 3.6.12", "D V", "sign", unsigned=INTEGERS),
    _alu("{u}{p}dec", "x dst+", INT_ALL, "x - 1", "SDM 3.6.12", "D A", "sign", unsigned=INTEGERS),
    _alu("{p}not", "x dst+", INT_ALL, "bitwise complement", "SDM 3.6.12", "D A", "zero"),
    _alu("{p}lnot", "x dst+", INT_ALL, "1 where x is 0, else 0", "SDM 3.6.12", "D A", "zero"),
    _alu("{p}and", "x y dst+", INT_ALL, "bitwise and", "SDM 3.6.12", "D V", "zero"),
    _alu("{p}or", "x y dst+", INT_ALL, "bitwise or", "SDM 3.6.12", "D V", "zero"),
    _alu("{p}xor", "x y dst+", INT_ALL, "bitwise exclusive or", "SDM 3.6.12", "D V", "zero"),
    _alu("{u}{p}add", "x y dst+", INT_ALL, "x + y, wrapping", "SDM 3.6.12", "D V", "sign", unsigned=INTEGERS),
    _alu("{u}{p}sub", "x y dst+", INT_ALL, "x - y, wrapping", "SDM 3.6.12", "D V", "sign", unsigned=INTEGERS),
    _alu(
        "{p}lsl",
        "x y dst+",
        INT_ALL,
        "logical shift left by y mod 2n; n or more shifts everything out",
        "SDM 3.6.12.17",
        "D V",
        "zero",
    ),
    _alu(
        "{u}{p}lsr",
        "x y dst+",
        INT_ALL,
        "shift right by y mod 2n; arithmetic, with u logical",
        "SDM 3.6.12.17",
        "D V",
        "zero",
        unsigned=INTEGERS,
    ),
    _alu("{p}bsl", "x y dst+", INT_ALL, "rotate left by y mod n", "SDM 3.6.12.17", "D V", "zero"),
    _alu("{p}bsr", "x y dst+", INT_ALL, "rotate right by y mod n", "SDM 3.6.12.17", "D V", "zero"),
    _alu("{p}packbit", "x y dst+", ALL, "(x << 1) | MSB of y", "SDM 3.6.12", "D A", "msb_y"),
    _alu(
        "{u}{p}max",
        "x y dst+",
        ALL,
        "the larger; floats by sign and magnitude with +0 = -0, not normalised",
        "SDM 3.6.12.13",
        "D V",
        "choice",
        unsigned=INTEGERS,
    ),
    _alu(
        "{u}{p}min",
        "x y dst+",
        ALL,
        "the smaller; floats by sign and magnitude with +0 = -0, not normalised",
        "SDM 3.6.12.13",
        "D V",
        "choice",
        unsigned=INTEGERS,
    ),
    _alu("{p}relu", "x y dst+", FLOATS, "y where the MSB of x is 0, else -0", "SDM 3.6.12.18", "D V", "msb_x"),
    _alu("{p}relu0", "x y dst+", FLOATS, "the same as relu", "SDM 3.6.12.18", "D", "msb_x"),
    _alu("{p}relu1", "x y dst+", FLOATS, "y where the second MSB of x is 0, else -0", "SDM 3.6.12.18", "D", "msb_x"),
    _alu("{p}relu2", "x y dst+", FLOATS, "y where the third MSB of x is 0, else -0", "SDM 3.6.12.18", "D", "msb_x"),
    _alu("{p}relu3", "x y dst+", FLOATS, "y where the fourth MSB of x is 0, else -0", "SDM 3.6.12.18", "D", "msb_x"),
    _alu(
        "{p}lrelud",
        "x y dst+",
        FLOATS,
        "y where the MSB of x is 0, else y with its exponent lowered by 1",
        "SDM 3.6.12.18",
        "D",
        "msb_x",
    ),
    _alu(
        "{p}lreluo",
        "x y dst+",
        FLOATS,
        "y where the MSB of x is 0, else y with its exponent lowered by 3",
        "SDM 3.6.12.18",
        "D",
        "msb_x",
    ),
    _alu(
        "{p}ilrelud",
        "x y dst+",
        FLOATS,
        "y where the MSB of x is 0, else y with its exponent raised by 1",
        "SDM 3.6.12.18",
        "D A",
        "msb_x",
    ),
    _alu("{p}floor", "x dst+", FLOATS, "largest integral value not above x", "SDM 3.6.12", "D V"),
    _alu(
        "{u}{p}ftoi",
        "x dst+",
        FLOATS,
        "integer part, saturating; u converts |x| to an unsigned integer",
        "SDM 3.6.12",
        "D V",
        unsigned=FLOATS,
    ),
    _alu("{p}rsqrt", "x dst+", FLOATS, "seed of 1/sqrt|x| with 5 to 6 bits", "SDM 3.6.12", "D V", "msb_x"),
    _alu(
        "{p}bfn",
        "x dst+",
        ("d", "f", "g", "h"),
        "conversion to block float; hbfn/n keeps n = 6..9 mantissa bits",
        "SDM 3.6.12, 4.4",
        "D V",
        option="keep",
    ),
    _alu(
        "hbfe",
        "x dst+",
        "-",
        "conversion to extended half block float, hbfe/n with n = 6..9",
        "SDM 3.6.12, 4.4",
        "D, exactness U",
        option="keep",
    ),
    # --- MAU, vectors
    _mau("fvfma{r}", "y y y dst+", "-", "x*y + z, two singles per LW", "SDM 3.6.9", "D V"),
    _mau("fvmul{r}", "y y dst+", "-", "x*y, two singles per LW", "SDM 3.6.9", "D V"),
    _mau("fvadd{r}", "y y dst+", "-", "x + z, two singles per LW", "SDM 3.6.9", "D V"),
    _mau("fvpassa{r}", "y dst+", "-", "x, normalised", "SDM 3.6.9", "D V"),
    _mau("hvfma{r}", "y y y dst+", "-", "x*y + z: x, y four halves, z and the result four singles", "SDM 3.6.9", "D V"),
    _mau("hvmul{r}", "y y dst+", "-", "x*y: four halves each, result four singles", "SDM 3.6.9", "D V"),
    _mau("hvadd{r}", "y y dst+", "-", "x + z: x four halves, z four singles, result four singles", "SDM 3.6.9", "D V"),
    _mau("hvpassa{r}", "y dst+", "-", "four halves to four singles", "SDM 3.6.9", "D V"),
    _mau(
        "dvfma{ud}{r}",
        "y y y dst+",
        "-",
        "x*y + z with the product on two PEs only (u: PE 0, 1; d: PE 2, 3)",
        "SDM 3.6.9",
        "D V",
    ),
    _mau("dvmul{ud}{r}", "y y dst+", "-", "x*y on two PEs only, 0 on the others", "SDM 3.6.9", "D V"),
    _mau("dvadd{r}", "y y dst+", "-", "x + z on all PEs", "SDM 3.6.9", "D V"),
    _mau("dvpassa{r}", "y dst+", "-", "x, normalised, on all PEs", "SDM 3.6.9", "D V"),
    # --- MAU, matrices
    _mau(
        "{p}mfma{r}",
        "reg y y dst+",
        ("f", "g", "h"),
        "A x + z with the matrix register, block floats in, normal out",
        "SDM 3.6.9, 4.5",
        "D V",
    ),
    _mau("{p}mmul{r}", "reg y dst+", ("f", "g", "h"), "A x with the matrix register", "SDM 3.6.9, 4.5", "D V"),
    _mau(
        "dmfma{ud}{r}",
        "reg y y dst+",
        "-",
        "A x + z, rows 0, 1 (u) or rows 2, 3 (d); the other rows get z",
        "SDM 3.6.9, 4.5",
        "D V",
    ),
    _mau(
        "dmmul{ud}{r}",
        "reg y dst+",
        "-",
        "A x, rows 0, 1 (u) or rows 2, 3 (d); the other rows get 0",
        "SDM 3.6.9, 4.5",
        "D V",
    ),
    Row(
        "{p}mwrite",
        "mwrite",
        "y row",
        ("d", "f", "g", "h"),
        "cycle c writes row addr+c of a matrix register side",
        "SDM 3.6.10",
        "D V",
    ),
    Row(
        "{p}mread",
        "mread",
        "row dst+",
        ("d", "f", "g", "h"),
        "cycle c delivers column addr+c: a transposed read",
        "SDM 3.6.11",
        "D V",
        flush=True,
    ),
    # --- L1BM <-> PE
    Row(
        "l1bmp", "l1bm", "lb dst+", (), "every PE gets LB[a+c]; 2LW: LSB LW = LB[a+4+c]", "SDM 3.6.8", "D V", flush=True
    ),
    Row(
        "l1bmm",
        "l1bm",
        "lb dst+",
        (),
        "PE p of every MAB gets LB[a+4c+p]; 2LW: LB[a+8c+4k+p]",
        "SDM 3.6.8",
        "D V",
        flush=True,
    ),
    Row("l1bmm@n", "l1bm", "y lb", (), "the inverse, from MAB n", "SDM 3.6.8", "D V", option="mab"),
    Row(
        "l1bmm4",
        "l1bm",
        "lb dst+",
        (),
        "the four MABs of quarter m>>2 get LB[a+16c+4(m>>2)+p]; 2LW: LB[a+32c+8(m>>2)+4k+p]",
        "SDM 3.6.8.2",
        "I",
        flush=True,
    ),
    Row(
        "l1bmm4@n",
        "l1bm",
        "y lb",
        (),
        "the inverse, from the MAB with m & 3 = n of each quarter",
        "SDM 3.6.8.2",
        "I",
        option="mab",
    ),
    Row("l1bmr{op}{r}", "l1bm", "y lb", (), "as l1bmm@n, reduced over the 16 MABs", "SDM 3.6.8, 4.2", "D V"),
    Row(
        "l1bmr4{op}{r}",
        "l1bm",
        "y lb",
        (),
        "reduced over the 4 MABs of each quarter, addresses as l1bmm4",
        "SDM 3.6.8.19",
        "D, LW form I",
    ),
    Row("l1bmd", "l1bm", "lb dst+|y lb", (), "PE (m,p) <-> LB[a+64c+4m+p]", "SDM 3.6.8", "D V", flush=True),
    Row(
        "l1bmd+n",
        "l1bm",
        "lb dst+|y lb",
        (),
        "to PE (n = 1): the slot of MAB m-1; to L1BM: PE (m,p) -> LB[a+64c+4((m+n)%16)+p]",
        "SDM 3.6.8.20",
        "D V",
        option="shift",
        flush=True,
    ),
    Row(
        "l1bmd-n",
        "l1bm",
        "lb dst+|y lb",
        (),
        "to PE (n = 1): the slot of MAB m+1; to L1BM: PE (m,p) -> LB[a+64c+4((m-n)%16)+p]",
        "SDM 3.6.8.21",
        "D V",
        option="shift",
        flush=True,
    ),
    # --- L2BM <-> L1BM
    Row(
        "l2bmb",
        "l2bm",
        "lc lbm",
        (),
        "LB_b[d+16c+i] = LC[a+16c+i], i < 16, for b in the set",
        "SDM 3.6.7",
        "V",
        option="set?",
    ),
    Row("l2bmb2", "l2bm", "lc lbm", (), "LB_b[d+16c+i] = LC[a+64c+16(b>>1)+i]", "SDM 3.6.7", "D", option="set?"),
    Row(
        "l2bmd", "l2bm", "lc lbm|lbm lc", (), "LB_b[d+8c+i] <-> LC[a+64c+8b+i], i < 8", "SDM 3.6.7", "V", option="set?"
    ),
    Row("l2bm@n", "l2bm", "lbm lc", (), "LC[d+16c+i] = LB_n[a+16c+i]", "SDM 3.6.7", "V", option="l1b"),
    Row(
        "l2bmr{op}",
        "l2bm",
        "lbm lc",
        (),
        "LC[d+16c+i] = reduction of LB_b[a+16c+i] over the set",
        "SDM 3.6.7, 4.2",
        "V",
        option="set?",
    ),
    Row(
        "l2bmr2{op}",
        "l2bm",
        "lbm lc",
        (),
        "LC[d+64c+16(b>>1)+i] = reduction of each pair of L1Bs",
        "SDM 3.6.7, 4.2",
        "D",
    ),
    Row(
        "l2bmi@set",
        "l2bm",
        "lbm lbm",
        (),
        "for b in the set: LB_b[a+16c..+16] goes to every b' that agrees with b in the immode bits",
        "SDM 3.6.7",
        "D",
        option="set",
    ),
    Row(
        "l2bmdars",
        "l2bm",
        "lc dar",
        (),
        "L2BM -> DAR buffer, two entries per LW, 64 LW a cycle",
        "SDM 3.6.7",
        "D, detail U",
    ),
    Row("l2bmdarw", "dar", "", (), "DAR buffer -> DAR", "SDM 3.6.7", "D, detail U"),
    # --- MV
    Row(
        "mvp",
        "mv",
        "mv mv",
        (),
        "contiguous copy; without @g on both sides all groups in parallel",
        "SDM 3.5.8",
        "V",
        option="move",
        cost="MV",
    ),
    Row("mvb", "mv", "mvs mvl", (), "copy from one group to all 8 L2BMs", "SDM 3.5.8", "V", option="move", cost="MV"),
    Row("mvb2", "mv", "dram mvl", (), "each group's DRAM to its 2 L2BMs", "SDM 3.5.8", "V", option="move", cost="MV"),
    Row(
        "mvb4",
        "mv",
        "dram mvl",
        (),
        "LC[g'][l][a+64i+16g+k] = DRAM_g[d+32i+16l+k] for every g'",
        "SDM 3.5.8.16",
        "D",
        option="move",
        cost="MV",
    ),
    Row(
        "mvr{op}",
        "mv",
        "mvl mvs",
        (),
        "reduction of the 8 L2BMs; to PDM contiguous, to DRAM split over the groups",
        "SDM 3.5.8.21",
        "D V",
        option="move",
        cost="MV",
    ),
    Row(
        "mvr2{op}",
        "mv",
        "mvl mvs",
        (),
        "reduction of the 2 L2BMs of each group",
        "SDM 3.5.8",
        "V",
        option="move",
        cost="MV",
    ),
    Row(
        "mvr4{op}",
        "mv",
        "mvl dram",
        (),
        "reduction over the groups for each l, split over the groups' DRAM",
        "SDM 3.5.8.17",
        "D V",
        option="move",
        cost="MV",
    ),
    Row(
        "mvd",
        "mv",
        "pdm mv|mv pdm",
        (),
        "PDM distributed over the 8 L2BMs or the 4 DRAMs, 16 LW a piece",
        "SDM 3.5.8",
        "D",
        option="move",
        cost="MV",
    ),
    Row("mvnop", "mv", "", (), "nothing", "SDM 3.5.8", "D", option="move", cost="MV"),
)

#: Reductions of the on-chip network: float and integer ones.
REDUCTIONS: tuple[str, ...] = tuple(p + op for p in FLOATS for op in ("fadd", "max", "min")) + tuple(
    p + op for p in INTEGERS for op in ("iadd", "band", "and", "bor", "or")
)


@dataclass(frozen=True, slots=True)
class Opcode:
    """A mnemonic, resolved. `operation` is the name that the engine dispatches on.

    mab     n of l1bmm@n        shift   signed n of l1bmd+n/-n     l1bs   the L1Bs of a set, or (n,) of l2bm@n
    immode  bits of l2bmi that stay                    keep   mantissa bits of hbfn/hbfe
    """

    mnemonic: str
    row: Row
    unit: str
    operation: str
    precision: str = ""
    unsigned: bool = False
    half: str = ""  # u or d: the PEs of a double product
    result_reduced: bool = False  # result suffix r
    matrix: bool = False
    reduction: str = ""  # e.g. ffadd
    keep: int = 0
    mab: int = 0
    shift: int = 0
    l1bs: tuple[int, ...] = ()
    immode: int = 0

    @property
    def element_bits(self) -> int:
        return BITS.get(self.precision, 64)


def _expand(row: Row) -> Iterator[Opcode]:
    """Every mnemonic of a row, without options."""
    base = row.pattern
    for suffix in ("@n", "+n", "-n", "@set"):
        base = base.removesuffix(suffix)
    for unsigned in ("", "u") if row.unsigned else ("",):
        for precision in row.precisions or ("-",):
            if unsigned and precision not in row.unsigned:
                continue
            name = base.replace("{u}", unsigned).replace("{p}", precision)
            for reduction in REDUCTIONS if "{op}" in name else ("",):
                for half in ("u", "d") if "{ud}" in name else ("",):
                    for short in ("", "r") if "{r}" in name else ("",):
                        if short and reduction and not reduction.endswith(("fadd", "max", "min")):
                            continue
                        if short and reduction and reduction[0] != "f":
                            continue
                        yield _opcode(row, name, unsigned, precision, reduction, half, short)


def _opcode(row: Row, name: str, unsigned: str, precision: str, reduction: str, half: str, short: str) -> Opcode:
    mnemonic = name.replace("{op}", reduction).replace("{ud}", half).replace("{r}", short)
    operation = row.pattern
    for part in ("{u}", "{p}", "{op}", "{ud}", "{r}", "@n", "@set", "+n", "-n"):
        operation = operation.replace(part, "")
    if precision == "-":
        precision = ""
        if row.unit == "mau" or operation in ("hbfe",):
            precision, operation = operation[0], operation[1:]
    if row.unit in ("mau", "mwrite", "mread") and operation[0] in "dfgh" and not precision:
        precision, operation = operation[0], operation[1:]
    matrix = row.unit == "mau" and operation.startswith("m")
    return Opcode(
        mnemonic, row, row.unit, operation, precision, bool(unsigned), half, bool(short), matrix, reduction,
        keep=9 if row.option == "keep" and precision == "h" else 0,
    )  # fmt: skip


BASE: dict[str, Opcode] = {}
_WITH_OPTION: dict[str, Opcode] = {}  # rows whose option is part of the pattern: l1bmm@, l1bmd+, l2bm@ ...
for _row in ROWS:
    for _op in _expand(_row):
        if _row.pattern.endswith(("@n", "+n", "-n", "@set")):
            _WITH_OPTION[_op.mnemonic + next(s[0] for s in ("@n", "+n", "-n", "@set") if _row.pattern.endswith(s))] = (
                _op
            )
        else:
            assert _op.mnemonic not in BASE, _op.mnemonic
            BASE[_op.mnemonic] = _op


class UnknownMnemonic(Exception):
    """No instruction has this name. `hint` names the nearest one, or says what is wrong with the option."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def parse_set(text: str) -> tuple[tuple[int, ...], int]:
    """The L1Bs named by `b0`, `b0/i` or an explicit list, and the immode bits.

    `b0/i` = every b with b & (7^i) == b0 & (7^i); a list must equal such a set.
    """
    if "/" in text:
        first, free = (int(part) for part in text.split("/"))
        if not (0 <= first <= 7 and 0 <= free <= 7):
            raise UnknownMnemonic(f"set @{text} names an L1B or bits outside 0..7", "@<L1B>/<free bits>, both 0..7")
        return tuple(b for b in range(8) if b & (7 ^ free) == first & (7 ^ free)), free
    listed = tuple(int(part) for part in text.split(","))
    if any(not 0 <= b <= 7 for b in listed):
        raise UnknownMnemonic(f"set @{text} names an L1B outside 0..7", "an L2B has L1Bs 0..7")
    free = 0
    for b in listed:
        free |= b ^ listed[0]
    whole = tuple(b for b in range(8) if b & (7 ^ free) == listed[0] & (7 ^ free))
    if whole != tuple(sorted(set(listed))):
        raise UnknownMnemonic(f"set @{text} is not of the form b/i", "the nearest one is @" + ",".join(map(str, whole)))
    return whole, free


@cache
def lookup(mnemonic: str) -> Opcode:
    """The opcode of a mnemonic with its options; raises UnknownMnemonic."""
    found = BASE.get(mnemonic)
    if found is not None:
        if found.row.option == "set?":
            return replace(found, l1bs=tuple(range(8)))
        return found
    cut = next((i for i, ch in enumerate(mnemonic) if ch in "@+-/"), len(mnemonic))
    base, mark, rest = mnemonic[:cut], mnemonic[cut : cut + 1], mnemonic[cut + 1 :]
    if not mark:
        raise UnknownMnemonic(f"unknown instruction `{mnemonic}`", _nearest(mnemonic))
    try:
        if mark == "/":
            op = BASE.get(base)
            if op is not None and op.row.option == "keep" and op.precision == "h" and 6 <= int(rest) <= 9:
                return replace(op, mnemonic=mnemonic, keep=int(rest))
        elif mark == "@" and (op := _WITH_OPTION.get(base + "@")) is not None and op.row.option in ("mab", "l1b"):
            number, limit = int(rest), {"l1bmm": 16, "l1bmm4": 4, "l2bm": 8}[base]
            if 0 <= number < limit:
                if op.row.option == "l1b":
                    return replace(op, mnemonic=mnemonic, l1bs=(number,))
                return replace(op, mnemonic=mnemonic, mab=number)
            raise UnknownMnemonic(
                f"`{mnemonic}`: number {number} is outside 0..{limit - 1}", f"{base}@0 to {base}@{limit - 1}"
            )
        elif (
            mark == "@"
            and (op := _WITH_OPTION.get(base + "@") or BASE.get(base)) is not None
            and op.row.option in ("set", "set?")
        ):
            l1bs, immode = parse_set(rest)
            if op.row.option == "set" and immode == 7:
                raise UnknownMnemonic(f"`{mnemonic}`: immode 7 is not allowed", "0..6; l2bmb broadcasts to all")
            return replace(op, mnemonic=mnemonic, l1bs=l1bs, immode=immode)
        elif mark in "+-" and (op := _WITH_OPTION.get(base + mark)) is not None:
            number = int(rest)
            if 0 <= number < 16:
                return replace(op, mnemonic=mnemonic, shift=number if mark == "+" else -number)
            raise UnknownMnemonic(f"`{mnemonic}`: shift {number} is outside 0..15", "an L1B has 16 MABs")
    except ValueError:
        pass
    if base in BASE or base + mark in _WITH_OPTION:
        raise UnknownMnemonic(f"`{base}` does not take the option `{mark}{rest}`", _options_of(base))
    raise UnknownMnemonic(f"unknown instruction `{mnemonic}`", _nearest(base))


#: option -> how it is written
_OPTION_HINTS = {
    "mab": "@n names a MAB: {base}@0", "l1b": "@n names an L1B: {base}@0", "shift": "{base}+1 or {base}-1",
    "set": "a set of L1Bs: {base}@0/3 or {base}@0,1,2,3", "set?": "a set of L1Bs: {base}@0/3 or {base}@0,1,2,3",
    "move": "n<size> i<tag> nd<N> p<0..3>",
}  # fmt: skip


def _options_of(base: str) -> str:
    """How the options of an instruction are written."""
    if base == "nop":
        return "nop/<n> is n empty steps, n from 1"
    for op in (BASE.get(base), *(_WITH_OPTION.get(base + mark) for mark in "@+")):
        if op is None:
            continue
        if op.row.option == "keep":
            return f"{base}/6 to {base}/9" if op.precision == "h" else "only hbfn and hbfe take the number of bits"
        if op.row.option in _OPTION_HINTS:
            return _OPTION_HINTS[op.row.option].format(base=base)
    return "it has no options"


def _nearest(name: str) -> str:
    """The instruction that was probably meant."""
    if name.startswith(("$", "-$")):
        return "an instruction comes first: fvadd $lr0v $ls0v $lm0v"
    if name.endswith(":") or name.startswith("."):
        return "there are no labels or directives: programs have no branches"
    if (with_option := next((f"{name}{mark}" for mark in "@+" if f"{name}{mark}" in _WITH_OPTION), None)) is not None:
        return _OPTION_HINTS[_WITH_OPTION[with_option].row.option].format(base=name)
    if name != name.lower():
        lower = _nearest(name.lower()) if name.lower() not in BASE else f"did you mean `{name.lower()}`?"
        return lower or "instructions are in lower case"
    precise = [p + name for p in "ilsfhd" if p + name in BASE]
    if precise:
        return f"the precision is missing: {', '.join(f'`{p}`' for p in precise)}"
    names = [*BASE, *(key.rstrip("@+-") for key in _WITH_OPTION)]
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    return f"did you mean `{close[0]}`?" if close else "docs/isa.md lists the instructions"


@cache
def forms(row: Row) -> tuple[tuple[tuple[str, ...], bool], ...]:
    """Operand alternatives of a row: (classes, whether the last one repeats)."""
    found = []
    for alternative in row.operands.split("|"):
        parts = alternative.split()
        repeats = bool(parts) and parts[-1].endswith("+")
        found.append((tuple(part.rstrip("+") for part in parts), repeats))
    return tuple(found)
