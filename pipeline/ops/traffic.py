"""What statements touch outside the PEs, and which of it belongs together: DRAM, L2BM, tags.

A fragment uses L2BM for values that come, are read and are gone: a piece of a tensor that a move brings, a result that a move
takes away. Such a value (`Value`) may lie anywhere, if all that touch it are changed alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from mlsdk.device import spec
from mlsdk.device.isa import model as m
from mlsdk.device.isa.footprint import use_of
from mlsdk.device.timing import form_of
from mlsdk.pipeline.ir.plan import PDM

CELL = 16  # LW of L2BM that are told apart
BOTH = (0, 1)  # the L2Bs of a group

Place = tuple[str, int, int]  # segment, first LW, behind the last


@dataclass(frozen=True, slots=True)
class Touch:
    """LW [low, high) of L2BM in some L2Bs of each group. `whole`: every LW of it is written."""

    blocks: tuple[int, ...]
    low: int
    high: int
    writes: bool
    whole: bool = False

    def meets(self, other: Touch) -> bool:
        return self.low < other.high and other.low < self.high and not set(self.blocks).isdisjoint(other.blocks)


@dataclass(slots=True)
class Access:
    """What a statement, loops and all, touches. `anything`: what it touches in DRAM is not known."""

    l2bm: list[Touch] = field(default_factory=list)
    reads: list[Place] = field(default_factory=list)
    writes: list[Place] = field(default_factory=list)
    tags: set[int] = field(default_factory=set)
    moves: int = 0
    anything: bool = False


NOTHING = Access()


def access(s: m.Statement) -> Access:
    if type(s) is m.Bundle and use_of(s).shape.plain:
        return NOTHING
    found = Access()
    _collect(s, (), found)
    return found


def _collect(s: m.Statement, counts: tuple[int, ...], found: Access) -> None:
    if isinstance(s, m.Loop):
        for inner in s.body:
            _collect(inner, (*counts, s.count), found)
    elif isinstance(s, m.Move):
        _collect_move(s, counts, found)
    elif isinstance(s, m.Bundle):
        use = use_of(s)
        found.tags.update(use.tags)
        for ranges, writes in ((use.l2_reads, False), (use.l2_writes, True)):
            for r in ranges:
                low, high = span(r.start, r.length, r.operand.strides if r.operand is not None else (), counts)
                found.l2bm.append(Touch(BOTH, low, high, writes, writes and not counts))
        if any(opcode.unit == "dar" or opcode.operation == "l2bmdars" for opcode in use.opcodes):
            found.anything = True


def _collect_move(s: m.Move, counts: tuple[int, ...], found: Access) -> None:
    form = form_of(s)
    found.moves += 1
    if s.tag:
        found.tags.add(s.tag)
    if form is None or s.src is None or s.dst is None:
        found.anything = True
        return
    for side, operand, writes in ((form.source, s.src, False), (form.destination, s.dst, True)):
        low, high = span(operand.addr, side.size(s.size), operand.strides, counts)
        if operand.space == m.L2BM:
            one = operand.block is not None and operand.group is None
            blocks = (operand.block,) if operand.block is not None else BOTH
            found.l2bm.append(Touch(blocks, low, high, writes, writes and not counts and (one or blocks == BOTH)))
        elif operand.space == m.PDM or (operand.space == m.DRAM and operand.symbol):
            (found.writes if writes else found.reads).append((operand.symbol or PDM, low, high))
        else:
            found.anything = True


def span(start: int, length: int, strides: Sequence[int], counts: Sequence[int]) -> tuple[int, int]:
    """First and behind the last of what is touched in all iterations of loops of so many `counts`."""
    if not counts or not strides:
        return start, start + length
    low = start + sum(min(0, stride * (count - 1)) for stride, count in zip(strides, counts))
    high = start + length + sum(max(0, stride * (count - 1)) for stride, count in zip(strides, counts))
    return low, high


def meet(a: Place, b: Place) -> bool:
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]


# ---- values in L2BM -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Value:
    """LW [low, high) of L2BM from the statement `first` to `last`."""

    low: int
    high: int
    first: int
    last: int

    @property
    def size(self) -> int:
        return self.high - self.low


class Values:
    """The values of one fragment after another. `of(number)` gives what lies at each L2BM address that a statement names."""

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._found: list[Value] = []
        self._named: dict[int, dict[int, int]] = {}

    def fragment(self, statements: Iterable[tuple[int, m.Statement, Access]]) -> None:
        """(number, statement, what it touches) of a fragment, in order."""
        cells = np.full((len(BOTH), -(-spec.L2BM_LW // CELL)), -1)
        for number, s, a in statements:
            for touch in a.l2bm:
                self._touch(cells, number, touch)
            if a.l2bm:
                self._named[number] = {
                    o.addr: int(cells[o.block or 0, o.addr // CELL]) for o in _operands(s) if o.space == m.L2BM
                }

    def _touch(self, cells: np.ndarray, number: int, touch: Touch) -> None:
        blocks = slice(None) if touch.blocks == BOTH else touch.blocks[0]
        part = cells[blocks, touch.low // CELL : -(-touch.high // CELL)]
        mine = self._new(touch, number)
        if touch.whole and not (touch.low % CELL or touch.high % CELL):
            part[...] = mine
            return
        first = part.flat[0] if part.size else -1
        for other in [first] if (part == first).all() else np.unique(part):
            if other >= 0:
                self._join(mine, int(other))
        part[part < 0] = mine

    def _new(self, touch: Touch, number: int) -> int:
        self._parent.append(len(self._parent))
        low, high = touch.low // CELL * CELL, -(-touch.high // CELL) * CELL
        self._found.append(Value(low, high, number, number))
        return len(self._parent) - 1

    def _root(self, v: int) -> int:
        while self._parent[v] != v:
            self._parent[v] = v = self._parent[self._parent[v]]
        return v

    def _join(self, a: int, b: int) -> None:
        a, b = self._root(a), self._root(b)
        if a != b:
            self._parent[b] = a
            mine, other = self._found[a], self._found[b]
            mine.low, mine.high = min(mine.low, other.low), max(mine.high, other.high)
            mine.first, mine.last = min(mine.first, other.first), max(mine.last, other.last)

    def of(self, number: int) -> tuple[tuple[int, int, Value], ...]:
        """Address, key, value at each address that a statement names, after all fragments are known."""
        found = ((addr, self._root(v)) for addr, v in self._named.get(number, {}).items())
        return tuple((addr, root, self._found[root]) for addr, root in found)


def _operands(s: m.Statement) -> Iterator[m.Operand]:
    """Those that name L2BM, and some others."""
    if isinstance(s, m.Loop):
        for inner in s.body:
            yield from _operands(inner)
    elif isinstance(s, m.Move):
        yield from (o for o in (s.src, s.dst) if o is not None)
    elif isinstance(s, m.Bundle):
        use = use_of(s)
        yield from (r.operand for r in (*use.l2_reads, *use.l2_writes) if r.operand is not None)
