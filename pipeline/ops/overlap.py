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

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from mlsdk.device import spec
from mlsdk.device.isa import model as m
from mlsdk.device.timing import cycles_of
from mlsdk.pipeline.ir.program import mapped
from mlsdk.pipeline.ops.clock import Clock
from mlsdk.pipeline.ops.line import Item, Line, Node
from mlsdk.pipeline.ops.traffic import Place, Value

WALLS = 16  # statements past which nothing comes early, at most
AHEAD = 8  # moves that are looked at for an early start, of those that may
ALIGN = 64  # LW: places in L2BM are shifted by a multiple of it
LINE = 64  # LW: the size of a move is a multiple of it
PART = 512  # LW that are worth a move of their own
WHOLE = ("mvp", "mvb", "mvb2")  # moves that may be cut: as long on both sides
LONG = 2 * spec.MV_LATENCY_CYCLES  # cycles of a move back that lets others go first
TO_MOVE = 2  # steps from an L2BM write to a move that reads there


#: how many steps ahead of its use a move may start. What comes early takes room in L2BM from what comes soon: more may be worse
REACHES = (800, 400, 200, 1600, 10**9)


def overlapped(line: Line, reach: int) -> Sequence[Node]:
    """The nodes with their moves overlapped; as they were, where L2BM has no room for that or nothing is gained."""
    found = _walked(line, reach, line.steps, set(), write=True)
    if found is None:
        return line.nodes
    assert found.code is not None
    return [Node(n.name, tuple(code)) for n, code in zip(line.nodes, found.code)]


@dataclass
class Found:
    """What is known of a line with its moves overlapped: its `steps`, or that it takes `least` at least. `apart`: its steps with
    one node after the other."""

    apart: int
    steps: int | None = None
    least: float = 0

    def within(self, limit: float) -> float | None:
        """The steps if they are fewer than `limit`, infinitely many if they are not; None where that is not known."""
        if self.steps is None and self.least < min(limit, self.apart):
            return None
        steps = self.apart if self.steps is None else min(self.steps, self.apart)
        return steps if steps < limit else float("inf")


def steps_of(line: Line, reach: int, limit: float, found: Found) -> float:
    """The steps of the nodes overlapped; infinitely many, if these are not fewer than `limit`. What holds for any limit goes to
    `found`."""
    steps = found.within(limit)
    if steps is not None:
        return steps
    walls: set[int] = set()
    limit_of_walk = min(limit, line.steps)
    walk = _walked(line, reach, limit_of_walk, walls)
    if not walls:  # else another limit may give up before it meets them
        if walk is not None:
            found.steps = walk.clock.steps
        found.least = limit_of_walk
    if walk is None:
        return line.steps if line.steps < limit else float("inf")
    return walk.clock.steps


def _walked(line: Line, reach: int, limit: float, walls: set[int], write: bool = False) -> _Walk | None:
    """The nodes overlapped; None where these take `limit` steps or more. Where a value finds no place beside what came early,
    nothing comes early past the statement that needs it: these are added to `walls`."""
    while len(walls) <= WALLS:
        walk = _Walk(line, reach, limit, sorted(walls), write)
        try:
            walk.run()
        except _TooLong:
            return None
        except _NoRoom as error:
            if error.number in walls:
                return None
            walls.add(error.number)
        else:
            return walk
    return None


class _TooLong(Exception):
    """It takes too many steps."""


