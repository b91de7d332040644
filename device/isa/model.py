"""What a line of MN-Core 2 assembly says, as frozen values. No behaviour: parser, printer, checks and engine read these.

A program is a sequence of statements. `Bundle` is one step of the PEs (4 cycles), `Move` one MV line, `Nop` n empty steps,
`Loop` a body that is repeated with addresses that advance; the text form (`.vsm`) has no loops and is the unrolled form.

A `wait i02` is `Instruction("wait", (Operand(TAG, addr=2),))` (or `wait(2)`). Options that stand in a mnemonic stay in it:
"hbfn/9", "l1bmm@3", "l1bmd+1", "l2bmb@0/6", "l2bmi@1/3". A move's options do not: "mvp" with size, tag, nd and priority.
Mask patterns hold 0 or 15 per cycle (the text `/1000` is (15, 0, 0, 0)). The matrix operand of mfma/mmul is address 0.
`line` never takes part in comparisons, so that a parsed statement equals a constructed one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

# Spaces an operand can name. PE memories are addressed in words (32 bit), the others in long words (LW, 64 bit).
LM0, LM1, GRF0, GRF1, T = "lm0", "lm1", "grf0", "grf1", "t"
L1BM, L1BM_TURN, L2BM, DRAM, DRAM_INDIRECT, PDM, DAR = (
    "l1bm",
    "l1bm_turn",
    "l2bm",
    "dram",
    "dram_indirect",
    "pdm",
    "dar",
)
MAT_X, MAT_Y = "mat_x", "mat_y"
OMR, IMR, BAR0, BAR1 = "omr", "imr", "bar0", "bar1"
ALUF, MAUF, LBF, MREADF, NOWRITE = "aluf", "mauf", "lbf", "mreadf", "nowrite"
L2BID, L1BID, MABID, PEID, SUBPEID, MSB1 = "l2bid", "l1bid", "mabid", "peid", "subpeid", "msb1"
TAG = "tag"  # the tag of a `wait`, in `addr`

W, LW, LW2 = 1, 2, 4  # access width in words a cycle


@dataclass(frozen=True, slots=True)
class Mask:
    """A single-line mask: `pattern` holds one 4-bit value per cycle, or `register` names a mask entry (0..31).

    `long2` is the 2-long form (`/ll...`), which guards words of the 2LW; without it the bits guard the four 16-bit
    quarters of the MSB LW.
    """

    pattern: tuple[int, int, int, int] | None = None
    register: int | None = None
    long2: bool = False
    assertion: str = ""  # the optional trailing `t` / `p`


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand. Unused fields keep their defaults, so equal text means equal value.

    addr      words for PE memories and matrix rows, LW for L1BM, L2BM, DRAM and PDM, entry for masks and DAR
    inc       words added per cycle (`v`); `flat` gives the address of each cycle instead
    strides   per enclosing `Loop`, outermost first: what is added to the address in each iteration
    symbol    DRAM only: the segment that `addr` is relative to; resolved when the program is loaded
    """

    space: str
    addr: int = 0
    width: int = W
    inc: int = 0
    flat: tuple[int, int, int, int] | None = None
    indirect: bool = False  # LM0 through T: `$mt`
    j: int | None = None  # the PE-dependent offset `j<k>`
    negate: bool = False
    extend: bool = False  # suffix e
    reduce: bool = False  # suffix r
    mask: Mask | None = None  # destinations only
    group: int | None = None  # @g of DRAM, PDM and L2BM
    block: int | None = None  # .l of L2BM
    symbol: str = ""
    strides: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Immediate:
    """The quoted payload of `imm`: kind is f, h, i, s, ui or us, text what stands between the quotes. `symbol`: the segment
    whose address in DRAM, in units of the DAR, is added when the program is loaded."""

    kind: str
    text: str
    symbol: str = ""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction expression: `mnemonic` without its operands and without the zero-flush mask (`flush`)."""

    mnemonic: str
    operands: tuple[Operand | Immediate, ...] = ()
    flush: Mask | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    """The instructions of one PE step."""

    instructions: tuple[Instruction, ...]
    note: str = ""  # what stands behind `#`
    line: int = field(default=0, compare=False)

    def with_operands(self, change: Callable[[Operand | Immediate], Operand | Immediate]) -> Bundle:
        instructions = tuple(
            Instruction(i.mnemonic, tuple(map(change, i.operands)), i.flush) for i in self.instructions
        )
        return Bundle(instructions, self.note, self.line)


@dataclass(frozen=True, slots=True)
class Nop:
    count: int = 1
    note: str = ""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Move:
    """An MV line. `size` counts LW on the wide side; tag 0 means no tag."""

    mnemonic: str
    src: Operand | None = None
    dst: Operand | None = None
    size: int = 0
    tag: int = 0
    nd: int = 0
    priority: int | None = None
    note: str = ""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class MaskLine:
    """A multi-line mask: the listed memories get the entry, all others are switched off."""

    entry: int
    targets: str = ""  # letters of r s t m n k
    long2: bool = False
    note: str = ""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Marker:
    """A comment line that names the node that the following statements belong to. Costs nothing."""

    name: str
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Loop:
    """`body` executed `count` times; iteration i adds i * strides[depth] to each operand's address."""

    count: int
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Comment:
    """A line that holds nothing but a comment (`text` without the `#`), or nothing at all (`text` None)."""

    text: str | None = None
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Place:
    """What a debug statement or an `r` line names: memory, address and coordinates (None = all).

    memory   one of lm0 lm1 grf0 grf1 t omr mat_x mat_y l1bm l2bm dram pdm
    addr     words for PE memories, rows for matrix registers, LW for the rest, entry for omr, LW index for T
    """

    memory: str
    addr: int = 0
    n: int | None = None
    c: int | None = None
    b: int | None = None
    m: int | None = None
    p: int | None = None


