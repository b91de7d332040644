"""From statements to calls: what each step reads, computes, forwards and writes.

A bundle becomes: fetches of operands that need work (through T, BAR, j, `e`, `r`), one calculation for each instruction, then the
writes. All fetches and calculations of a step come before its writes, so that reads deliver old data; a calculation
goes straight into
its destination where nothing else of the step can notice.

Forward registers are views: of the destination that received the same value, or of a buffer. A destination that is written
over while a forward register still shows it is saved first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import spec
from ..isa import model as m
from ..isa.checks import fixed_mask_cycles
from ..isa.footprint import MASK_LETTER, addresses, is_turnaround
from ..isa.table import Opcode, lookup
from ..numerics.fast import rows as kernels
from .loops import Per, fixed_view
from .views import ITER, LANE, STATIC, Rows, View, overlap, same_rows

if TYPE_CHECKING:
    from .machine import Machine

PES = spec.PES
SIZES = {m.LM0: spec.LM_WORDS, m.LM1: spec.LM_WORDS, m.GRF0: spec.GRF_WORDS, m.GRF1: spec.GRF_WORDS}
_FORWARDS = (m.ALUF, m.MAUF, m.LBF, m.MREADF)
FORWARD_OF_UNIT = {"alu": m.ALUF, "mau": m.MAUF, "l1bm": m.LBF, "mread": m.MREADF}
SIGN_MASK = {64: 0x80000000, 32: 0x80000000, 16: 0x80008000}
NO_MASK = ("none",)
_ALL = ("cycles", (True, True, True, True), False)
WORDS = np.arange(4)


class Call:
    """One kernel call. `args` may hold Rows that are not static and per-iteration values (Per)."""

    __slots__ = ("args", "batchable", "kernel")

    def __init__(self, kernel: Callable, args: tuple, batchable: bool = True) -> None:
        self.kernel, self.args, self.batchable = kernel, args, batchable


class Result:
    """What a calculation gives: its view, and whether it may still be redirected into a destination."""

    __slots__ = ("emit", "inputs", "opcode", "sources", "view", "words")

    def __init__(
        self, opcode: Opcode, words: int, sources: list[tuple[np.ndarray, Rows]], emit: Callable[[View], None]
    ) -> None:
        self.opcode, self.words, self.sources, self.emit = opcode, words, sources, emit
        self.inputs: list[View] = []
        self.view: View | None = None


class Decoder:
    """Decodes bundles in program order. `calls` grows; the caller takes what it needs."""

    def __init__(self, machine: Machine, dynamic_bar: bool) -> None:
        self.machine, self.state = machine, machine.state
        self.dynamic_bar = dynamic_bar
        self.calls: list[Call] = []
        self.mask: tuple[int, str, bool] = machine.mask_setting
        self.forward: dict[str, View] = {}
        self.t_low_zero = machine.t_low_zero()
        self.depth, self.count = 0, 0
        self.indices: tuple[int, ...] = ()
        self.lanes = 0  # iterations in a batch
        self.private: dict[str, tuple[np.ndarray, np.ndarray, int]] = {}
        self._views: dict[tuple, View] = machine.view_cache
        self._buffers: dict[tuple[str, int], list[np.ndarray]] = machine.buffers
        self._row_cache: dict[tuple, View] = machine.row_cache
        self._taken: list[np.ndarray] = []
        for name in _FORWARDS:
            self.forward[name] = self.home(name)
        self._shared: dict[str, View] = {}

    # --- calls -------------------------------------------------------------------------------------------------------
    def call(self, kernel: Callable, *args: Any, batchable: bool = True) -> None:
        if not self.lanes:
            args = tuple([a.array if type(a) is Rows and a.kind == STATIC else a for a in args])
        self.calls.append(Call(kernel, args, batchable))

    # --- buffers -----------------------------------------------------------------------------------------------------
    def buffer(self, words: int = 4) -> View:
        """A free buffer of 16 rows (and one of zeros), as a view whose words beyond `words` are zero."""
        lanes = self.lanes or 1
        pool = self._buffers.setdefault(("buffer", lanes), [])
        busy = {id(v.mem) for v in self.forward.values()}
        busy.update(id(b) for b in self._taken)
        for mem in pool:
            if id(mem) not in busy:
                break
        else:
            mem = np.zeros((16 * lanes + 1, PES), np.uint32)
            pool.append(mem)
        self._taken.append(mem)
        return self.buffer_view(mem, words)

    def home(self, name: str) -> View:
        """Where a forward register lies between programs."""
        return self.buffer_view(self.state.forward[name], 4)

    def buffer_view(self, mem: np.ndarray, words: int) -> View:
        key = (id(mem), words, self.lanes)
        found = self._views.get(key)
        if found is None:
            found = self._views[key] = self._new_buffer_view(mem, words)
        return found

    def _new_buffer_view(self, mem: np.ndarray, words: int) -> View:
        if not self.lanes:
            return View(mem, _BUFFER_PARTS[words], STATIC, words <= 2)
        zero = 16 * self.lanes
        base = np.arange(16).reshape(4, 4)
        part = np.where(WORDS[None, :] < words, base, -1).reshape(-1)
        table = part[None, :] + 16 * np.arange(self.lanes)[:, None]
        table = np.where(part[None, :] < 0, zero, table)
        return View(mem, table, LANE, words <= 2)

    # --- operand views -----------------------------------------------------------------------------------------------
    def pe_view(self, o: m.Operand) -> View:
        """Rows of a PE memory operand with static addresses."""
        space, width = o.space, o.width
        stride = o.strides[self.depth] if self.count and len(o.strides) > self.depth else 0
        addrs = addresses(o)
        if o.strides and self.indices:
            shift = sum(s * i for s, i in zip(o.strides, self.indices))
            if shift:
                addrs = tuple(a + shift for a in addrs)  # type: ignore[assignment]
        if not stride:
            key = (space, addrs, width)
            found = self._row_cache.get(key)
            if found is None:
                if len(self._row_cache) > 200_000:
                    self._row_cache.clear()
                rows = _rows(np.array(addrs), width, SIZES[space])
                found = self._row_cache[key] = View(self.state.pe[space], rows, STATIC, width <= 2)
            if self.private:
                return fixed_view(self, space, found.rows, found.low_zero) or found
            return found
        table = np.array(addrs)[None, :] + stride * np.arange(self.count)[:, None]
        return View(self.state.pe[space], _rows(table, width, SIZES[space]), ITER, width <= 2)

    def is_dynamic(self, o: m.Operand) -> bool:
        return o.space in (m.LM0, m.LM1) and (o.indirect or o.j is not None or self.dynamic_bar)

    def lm_addresses(self, o: m.Operand) -> np.ndarray:
        """Emits the calculation of the per-PE addresses of an LM operand; int32 [cycle][PE]."""
        pool = self._buffers.setdefault(("address", 1), [])
        out = next((b for b in pool if not any(b is t for t in self._taken)), None)
        if out is None:
            out = np.zeros((4, PES), np.int32)
            pool.append(out)
        self._taken.append(out)
        base: Any = np.array(addresses(o))
        if o.strides:
            shift = sum(s * i for s, i in zip(o.strides, self.indices))
            base = base + shift
            if self.count and len(o.strides) > self.depth and o.strides[self.depth]:
                base = Per([base + o.strides[self.depth] * i for i in range(self.count)])
        bar = self.state.bar[m.BAR0 if o.space == m.LM0 else m.BAR1]
        t_rows = np.array([1, 5, 9, 13])  # the low word of the MSB LW of T
        self.call(
            kernels.lm_addresses,
            out,
            base,
            bar,
            self.state.pe[m.T],
            t_rows,
            o.indirect,
            -1 if o.j is None else o.j,
            o.width,
            spec.LM_WORDS,
            batchable=False,
        )
        return out

    def source(self, o: m.Operand, element_bits: int = 64) -> View:
        """The 2LW view of a source, before suffixes."""
        space = o.space
        if space in SIZES:
            if self.is_dynamic(o):
                table = self.lm_addresses(o)
                view = self.buffer(o.width)
                self.call(
                    kernels.gather, self.state.pe[space], table, o.width, view.mem, view.words(o.width), batchable=False
                )
                return view
            return self.pe_view(o)
        if space == m.T:
            return self.t_view()
        found = self.forward.get(space)
        if found is not None:
            return found
        return self._fixed(space, element_bits)

    def lw_address(self, o: m.Operand) -> Any:
        """LW address of an L1BM or L2BM operand, for each iteration if it advances."""
        base = o.addr + sum(s * i for s, i in zip(o.strides, self.indices))
        size = spec.L1BM_LW if o.space == m.L1BM else spec.L2BM_LW
        stride = o.strides[self.depth] if self.count and len(o.strides) > self.depth else 0
        if stride:
            return Per([(base + stride * i) % size for i in range(self.count)])
        return base % size

    def lw_table(self, o: m.Operand, offsets: np.ndarray, size: int) -> Any:
        """Addresses base + offsets, wrapped, for each iteration if the operand advances."""
        address = self.lw_address(o)
        if isinstance(address, Per):
            return Per([(a + offsets) % size for a in address.values])
        return (address + offsets) % size

    def t_view(self) -> View:
        return self._t(self.t_low_zero)

    def _t(self, low_zero: bool) -> View:
        if self.private:
            found = fixed_view(self, m.T, _T_ROWS[low_zero], low_zero)
            if found is not None:
                return found
        return _t_view(self.state.pe[m.T], low_zero)

    def settle_forwards(self) -> None:
        """Forward registers that show a memory move to buffers of their own."""
        self._taken, self.forward = [], dict(self.forward)
        own = {id(b) for b in self._buffers.get(("buffer", 1), ())} | {id(b) for b in self.state.forward.values()}
        for name, view in self.forward.items():
            if id(view.mem) not in own:
                words = 2 if view.low_zero else 4
                saved = self.buffer(words)
                self.call(kernels.copy, view.mem, view.words(words), saved.mem, saved.words(words))
                self.forward[name] = saved

    def _fixed(self, space: str, bits: int) -> View:
        mem = self.state.fixed[space]
        if bits == 64:
            pair = [1, 0] if space == m.MSB1 else [0, 1]
        else:
            pair = [1, 1] if bits == 32 else [2, 2]
        return View(mem, np.array([*pair, 0, 0] * 4), STATIC, True)

    # --- one bundle --------------------------------------------------------------------------------------------------
    def bundle(self, bundle: m.Bundle) -> None:
        """Decodes a step. A line that was decoded before in the same situation gives the same calls."""
        if self.count or self.indices or self.dynamic_bar:
            self.forward = dict(self.forward)
            self._bundle(bundle)
            return
        if self.forward is not self._shared:
            self._share()
        key = (id(bundle.instructions), id(self._shared), self.mask, self.t_low_zero)
        known = self.machine.bundle_cache
        found = known.get(key)
        if found is None:
            start, before = len(self.calls), self._shared
            self.forward = dict(before)
            self._bundle(bundle)
            self._share()
            if len(known) > 20_000:
                known.clear()
            # what the key names by id is kept alive by the entry
            known[key] = (bundle.instructions, before, self.calls[start:], self._shared, self.t_low_zero)
            return
        _, _, calls, self._shared, self.t_low_zero = found
        self.calls += calls
        self.forward = self._shared

    def _share(self) -> None:
        """Makes the one dictionary of all decoders that show these views in the forward registers the current one.

        Its identity names the situation. It is never changed: who changes `forward` begins with a copy.
        """
        known = self.machine.forward_cache
        key = tuple(id(self.forward[name]) for name in _FORWARDS)
        found = known.get(key)
        if found is None:
            if len(known) > 20_000:
                known.clear()
            found = known[key] = dict(self.forward)  # keeps alive what the key names by id
        self.forward = self._shared = found

    def _bundle(self, bundle: m.Bundle) -> None:
        self._taken = []
        opcodes = [lookup(i.mnemonic) for i in bundle.instructions]
        forwarding = all(o.unit != "noforward" for o in opcodes)
        results: list[tuple[m.Instruction, Result, int]] = []
        late: list[tuple[m.Instruction, Opcode]] = []
        for instruction, opcode in sorted(zip(bundle.instructions, opcodes), key=_order):
            unit = opcode.unit
            if unit == "alu":
                results.append((instruction, *alu.decode(self, instruction, opcode)))
            elif unit == "mau":
                results.append((instruction, *mau.decode(self, instruction, opcode)))
            elif unit == "mread":
                results.append((instruction, *mau.decode_read(self, instruction, opcode)))
            elif unit == "l1bm" and instruction.operands[0].space in (m.L1BM, m.L1BM_TURN):  # type: ignore[union-attr]
                results.append((instruction, *network.decode_to_pe(self, instruction, opcode)))
            elif unit in ("mwrite", "l1bm", "l2bm", "dar"):
                late.append((instruction, opcode))
        self._plan(results, late, forwarding)

    def _plan(self, results: list, late: list, forwarding: bool) -> None:
        # Everything that reads PE memories or forward registers without writing PE memories comes first.
        fetched = []
        for instruction, opcode in late:
            if opcode.unit == "mwrite":
                fetched.append(mau.decode_write(self, instruction, opcode))
            elif opcode.unit == "l1bm":
                fetched.append(network.decode_from_pe(self, instruction, opcode, forwarding))
        direct = self._direct_targets(results, fetched)
        for index, (_, result, _) in enumerate(results):
            if index in direct:
                continue
            view = self.buffer(result.words)
            result.emit(view)
            result.view = view
        if any(opcode.unit == "dar" for _, opcode in late):
            network.decode_darw(self)  # with the buffer as it was before a l2bmdars of this step
        for instruction, opcode in late:
            if opcode.unit == "l2bm":
                network.decode_l2(self, instruction, opcode)
        for emit in fetched:
            emit.emit()
        flags = [self._flags(instruction, result) for instruction, result, _ in results]
        addresses_of = {}
        for index, (instruction, _, first) in enumerate(results):
            for position, operand in enumerate(instruction.operands[first:]):
                if isinstance(operand, m.Operand) and self.is_dynamic(operand):
                    addresses_of[index, position] = self.lm_addresses(operand)
        for index, (instruction, result, _) in enumerate(results):
            if instruction.flush is not None and index not in direct:
                self._flush(result, instruction.flush)
        new_forward: dict[str, View] = {}
        for index in sorted(direct, key=lambda i: direct[i][0]):
            instruction, result, first = results[index]
            _, target, _ = direct[index]
            self._save_forwards(
                target.mem,
                target.words(result.words),
                {FORWARD_OF_UNIT[r.opcode.unit] for _, r, _ in results} if forwarding else set(),
            )
            result.emit(target)
            result.view = target
        if forwarding:
            for _, result, _ in results:
                assert result.view is not None
                new_forward[FORWARD_OF_UNIT[result.opcode.unit]] = result.view
            self.forward.update(new_forward)
        for index, (instruction, result, first) in enumerate(results):
            for position, operand in enumerate(instruction.operands[first:]):
                if index in direct and position == direct[index][2]:
                    continue
                assert isinstance(operand, m.Operand) and result.view is not None
                self._write(operand, result.view, flags[index], addresses_of.get((index, position)))

    # --- results straight into their destination -----------------------------------------------------------------------
    def _direct_targets(self, results: list, fetched: list) -> dict[int, tuple[int, View, int]]:
        """Which results go straight to their first destination: index -> (order, target view, operand position)."""
        chosen: dict[int, tuple[int, View, int]] = {}
        for index, (instruction, result, first) in enumerate(results):
            if instruction.flush is not None or result.opcode.unit not in ("alu", "mau"):
                continue
            operands = instruction.operands[first:]
            if any(o.space in (m.OMR, m.BAR0, m.BAR1) for o in operands):
                continue
            for position, operand in enumerate(operands):
                in_memory = operand.space in SIZES and not self.is_dynamic(operand) and operand.width == result.words
                in_t = operand.space == m.T and result.words == 2 and self.t_low_zero
                if (in_memory or in_t) and self._mask_of(operand) is NO_MASK:
                    target = self.t_view() if in_t else self.pe_view(operand)
                    rows = target.words(result.words)
                    if not _distinct(rows):
                        continue
                    if all(same_rows(rows, r) or not overlap(target.mem, rows, mem, r) for mem, r in result.sources):
                        others = [s for i, (_, r, _) in enumerate(results) if i != index for s in r.sources]
                        if not any(overlap(target.mem, rows, mem, r) for mem, r in others):
                            chosen[index] = (len(chosen), target, position)
                            break
        # Destinations must not overlap what is fetched late (mwrite and L1BM sources come before all writes, so they cannot).
        return chosen

    def _save_forwards(self, mem: np.ndarray, rows: Rows, replaced: set[str]) -> None:
        """Before rows are written over: forward registers that show them move to a buffer."""
        for name, view in self.forward.items():
            if name in replaced or view.mem is not mem:
                continue
            words = 2 if view.low_zero else 4
            if overlap(mem, rows, view.mem, view.words(words)):
                saved = self.buffer(words)
                self.call(kernels.copy, view.mem, view.words(words), saved.mem, saved.words(words))
                self.forward[name] = saved

    # --- masks ---------------------------------------------------------------------------------------------------------
    def _mask_of(self, o: m.Operand) -> tuple:
        return mask_of(o, self.mask)

    def _flush(self, result: Result, mask: m.Mask) -> None:
        kind = _resolve(mask)
        if kind is NO_MASK:
            return
        view = result.view
        assert view is not None
        words = result.words
        nr, high, low = guards(kind, words, 4)
        nibbles = self.state.masks
        self.call(kernels.flush, view.mem, view.words(words), nibbles, nr, high, low, batchable=False)

    # --- writes --------------------------------------------------------------------------------------------------------
    def _write(self, o: m.Operand, view: View, flags: tuple | None, table: np.ndarray | None) -> None:
        space = o.space
        if space == m.NOWRITE:
            return
        mask = self._mask_of(o)
        if mask == ("off",):
            return
        if space == m.OMR:
            self._write_mask(o, flags, mask)
        elif space in (m.BAR0, m.BAR1):
            self._write_bar(space, view, mask)
        elif space == m.T:
            self._write_t(view, mask)
        elif table is not None:
            self._scatter(o, view, mask, table)
        else:
            target = self.pe_view(o)
            self._copy(view, target, o.width, mask)

    def _copy(self, view: View, target: View, words: int, mask: tuple) -> None:
        rows = target.words(words)
        self._save_forwards(target.mem, rows, set())
        if mask is NO_MASK:
            self.call(kernels.copy, view.mem, view.words(words), target.mem, rows)
        elif mask[0] == "cycles":
            chosen = _chosen_words(mask, words)
            if chosen.size:
                self.call(kernels.copy, view.mem, _pick(view.words(words), chosen), target.mem, _pick(rows, chosen))
        else:
            nr, high, low = guards(mask, words, 4)
            self.call(
                kernels.copy_masked,
                view.mem,
                view.words(words),
                target.mem,
                rows,
                self.state.masks,
                nr,
                high,
                low,
                batchable=False,
            )

    def _write_t(self, view: View, mask: tuple) -> None:
        target = self._t(False)
        if mask is NO_MASK and view.low_zero:
            words = 2 if self.t_low_zero else 4
            self._copy(view, target, words, mask)
            self.t_low_zero = True
            return
        self._copy(view, target, 4, mask)
        self.t_low_zero = self.t_low_zero and view.low_zero

    def _scatter(self, o: m.Operand, view: View, mask: tuple, table: np.ndarray) -> None:
        mem = self.state.pe[o.space]
        for name, forward in self.forward.items():
            if forward.mem is mem:
                words = 2 if forward.low_zero else 4
                saved = self.buffer(words)
                self.call(kernels.copy, forward.mem, forward.words(words), saved.mem, saved.words(words))
                self.forward[name] = saved
        rows = view.words(o.width)
        nr = np.zeros(rows.array.shape[-1], np.int64)
        high = low = np.full(nr.size, kernels.ALWAYS, np.int64)
        if mask is not NO_MASK:
            nr, high, low = guards(mask, o.width, 4)
        self.call(
            kernels.scatter,
            view.mem,
            rows,
            mem,
            table,
            o.width,
            self.state.masks,
            nr,
            high,
            low,
            mask is not NO_MASK,
            batchable=False,
        )

    def _write_bar(self, space: str, view: View, mask: tuple) -> None:
        bar, masks = self.state.bar[space], self.state.masks
        rows = view.words(1).array
        nr, _, low = guards(mask if mask is not NO_MASK else _ALL, 1, 4)

        def write() -> None:
            for c in range(4):
                value = (view.mem[rows[c]] & 0xFFF).astype(np.int32)
                allowed = (masks[nr[c]] >> np.uint8(3 - low[c])) & 1
                bar[:] = np.where(allowed == 1, value, bar)

        self.call(write, batchable=False)

    # --- flags ---------------------------------------------------------------------------------------------------------
    def _flags(self, instruction: m.Instruction, result: Result) -> tuple | None:
        """Emits the calculation of the flags if a mask register wants them; (nibbles [4][PE],)."""
        if not any(isinstance(o, m.Operand) and o.space == m.OMR for o in instruction.operands):
            return None
        pool = self._buffers.setdefault(("nibble", 1), [])
        out = next((b for b in pool if not any(b is t for t in self._taken)), None)
        if out is None:
            out = np.zeros((4, PES), np.uint8)
            pool.append(out)
        self._taken.append(out)
        if result.opcode.unit == "mau":
            mau.emit_flags(self, result, out)
        else:
            alu.emit_flags(self, instruction, result, out)
        return (out,)

    def _write_mask(self, o: m.Operand, flags: tuple | None, mask: tuple) -> None:
        assert flags is not None
        rows = 4 * o.addr + np.arange(4)
        masked = mask is not NO_MASK
        guard = np.zeros(4, np.int64) if not masked else np.array(_entry_rows(mask))
        self.call(
            kernels.copy_nibbles,
            flags[0],
            np.arange(4),
            self.state.masks,
            rows,
            self.state.masks,
            guard,
            masked,
            batchable=False,
        )


# --- helpers -----------------------------------------------------------------------------------------------------------
_BUFFER_PARTS = {w: np.where(WORDS[None, :] < w, np.arange(16).reshape(4, 4), 16).reshape(-1) for w in (1, 2, 4)}
_T_ROWS = {False: np.arange(16), True: _BUFFER_PARTS[2]}
_T_VIEWS: dict[tuple[int, bool], View] = {}


def _t_view(mem: np.ndarray, low_zero: bool) -> View:
    key = (id(mem), low_zero)
    found = _T_VIEWS.get(key)
    if found is None or found.mem is not mem:
        if len(_T_VIEWS) > 64:
            _T_VIEWS.clear()
        found = _T_VIEWS[key] = View(mem, _T_ROWS[low_zero], STATIC, low_zero)
    return found


def _rows(addrs: np.ndarray, width: int, size: int) -> np.ndarray:
    """Rows [..., cycle * 4 + word] of accesses of a width; missing words are the row of zeros behind the memory."""
    words = (addrs[..., None] // width * width + WORDS) % size
    rows = np.where(width > WORDS, words, size)
    return rows.reshape(*addrs.shape[:-1], -1)


_ORDER = {"mau": 0, "mread": 1, "l1bm": 2, "alu": 4}


def _order(pair: tuple[m.Instruction, Opcode]) -> int:
    """What a step makes first. Of two transfers to the PEs that of L1BM itself comes last, so that $lbf shows it."""
    instruction, opcode = pair
    return _ORDER.get(opcode.unit, 5) + (opcode.unit == "l1bm" and not is_turnaround(instruction))


def _distinct(rows: Rows) -> bool:
    array = rows.array if rows.array.ndim == 1 else rows.array[0]
    return len(set(array.tolist())) == array.size


def mask_of(o: m.Operand, line: tuple[int, str, bool]) -> tuple:
    """The mask of a destination, its own or that of the latest mask line (entry, letters, 2-long): NO_MASK, ("off",),
    ("cycles", tuple of 4 bools, long2) or ("entry", number, long2)."""
    if o.mask is not None:
        return _resolve(o.mask)
    entry, targets, long2 = line
    if entry == 0 and not targets:
        return NO_MASK
    if MASK_LETTER[o.space] not in targets:
        return ("off",)
    return _resolve(m.Mask(register=entry, long2=long2))


def _resolve(mask: m.Mask) -> tuple:
    if mask.pattern is not None:
        return ("cycles", tuple(bool(bits) for bits in mask.pattern), mask.long2)
    entry = mask.register or 0
    if entry == 0:
        return NO_MASK
    fixed = fixed_mask_cycles(entry)
    if fixed is not None:
        return ("cycles", fixed, mask.long2)
    return ("entry", entry, mask.long2)


def _entry_rows(mask: tuple) -> list[int]:
    """Rows of the nibbles of a mask, one per cycle; patterns use the all-ones entry 0 and the all-zeros entry 16."""
    if mask[0] == "cycles":
        return [4 * (0 if on else 16) + c for c, on in enumerate(mask[1])]
    return [4 * mask[1] + c for c in range(4)]


def _chosen_words(mask: tuple, words: int) -> np.ndarray:
    """Positions (cycle * words + word) that a mask with all-or-nothing cycles lets through."""
    _, cycles, long2 = mask
    chosen = [c * words + w for c in range(4) for w in range(words) if cycles[c] or (not long2 and w >= 2)]
    return np.array(chosen, np.int64)


def _pick(rows: Rows, chosen: np.ndarray) -> Rows:
    return Rows(np.ascontiguousarray(rows.array[..., chosen]), rows.kind)


def guards(mask: tuple, words: int, cycles: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each (cycle, word): nibble row, guarding bit of the upper half, of the lower half.

    Long masks: the four bits guard the 16-bit quarters of the MSB LW, the LSB LW is not guarded. 2-long masks: bit k
    guards word k.
    """
    rows = _entry_rows(mask)
    long2 = mask[2]
    nr, high, low = [], [], []
    for c in range(cycles):
        for w in range(words):
            nr.append(rows[c])
            if long2:
                high.append(w)
                low.append(w)
            elif w < 2:
                high.append(2 * w)
                low.append(2 * w + 1)
            else:
                high.append(kernels.ALWAYS)
                low.append(kernels.ALWAYS)
    return np.array(nr), np.array(high), np.array(low)


from . import alu, mau, network  # noqa: E402  (they need the classes above)
