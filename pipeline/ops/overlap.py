"""Overlap of nodes (L1Merge): what a node waits for is on its way while those before it still compute.

A fragment begins with moves from DRAM and ends by waiting for moves back. Here a program is put together anew, statement by
statement, with the clock beside it:

    start early   a move into L2BM starts as soon as the DRAMs (or PDMs) are idle, as far ahead as `reach` says, if what it reads
                  is there, L2BM has room for it until it is used, and no move that is needed at once has to wait for it; a part
                  of it, where that is what there is time for
    go late       a long move back starts when the DRAMs have nothing else to do, or when its place or its data are needed
    wait late     a move is waited for by the first statement that touches its place in L2BM or its place in DRAM; the wait stands
                  in the step of that statement, or in one before it, when the move is done already
    no pauses     empty steps stand only where the hazards of the whole program ask for them

So that there is room, each value in L2BM (`traffic.py`) gets a place of its own, and each move in flight a tag. PE steps keep
their order, so results are the same bit for bit.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mlsdk.device import spec
from mlsdk.device.isa import model as m
from mlsdk.device.isa.footprint import shape_of, use_of
from mlsdk.device.isa.hazards import Hazards
from mlsdk.pipeline.ir.program import mapped
from mlsdk.pipeline.ops.clock import Clock
from mlsdk.pipeline.ops.line import Item, Line, Node
from mlsdk.pipeline.ops.traffic import Touch, Value, meet

WALLS = 16  # statements past which nothing comes early, at most
AHEAD = 8  # moves that are looked at for an early start, of those that may
ALIGN = 64  # LW: places in L2BM are shifted by a multiple of it
LINE = 64  # LW: the size of a move is a multiple of it
PART = 512  # LW that are worth a move of their own
WHOLE = ("mvp", "mvb", "mvb2")  # moves that may be cut: as long on both sides
LONG = 2 * spec.MV_LATENCY_CYCLES  # cycles of a move back that lets others go first
TO_MOVE = 2  # steps from an L2BM write to a move that reads there
PORTS = tuple(f"{memory}{group}" for memory in ("dram", "pdm") for group in range(spec.GROUPS))
SETTLED = {"l2bm": 4, "dar": 4}  # steps until nothing depends on an instruction any more; 3 of other units


#: how many steps ahead of its use a move may start. What comes early takes room in L2BM from what comes soon: more may be worse
REACHES = (800, 400, 200, 1600, 10**9)


def overlapped(line: Line, reach: int) -> Sequence[Node]:
    """The nodes with their moves overlapped; as they were, where L2BM has no room for that or nothing is gained."""
    found = _walked(line, reach, line.steps)
    return line.nodes if found is None else found[1]


def steps_of(line: Line, reach: int, limit: float) -> float:
    """The steps of the nodes overlapped; infinitely many, if these are not fewer than `limit`."""
    found = _walked(line, reach, min(limit, line.steps))
    if found is None:
        return line.steps if line.steps < limit else float("inf")
    return found[0]


def _walked(line: Line, reach: int, limit: float) -> tuple[int, list[Node]] | None:
    """The steps, and the nodes overlapped; None where these take `limit` or more. Where a value finds no place beside what came
    early, nothing comes early past the statement that needs it."""
    walls: set[int] = set()
    while len(walls) <= WALLS:
        walk = _Walk(line, reach, limit, sorted(walls))
        try:
            nodes = walk.run()
        except _TooLong:
            return None
        except _NoRoom as error:
            if error.number in walls:
                return None
            walls.add(error.number)
        else:
            return walk.clock.steps, nodes
    return None


class _TooLong(Exception):
    """It takes too many steps."""


class _NoRoom(Exception):
    """A value that a statement touches finds no place in L2BM beside those that came early."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


@dataclass(slots=True)
class _Flying:
    """A move that nobody waited for yet; `touches` are at true places."""

    tag: int
    done: int
    touches: list[Touch]
    reads: list
    writes: list