@dataclass(frozen=True, slots=True)
class DebugGet:
    """`d get[<kind>] $<place> <count>`: prints `count` LW of each named place; `expect` is what stands behind `#`."""

    place: Place
    count: int = 1
    kind: str = ""  # "", d, f, h, bd, bf, bg, bh
    note: str = ""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DebugSet:
    """`d set $<place> <count> <payload>`: writes `values` (LW as integers) to each named place."""

    place: Place
    values: tuple[int, ...]
    note: str = ""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Preset:
    """`r <group> <address> <count> <payload>`: presets DRAM of one group with `values` (LW)."""

    group: int
    addr: int
    values: tuple[int, ...]
    note: str = ""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class HostCommand:
    """A `c ...` line of a judge test case: a command of the host side, which the emulator does not execute."""

    text: str
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Quit:
    """`quit`: translation stops here."""

    note: str = ""
    line: int = field(default=0, compare=False)


Statement = Bundle | Nop | Move | MaskLine | Marker | Loop | Comment | DebugGet | DebugSet | Preset | HostCommand | Quit


def wait(tag: int) -> Instruction:
    """The instruction that stalls until the move with this tag is done."""
    return Instruction("wait", (Operand(TAG, addr=tag),))


def unroll(statements: tuple[Statement, ...] | list[Statement]) -> Iterator[Statement]:
    """The same program without loops: what the text form holds."""
    for statement in statements:
        if isinstance(statement, Loop):
            yield from _unroll_loop(statement, ())
        else:
            yield statement


def _unroll_loop(loop: Loop, outer: tuple[int, ...]) -> Iterator[Statement]:
    for iteration in range(loop.count):
        indices = (*outer, iteration)
        for statement in loop.body:
            if isinstance(statement, Loop):
                yield from _unroll_loop(statement, indices)
            else:
                yield at_iteration(statement, indices)


def at_iteration(statement: Statement, indices: tuple[int, ...]) -> Statement:
    """The statement in the given iterations of its loops, without strides."""
    if isinstance(statement, Bundle):
        return statement.with_operands(lambda operand: advance(operand, indices))
    if isinstance(statement, Move):
        return replace(
            statement,
            src=_advance(statement.src, indices) if statement.src else None,
            dst=_advance(statement.dst, indices) if statement.dst else None,
        )
    return statement


def advance(operand: Operand | Immediate, indices: tuple[int, ...]) -> Operand | Immediate:
    """The operand at the given loop iterations, without strides."""
    if isinstance(operand, Immediate):
        return operand
    return _advance(operand, indices)


def _advance(operand: Operand, indices: tuple[int, ...]) -> Operand:
    if not operand.strides:
        return operand
    delta = sum(s * i for s, i in zip(operand.strides, indices))
    a = operand.flat
    flat = (a[0] + delta, a[1] + delta, a[2] + delta, a[3] + delta) if a else None
    return replace(operand, addr=operand.addr + delta, flat=flat, strides=())
