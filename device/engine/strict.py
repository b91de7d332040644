"""Strict mode: a program is stopped where it relies on something that the manual does not promise.

    Unspecified         a read of memory that nothing wrote, or of mask registers that nothing set
    UndefinedBehaviour  block floats with different exponents, matrix registers of another precision, the turnaround
                        register read as another kind, a wait for a tag that no move raised, a tag raised twice
    Unimplemented       host commands

It matters on which PEs: what a mask keeps from being written stays unwritten there, and what a mask keeps from being used
(the results of a PE, or a cycle, that no destination takes) may be anything. All L1Bs and L2Bs do the same, and a program
may load the ones that it looks at: it is enough if one of those that take part has the data, and for a reduction or a
collection all that it goes over. DRAM and PDM count by pages of 64 KiB.

Messages name the line, and with the program's text (`Machine.source`) the column.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from .. import spec, timing
from ..errors import ExecutionError, UndefinedBehaviour, Unimplemented, Unspecified
from ..isa import model as m
from ..isa.columns import column_of
from ..isa.footprint import L2_EXTENT, SIZES, first_destination, is_turnaround, use_of
from ..isa.rules import place_of
from ..isa.table import Opcode
from ..memory.dram import PAGE_LW, PagedMemory
from .written import EVERY_LANE, FORWARDS, PE, Written, results_of, sources_of

if TYPE_CHECKING:
    from .machine import Machine

#: instructions whose turnaround data may be read by the same name only
_KIND = {"l1bmr": "l1bmm", "l1bmr4": "l1bmm4"}
_FORWARD_OF = {"alu": m.ALUF, "mau": m.MAUF, "mread": m.MREADF, "l1bm": m.LBF}
ANY_PRECISION = ""  # of a matrix row that `d set` wrote


class Watch:
    """Remembers what was written while a machine runs, and judges each statement before it is executed."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.state = machine, machine.state
        self.lines = machine.source.split("\n") if machine.source else []
        self.written = Written(machine.state)
        self.matrix: dict[str, dict[int, str]] = {m.MAT_X: {}, m.MAT_Y: {}}
        self.turnaround = ""
        self.dar_filled = False
        self.tags: set[int] = set()

    def judge(self, s: m.Statement) -> None:
        self.written.mask_line = self.machine.mask_setting
        if isinstance(s, m.Bundle):
            self._bundle(s)
        elif isinstance(s, m.Move):
            self._move(s)
        elif isinstance(s, m.MaskLine):
            self._mask(s.entry, s, (0, 1))
        elif isinstance(s, m.DebugSet):
            self.written.mark_set(s.place, len(s.values))
            if s.place.memory in self.matrix:
                rows = range(s.place.addr, s.place.addr + len(s.values))
                self.matrix[s.place.memory].update((row, ANY_PRECISION) for row in rows)
        elif isinstance(s, m.HostCommand):
            self._stop(Unimplemented, f"`c {s.text}` is a command of the host side, which is not executed", s)

    def _stop(self, kind: type[ExecutionError], message: str, s: m.Statement, at: object = None) -> NoReturn:
        """Raises an error; `at` is the operand or the instruction that it is about, or (expression, word) of the line."""
        line = 0 if isinstance(s, m.Loop) else s.line
        where = f"line {line}"
        if 0 < line <= len(self.lines):
            place = at if isinstance(at, tuple) else place_of(s, at) if isinstance(s, m.Bundle) else (0, 0)
            where += f", column {column_of(self.lines[line - 1], place)}"
        raise kind(f"{where}: {message}")

    def _unwritten(self, what: str, s: m.Statement, at: object) -> NoReturn:
        self._stop(Unspecified, f"{what} is read, but nothing wrote it; set it first", s, at)

    def _mask(self, entry: int, s: m.Statement, at: object) -> None:
        unset = ~self.written.masks[4 * entry : 4 * entry + 4]
        if unset.any():
            message = f"mask entry {entry} of {_pes(unset)} is used, but nothing set it; write $omr{entry} first"
            self._stop(Unspecified, message, s, at)

    # --- steps -------------------------------------------------------------------------------------------------------
    def _bundle(self, bundle: m.Bundle) -> None:
        use = use_of(bundle)
        for i, k in use.shape.tags:
            tag = bundle.instructions[i].operands[k]
            assert isinstance(tag, m.Operand)
            if tag.addr not in self.tags:
                message = f"wait i{tag.addr:02x}, but no move raised this tag"
                self._stop(UndefinedBehaviour, message, bundle, tag)
            self.tags.discard(tag.addr)
        holes: dict[str, np.ndarray] = {}
        for instruction, opcode in zip(bundle.instructions, use.opcodes):
            for mask, at in _masks_of(instruction):
                if mask.register is not None:
                    self._mask(mask.register, bundle, at)
            if opcode.unit == "l2bm":
                self._l2_reads(bundle, instruction, opcode)
            elif opcode.unit == "dar" and not self.dar_filled:
                self._unwritten("the DAR buffer", bundle, instruction)
            elif opcode.unit in ("alu", "mau", "mread", "mwrite", "l1bm"):
                lanes = self._sources(bundle, instruction, opcode)
                if _is_result(instruction, opcode):
                    holes[_FORWARD_OF[opcode.unit]] = lanes
        keep = any(o.unit == "noforward" for o in use.opcodes)
        for instruction, opcode in zip(bundle.instructions, use.opcodes):
            self._mark(instruction, opcode, keep)
        if not keep:
            self.written.forward.update((name, ~lanes) for name, lanes in holes.items())

    def _wanted(self, instruction: m.Instruction, opcode: Opcode) -> np.ndarray:
        """Lanes of results that something takes."""
        if not _is_result(instruction, opcode):
            if opcode.operation in ("l1bmm", "l1bmm4"):
                mab = PE // 4 % (spec.MAB_PER_L1B if opcode.operation == "l1bmm" else 4)
                return EVERY_LANE & (mab == opcode.mab)
            return EVERY_LANE
        wanted = np.zeros_like(EVERY_LANE)
        whole = self.written.unflushed(instruction.flush)
        for o in instruction.operands[first_destination(opcode) :]:
            assert isinstance(o, m.Operand)
            lanes = EVERY_LANE if o.space == m.NOWRITE else self.written.lanes(o)
            wanted |= lanes if o.space == m.OMR else lanes & whole  # flags come from the unflushed result
        return wanted

    def _sources(self, bundle: m.Bundle, instruction: m.Instruction, opcode: Opcode) -> np.ndarray:
        """Judges what an instruction reads; the lanes of its result that hold nothing, where no destination takes them."""
        wanted, holes = self._wanted(instruction, opcode), np.zeros_like(EVERY_LANE)
        first = first_destination(opcode)
        for position, o in enumerate(instruction.operands):
            if not isinstance(o, m.Operand):
                continue
            is_source = position < first
            if o.indirect:
                lanes = sources_of(wanted, opcode, position) if is_source else self.written.lanes(o)
                self._lanes(self.written.t, lanes, "T", bundle, o)
            if not is_source:
                continue
            lanes = sources_of(wanted, opcode, position)
            missing = self._source(bundle, o, opcode, lanes)
            if missing is not None:
                holes |= results_of(missing, opcode, position)
        if is_turnaround(instruction):
            self._turnaround(bundle, instruction, opcode)
        if opcode.matrix or opcode.unit == "mread":
            self._matrix_rows(bundle, instruction, opcode)
        if opcode.matrix:
            self._blocks(bundle, instruction, opcode, wanted)
        return holes

    def _source(self, bundle: m.Bundle, o: m.Operand, opcode: Opcode, lanes: np.ndarray) -> np.ndarray | None:
        """Lanes of a source that nothing wrote; stops if one of `lanes` is among them."""
        if o.space in SIZES:
            words = self.written.words(o)
            bad = ~words & lanes[:, None]
            if bad.any():
                cycle, word, pe = np.argwhere(bad)[0]
                row = self.written.rows(o)[cycle, word]
                address = int(row[pe if row.size > 1 else 0])
                self._unwritten(f"{o.space} {address} of {_pes(bad[:, word])}", bundle, o)
            return np.asarray(~words.all(axis=1))
        if o.space == m.T:
            return self._lanes(self.written.t, lanes, "T", bundle, o)
        if o.space in FORWARDS:
            known = self.written.forward.get(o.space)
            if known is None:
                self._stop(Unspecified, f"${o.space} is read, but its unit has not computed anything", bundle, o)
            return self._lanes(known, lanes, f"${o.space}", bundle, o)
        if o.space == m.L1BM:
            found = (lanes & ~self.written.from_l1bm(o, opcode)).any(axis=0).reshape(spec.L1BS, -1).any(axis=1)
            wanted = lanes.any(axis=0).reshape(spec.L1BS, -1).any(axis=1)
            if wanted.any() and not (wanted & ~found).any():
                l1b = int(wanted.argmax())
                self._unwritten(f"L1BM {o.addr} of n{l1b >> 4}c{l1b >> 3 & 1}b{l1b & 7}", bundle, o)
        return None

    def _lanes(self, known: np.ndarray, lanes: np.ndarray, what: str, bundle: m.Bundle, at: object) -> np.ndarray:
        bad = lanes & ~known
        if bad.any():
            self._unwritten(f"{what} of {_pes(bad)}", bundle, at)
        return ~known

    def _turnaround(self, bundle: m.Bundle, instruction: m.Instruction, opcode: Opcode) -> None:
        if not self.turnaround:
            self._stop(Unspecified, "$lbi is read, but nothing was sent to L1BM", bundle, instruction.operands[0])
        if opcode.operation != self.turnaround:
            message = f"$lbi is read by {opcode.operation}, but was written by {self.turnaround}"
            self._stop(UndefinedBehaviour, message, bundle, instruction.operands[0])

    def _matrix_rows(self, bundle: m.Bundle, instruction: m.Instruction, opcode: Opcode) -> None:
        first = instruction.operands[0]
        assert isinstance(first, m.Operand)
        rows = self.matrix[first.space]
        for row in range(spec.MATRIX_SIZE[opcode.precision]):
            if row not in rows:
                self._unwritten(f"row {row} of the matrix register", bundle, first)
            written = rows[row]
            if written == ANY_PRECISION:
                continue
            if (
                opcode.matrix
                and written != opcode.precision
                or opcode.element_bits != {"h": 16, "d": 64}.get(written, 32)
            ):
                message = f"a matrix register written with {written}mwrite is used by {instruction.mnemonic}"
                self._stop(UndefinedBehaviour, message, bundle, first)

    def _blocks(self, bundle: m.Bundle, instruction: m.Instruction, opcode: Opcode, wanted: np.ndarray) -> None:
        """Both factors of a matrix product are block floats: one exponent in each block."""
        first, x = instruction.operands[0], instruction.operands[1]
        assert isinstance(first, m.Operand) and isinstance(x, m.Operand)
        p = opcode.precision
        raw = self.state.matrix[first.space]
        for row in range(spec.MATRIX_SIZE[p]):
            where = mixed_blocks(raw[2 * row], raw[2 * row + 1], p, np.asarray(wanted.any(axis=0)))
            if where:
                message = f"row {row} of the matrix register in {where} is not a block float; convert it with {p}bfn"
                self._stop(UndefinedBehaviour, message, bundle, first)
        for cycle, (high, low) in enumerate(self._long_words(x)):
            where = mixed_blocks(high, low, p, wanted[cycle])
            if where:
                message = f"the second operand of {instruction.mnemonic} in {where} is not a block float; convert it with {p}bfn"
                self._stop(UndefinedBehaviour, message, bundle, x)

    def _long_words(self, o: m.Operand) -> Iterable[tuple[np.ndarray, np.ndarray]]:
        """The two words of every PE that a source gives in each cycle."""
        if o.space not in SIZES:
            memory = self.state.pe[m.T] if o.space == m.T else self.state.forward[o.space]
            return [(memory[4 * c], memory[4 * c + 1]) for c in range(4)]
        memory, rows = self.state.pe[o.space], self.written.rows(o)
        none = np.zeros(spec.PES, np.uint32)
        return [(memory[r[0], PE], memory[r[1], PE] if len(r) > 1 else none) for r in rows]

    def _mark(self, instruction: m.Instruction, opcode: Opcode, keep: bool) -> None:
        """What an instruction leaves behind."""
        operands = instruction.operands
        if opcode.unit == "l2bm":
            self._l2_writes(instruction, opcode)
        elif opcode.unit == "dar":
            at, entry = self.state.dar_position
            self.written.dar[:, (entry + at + np.arange(4)) % spec.DAR_ENTRIES] = True
        elif opcode.unit == "mwrite":
            target = operands[1]
            assert isinstance(target, m.Operand)
            count, size = (8 if target.width == m.LW2 else 4), spec.MATRIX_SIZE[opcode.precision]
            for row in range(target.addr, target.addr + count):
                self.matrix[target.space][row % size] = opcode.precision
        elif _is_result(instruction, opcode):
            for o in operands[first_destination(opcode) :]:
                assert isinstance(o, m.Operand)
                self.written.mark(o)
        elif opcode.unit == "l1bm":
            if not keep:
                self.turnaround = _KIND.get(opcode.operation, opcode.operation)
            for touched in use_of(m.Bundle((instruction,))).l1_writes:
                self.written.l1[:, (touched.start + np.arange(touched.length)) % spec.L1BM_LW] = True

    # --- L2BM <-> L1BM -----------------------------------------------------------------------------------------------
    def _l2_reads(self, bundle: m.Bundle, instruction: m.Instruction, opcode: Opcode) -> None:
        source = instruction.operands[0]
        assert isinstance(source, m.Operand)
        if source.space == m.L2BM:
            at = (source.addr + _slots(opcode)) % spec.L2BM_LW
            blocks = range(spec.L2BS) if source.block is None else range(source.block, spec.L2BS, spec.L2B_PER_GROUP)
            self._want_l2(at, [[n] for n in blocks], source.addr, bundle, source)
            return
        at = (source.addr + np.arange(L2_EXTENT[opcode.operation][1])) % spec.L1BM_LW
        l1bs = list(opcode.l1bs or range(spec.L1B_PER_L2B))
        known = np.asarray(self.written.l1.reshape(spec.L2BS, spec.L1B_PER_L2B, -1)[:, l1bs][:, :, at].all(axis=2))
        if not known.all(axis=1).any():
            b = l1bs[int(known[0].argmin())]
            self._unwritten(f"L1BM {source.addr} of n0c0b{b}", bundle, source)

    def _l2_writes(self, instruction: m.Instruction, opcode: Opcode) -> None:
        target = instruction.operands[1]
        assert isinstance(target, m.Operand)
        if target.space == m.DAR:
            self.dar_filled = True
        elif target.space == m.L2BM:
            self.written.l2[:, (target.addr + _slots(opcode)) % spec.L2BM_LW] = True
        else:
            at = (target.addr + np.arange(L2_EXTENT[opcode.operation][1])) % spec.L1BM_LW
            targets = range(spec.L1B_PER_L2B) if opcode.operation == "l2bmi" else opcode.l1bs
            for b in targets:
                self.written.l1[b :: spec.L1B_PER_L2B, at] = True

    def _want_l2(self, at: np.ndarray, sets: list[list[int]], addr: int, s: m.Statement, place: object) -> None:
        """In one of the sets of L2Bs, all have these LW."""
        known = np.asarray(self.written.l2[:, at].all(axis=1))
        if not any(known[blocks].all() for blocks in sets):
            n = next(n for n in sets[0] if not known[n])
            self._unwritten(f"L2BM {addr} of n{n >> 1}c{n & 1}", s, place)

    # --- moves -------------------------------------------------------------------------------------------------------
    def _move(self, move: m.Move) -> None:
        if move.tag in self.tags:
            message = f"tag i{move.tag:02x} is raised again before anything waited for it"
            self._stop(UndefinedBehaviour, message, move)
        if move.tag:
            self.tags.add(move.tag)
        form = timing.known_form_of(move)
        if form is None:
            return
        src, dst = move.src, move.dst
        assert src is not None and dst is not None
        if src.space == m.L2BM:
            at = (src.addr + np.arange(form.source.size(move.size))) % spec.L2BM_LW
            blocks = _blocks_of(src, form.source)
            sets = {
                "mvp": [[n] for n in blocks],
                "mvr2": [blocks[i : i + 2] for i in range(0, len(blocks), 2)],
                "mvr4": [blocks[0::2], blocks[1::2]],
            }.get(form.operation, [blocks])
            self._want_l2(at, sets, src.addr, move, (0, 1))
        for o, side, word in ((src, form.source, 1), (dst, form.destination, 2)):
            if o.space == m.L2BM and word == 2:
                at = (o.addr + np.arange(side.size(move.size))) % spec.L2BM_LW
                self.written.l2[np.array(_blocks_of(o, side))[:, None], at] = True
            elif o.space in (m.DRAM, m.PDM, m.DRAM_INDIRECT):
                for group in range(spec.GROUPS) if side.scope in ("all", "block") else [o.group or 0]:
                    self._off_chip(move, o, side.size(move.size), group, word)

    def _off_chip(self, move: m.Move, o: m.Operand, count: int, group: int, word: int) -> None:
        """DAR entries that an operand goes through, and the pages that a source reads."""
        memory = (self.state.pdm if o.space == m.PDM else self.state.dram)[group]
        if o.space != m.DRAM_INDIRECT:
            if word == 1:
                self._pages(move, memory, o.space, group, o.addr, count)
            return
        for piece in range(-(-count // spec.DAR_UNIT_LW)):
            entry = (o.addr + piece // max(move.nd, 1)) % spec.DAR_ENTRIES
            if not self.written.dar[group, entry]:
                self._unwritten(f"DAR entry {entry} of group {group}", move, (0, word))
            if word == 1:
                start = (int(self.state.dar[group, entry]) + piece % max(move.nd, 1)) * spec.DAR_UNIT_LW
                self._pages(move, memory, m.DRAM, group, start % spec.DRAM_LW, spec.DAR_UNIT_LW)

    def _pages(self, move: m.Move, memory: PagedMemory, space: str, group: int, start: int, count: int) -> None:
        for number in range(start // PAGE_LW, (start + count - 1) // PAGE_LW + 1):
            if number % (memory.size // PAGE_LW) not in memory.pages:
                self._unwritten(f"{space.upper()} {start} of group {group}", move, (0, 1))


def _is_result(instruction: m.Instruction, opcode: Opcode) -> bool:
    """Whether an instruction brings a result to the PEs."""
    if opcode.unit == "l1bm":
        first = instruction.operands[0]
        return isinstance(first, m.Operand) and first.space in (m.L1BM, m.L1BM_TURN)
    return opcode.unit in ("alu", "mau", "mread")


def _masks_of(instruction: m.Instruction) -> list[tuple[m.Mask, object]]:
    """The masks of an instruction with what they stand behind."""
    found: list[tuple[m.Mask, object]] = [
        (o.mask, o) for o in instruction.operands if isinstance(o, m.Operand) and o.mask
    ]
    return found if instruction.flush is None else [(instruction.flush, instruction), *found]


def _slots(opcode: Opcode) -> np.ndarray:
    """LW on the L2BM side that a transfer touches: of l2bmd and l2bmb2 the parts of the set."""
    width = {"l2bmd": 8, "l2bmb2": 16}.get(opcode.operation)
    if width is None:
        return np.arange(L2_EXTENT[opcode.operation][0])
    parts = np.unique([8 * b // width * width for b in opcode.l1bs])
    return (64 * np.arange(4)[:, None, None] + parts[:, None] + np.arange(width)).reshape(-1)


def _blocks_of(o: m.Operand, side: timing.Side) -> list[int]:
    """The L2Bs that a side of a move touches, as 2 group + L2B."""
    groups = range(spec.GROUPS) if side.scope in ("all", "block") else [o.group or 0]
    blocks = range(spec.L2B_PER_GROUP) if side.scope == "all" else [o.block or 0]
    return [spec.L2B_PER_GROUP * group + block for group in groups for block in blocks]


def _pes(lanes: np.ndarray) -> str:
    """The PEs of some lanes: the first, and how many others."""
    bad = np.flatnonzero(lanes.any(axis=0))
    if bad.size == spec.PES:
        return "every PE"
    pe = int(bad[0])
    name = f"n{pe >> 10}c{pe >> 9 & 1}b{pe >> 6 & 7}m{pe >> 2 & 15}p{pe & 3}"
    return name if bad.size == 1 else f"{name} and {bad.size - 1} more PE{'s' if bad.size > 2 else ''}"


def mixed_blocks(a: np.ndarray, b: np.ndarray, precision: str, wanted: np.ndarray = EVERY_LANE[0]) -> str:
    """Where a block of an LW row (words a, b of every PE) has exponents that differ, as `n0c0b0m0`; empty: nowhere.
    Extended halves (exponent 0) may. Only MABs with `wanted` PEs count."""
    if precision == "h":
        parts = np.stack([a >> 25 & 63, a >> 9 & 63, b >> 25 & 63, b >> 9 & 63]).reshape(4, -1, 4)
        blocks = parts.transpose(1, 0, 2).reshape(-1, 16)
        mixed = ((blocks != blocks.max(1, keepdims=True)) & (blocks != 0)).any(1)
    elif precision == "d":
        mixed = _differ((a >> 20 & 2047).reshape(-1, 4))
    else:
        high, low = (a >> 23 & 255).reshape(-1, 4), (b >> 23 & 255).reshape(-1, 4)
        mixed = _differ(high) | _differ(low) if precision == "f" else _differ(np.concatenate([high, low], axis=1))
    mixed = mixed & wanted.reshape(-1, 4).any(axis=1)
    if not mixed.any():
        return ""
    mab = int(mixed.argmax())  # the 4 PEs of a MAB share a block
    return f"n{mab >> 8}c{mab >> 7 & 1}b{mab >> 4 & 7}m{mab & 15}"


def _differ(blocks: np.ndarray) -> np.ndarray:
    return np.asarray((blocks != blocks[:, :1]).any(1))
