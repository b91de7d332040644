"""Overlap of neighbouring nodes (L1Merge): what one node waits for is on its way while the one before still computes.

A fragment begins with moves from DRAM and ends by waiting for moves back. Between neighbours that work on disjoint places the
two need not wait for each other:

    start early   a move from DRAM into L2BM goes up, past statements that neither touch its place in L2BM nor write what it
                  reads; as far as that saves steps
    wait late     the wait for a move back goes down, to the first statement that touches that place in L2BM or reads or
                  writes that DRAM

So that there are disjoint places, a fragment's L2BM addresses are shifted behind those of its neighbour where both fit, and
its tags are renamed. PE steps keep their order, so results are the same bit for bit. Each change is kept only if the steps of
the fragments around it, counted by the clock, get fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from mlsdk.device import spec
from mlsdk.device.isa import model as m
from mlsdk.device.isa.footprint import use_of
from mlsdk.device.timing import form_of
from mlsdk.pipeline.ir.plan import PDM
from mlsdk.pipeline.ir.program import mapped
from mlsdk.pipeline.ops.clock import Clock

WINDOW = 3  # fragments that a move may be started ahead of its own
SHIFT = 2048  # LW: places in L2BM are shifted by a multiple of it
TAGS = len(spec.MV_TAGS)

Span = tuple[int, int]  # first, behind the last
Place = tuple[str, int, int]  # segment, first LW, behind the last


@dataclass
class Access:
    """What a statement, loops and all, touches outside the PEs. `l2bm`: spans read or written; `reads` and `writes`: DRAM;
    `tags` of moves and waits. `anything`: what it touches is not known."""

    l2bm: list[Span] = field(default_factory=list)
    reads: list[Place] = field(default_factory=list)
    writes: list[Place] = field(default_factory=list)
    tags: set[int] = field(default_factory=set)
    anything: bool = False


@dataclass(frozen=True)
class Node:
    """A fragment in its program: the name of its marker, and its statements, bound to segments."""

    name: str
    statements: tuple[m.Statement, ...]


def overlapped(nodes: Sequence[Node], kinds: Mapping[str, str]) -> list[Node]:
    """The nodes with their moves overlapped. `kinds`: of the segments; an input and an output may be the same memory."""
    placed = _renamed(_shifted(list(nodes)))
    return _Merge(placed, kinds).run()


class _Merge:
    def __init__(self, nodes: list[Node], kinds: Mapping[str, str]):
        self.kinds = kinds
        self.names = [n.name for n in nodes]
        self.code: list[list[m.Statement]] = [list(n.statements) for n in nodes]
        self._known: dict[int, tuple[m.Statement, Access]] = {}
        for node in nodes:  # equal nodes share statements, but no waits: new tags made these anew
            moves = _by_tag(node.statements)
            for s in node.statements:
                self._known[id(s)] = (s, access(s, moves))

    def run(self) -> list[Node]:
        for j in range(1, len(self.code)):
            self._late(j - 1)
            self._early(j)
        return [Node(name, tuple(code)) for name, code in zip(self.names, self.code)]

    # ---- moves that start early -------------------------------------------------------------------------------

    def _early(self, j: int) -> None:
        """The moves before the first loop of a fragment, one after the other."""
        at = 0
        while at < len(self.code[j]):
            s = self.code[j][at]
            if isinstance(s, m.Loop):
                break
            if isinstance(s, m.Move) and s.dst is not None and s.dst.space == m.L2BM and self._try(j, at, s):
                continue  # it is gone from here
            at += 1

    def _try(self, j: int, at: int, move: m.Move) -> bool:
        mine = self.of(move)
        if mine.anything or any(self._meets(mine, self.of(s)) for s in self.code[j][:at]):
            return False
        goals = list(self._goals(j, mine))
        first = max(0, j - WINDOW)
        before = self._steps(first, j + 1)
        best: tuple[int, int, int] | None = None
        for i, place in goals:
            steps = self._steps_with(first, j + 1, (j, at), (i, place), move)
            if steps < before and (best is None or steps < best[0]):
                best = steps, i, place
        if best is None:
            return False
        del self.code[j][at]
        self.code[best[1]].insert(best[2], move)
        return True

    def _goals(self, j: int, mine: Access) -> Iterator[tuple[int, int]]:
        """Places for a move in the fragments before: the earliest in each, and behind each loop and wait on the way."""
        for i in range(j - 1, max(-1, j - 1 - WINDOW), -1):
            code = self.code[i]
            place = len(code)
            stops = [place]
            while place and not self._meets(mine, self.of(code[place - 1])):
                place -= 1
                if isinstance(code[place], m.Loop) or _waits(code[place]):
                    stops.append(place)
            yield from (
                (i, stop) for stop in dict.fromkeys([place, *stops[1:4]]) if stop < len(code) or place == len(code)
            )
            if place:
                return

    # ---- waits that come late ---------------------------------------------------------------------------------

    def _late(self, i: int) -> None:
        """The last waits of a fragment, for moves back, go into the fragments behind it."""
        code = self.code[i]
        at = len(code) - 1
        while at >= 0 and (isinstance(code[at], m.Nop) or _waits(code[at])):
            if _waits(code[at]):
                self._sink(i, at)
            at -= 1

    def _sink(self, i: int, at: int) -> None:
        wait = self.code[i][at]
        tag = next(iter(_waits(wait)))
        moves = [s for s in _flat(self.code[i][:at]) if isinstance(s, m.Move) and s.tag == tag]
        if (
            not moves
            or any(s.src is None or s.src.space != m.L2BM for s in moves)
            or any(isinstance(s, m.Loop) and tag in self.of(s).tags for s in self.code[i])
        ):
            return
        mine = [self.of(move) for move in moves[-1:]]
        last = min(len(self.code) - 1, i + WINDOW)
        goal = None
        for j in range(i + 1, last + 1):
            place = 0
            code = self.code[j]
            while place < len(code) and not any(self._meets(a, self.of(code[place]), True) for a in mine):
                place += 1
            goal = j, place
            if place < len(code):
                break
        if goal is None or goal == (i + 1, 0):
            return
        before = self._steps(i, goal[0] + 1)
        del self.code[i][at]
        self.code[goal[0]].insert(goal[1], wait)
        if self._steps(i, goal[0] + 1) >= before:
            del self.code[goal[0]][goal[1]]
            self.code[i].insert(at, wait)

    # ---- what meets -------------------------------------------------------------------------------------------

    def _meets(self, mine: Access, other: Access, waiting: bool = False) -> bool:
        """Whether a move may not pass a statement. `waiting`: nor may the wait for it."""
        if other.anything or mine.tags & other.tags:
            return True
        if any(_overlap(a, b) for a in mine.l2bm for b in other.l2bm):
            return True
        pairs = [*((a, b) for a in mine.reads for b in other.writes)]
        pairs += [(a, b) for a in mine.writes for b in (*other.reads, *other.writes)]
        return any(self._same(a, b) for a, b in pairs)

    def _same(self, a: Place, b: Place) -> bool:
        if a[0] == b[0]:
            return _overlap(a[1:], b[1:])
        return {self.kinds.get(a[0], ""), self.kinds.get(b[0], "")} <= {"input", "output"}

    def of(self, s: m.Statement) -> Access:
        found = self._known.get(id(s))
        if found is None or found[0] is not s:
            found = self._known[id(s)] = (s, access(s))
        return found[1]

    # ---- steps ------------------------------------------------------------------------------------------------

    def _steps(self, first: int, last: int) -> int:
        return Clock().run([s for code in self.code[first:last] for s in code])

    def _steps_with(self, first: int, last: int, source: tuple[int, int], goal: tuple[int, int], move: m.Move) -> int:
        statements: list[m.Statement] = []
        for i in range(first, last):
            code = self.code[i]
            if i == source[0]:
                code = [*code[: source[1]], *code[source[1] + 1 :]]
            elif i == goal[0]:
                code = [*code[: goal[1]], move, *code[goal[1] :]]
            statements += code
        return Clock().run(statements)


# ---- accesses -----------------------------------------------------------------------------------------------------


def access(s: m.Statement, moves: Mapping[int, Sequence[Access]] | None = None) -> Access:
    """What a statement touches outside the PEs. `moves`: those of its fragment by tag; who waits for one touches what it does,
    as only then the data are there."""
    found = Access()
    _collect(s, (), found)
    for tag in sorted(found.tags) if moves else ():
        if not isinstance(s, m.Move):
            for other in moves.get(tag, ()):  # type: ignore[union-attr]
                found.l2bm += other.l2bm
                found.reads += other.reads
                found.writes += other.writes
    return found


def _by_tag(statements: Iterable[m.Statement], counts: tuple[int, ...] = ()) -> dict[int, list[Access]]:
    found: dict[int, list[Access]] = {}
    for s in statements:
        if isinstance(s, m.Loop):
            for tag, inner in _by_tag(s.body, (*counts, s.count)).items():
                found.setdefault(tag, []).extend(inner)
        elif isinstance(s, m.Move) and s.tag:
            one = Access()
            _collect(s, counts, one)
            found.setdefault(s.tag, []).append(one)
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
        for r in (*use.l2_reads, *use.l2_writes):
            strides = r.operand.strides if r.operand is not None else ()
            found.l2bm.append(_span(r.start, r.length, strides, counts))
        if any(opcode.unit == "dar" or opcode.operation == "l2bmdars" for opcode in use.opcodes):
            found.anything = True


def _collect_move(s: m.Move, counts: tuple[int, ...], found: Access) -> None:
    form = form_of(s)
    found.tags.add(s.tag)
    if form is None or s.src is None or s.dst is None:
        found.anything = True
        return
    for side, operand, writes in ((form.source, s.src, False), (form.destination, s.dst, True)):
        first, last = _span(operand.addr, side.size(s.size), operand.strides, counts)
        if operand.space == m.L2BM:
            found.l2bm.append((first, last))
        elif operand.space == m.PDM or (operand.space == m.DRAM and operand.symbol):
            (found.writes if writes else found.reads).append((operand.symbol or PDM, first, last))
        else:
            found.anything = True


def _span(start: int, length: int, strides: Sequence[int], counts: Sequence[int]) -> Span:
    low = start + sum(min(0, stride * (count - 1)) for stride, count in zip(strides, counts))
    high = start + length + sum(max(0, stride * (count - 1)) for stride, count in zip(strides, counts))
    return low, high


def _overlap(a: Sequence[int], b: Sequence[int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _waits(s: m.Statement) -> tuple[int, ...]:
    """The tags of a statement that does nothing but wait."""
    if not isinstance(s, m.Bundle) or any(i.mnemonic != "wait" for i in s.instructions):
        return ()
    return tuple(i.operands[0].addr for i in s.instructions)  # type: ignore[union-attr]


def _flat(statements: Iterable[m.Statement]) -> Iterator[m.Statement]:
    for s in statements:
        if isinstance(s, m.Loop):
            yield from _flat(s.body)
        else:
            yield s


# ---- places and tags ----------------------------------------------------------------------------------------------


def _shifted(nodes: list[Node]) -> list[Node]:
    """Each fragment's L2BM addresses behind those of the one before it, or in front of them, where both fit."""
    found: list[Node] = []
    before: Span = (0, 0)
    for node in nodes:
        low, high = _extent(node.statements)
        shift = 0
        if high > low and _overlap((low, high), before):
            behind = -(-(before[1] - low) // SHIFT) * SHIFT
            if high + behind <= spec.L2BM_LW:
                shift = behind
        if shift:
            code = mapped(node.statements, partial(_moved, shift))
            node = replace(node, statements=tuple(code))
        if high > low:
            before = (low + shift, high + shift)
        found.append(node)
    return found


def _extent(statements: Sequence[m.Statement]) -> Span:
    spans = [span for s in statements for span in access(s).l2bm]
    return (min(a for a, _ in spans), max(b for _, b in spans)) if spans else (0, 0)


def _renamed(nodes: list[Node]) -> list[Node]:
    """Each fragment's tags other than those of the fragments that its moves may pass, as far as there are tags."""
    found: list[Node] = []
    recent: list[set[int]] = []
    for node in nodes:
        mine = sorted({tag for s in node.statements for tag in access(s).tags if tag})
        taken: set[int] = set()
        for tags in reversed(recent[-WINDOW:]):
            if len(taken | tags) + len(mine) <= TAGS:
                taken |= tags
        free = [tag for tag in spec.MV_TAGS if tag not in taken]
        names = {0: 0, **dict(zip(mine, free))}
        code = mapped(node.statements, partial(_retagged, names), names.__getitem__)
        found.append(replace(node, statements=tuple(code)))
        recent.append(set(names.values()) - {0})
    return found


def _moved(by: int, o: m.Operand) -> m.Operand:
    return replace(o, addr=o.addr + by) if o.space == m.L2BM else o


def _retagged(names: Mapping[int, int], o: m.Operand) -> m.Operand:
    return replace(o, addr=names[o.addr]) if o.space == m.TAG else o
