"""What a step touches: memories, addresses per cycle, registers. The checks compare these; nothing is executed here.

What does not depend on addresses (which operands are sources, which registers are used) is worked out once for each
shape: mnemonics with the kinds of their operands. Programs have few shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .. import spec
from . import model as m
from .table import Opcode, lookup

SIZES = {m.LM0: spec.LM_WORDS, m.LM1: spec.LM_WORDS, m.GRF0: spec.GRF_WORDS, m.GRF1: spec.GRF_WORDS}
PE_ADDRESSED = frozenset(SIZES)
ALL_CYCLES = (True, True, True, True)

#: letter of a multi-line mask for each kind of destination
MASK_LETTER = {
    m.GRF0: "r", m.GRF1: "s", m.T: "t", m.LM0: "m", m.BAR0: "m", m.LM1: "n", m.BAR1: "n", m.OMR: "k",
}  # fmt: skip

#: LW of L1BM that an L1BM instruction touches: operation -> (with `$lb`, with `$llb`)
L1_EXTENT = {
    "l1bmp": (4, 8),
    "l1bmm": (16, 32),
    "l1bmr": (16, 32),
    "l1bmm4": (64, 128),
    "l1bmr4": (64, 128),
    "l1bmd": (256, 256),
}
#: operation -> (LW on the L2BM side, LW on the L1BM side)
L2_EXTENT = {
    "l2bmb": (64, 64), "l2bmb2": (256, 64), "l2bmd": (256, 32), "l2bm": (64, 64), "l2bmr": (64, 64), "l2bmr2": (256, 64),
    "l2bmi": (0, 64), "l2bmdars": (256, 0),
}  # fmt: skip

PE_TO_L1, L2_TO_L1, L1_TO_L1 = "PE->L1BM", "L2BM->L1BM", "l2bmi"
L1_TO_PE, L1_TO_L2 = "L1BM->PE", "L1BM->L2BM"
#: index of the first destination: ALU operations without sources, MAU operations by their number of sources
_FIRST_DESTINATION = {
    "zero": 0, "imm": 1, "immu": 1, "vfma": 3, "vmul": 2, "vadd": 2, "vpassa": 1, "mfma": 3, "mmul": 2,
}  # fmt: skip


def addresses(o: m.Operand) -> tuple[int, int, int, int]:
    """Word address of each cycle, before BAR, T and j."""
    if o.flat is not None:
        return o.flat
    return (o.addr, o.addr + o.inc, o.addr + 2 * o.inc, o.addr + 3 * o.inc)


@dataclass(slots=True)
class PeAccess:
    """An access of a PE memory: the word address of each cycle."""

    space: str
    addrs: tuple[int, int, int, int]
    width: int
    operand: m.Operand
    mask: m.Mask | None = None
    sound: bool = True  # inside the memory and aligned in every cycle

    @property
    def key(self) -> tuple:
        return (self.addrs, self.operand.indirect, self.operand.j)


@dataclass(slots=True)
class Range:
    """LW start .. start + length of L1BM or L2BM, touched by a transfer of this kind."""

    kind: str
    start: int
    length: int
    operand: m.Operand | None = None

    def overlaps(self, other: Range, size: int) -> bool:
        gap = (other.start - self.start) % size
        return gap < self.length or (self.start - other.start) % size < other.length


Positions = tuple[tuple[int, int], ...]  # (instruction, operand)


@dataclass(slots=True)
class Shape:
    """What all bundles of the same mnemonics and kinds of operands have in common."""

    opcodes: tuple[Opcode, ...]
    reads: Positions = ()
    writes: Positions = ()
    t_writes: Positions = ()
    omr_writes: Positions = ()
    tags: Positions = ()
    masked: Positions = ()
    flushed: tuple[int, ...] = ()
    bar_writes: tuple[str, ...] = ()
    matrix: tuple[tuple[str, int], ...] = ()
    reads_t: bool = False
    networks: tuple[int, ...] = ()  # instructions that touch L1BM or L2BM
    lm_reads: tuple[str, ...] = ()
    lm_writes: tuple[str, ...] = ()
    crowded: bool = False  # two reads or two writes of a memory, or a read and a write of an LM
    plain: bool = False  # nothing but PE memories, T and forward registers
    verdict: object = None  # what the checks found out about the shape


@dataclass(slots=True)
class Use:
    """The footprint of one bundle."""

    shape: Shape
    opcodes: tuple[Opcode, ...]
    reads: list[PeAccess]
    writes: list[PeAccess]
    reads_t: bool
    bar_writes: tuple[str, ...]
    matrix: tuple[tuple[str, int], ...]  # (register side, instruction)
    omr_writes: Sequence[int] = ()
    masks: Sequence[tuple[m.Mask, str]] = ()
    l1_reads: Sequence[Range] = ()
    l1_writes: Sequence[Range] = ()
    l2_reads: Sequence[Range] = ()
    l2_writes: Sequence[Range] = ()
    tags: Sequence[int] = ()


class _Memo:
    """What was worked out about values that programs share, by identity; each entry keeps its value alive."""

    def __init__(self) -> None:
        self.shapes: dict[tuple[int, ...], Shape] = {}
        self.forms: dict[tuple, int] = {}  # form of an instruction -> its number
        self.numbers: dict[int, tuple[m.Instruction, int]] = {}
        self.accesses: dict[int, PeAccess] = {}
        self.uses: dict[int, tuple[m.Bundle, Use]] = {}

    def number(self, instruction: m.Instruction) -> int:
        """The same for instructions that differ in addresses only."""
        found = self.numbers.get(id(instruction))
        if found is not None and found[0] is instruction:
            return found[1]
        form = (instruction.mnemonic, instruction.flush is None, *[form_of(o) for o in instruction.operands])
        number = self.forms.setdefault(form, len(self.forms))
        if len(self.numbers) > _MEMO_SIZE:
            self.numbers.clear()
        self.numbers[id(instruction)] = (instruction, number)
        return number

    def access(self, o: m.Operand) -> PeAccess:
        found = self.accesses.get(id(o))
        if found is None or found.operand is not o:
            if len(self.accesses) > _MEMO_SIZE:
                self.accesses.clear()
            addrs = addresses(o)
            found = self.accesses[id(o)] = PeAccess(o.space, addrs, o.width, o, o.mask, _sound(o, addrs))
        return found


_MEMO_SIZE = 50_000
_memo = _Memo()


def form_of(o: m.Operand | m.Immediate) -> tuple:
    """The kind of an operand: all but its addresses."""
    if isinstance(o, m.Immediate):
        return ("imm",)
    return (o.space, o.width, o.negate, o.extend, o.reduce, o.mask is None, o.indirect, o.j is None)


def _sound(o: m.Operand, addrs: tuple[int, int, int, int]) -> bool:
    size, width = SIZES[o.space], o.width
    base = o.flat or (o.addr,)
    return min(base) >= 0 and max(base) < size and not any([a % width for a in addrs])


def shape_of(bundle: m.Bundle) -> Shape:
    """The shape of a bundle; raises UnknownMnemonic."""
    number = _memo.number
    key = tuple([number(i) for i in bundle.instructions])
    found = _memo.shapes.get(key)
    if found is None:
        if len(_memo.shapes) > _MEMO_SIZE:
            _memo.shapes.clear()
        found = _memo.shapes[key] = _new_shape(bundle)
    return found


def _new_shape(bundle: m.Bundle) -> Shape:
    shape = Shape(tuple(lookup(i.mnemonic) for i in bundle.instructions))
    for index, (instruction, opcode) in enumerate(zip(bundle.instructions, shape.opcodes)):
        if instruction.flush is not None:
            shape.flushed += (index,)
        if opcode.unit in ("l1bm", "l2bm", "dar"):
            shape.networks += (index,)
        if opcode.unit in ("l2bm", "dar"):
            continue
        first = first_destination(opcode)
        for position, operand in enumerate(instruction.operands):
            if isinstance(operand, m.Operand):
                _place(shape, operand, (index, position), position >= first)
    _summarise(shape, bundle)
    return shape


def _summarise(shape: Shape, bundle: m.Bundle) -> None:
    def spaces(positions: Positions) -> list[str]:
        return [bundle.instructions[i].operands[k].space for i, k in positions]  # type: ignore[union-attr]

    reads, writes = spaces(shape.reads), spaces(shape.writes)
    lms = {m.LM0, m.LM1}
    shape.lm_reads, shape.lm_writes = tuple(sorted(lms & set(reads))), tuple(sorted(lms & set(writes)))
    shape.crowded = (
        len(set(reads)) < len(reads)
        or len(set(writes)) < len(writes)
        or len(shape.t_writes) > 1
        or bool(set(shape.lm_reads) & set(shape.lm_writes))
    )
    shape.plain = not (shape.networks or shape.tags or shape.bar_writes)


def _place(shape: Shape, operand: m.Operand, at: tuple[int, int], destination: bool) -> None:
    space = operand.space
    if operand.mask is not None:
        shape.masked += (at,)
    if space in PE_ADDRESSED:
        if destination:
            shape.writes += (at,)
        else:
            shape.reads += (at,)
        shape.reads_t |= operand.indirect
    elif space == m.T:
        if destination:
            shape.t_writes += (at,)
        else:
            shape.reads_t = True
    elif space == m.OMR:
        shape.omr_writes += (at,)
    elif space in (m.BAR0, m.BAR1):
        shape.bar_writes += (space,)
    elif space in (m.MAT_X, m.MAT_Y):
        shape.matrix += ((space, at[0]),)
    elif space == m.TAG:
        shape.tags += (at,)


def first_destination(opcode: Opcode) -> int:
    """Index of the first destination operand; everything else has one source."""
    found = _FIRST_DESTINATION.get(opcode.operation)
    if found is None:
        return 2 if opcode.unit == "alu" and " y" in opcode.row.operands else 1
    return found


def is_turnaround(instruction: m.Instruction) -> bool:
    """An L1BM->PE transfer that reads the turnaround register: an issue group of its own."""
    first = instruction.operands[0] if instruction.operands else None
    return isinstance(first, m.Operand) and first.space == m.L1BM_TURN


def use_of(bundle: m.Bundle) -> Use:
    """The footprint, which nobody changes; raises UnknownMnemonic. It is kept for those who ask again."""
    found = _memo.uses.get(id(bundle))
    if found is None or found[0] is not bundle:
        if len(_memo.uses) > _MEMO_SIZE:
            _memo.uses.clear()
        found = _memo.uses[id(bundle)] = bundle, new_use(bundle, shape_of(bundle))
    return found[1]


def new_use(bundle: m.Bundle, shape: Shape) -> Use:
    """The footprint of a bundle of this shape."""
    code, access = bundle.instructions, _memo.access
    use = Use(
        shape,
        shape.opcodes,
        [access(code[i].operands[k]) for i, k in shape.reads],  # type: ignore[arg-type]
        [access(code[i].operands[k]) for i, k in shape.writes],  # type: ignore[arg-type]
        shape.reads_t,
        shape.bar_writes,
        shape.matrix,
    )
    for i, k in shape.t_writes:
        operand = code[i].operands[k]
        use.writes.append(PeAccess(m.T, (0, 1, 2, 3), 1, operand, operand.mask))  # type: ignore[arg-type, union-attr]
    if shape.omr_writes:
        use.omr_writes = [code[i].operands[k].addr for i, k in shape.omr_writes]  # type: ignore[union-attr]
    if shape.tags:
        use.tags = [code[i].operands[k].addr for i, k in shape.tags]  # type: ignore[union-attr]
    if shape.flushed or shape.masked:
        use.masks = [
            *[(code[i].flush, "flush") for i in shape.flushed],  # type: ignore[list-item]
            *[(code[i].operands[k].mask, "write") for i, k in shape.masked],  # type: ignore[list-item, union-attr]
        ]
    for i in shape.networks:
        (_l1 if shape.opcodes[i].unit == "l1bm" else _l2)(use, code[i], shape.opcodes[i])
    return use


def _l1(use: Use, instruction: m.Instruction, opcode: Opcode) -> None:
    if len(instruction.operands) < 2:
        return
    first, last = instruction.operands[0], instruction.operands[-1]
    assert isinstance(first, m.Operand) and isinstance(last, m.Operand)
    extent = L1_EXTENT[opcode.operation]
    if first.space in (m.L1BM, m.L1BM_TURN):
        if first.space == m.L1BM:
            use.l1_reads = (*use.l1_reads, Range(L1_TO_PE, first.addr, extent[first.width == m.LW2], first))
    elif last.space == m.L1BM:
        use.l1_writes = (*use.l1_writes, Range(PE_TO_L1, last.addr, extent[last.width == m.LW2], last))


def _l2(use: Use, instruction: m.Instruction, opcode: Opcode) -> None:
    if opcode.operation == "l2bmdarw":
        return
    source, target = instruction.operands[0], instruction.operands[1]
    assert isinstance(source, m.Operand) and isinstance(target, m.Operand)
    l2, l1 = L2_EXTENT[opcode.operation]
    kind = L1_TO_L1 if opcode.operation == "l2bmi" else (L1_TO_L2 if source.space == m.L1BM else L2_TO_L1)
    if source.space == m.L1BM:
        use.l1_reads = (*use.l1_reads, Range(kind, source.addr, l1, source))
    else:
        use.l2_reads = (*use.l2_reads, Range(kind, source.addr, l2, source))
    if target.space == m.L1BM:
        use.l1_writes = (*use.l1_writes, Range(kind, target.addr, l1, target))
    elif target.space == m.L2BM:
        use.l2_writes = (*use.l2_writes, Range(kind, target.addr, l2, target))