class _NoRoom(Exception):
    """A value that a statement touches finds no place in L2BM beside those that came early."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


#: L2Bs, a bit each, LW [low, high) there, and whether they are written; at true places
_Touch = tuple[int, int, int, bool]


@dataclass(slots=True)
class _Flying:
    """A move that nobody waited for yet."""

    tag: int
    done: int
    touches: list[_Touch]
    reads: list[Place]
    writes: list[Place]


def _clash(some: Collection[_Touch], others: Collection[_Touch]) -> bool:
    """Whether some touch what others write, or the other way round."""
    for blocks, low, high, writes in some:
        for b, lo, hi, w in others:
            if low < hi and lo < high and (writes or w) and blocks & b:
                return True
    return False


def _meet(some: Collection[Place], others: Collection[Place]) -> bool:
    """Whether some places have anything in common with others."""
    if some and others:
        for segment, low, high in some:
            for other, lo, hi in others:
                if low < hi and lo < high and segment == other:
                    return True
    return False


class _Walk:
    """`write`: put the statements together, too; only the time is known otherwise."""

    def __init__(self, line: Line, reach: int, limit: float, walls: Sequence[int], write: bool):
        self.line, self.reach, self.limit, self.walls = line, reach, limit, walls
        self.clock = Clock()
        self.code: list[list[m.Statement]] | None = [[] for _ in line.nodes] if write else None
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
        self.step = 0  # the number of the coming step
        self.at = [0] * line.bundles  # step of each bundle
        self.slow = -TO_MOVE  # last step with an instruction that takes longer
        self.calm = 0  # step in which nothing depends on those before it any more
        self.free: int | None = None  # cycle in which the first of the next loads may start; None: not known
        self.known: tuple[Item, list[int]] | None = None  # what an item needs; None where something changed
        self.soonest = self.latest = 0  # cycles between which all moves on their way are done

    def run(self) -> None:
        opened = self.line.opened
        for item in self.line.items:
            number = item.number
            if number - 1 in opened:
                for load in opened[number - 1]:
                    insort(self.open, load, key=lambda i: i.number)
                self.free = None
            if number in self.started:
                continue
            if item.node != self.node:
                self.node, self.kept = item.node, {}
                self._check(self.clock.now // spec.CYCLES_PER_STEP + self.line.at[-1] - self.line.at[number])
            if self.open:
                self._start_early(item)
            if self.pending:
                self._send_some(item)
            self._put(item)
        self._send(self.pending[:])
        self._wait(list(self.flying))
        self._settle()
        self._check(self.clock.steps)

    def _check(self, steps: int) -> None:
        """Give up where it takes so many steps at least."""
        if steps >= self.limit:
            raise _TooLong

    # ---- moves that start early -------------------------------------------------------------------------------

    def _start_early(self, item: Item) -> None:
        """Moves of what comes later, as long as the DRAMs would be idle before `item` is done."""
        clock, open_, number, at = self.clock, self.open, item.number, self.line.at
        while open_ and open_[0].number <= number:
            open_.pop(0)  # it starts now, where it stands
            self.free = None
        if not open_:
            return
        if self.free is None:
            self.free = min([clock.all_free(load.ports) for load in open_[:AHEAD]])
        duration = (item.steps or 1) * spec.CYCLES_PER_STEP
        if self.free >= (clock.now if item.quiet else max(clock.now, self.latest)) + duration:
            return
        furthest = next(iter(self.walls[bisect_left(self.walls, number) :]), len(at))
        if open_[0].number > furthest or at[open_[0].number] - at[number] > self.reach:
            return
        ready = max([clock.now, *(self.flying[t].done for t in self._needed(item))])
        until = ready + duration
        next_return = ready + self.line.next_return[number] * spec.CYCLES_PER_STEP
        for load in open_[:AHEAD]:
            if load.number > furthest or at[load.number] - at[number] > self.reach:
                return
            free = clock.all_free(load.ports)
            if free >= until or self._is_written(load.access.reads):
                continue
            size = self._fitting(load, next_return - max(free, clock.now))
            if not size:
                continue
            if len(self.flying) + len(self.kept) + 4 >= len(spec.MV_TAGS) or not self._room(load, number):
                return
            self._move(load, size)
            if load.number not in self.begun:
                open_.remove(load)
                self.free = None
                self.started.add(load.number)

    def _is_written(self, places: Sequence[Place]) -> bool:
        """Whether a move back that is not done writes there."""
        return any(_meet(places, f.writes) for f in self.flying.values() if f.writes) or any(
            _meet(places, item.access.writes) for item in self.pending
        )

    # ---- moves back -------------------------------------------------------------------------------------------

    def _send_some(self, item: Item) -> None:
        """The moves back that were made to wait, as long as the DRAMs would be idle before `item` is done."""
        until = self.clock.now + (item.steps or 1) * spec.CYCLES_PER_STEP
        while self.pending and self.clock.all_free(self.pending[0].ports) < until:
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
            if a.anything or _meet(a.reads, o.writes) or _meet(a.writes, o.reads) or _meet(a.writes, o.writes):
                last = n
        self._send(self.pending[:last])

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
        free, gap = [0], [0]  # where free LW begin and end
        for low, high, _, _ in sorted(self.live):
            gap.append(low)
            free.append(max(high, free[-1]))
        gap.append(spec.L2BM_LW)
        busy = [(low, high, f.done) for f in self.flying.values() for _, low, high, w in f.touches if not w]
        places = {-(-(end - offset) // ALIGN) * ALIGN + offset for end in (*free, *[high for _, high, _ in busy])}
        places |= {
            (start - size - offset) // ALIGN * ALIGN + offset for start in (*gap[1:], *[low for low, _, _ in busy])
        }
        best: tuple[int, int] | None = None
        for low in sorted(places, reverse=high_first):
            high = low + size
            if low < 0 or high > gap[bisect_right(free, low)]:
                continue
            done = max([0, *[d for a, b, d in busy if low < b and a < high]])
            if best is None or done < best[0]:
                best = done, low
            if done <= self.clock.now:
                break
        return None if best is None else best[1]

    def _place(self, key: int, value: Value, low: int) -> None:
        self.shift[key] = low - value.low
        self.known = None
        self.live.append((low, low + value.size, value.last, key))

    def _settle_values(self, item: Item) -> None:
        """Give the values that a statement names their places."""
        for _, key, value in item.values:
            if key not in self.shift:
                low = self._free_place(value, item.number)
                while low is None and self.pending:
                    self._send(self.pending[:1])
                    low = self._free_place(value, item.number)
                if low is None:
                    raise _NoRoom(item.number)
                self._place(key, value, low)

    def _touches(self, item: Item) -> list[_Touch]:
        shift = self.shift
        return [
            (blocks, low + shift[key], high + shift[key], writes)
            for key, blocks, low, high, writes in item.touches
            if key in shift
        ]

    # ---- statements -------------------------------------------------------------------------------------------

    def _put(self, item: Item) -> None:
        self._send_before(item)
        if item.store and item.duration > LONG and self.clock.all_free(item.ports) > self.clock.now:
            self.pending.append(item)
            return
        if isinstance(item.statement, m.Move):
            self._move(item)
            return
        if item.values:
            self._settle_values(item)
        if item.access.tags:
            self._keep_tags(item)
        needed = self._needed(item)
        if item.bundle >= 0:
            self._bundle(item, needed)
            return
        self._wait(needed)
        if isinstance(item.statement, m.Loop):
            self._settle()
            self.slow, self.calm = -TO_MOVE, 0
        if item.pause is not None:
            self.clock.pause(item.pause)
        else:
            self._run(self._true(item))
        self.step += item.steps
        if self.code is not None:
            self.code[self.node].append(self._true(item))

    def _move(self, item: Item, size: int = 0) -> None:
        """A move, or what is left of it; of that `size` LW, if that is less."""
        self._settle_values(item)
        statement = item.statement
        assert isinstance(statement, m.Move)
        begun = self.begun.pop(item.number, 0)
        left = statement.size - begun
        if 0 < size < left:
            self.begun[item.number] = begun + size
            left = size
        self._wait(self._needed(item))
        if statement.src is not None and statement.src.space == m.L2BM:
            self._nop(self.slow + TO_MOVE - self.step)
        if item.form is None:  # with a tag of its own
            self._keep_tags(item)
            self._run(self._true(item))
            if self.code is not None:
                self.code[self.node].append(self._true(item))
            return
        tag = self._tag()
        if self.code is not None:
            self.code[self.node].append(self._part(item, begun, left, tag))
        duration = item.duration if left == statement.size else cycles_of(left, item.form)
        done = self.clock.move(item.ports, duration, tag)[2]
        self.free = self.known = None
        self.latest = max(self.latest, done)
        self.soonest = min(self.soonest, done) if self.flying else done
        self.flying[tag] = _Flying(tag, done, self._touches(item), item.access.reads, item.access.writes)

    def _needed(self, item: Item) -> list[int]:
        """The moves that have to be done before a statement."""
        if item.quiet or not self.flying:
            return []
        if self.known is not None and self.known[0] is item:
            return self.known[1]
        a = item.access
        if a.anything or (isinstance(item.statement, m.Loop) and a.moves):
            return list(self.flying)
        mine = () if isinstance(item.statement, m.Move) else self._touches(item)
        found = [
            tag
            for tag, f in self.flying.items()
            if (mine and _clash(mine, f.touches))
            or (a.reads and _meet(a.reads, f.writes))
            or (a.writes and (_meet(a.writes, f.reads) or _meet(a.writes, f.writes)))
        ]
        self.known = item, found
        return found

    def _bundle(self, item: Item, needed: Sequence[int]) -> None:
        """A step, behind the empty steps that it needs; waits stand in these, and in itself."""
        at, own = self.at, item.access.tags
        while True:
            waits = [tag for tag in needed if tag in self.flying] if needed else []
            missing = 0
            for earlier, distance in item.distances:
                missing = max(missing, at[earlier] + distance - self.step)
            if len(waits) > (0 if own else 1):
                self._wait(waits[:1])
            elif missing:
                self._nop(missing)
            else:
                break
        if not waits and not own:
            waits = self._done()
        clock = self.clock
        if self.code is not None:
            bundle = self._true(item)
            assert isinstance(bundle, m.Bundle)
            if waits:
                bundle = replace(bundle, instructions=(*bundle.instructions, *map(m.wait, waits)))
            self.code[self.node].append(bundle)
        for tag in own:
            clock.wait(self.kept[tag])
        for tag in waits:
            clock.wait(tag)
            del self.flying[tag]
            self.known = None
        clock.pause(1)
        at[item.bundle] = step = self.step
        self.step += 1
        if item.settled:
            self.calm = max(self.calm, step + item.settled)
            if item.settled > 3:
                self.slow = step

    def _done(self) -> list[int]:
        """A move that is done by now, if there is one."""
        now = self.clock.now
        if not self.flying or self.soonest > now:
            return []
        for tag, f in self.flying.items():
            if f.done <= now:
                return [tag]
        self.soonest = min([f.done for f in self.flying.values()])
        return []

    def _wait(self, tags: Sequence[int]) -> None:
        for tag in sorted(tags, key=lambda t: self.flying[t].done):
            del self.flying[tag]
            self.known = None
            self.clock.wait(tag)
            self.clock.pause(1)
            self.step += 1
            if self.code is not None:
                self.code[self.node].append(m.Bundle((m.wait(tag),)))

    def _nop(self, count: int) -> None:
        while count > 0:
            done = self._done()
            if not done:
                break
            self._wait(done)
            count -= 1
        if count > 0:
            self.clock.pause(count)
            self.step += count
            if self.code is not None:
                self.code[self.node].append(m.Nop(count))

    def _settle(self) -> None:
        """Empty steps until nothing that comes can be too early."""
        self._nop(self.calm - self.step)

    def _run(self, statement: m.Statement) -> None:
        """The clock over what has moves and waits of its own."""
        self.clock.run((statement,))
        self.free = None

    # ---- what is written --------------------------------------------------------------------------------------

    def _true(self, item: Item) -> m.Statement:
        """The statement at its true places in L2BM; with true tags, where the fragment's own stay with their moves and waits."""
        shifts = {addr: self.shift[key] for addr, key, _ in item.values}
        tags = self.kept if item.form is None else {}
        if not any(shifts.values()) and not (tags and item.access.tags):
            return item.statement

        def operand(o: m.Operand) -> m.Operand:
            if o.space == m.L2BM:
                return replace(o, addr=o.addr + shifts[o.addr])
            return replace(o, addr=tags[o.addr]) if o.space == m.TAG else o

        return next(iter(mapped([item.statement], operand, lambda tag: tags.get(tag, tag))))

    def _part(self, item: Item, begun: int, size: int, tag: int) -> m.Move:
        """A part of a move."""
        move = self._true(item)
        assert isinstance(move, m.Move) and move.src is not None and move.dst is not None
        if begun:
            src, dst = (replace(o, addr=o.addr + begun) for o in (move.src, move.dst))
            move = replace(move, src=src, dst=dst)
        return replace(move, size=size, tag=tag)

    # ---- tags -------------------------------------------------------------------------------------------------

    def _tag(self) -> int:
        taken = {*self.flying, *self.kept.values()}
        for tag in spec.MV_TAGS:
            if tag not in taken:
                return tag
        self._wait([min(self.flying, key=lambda t: self.flying[t].done)])
        return self._tag()

    def _keep_tags(self, item: Item) -> None:
        """True tags for the fragment's own."""
        for tag in sorted(item.access.tags - self.kept.keys()):
            self.kept[tag] = self._tag()
