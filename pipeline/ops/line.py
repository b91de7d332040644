"""A program in one line, for its nodes to overlap: which statement may come before which."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import numpy as np

from mlsdk.device import spec
from mlsdk.device.isa import model as m
from mlsdk.device.isa.footprint import Use, use_of
from mlsdk.device.isa.hazards import Hazards
from mlsdk.device.timing import MoveForm, duration_of, form_of, ports_of
from mlsdk.pipeline.ops.clock import Clock, is_wait, plain_steps
from mlsdk.pipeline.ops.traffic import Access, Place, Touch, Value, Values, access, meet

CLOSE = 2 * spec.MV_LATENCY_CYCLES // spec.CYCLES_PER_STEP  # steps between a move back and one that reads that at once
SETTLED = {"l2bm": 4, "dar": 4}  # steps until nothing depends on an instruction any more; 3 of other units


@dataclass(frozen=True)
class Node:
    """A fragment in its program: the name of its marker, and its statements, bound to segments."""

    name: str
    statements: tuple[m.Statement, ...]


@dataclass(slots=True)
class Item:
    """A statement. `load`: a move that may start early, behind the items up to `behind`; `store`: a move back that may be waited
    for late. Other moves keep their tags and waits.

    Of a bundle, `bundle` is its number among these, `distances` says how far it has to be from those before it (number, steps),
    and `settled` after how many steps nothing depends on it any more (0: nothing does)."""

    number: int
    node: int
    statement: m.Statement
    access: Access
    steps: int = 0
    load: bool = False
    store: bool = False
    behind: int = -1
    ports: tuple[str, ...] = ()
    duration: int = 0
    form: MoveForm | None = None
    pause: int | None = None  # steps of a loop without moves and waits
    bundle: int = -1
    distances: Sequence[tuple[int, int]] = ()
    settled: int = 0
    quiet: bool = True  # it touches nothing outside the PEs
    values: tuple[tuple[int, int, Value], ...] = ()  # at an address of L2BM: the key of the value there, and the value
    touches: tuple[
        tuple[int, int, int, int, bool], ...
    ] = ()  # key of a value, L2Bs (a bit each), LW [low, high), writes


class Line:
    """A program in one line, and what is known of it whatever the reach."""

    def __init__(self, nodes: Sequence[Node]):
        self.nodes = nodes
        self.items: list[Item] = []
        self.values = Values()
        for j, node in enumerate(nodes):
            self._add(j, node)
        for item in self.items:
            self._find_values(item)
        #: steps before each item, at least
        self.at = [*accumulate((i.steps for i in self.items), initial=0)]
        self._find_order()
        self._find_distances()

    def _add(self, j: int, node: Node) -> None:
        accesses = [access(s) for s in node.statements]
        fixed = {tag for s, a in zip(node.statements, accesses) if isinstance(s, m.Loop) for tag in a.tags}
        fixed |= {s.tag for s, a in zip(node.statements, accesses) if isinstance(s, m.Move) and a.anything}
        moves: dict[int, list[Access]] = {}
        first = len(self.items)
        for s, a in zip(node.statements, accesses):
            if isinstance(s, m.Nop) or (is_wait(s) and not a.tags & fixed):
                continue
            item = Item(len(self.items), j, s, a)
            if isinstance(s, m.Move) and s.tag in fixed:
                moves.setdefault(s.tag, []).append(a)
            elif isinstance(s, m.Loop):
                alone = Clock()
                alone.run([s])
                item.steps = alone.now // spec.CYCLES_PER_STEP  # at least
                item.pause = plain_steps([s])
                for tag in a.tags:
                    moves.setdefault(tag, []).append(a)
            elif isinstance(s, m.Move):
                assert s.src is not None and s.dst is not None
                item.load = s.src.space in (m.DRAM, m.PDM) and s.dst.space == m.L2BM
                item.store = not item.load
                item.form = form_of(s)
                assert item.form is not None
                item.ports, item.duration = ports_of(s, item.form), duration_of(s, item.form)
            elif isinstance(s, m.Bundle):
                item.steps = 1
                for tag in a.tags:  # who waits for a move that keeps its tag touches what that does
                    for other in moves.get(tag, ()):
                        a.l2bm += [replace(t, whole=False) for t in other.l2bm]
                        a.reads += other.reads
                        a.writes += other.writes
            self.items.append(item)
        self.values.fragment((i.number, i.statement, i.access) for i in self.items[first:])

    def _find_values(self, item: Item) -> None:
        a = item.access
        item.values = self.values.of(item.number)
        item.touches = tuple(
            (key, sum(1 << block for block in touch.blocks), touch.low, touch.high, touch.writes)
            for touch in a.l2bm
            for _, key, value in item.values
            if value.low < touch.high and touch.low < value.high
        )
        moves = isinstance(item.statement, m.Loop) and a.moves
        item.quiet = not (a.anything or a.l2bm or a.reads or a.writes or moves)

    def _find_distances(self) -> None:
        """How far bundles have to be from each other: what the hazards say, if there were no empty steps."""
        hazards = Hazards()
        for item in self.items:
            s = item.statement
            if isinstance(s, m.Loop):
                hazards.forget()
            elif isinstance(s, m.MaskLine):
                hazards.mask = (s.entry, s.targets, s.long2)
            elif isinstance(s, m.Bundle):
                use = use_of(s)
                item.bundle, item.distances, item.settled = hazards.now, hazards.behind(use), _settled(use)
                hazards.record(use, s)
                hazards.now += 1
        self.bundles = hazards.now

    def _find_order(self) -> None:
        """Behind which statement each move may start: the last that writes what it reads, or touches its part of the value in
        L2BM, or of which nothing is known."""
        written: dict[str, list[tuple[Place, int]]] = {}
        touched: dict[int, list[tuple[int, Touch]]] = {}
        barrier = -1
        returns: set[int] = set()  # moves back that are read at once, and those that read them
        for item in self.items:
            keys = {key for _, key, _ in item.values}
            if isinstance(item.statement, m.Move):
                stores = [n for place in item.access.reads for b, n in written.get(place[0], ()) if meet(place, b)]
                store = max(stores, default=-1)
                if store >= 0 and self.at[item.number] - self.at[store] < CLOSE:
                    returns |= {store, item.number}
                if item.load:
                    mine = [t for t in item.access.l2bm if t.writes]
                    others = [n for key in keys for n, t in touched.get(key, ()) if any(t.meets(o) for o in mine)]
                    item.behind = max([barrier, store, *others])
            if item.access.anything:
                barrier = item.number
            for place in item.access.writes:
                written.setdefault(place[0], []).append((place, item.number))
            for key in keys:
                touched.setdefault(key, []).extend((item.number, t) for t in item.access.l2bm)
        self.returns = sorted(returns)

    @cached_property
    def steps(self) -> int:
        """Of the nodes one after the other."""
        return Clock().run([s for n in self.nodes for s in n.statements])

    @cached_property
    def opened(self) -> dict[int, list[Item]]:
        """Statement -> the moves that may start behind it."""
        found: dict[int, list[Item]] = {}
        for item in self.items:
            if item.load:
                found.setdefault(item.behind, []).append(item)
        return found

    @cached_property
    def next_return(self) -> list[float]:
        """Steps from each statement to the next move that must not wait, at least."""
        last = [self.at[number] for number in self.returns] + [float("inf")]
        return [last[bisect_left(self.returns, i.number)] - self.at[i.number] for i in self.items]

    @cached_property
    def crowd(self) -> np.ndarray:
        """LW of L2BM that values have at each statement."""
        found = np.zeros(len(self.items) + 1, int)
        for value in self.distinct:
            found[value.first] += value.size
            found[value.last + 1] -= value.size
        return np.cumsum(found)

    @cached_property
    def distinct(self) -> list[Value]:
        return list({key: value for i in self.items for _, key, value in i.values}.values())


def _settled(use: Use) -> int:
    if not (use.shape.networks or not use.shape.plain or use.writes):
        return 0
    return max(SETTLED.get(o.unit, 3) for o in use.opcodes)
