"""Strict mode: a program is stopped where it relies on something that the manual does not promise.

    Unspecified         a read of memory that nothing wrote, or of mask registers that nothing set
    UndefinedBehaviour  block floats with different exponents, matrix registers of another precision, the turnaround
    register read as
                        another kind, a wait for a tag that no move raised, a tag raised twice
    Unimplemented       host commands

A row counts as written once any PE wrote it, so that a program may set up the PEs that it looks at. DRAM counts by
pages of 64 KiB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import spec, timing
from ..errors import UndefinedBehaviour, Unimplemented, Unspecified
from ..isa import model as m
from ..isa.footprint import PE_ADDRESSED, SIZES, PeAccess, Use, is_turnaround, use_of
from ..isa.table import Opcode
from ..memory.dram import PAGE_LW, PagedMemory

if TYPE_CHECKING:
    from .machine import Machine

#: instructions whose turnaround data may be read by the same name only
_KIND = {"l1bmr": "l1bmm", "l1bmr4": "l1bmm4"}


class Watch:
    """Remembers what was written while a machine runs, and judges each statement before it is executed."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.state = machine, machine.state
        self.rows = {space: np.zeros(size, bool) for space, size in SIZES.items()}
        self.t = np.zeros(4, bool)
        self.l1, self.l2 = np.zeros(spec.L1BM_LW, bool), np.zeros(spec.L2BM_LW, bool)
        self.masks = np.zeros(spec.MASK_ENTRIES, bool)
        self.masks[0] = self.masks[16:] = True
        self.forward: set[str] = set()
        self.matrix: dict[str, dict[int, str]] = {m.MAT_X: {}, m.MAT_Y: {}}
        self.turnaround = ""
        self.tags: set[int] = set()

    def judge(self, s: m.Statement) -> None:
        if isinstance(s, m.Bundle):
            self._bundle(s)
        elif isinstance(s, m.Move):
            self._move(s)
        elif isinstance(s, m.MaskLine):
            self._mask(s.entry, s.line)
        elif isinstance(s, m.DebugSet):
            self._debug_set(s)
        elif isinstance(s, m.HostCommand):
            raise Unimplemented(f"line {s.line}: `c {s.text}` is a command of the host side, which is not executed")

    # --- steps -------------------------------------------------------------------------------------------------------
    def _bundle(self, bundle: m.Bundle) -> None:
        use = use_of(bundle)
        line = bundle.line
        for tag in use.tags:
            if tag not in self.tags:
                raise UndefinedBehaviour(f"line {line}: wait i{tag:02x}, but no move raised this tag")
            self.tags.discard(tag)
        for access in use.reads:
            addresses = self._addresses(access)
            written = self.rows[access.space][addresses]
            first = int(addresses[int(np.argmin(written))])  # what is known holds for every PE
            self._want(written, f"{access.space} {first} of every PE", line)
        if use.reads_t:
            self._want(self.t, "T", line)
        for mask, _ in use.masks:
            if mask.register is not None:
                self._mask(mask.register, line)
        for ranges, written, name in ((use.l1_reads, self.l1, "L1BM"), (use.l2_reads, self.l2, "L2BM")):
            for touched in ranges:
                at = (touched.start + np.arange(touched.length)) % written.size
                self._want(written[at], f"{name} {touched.start}", line)
        for instruction, opcode in zip(bundle.instructions, use.opcodes):
            self._registers(instruction, opcode, line)
        self._mark(bundle, use)

    def _want(self, written: np.ndarray, what: str, line: int) -> None:
        if not written.all():
            raise Unspecified(f"line {line}: {what} is read, but nothing wrote it; set it first")

    def _addresses(self, access: PeAccess) -> np.ndarray:
        """Every word that an access touches."""
        base = np.array(access.addrs)[:, None]
        o = access.operand
        if o.space in (m.LM0, m.LM1):
            base = base + self.state.bar[m.BAR0 if o.space == m.LM0 else m.BAR1][None, :]
        if o.indirect:
            base = base + self.state.pe[m.T][[1, 5, 9, 13]].astype(np.int64)
        if o.j is not None:
            base = base + np.where(np.arange(spec.PES) % 4 <= o.j, o.width, 0)[None, :]
        words = np.unique(base % SIZES[o.space] // access.width * access.width)
        return (words[:, None] + np.arange(access.width)).reshape(-1) % SIZES[o.space]

    def _mask(self, entry: int, line: int) -> None:
        if not self.masks[entry]:
            raise Unspecified(f"line {line}: mask entry {entry} is used, but nothing set it; write $omr{entry} first")

    def _registers(self, instruction: m.Instruction, opcode: Opcode, line: int) -> None:
        """Forward registers, the turnaround register and matrix registers that an instruction reads."""
        for o in instruction.operands:
            if (
                isinstance(o, m.Operand)
                and o.space in (m.ALUF, m.MAUF, m.LBF, m.MREADF)
                and o.space not in self.forward
            ):
                raise Unspecified(f"line {line}: ${o.space} is read, but its unit has not computed anything")
        if is_turnaround(instruction):
            kind = opcode.operation
            if not self.turnaround:
                raise Unspecified(f"line {line}: $lbi is read, but nothing was sent to L1BM")
            if kind != self.turnaround:
                raise UndefinedBehaviour(f"line {line}: $lbi is read by {kind}, but was written by {self.turnaround}")
        if opcode.matrix or opcode.unit == "mread":
            first = instruction.operands[0]
            assert isinstance(first, m.Operand)
            rows = self.matrix[first.space]
            for row in range(spec.MATRIX_SIZE[opcode.precision]):
                if row not in rows:
                    raise Unspecified(f"line {line}: row {row} of the matrix register is read, but nothing wrote it")
                if (
                    opcode.matrix
                    and rows[row] != opcode.precision
                    or opcode.element_bits != {"h": 16, "d": 64}.get(rows[row], 32)
                ):
                    raise UndefinedBehaviour(
                        f"line {line}: a matrix register written with {rows[row]}mwrite is used by {instruction.mnemonic}"
                    )
        if opcode.matrix:
            self._blocks(instruction, opcode, line)

    def _blocks(self, instruction: m.Instruction, opcode: Opcode, line: int) -> None:
        """Both factors of a matrix product are block floats: one exponent in each block."""
        first, x = instruction.operands[0], instruction.operands[1]
        assert isinstance(first, m.Operand) and isinstance(x, m.Operand)
        p = opcode.precision
        raw = self.state.matrix[first.space]
        for row in range(spec.MATRIX_SIZE[p]):
            where = mixed_blocks(raw[2 * row], raw[2 * row + 1], p)
            if where:
                raise UndefinedBehaviour(
                    f"line {line}: row {row} of the matrix register in {where} is not a block float; "
                    f"convert it with {p}bfn"
                )
        if x.space in PE_ADDRESSED:
            access = PeAccess(x.space, x.flat or tuple(x.addr + c * x.inc for c in range(4)), x.width, x)  # type: ignore[arg-type]
            memory = self.state.pe[x.space]
            for addr in access.addrs:
                a, b = memory[addr % SIZES[x.space]], memory[(addr + 1) % SIZES[x.space]]
                where = mixed_blocks(a, b, p) if x.width >= 2 and not x.indirect else ""
                if where:
                    raise UndefinedBehaviour(
                        f"line {line}: the second operand of {instruction.mnemonic} in {where} is not a block float; "
                        f"convert it with {p}bfn"
                    )

    def _mark(self, bundle: m.Bundle, use: Use) -> None:
        for access in use.writes:
            if access.space == m.T:
                self.t[:] = True
            else:
                self.rows[access.space][self._addresses(access)] = True
        for entry in use.omr_writes:
            self.masks[entry] = True
        for ranges, written in ((use.l1_writes, self.l1), (use.l2_writes, self.l2)):
            for touched in ranges:
                written[(touched.start + np.arange(touched.length)) % written.size] = True
        keep = any(o.unit == "noforward" for o in use.opcodes)
        for instruction, opcode in zip(bundle.instructions, use.opcodes):
            name = {"alu": m.ALUF, "mau": m.MAUF, "mread": m.MREADF}.get(opcode.unit)
            first = instruction.operands[0] if instruction.operands else None
            if opcode.unit == "l1bm" and isinstance(first, m.Operand):
                if first.space in (m.L1BM, m.L1BM_TURN):
                    name = m.LBF
                elif not keep:
                    self.turnaround = _KIND.get(opcode.operation, opcode.operation)
            if name and not keep:
                self.forward.add(name)
            if opcode.unit == "mwrite":
                target = instruction.operands[1]
                assert isinstance(target, m.Operand)
                count, size = (8 if target.width == m.LW2 else 4), spec.MATRIX_SIZE[opcode.precision]
                for row in range(target.addr, target.addr + count):
                    self.matrix[target.space][row % size] = opcode.precision

    # --- moves and debug lines ---------------------------------------------------------------------------------------
    def _move(self, move: m.Move) -> None:
        if move.tag in self.tags:
            raise UndefinedBehaviour(
                f"line {move.line}: tag i{move.tag:02x} is raised again before anything waited for it"
            )
        if move.tag:
            self.tags.add(move.tag)
        form = timing.form_of(move)
        if form is None:
            return
        assert move.src is not None and move.dst is not None
        count = form.source.size(move.size)
        if move.src.space == m.L2BM:
            self._want(self.l2[(move.src.addr + np.arange(count)) % self.l2.size], f"L2BM {move.src.addr}", move.line)
        elif move.src.space in (m.DRAM, m.PDM):
            memories = self.state.dram if move.src.space == m.DRAM else self.state.pdm
            groups = range(spec.GROUPS) if form.source.scope in ("all", "block") else [move.src.group or 0]
            for group in groups:
                _want_pages(memories[group], move.src.space, group, move.src.addr, count, move.line)
        if move.dst.space == m.L2BM:
            count = form.destination.size(move.size)
            self.l2[(move.dst.addr + np.arange(count)) % self.l2.size] = True

    def _debug_set(self, s: m.DebugSet) -> None:
        place, count = s.place, len(s.values)
        if place.memory in SIZES:
            self.rows[place.memory][(place.addr + np.arange(2 * count)) % SIZES[place.memory]] = True
        elif place.memory == m.T:
            self.t[:] = True
        elif place.memory == m.OMR:
            self.masks[place.addr] = True
        elif place.memory in (m.L1BM, m.L2BM):
            written = self.l1 if place.memory == m.L1BM else self.l2
            written[(place.addr + np.arange(count)) % written.size] = True


def _want_pages(memory: PagedMemory, space: str, group: int, start: int, count: int, line: int) -> None:
    for number in range(start // PAGE_LW, (start + count - 1) // PAGE_LW + 1):
        if number % (memory.size // PAGE_LW) not in memory.pages:
            raise Unspecified(
                f"line {line}: {space.upper()} {start} of group {group} is read, but nothing wrote it; set it first"
            )


def mixed_blocks(a: np.ndarray, b: np.ndarray, precision: str) -> str:
    """Where a block of an LW row (words a, b of every PE) has exponents that differ, as `n0c0b0m0`; empty: nowhere.
    Extended halves (exponent 0) may."""
    if precision == "h":
        parts = np.stack([a >> 25 & 63, a >> 9 & 63, b >> 25 & 63, b >> 9 & 63]).reshape(4, -1, 4)
        blocks = parts.transpose(1, 0, 2).reshape(-1, 16)
        mixed = ((blocks != blocks.max(1, keepdims=True)) & (blocks != 0)).any(1)
    elif precision == "d":
        mixed = _differ((a >> 20 & 2047).reshape(-1, 4))
    else:
        high, low = (a >> 23 & 255).reshape(-1, 4), (b >> 23 & 255).reshape(-1, 4)
        mixed = _differ(high) | _differ(low) if precision == "f" else _differ(np.concatenate([high, low], axis=1))
    if not mixed.any():
        return ""
    mab = int(mixed.argmax())  # the 4 PEs of a MAB share a block
    return f"n{mab >> 8}c{mab >> 7 & 1}b{mab >> 4 & 7}m{mab & 15}"


def _differ(blocks: np.ndarray) -> np.ndarray:
    return np.asarray((blocks != blocks[:, :1]).any(1))