class _Walk:
    def __init__(self, line: Line, reach: int, limit: float, walls: Sequence[int]):
        self.line, self.reach, self.limit, self.walls = line, reach, limit, walls
        self.clock, self.hazards = Clock(), Hazards()
        self.code: list[list[m.Statement]] = [[] for _ in line.nodes]
        self.node = 0
        self.crowd = line.crowd.copy()
        self.started: set[int] = set()
        self.begun: dict[int, int] = {}  # LW of a move that are on their way, the rest is not
        self.open: list[Item] = []  # what may start early, in order
        self.shift: dict[int, int] = {}
        self.live: list[tuple[int, int, int, int]] = []  # low, high, last item, key
        self.flying: dict[int, _Flying] = {}
        self.pending: list[Item] = []  # moves back that have not started
        self.kept: dict[int, int] = {}  # tags of the fragment that are as they were -> true ones
        self.recent: list[tuple[int, int]] = []  # step, steps until it is settled

    def run(self) -> list[Node]:
        for item in self.line.items:
            for load in self.line.opened.get(item.number - 1, ()):
                insort(self.open, load, key=lambda i: i.number)
            if item.number in self.started:
                continue
            if item.node != self.node:
                self.node, self.kept = item.node, {}
                self._check(self.clock.now // spec.CYCLES_PER_STEP + int(self.line.at[-1] - self.line.at[item.number]))
            self._start_early(item)
            self._send_some(item)
            self._put(item)
        self._send(self.pending[:])
        self._wait(list(self.flying))
        self._settle()
        self._check(self.clock.steps)
        return [Node(n.name, tuple(code)) for n, code in zip(self.line.nodes, self.code)]

    def _check(self, steps: int) -> None:
        """Give up where it takes so many steps at least."""
        if steps >= self.limit:
            raise _TooLong

    # ---- moves that start early -------------------------------------------------------------------------------

    def _start_early(self, item: Item) -> None:
        """Moves of what comes later, as long as the DRAMs would be idle before `item` is done."""
        clock = self.clock
        idle = min(clock.free(port) for port in PORTS)
        ready = max([clock.now, *(self.flying[t].done for t in self._needed(item))])
        until = ready + max(1, item.steps) * spec.CYCLES_PER_STEP
        if idle >= until:
            return
        open_ = self.open
        while open_ and open_[0].number <= item.number:
            open_.pop(0)  # it starts now, where it stands
        wall = next(iter(self.walls[bisect_left(self.walls, item.number) :]), len(self.line.items))
        for load in open_[:AHEAD]:
            if load.number > wall or self.line.at[load.number] - self.line.at[item.number] > self.reach:
                return
            free = max(clock.free(port) for port in load.ports)
            if free >= until:
                continue
            writes = [b for f in self.flying.values() for b in f.writes] + [
                b for i in self.pending for b in i.access.writes
            ]
            if any(meet(a, b) for a in load.access.reads for b in writes):
                continue
            size = self._fitting(load, self._next_return(item, ready) - max(free, clock.now))
            if not size:
                continue
            if len(self.flying) + len(self.kept) + 4 >= len(spec.MV_TAGS) or not self._room(load, item.number):
                return
            self._move(load, size)
            if load.number not in self.begun:
                open_.remove(load)
                self.started.add(load.number)

    # ---- moves back -------------------------------------------------------------------------------------------

    def _send_some(self, item: Item) -> None:
        """The moves back that were made to wait, as long as the DRAMs would be idle before `item` is done."""
        until = self.clock.now + max(1, item.steps) * spec.CYCLES_PER_STEP
        while self.pending and max(self.clock.free(port) for port in self.pending[0].ports) < until:
            self._send(self.pending[:1])

    def _send(self, items: Sequence[Item]) -> None:
        for item in items:
            self.pending.remove(item)
            self._move(item)

    def _send_before(self, item: Item) -> None:
        """Start the moves back that have to come before a statement, and those before these."""
        a = item.access
        if not self.pending or not (a.moves or a.anything or a.reads or a.writes):
            return
        last = 0
        for n, other in enumerate(self.pending, 1):
            o = other.access
            if (
                a.anything
                or any(meet(x, y) for x in a.reads for y in o.writes)
                or any(meet(x, y) for x in a.writes for y in (*o.reads, *o.writes))
            ):
                last = n
        self._send(self.pending[:last])

    def _next_return(self, item: Item, ready: int) -> float:
        """When the next move starts that must not wait; `item` begins when it is `ready`."""
        returns = self.line.returns
        at = int(np.searchsorted(returns, item.number))
        if at == len(returns):
            return float("inf")
        return ready + int(self.line.at[returns[at]] - self.line.at[item.number]) * spec.CYCLES_PER_STEP

    def _fitting(self, load: Item, cycles: float) -> int:
        """LW of a move, or of what is left of it, that can be moved in so many cycles: all, or a part that is worth a move of its
        own."""
        assert isinstance(load.statement, m.Move)
        left = load.statement.size - self.begun.get(load.number, 0)
        part = (
            min(left, int(load.statement.size / load.duration * cycles) // LINE * LINE)
            if cycles < float("inf")
            else left
        )
        worth = part == left or (part >= PART and left - part >= PART and load.statement.mnemonic in WHOLE)
        return part if worth and part > 0 else 0

    def _room(self, load: Item, now: int) -> bool:
        """Make a place for what a move brings from now on, if there is one."""
        for _, key, value in load.values:
            if key in self.shift:
                continue
            if self.crowd[now : value.first].max(initial=0) + value.size > spec.L2BM_LW:
                return False
            low = self._free_place(value, now, high_first=True)
            if low is None:
                return False
            self.crowd[now : value.first] += value.size
            self._place(key, value, low)
        return True

    # ---- places in L2BM ---------------------------------------------------------------------------------------

    def _free_place(self, value: Value, now: int, high_first: bool = False) -> int | None:
        """Where a value goes: no other is there; of such places the one whose moves back are done first."""
        kept = {key for item in self.pending for _, key, _ in item.values}
        self.live = [entry for entry in self.live if entry[2] >= now or entry[3] in kept]
        size, offset = value.size, value.low % ALIGN
        taken = sorted((low, high) for low, high, _, _ in self.live)
        ends = [0, *(high for _, high in taken)]
        starts = [*(low for low, _ in taken), spec.L2BM_LW]
        busy = [(t.low, t.high, f.done) for f in self.flying.values() for t in f.touches if not t.writes]
        places: set[int] = set()
        for end in (*ends, *(high for _, high, _ in busy)):
            places.add(-(-(end - offset) // ALIGN) * ALIGN + offset)
        for start in (*starts, *(low for low, _, _ in busy)):
            places.add((start - size - offset) // ALIGN * ALIGN + offset)
        best: tuple[int, int] | None = None
        for low in sorted(places, reverse=high_first):
            high = low + size
            if low < 0 or high > spec.L2BM_LW or any(low < b and a < high for a, b in taken):
                continue
            done = max([0, *(d for a, b, d in busy if low < b and a < high)])
            if best is None or done < best[0]:
                best = done, low
            if done <= self.clock.now:
                break
        return None if best is None else best[1]

    def _place(self, key: int, value: Value, low: int) -> None:
        self.shift[key] = low - value.low
        self.live.append((low, low + value.size, value.last, key))

    def _settled(self, item: Item) -> m.Statement:
        """The statement at its true places in L2BM."""
        if not item.values:
            return item.statement
        for _, key, value in item.values:
            if key not in self.shift:
                low = self._free_place(value, item.number)
                while low is None and self.pending:
                    self._send(self.pending[:1])
                    low = self._free_place(value, item.number)
                if low is None:
                    raise _NoRoom(item.number)
                self._place(key, value, low)
        shifts = {addr: self.shift[key] for addr, key, _ in item.values}
        if not any(shifts.values()):
            return item.statement

        def operand(o: m.Operand) -> m.Operand:
            return replace(o, addr=o.addr + shifts[o.addr]) if o.space == m.L2BM else o

        return next(iter(mapped([item.statement], operand)))

    def _touches(self, item: Item) -> list[Touch]:
        if not item.access.l2bm:
            return []
        spans = [(v.low, v.high, self.shift.get(key)) for _, key, v in item.values]
        found = []
        for t in item.access.l2bm:
            for low, high, shift in spans:
                if shift is not None and low < t.high and t.low < high:
                    found.append(replace(t, low=t.low + shift, high=t.high + shift))
        return found

    # ---- statements -------------------------------------------------------------------------------------------

    def _put(self, item: Item) -> None:
        self._send_before(item)
        if item.store and item.duration > LONG and max(map(self.clock.free, item.ports)) > self.clock.now:
            self.pending.append(item)
            return
        if isinstance(item.statement, m.Move):
            self._move(item)
            return
        statement = self._retagged(item, self._settled(item))
        needed = self._needed(item)
        if isinstance(statement, m.Bundle):
            self._bundle(statement, needed)
            return
        self._wait(needed)
        if isinstance(statement, m.Loop):
            self._settle()
            self.hazards.forget()
            self.recent = []
        elif isinstance(statement, m.MaskLine):
            self.hazards.mask = (statement.entry, statement.targets, statement.long2)
        self._out(statement, item.steps)

    def _move(self, item: Item, size: int = 0) -> None:
        """A move, or what is left of it; of that `size` LW, if that is less."""
        statement = self._settled(item)
        assert isinstance(statement, m.Move)
        begun = self.begun.pop(item.number, 0)
        if begun or 0 < size < statement.size:
            assert statement.src is not None and statement.dst is not None
            src, dst = (replace(o, addr=o.addr + begun) for o in (statement.src, statement.dst))
            left = statement.size - begun
            if 0 < size < left:
                self.begun[item.number] = begun + size
                left = size
            statement = replace(statement, src=src, dst=dst, size=left)
        self._wait(self._needed(item))
        if statement.src is not None and statement.src.space == m.L2BM:
            last = max((step for step, settled in self.recent if settled > 3), default=-TO_MOVE)
            self._nop(last + TO_MOVE - self.hazards.now)
        if not (item.load or item.store):
            self._out(self._retagged(item, statement), 0)
            return
        tag = self._tag()
        self._out(replace(statement, tag=tag), 0)
        a = item.access
        self.flying[tag] = _Flying(tag, self.clock.done(tag), self._touches(item), a.reads, a.writes)

    def _needed(self, item: Item) -> list[int]:
        """The moves that have to be done before a statement."""
        if item.access.anything or (isinstance(item.statement, m.Loop) and item.access.moves):
            return list(self.flying)
        a, found = item.access, []
        mine = self._touches(item) if not isinstance(item.statement, m.Move) else []
        for tag, f in self.flying.items():
            if (
                any((t.writes or o.writes) and t.meets(o) for t in mine for o in f.touches)
                or any(meet(x, y) for x in a.reads for y in f.writes)
                or any(meet(x, y) for x in a.writes for y in (*f.reads, *f.writes))
            ):
                found.append(tag)
        return found

    def _bundle(self, bundle: m.Bundle, needed: list[int]) -> None:
        """A step, behind the empty steps that it needs; waits stand in these, and in itself."""
        use = use_of(bundle, shape_of(bundle))
        while True:
            waits = [tag for tag in needed if tag in self.flying]
            missing = max((h.steps for h in self.hazards.missing(use)), default=0)
            room = 0 if use.tags else 1
            if len(waits) > room:
                self._wait(waits[:1])
            elif missing:
                self._nop(missing)
            else:
                break
        tags = waits or ([] if use.tags else self._done(1))
        for tag in tags:
            bundle = replace(bundle, instructions=(*bundle.instructions, m.wait(tag)))
            del self.flying[tag]
        self.hazards.record(use, bundle)
        if use.shape.networks or not use.shape.plain or use.writes:
            units = [SETTLED.get(o.unit, 3) for o in use.opcodes]
            self.recent = [r for r in self.recent[-4:] if r[0] + r[1] > self.hazards.now]
            self.recent.append((self.hazards.now, max(units)))
        self._out(bundle, 1)

    def _done(self, count: int) -> list[int]:
        """Moves that are done by now."""
        return [tag for tag, f in self.flying.items() if f.done <= self.clock.now][:count]

    def _wait(self, tags: Sequence[int]) -> None:
        for tag in sorted(tags, key=lambda t: self.flying[t].done):
            del self.flying[tag]
            self._out(m.Bundle((m.wait(tag),)), 1)

    def _nop(self, count: int) -> None:
        while count > 0:
            for tag in self._done(1):
                self._wait([tag])
                count -= 1
                break
            else:
                self._out(m.Nop(count), count)
                return

    def _settle(self) -> None:
        """Empty steps until nothing that comes can be too early."""
        self._nop(max((step + settled for step, settled in self.recent), default=0) - self.hazards.now)

    def _out(self, statement: m.Statement, steps: int) -> None:
        self.code[self.node].append(statement)
        self.clock.run((statement,))
        self.hazards.now += steps

    # ---- tags -------------------------------------------------------------------------------------------------

    def _tag(self) -> int:
        taken = {*self.flying, *self.kept.values()}
        for tag in spec.MV_TAGS:
            if tag not in taken:
                return tag
        self._wait([min(self.flying, key=lambda t: self.flying[t].done)])
        return self._tag()

    def _retagged(self, item: Item, statement: m.Statement) -> m.Statement:
        """With true tags, where the fragment's own stay with their moves and waits."""
        if not item.access.tags:
            return statement
        for tag in sorted(item.access.tags - self.kept.keys()):
            self.kept[tag] = self._tag()

        def operand(o: m.Operand) -> m.Operand:
            return replace(o, addr=self.kept[o.addr]) if o.space == m.TAG else o

        return next(iter(mapped([statement], operand, lambda tag: self.kept.get(tag, tag))))
