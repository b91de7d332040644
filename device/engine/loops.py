"""Loops without unrolling.

A loop is decoded once, with a table of row numbers for each operand that advances. If no iteration depends on
another, several iterations
run in one kernel call (a batch): registers that every iteration writes before it reads them become private buffers of the
iteration. Otherwise the calls are made iteration by iteration with the rows of the table.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import spec
from ..isa import model as m
from ..isa.checks import fixed_mask_cycles
from ..isa.footprint import PE_ADDRESSED, SIZES, use_of
from ..numerics.fast import rows as kernels
from .views import ITER, LANE, STATIC, Rows, View

if TYPE_CHECKING:
    from .decoder import Call, Decoder

PES = spec.PES
BATCH = 4  # iterations in one kernel call: enough to hide the call, few enough for the cache
WORTH_A_THREAD = 32  # steps in a loop from which on a second thread pays
FORWARD_OF = {"alu": m.ALUF, "mau": m.MAUF, "l1bm": m.LBF, "mread": m.MREADF}


class Per:
    """A plain value for each iteration."""

    __slots__ = ("values",)

    def __init__(self, values: list) -> None:
        self.values = values


# --- execution -----------------------------------------------------------------------------------------------------------
class Iterated:
    """The calls of a loop body, made `count` times with the arguments of each iteration."""

    def __init__(self, count: int, calls: Sequence[Call]) -> None:
        self.count = count
        self.calls = []
        for call in calls:
            varying = [
                (i, a.array if isinstance(a, Rows) else a.values)
                for i, a in enumerate(call.args)
                if isinstance(a, Per) or (isinstance(a, Rows) and a.kind == ITER)
            ]
            args = tuple(a.array if isinstance(a, Rows) and a.kind == STATIC else a for a in call.args)
            self.calls.append((call.kernel, args, varying))

    def __call__(self) -> None:
        calls = self.calls
        for i in range(self.count):
            for kernel, args, varying in calls:
                if varying:
                    changed = list(args)
                    for position, table in varying:
                        changed[position] = table[i]
                    kernel(*changed)
                else:
                    kernel(*args)


def batched(count: int, lanes: int, calls: Sequence[Call]) -> list[list[tuple[Any, tuple]]]:
    """The calls of a batchable loop as plain calls, each for up to BATCH iterations; one list for each thread.

    Iteration i uses the private buffers of lane i mod lanes, so that threads that take turns never share one.
    """
    chunks = [(start, min(start + BATCH, count)) for start in range(0, count, BATCH)]
    prepared = [(call.kernel, [_batch_arguments(a, lanes, chunks) for a in call.args]) for call in calls]
    threads = max(1, lanes // BATCH)
    return [
        [(kernel, tuple(a[i] for a in args)) for i in range(turn, len(chunks), threads) for kernel, args in prepared]
        for turn in range(threads)
    ]


def _batch_arguments(a: Any, lanes: int, chunks: list[tuple[int, int]]) -> Sequence[Any]:
    """An argument for each chunk of iterations."""
    if isinstance(a, Rows):
        width = a.array.shape[-1]
        if a.kind == ITER:
            flat = a.array.reshape(-1)
            return [flat[start * width : stop * width] for start, stop in chunks]
        if a.kind == STATIC:
            flat = np.tile(a.array, min(lanes, BATCH))
            return [flat[: (stop - start) * width] for start, stop in chunks]
        flat = a.array.reshape(-1)
        return [flat[start % lanes * width : (start % lanes + stop - start) * width] for start, stop in chunks]
    if isinstance(a, Per):
        return [np.concatenate(a.values[start:stop]) for start, stop in chunks]
    return [a] * len(chunks)


class Threads:
    """Lists of calls that know nothing of each other, one for each thread. Kernels run without the interpreter's lock."""

    _pool: tuple[int, ThreadPoolExecutor] | None = None

    def __init__(self, lists: list[list[tuple[Any, tuple]]]) -> None:
        self.lists = lists

    def __call__(self) -> None:
        if Threads._pool is None or Threads._pool[0] != os.getpid():  # threads do not survive a fork
            Threads._pool = (os.getpid(), ThreadPoolExecutor(1, "mlsdk-emulator"))
        other = Threads._pool[1].submit(_make, self.lists[1])
        _make(self.lists[0])
        other.result()


def _make(calls: list[tuple[Any, tuple]]) -> None:
    for kernel, args in calls:
        kernel(*args)


def usable_threads() -> int:
    """2 where the process may use two cores or more; MLSDK_EMULATOR_THREADS=1 keeps it to one."""
    chosen = os.environ.get("MLSDK_EMULATOR_THREADS", "")
    return 1 if chosen == "1" or len(os.sched_getaffinity(0)) < 2 else 2


