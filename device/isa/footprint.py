"""What a step touches: memories, addresses per cycle, registers. The checks compare these; nothing is executed here."""

from __future__ import annotations

from dataclasses import dataclass, field

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


def addresses(o: m.Operand) -> tuple[int, int, int, int]:
    """Word address of each cycle, before BAR, T and j."""
    if o.flat is not None:
        return o.flat
    return (o.addr, o.addr + o.inc, o.addr + 2 * o.inc, o.addr + 3 * o.inc)


@dataclass(slots=True)
class PeAccess:
    space: str
    addrs: tuple[int, int, int, int]
    width: int
    operand: m.Operand
    instruction: int
    mask: m.Mask | None = None

    @property
    def key(self) -> tuple:
        return (self.addrs, self.operand.indirect, self.operand.j)


@dataclass(slots=True)
class Range:
    """LW start .. start + length of L1BM or L2BM, touched by a transfer of this kind."""

    kind: str
    start: int
    length: int

    def overlaps(self, other: Range, size: int) -> bool:
        gap = (other.start - self.start) % size
        return gap < self.length or (self.start - other.start) % size < other.length


@dataclass(slots=True)
class Use:
    """The footprint of one bundle."""

    opcodes: tuple[Opcode, ...]
    reads: list[PeAccess] = field(default_factory=list)
    writes: list[PeAccess] = field(default_factory=list)
    reads_t: bool = False
    bar_writes: list[str] = field(default_factory=list)
    omr_writes: list[int] = field(default_factory=list)
    masks: list[tuple[m.Mask, str]] = field(default_factory=list)
    l1_reads: list[Range] = field(default_factory=list)
    l1_writes: list[Range] = field(default_factory=list)
    l2_reads: list[Range] = field(default_factory=list)
    l2_writes: list[Range] = field(default_factory=list)
    matrix: list[tuple[str, int]] = field(default_factory=list)  # (register side, instruction)
    tags: list[int] = field(default_factory=list)
    to_pe_from_l1: bool = False


def is_turnaround(instruction: m.Instruction) -> bool:
    """An L1BM->PE transfer that reads the turnaround register: an issue group of its own."""
    first = instruction.operands[0] if instruction.operands else None
    return isinstance(first, m.Operand) and first.space == m.L1BM_TURN


def use_of(bundle: m.Bundle) -> Use:
    """The footprint; raises UnknownMnemonic."""
    use = Use(tuple(lookup(i.mnemonic) for i in bundle.instructions))
    for index, (instruction, opcode) in enumerate(zip(bundle.instructions, use.opcodes)):
        if instruction.flush is not None:
            use.masks.append((instruction.flush, "flush"))
        if opcode.unit in ("l1bm",):
            _l1(use, instruction, opcode)
        elif opcode.unit in ("l2bm", "dar"):
            _l2(use, instruction, opcode)
            continue
        count = len(instruction.operands)
        first_destination = _first_destination(opcode, instruction)
        for position in range(count):
            operand = instruction.operands[position]
            if isinstance(operand, m.Immediate):
                continue
            space = operand.space
            destination = position >= first_destination
            if operand.mask is not None:
                use.masks.append((operand.mask, "write"))
            if space in PE_ADDRESSED:
                access = PeAccess(space, addresses(operand), operand.width, operand, index, operand.mask)
                (use.writes if destination else use.reads).append(access)
                if operand.indirect:
                    use.reads_t = True
            elif space == m.T:
                if destination:
                    use.writes.append(PeAccess(m.T, (0, 1, 2, 3), 1, operand, index, operand.mask))
                else:
                    use.reads_t = True
            elif space == m.OMR:
                use.omr_writes.append(operand.addr)
            elif space in (m.BAR0, m.BAR1):
                use.bar_writes.append(space)
            elif space in (m.MAT_X, m.MAT_Y):
                use.matrix.append((space, index))
            elif space == m.TAG:
                use.tags.append(operand.addr)
    return use


def _first_destination(opcode: Opcode, instruction: m.Instruction) -> int:
    """Index of the first destination operand."""
    unit = opcode.unit
    if unit == "alu":
        return {"zero": 0, "imm": 1, "immu": 1}.get(opcode.operation, 2 if " y" in opcode.row.operands else 1)
    if unit == "mau":
        return {"vfma": 3, "vmul": 2, "vadd": 2, "vpassa": 1, "mfma": 3, "mmul": 2}[opcode.operation]
    if unit == "wait":
        return 1
    return 1  # mwrite, mread, l1bm: one source


def _l1(use: Use, instruction: m.Instruction, opcode: Opcode) -> None:
    if len(instruction.operands) < 2:
        return
    first, last = instruction.operands[0], instruction.operands[-1]
    assert isinstance(first, m.Operand) and isinstance(last, m.Operand)
    extent = L1_EXTENT[opcode.operation]
    if first.space in (m.L1BM, m.L1BM_TURN):
        if first.space == m.L1BM:
            use.l1_reads.append(Range(L1_TO_PE, first.addr, extent[first.width == m.LW2]))
    elif last.space == m.L1BM:
        use.l1_writes.append(Range(PE_TO_L1, last.addr, extent[last.width == m.LW2]))


def _l2(use: Use, instruction: m.Instruction, opcode: Opcode) -> None:
    if opcode.operation == "l2bmdarw":
        return
    source, target = instruction.operands[0], instruction.operands[1]
    assert isinstance(source, m.Operand) and isinstance(target, m.Operand)
    l2, l1 = L2_EXTENT[opcode.operation]
    kind = L1_TO_L1 if opcode.operation == "l2bmi" else (L1_TO_L2 if source.space == m.L1BM else L2_TO_L1)
    for operand, l1_list, l2_list in ((source, use.l1_reads, use.l2_reads), (target, use.l1_writes, use.l2_writes)):
        if operand.space == m.L1BM:
            l1_list.append(Range(kind, operand.addr, l1))
        elif operand.space == m.L2BM:
            l2_list.append(Range(kind, operand.addr, l2))