# --- what a body does ----------------------------------------------------------------------------------------------------
class Body:
    """The accesses of a loop body: which forward registers it carries over, and whether iterations are independent."""

    def __init__(self, loop: m.Loop, indices: tuple[int, ...]) -> None:
        self.count, self.depth = loop.count, len(indices)
        self.bundles = [s for s in loop.body if isinstance(s, m.Bundle)]
        self.uses = [use_of(b) for b in self.bundles]
        self.indices = indices
        self.simple = all(isinstance(s, (m.Bundle, m.Nop, m.Comment, m.Move, m.Marker)) for s in loop.body)
        self.only_steps = all(isinstance(s, (m.Bundle, m.Nop, m.Comment)) for s in loop.body)
        self.carried = self._carried_forwards()

    def _carried_forwards(self) -> set[str]:
        """Forward registers that are read before the body writes them."""
        written: set[str] = set()
        carried: set[str] = set()
        for bundle, use in zip(self.bundles, self.uses):
            for instruction in bundle.instructions:
                for o in instruction.operands:
                    if isinstance(o, m.Operand) and o.space in FORWARD_OF.values() and o.space not in written:
                        carried.add(o.space)
            if all(o.unit != "noforward" for o in use.opcodes):
                for instruction, opcode in zip(bundle.instructions, use.opcodes):
                    if opcode.unit == "l1bm" and instruction.operands[0].space not in (m.L1BM, m.L1BM_TURN):  # type: ignore[union-attr]
                        continue
                    if opcode.unit in FORWARD_OF:
                        written.add(FORWARD_OF[opcode.unit])
        return carried & written

    def _tables(self, access: Any) -> np.ndarray:
        """Words [iterations][..] of one access."""
        o = access.operand
        outer = sum(s * i for s, i in zip(o.strides, self.indices))
        stride = o.strides[self.depth] if len(o.strides) > self.depth else 0
        addrs = np.array(access.addrs) + outer
        if access.mask is not None:
            cycles = _cycles(access.mask)
            addrs = addrs[np.array(cycles)]
        words = (addrs[:, None] // access.width * access.width + np.arange(access.width)).reshape(-1)
        table = words[None, :] + stride * np.arange(self.count)[:, None]
        return table % SIZES[access.space]

    def private_rows(self) -> dict[str, set[int]] | None:
        """Rows that become private buffers, by memory (and T under its own name); None if iterations depend on each other."""
        if self.carried or self.count < 2:
            return None
        for use in self.uses:
            if use.omr_writes or use.bar_writes or use.tags or use.l1_writes or use.l2_reads or use.l2_writes:
                return None
            if any(mask.pattern is None and fixed_mask_cycles(mask.register or 0) is None for mask, _ in use.masks):
                return None
            if any(a.operand.indirect or a.operand.j is not None for a in (*use.reads, *use.writes)):
                return None
            if any(o.unit in ("mwrite", "mread", "l2bm", "dar") for o in use.opcodes):
                return None
        private: dict[str, set[int]] = {}
        for space in PE_ADDRESSED:
            found = self._private_in(space)
            if found is None:
                return None
            private[space] = found
        t_written = False
        for use in self.uses:
            if use.reads_t and not t_written and any(w.space == m.T for u in self.uses for w in u.writes):
                return None  # T is carried from one iteration to the next
            if any(w.space == m.T for w in use.writes):
                if any(w.space == m.T and w.mask is not None for w in use.writes):
                    return None
                t_written = True
        private[m.T] = set(range(16)) if t_written else set()
        return private

    def _private_in(self, space: str) -> set[int] | None:
        if not any(w.space == space for use in self.uses for w in use.writes):
            return set()
        owner = np.full(SIZES[space], -1)
        writes: list[np.ndarray] = []
        reads: list[np.ndarray] = []
        fixed_first: dict[int, str] = {}  # row that does not move -> its first access
        fixed_written: set[int] = set()
        for use in self.uses:
            for kind, accesses in (("read", use.reads), ("write", use.writes)):
                for access in accesses:
                    if access.space != space:
                        continue
                    o = access.operand
                    table = self._tables(access)
                    moves = len(o.strides) > self.depth and o.strides[self.depth] != 0
                    if not moves:
                        rows = set(table[0].tolist())
                        for row in rows:
                            fixed_first.setdefault(row, kind)
                        if kind == "write":
                            fixed_written |= rows
                        reads.append(table) if kind == "read" else None
                    (writes if kind == "write" else reads).append(table) if moves else None
        number = np.arange(self.count)[:, None]
        for table in writes:
            owner[table] = number
        for table in writes:
            if not (owner[table] == number).all():
                return None
        for table in reads:
            o = owner[table]
            if not ((o == -1) | (o == number)).all():
                return None
        moving = set(np.flatnonzero(owner >= 0).tolist())
        if fixed_written & moving:
            return None
        if any(fixed_first[row] == "read" for row in fixed_written):
            return None  # an accumulator
        for table in reads:  # a moving read must not meet a private row
            if (
                table.shape[0] > 1
                and (table[0] != table[-1]).any()
                and not fixed_written.isdisjoint(table.reshape(-1).tolist())
            ):
                return None
        return fixed_written


def _cycles(mask: m.Mask) -> list[bool]:
    if mask.pattern is not None:
        return [bool(bits) for bits in mask.pattern]
    return list(fixed_mask_cycles(mask.register or 0) or (True, True, True, True))


# --- decoding ------------------------------------------------------------------------------------------------------------
def decode(
    decoder: Decoder, loop: m.Loop, body: Body, statement: Any
) -> list[tuple[Any, tuple]] | Threads | Iterated | None:
    """The loop as calls, or None if it has to be decoded iteration by iteration. `statement(s)` decodes one statement."""
    decoder.settle_forwards()
    before, mask = decoder.calls, decoder.mask
    private = body.private_rows() if body.only_steps and mask == (0, "", False) and not decoder.dynamic_bar else None
    lanes = 0
    if private is not None:
        large = loop.count * len(body.bundles) >= WORTH_A_THREAD and loop.count >= 2 * BATCH
        lanes = usable_threads() * BATCH if large else BATCH
    entry, flag = dict(decoder.forward), decoder.t_low_zero
    result: list[tuple[Any, tuple]] | Threads | Iterated | None = None
    while True:
        decoder.calls, decoder.forward, decoder.t_low_zero = [], dict(entry), flag
        decoder.count, decoder.depth, decoder.lanes = loop.count, body.depth, lanes
        decoder.private = _private_views(decoder, private, lanes) if lanes and private else {}
        try:
            for s in loop.body:
                statement(s)
            one_by_one = lanes and not all(c.batchable for c in decoder.calls)
        except NotPrivate:
            one_by_one = True
        if one_by_one:
            lanes = 0
            continue
        if flag and not decoder.t_low_zero:
            # this decoding took T's low words for zero at the start, which is not so in later iterations
            flag = False
            continue
        break
    if decoder.mask == mask:
        if lanes:
            lists = batched(loop.count, lanes, decoder.calls)
            last = _copy_private(decoder, loop.count, lanes)
            result = [(Threads(lists), ()), *last] if len(lists) > 1 else lists[0] + last
        else:
            _carry(decoder, body, entry)
            result = Iterated(loop.count, decoder.calls)
        _leave(decoder, loop.count, lanes)
    else:
        decoder.forward, decoder.t_low_zero, decoder.mask = entry, flag, mask
    decoder.calls = before
    decoder.count, decoder.lanes, decoder.private = 0, 0, {}
    return result


def _carry(decoder: Decoder, body: Body, entry: dict[str, View]) -> None:
    """At the end of an iteration, forward registers that the next one reads go back to where it looks for them."""
    for name in body.carried:
        view, home = decoder.forward[name], entry[name]
        if view is not home:
            decoder.call(kernels.copy, view.mem, view.words(4), home.mem, home.words(4))
            decoder.forward[name] = home


def _leave(decoder: Decoder, count: int, lanes: int) -> None:
    """After the loop, forward registers show what the last iteration left."""
    for name, view in decoder.forward.items():
        if view.kind == ITER:
            decoder.forward[name] = View(view.mem, view.rows[-1], STATIC, view.low_zero)
        elif view.kind == LANE:
            decoder.forward[name] = View(view.mem, view.rows[(count - 1) % lanes], STATIC, view.low_zero)


def _private_views(
    decoder: Decoder, private: dict[str, set[int]], lanes: int
) -> dict[str, tuple[np.ndarray, np.ndarray, int]]:
    """For each memory with private rows: buffer, position of each row (-1: not private), rows in a lane."""
    out = {}
    for space, rows in private.items():
        if not rows:
            continue
        ordered = sorted(rows)
        size = 16 if space == m.T else SIZES[space]
        position = np.full(size + 1, -1)
        position[ordered] = np.arange(len(ordered))
        pool = decoder._buffers.setdefault((f"private {space}", lanes), [])
        needed = len(ordered) * lanes + 1
        buffer = next((b for b in pool if b.shape[0] >= needed), None)
        if buffer is None:
            buffer = np.zeros((needed, PES), np.uint32)
            pool.clear()
            pool.append(buffer)
        out[space] = (buffer, position, len(ordered))
    return out


def _copy_private(decoder: Decoder, count: int, lanes: int) -> list[tuple[Any, tuple]]:
    """What the last iteration left in private rows goes to the memory."""
    calls = []
    lane = (count - 1) % lanes
    for space, (buffer, position, size) in decoder.private.items():
        rows = np.flatnonzero(position >= 0)
        calls.append((kernels.copy, (buffer, lane * size + position[rows], decoder.state.pe[space], rows)))
    return calls


def fixed_view(decoder: Decoder, space: str, rows: np.ndarray, low_zero: bool) -> View | None:
    """The private view of rows that do not move, or None if they are not private. Rows beyond the memory are the row of zeros."""
    found = decoder.private.get(space)
    if found is None:
        return None
    buffer, position, size = found
    where = position[rows]
    missing = rows == position.size - 1
    if (where[~missing] < 0).all():
        return None
    if (where[~missing] < 0).any():
        raise NotPrivate
    lanes = decoder.lanes
    table = np.where(missing[None, :], buffer.shape[0] - 1, where[None, :] + size * np.arange(lanes)[:, None])
    return View(buffer, table, LANE, low_zero)


class NotPrivate(Exception):
    """An operand covers private and shared rows at once."""
