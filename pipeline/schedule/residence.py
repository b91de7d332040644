"""From an order of turns to a schedule: which values live in LM and for how long, by Belady's rule, and what that costs.

At each turn its results are to stay in LM for all their uses there. Where an LM would be too full, the value whose next use is
farthest (times its bias) is not kept any longer: later turns read it in DRAM, where its maker puts it. Any bias gives a legal
schedule. In the end the values get addresses; one that finds no room is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mlsdk.pipeline.ops.emitters.home import Lives
from mlsdk.pipeline.schedule.local import Rect, first_fit
from mlsdk.pipeline.schedule.problem import GRAINS, Cost, Problem

Pack = Callable[[Sequence[Rect], int, Sequence[int]], list[int | None]]


@dataclass(frozen=True)
class Genes:
    """What a search may change: the `order` of the turns, in which one may stand again to compute its results anew; by item,
    the `bias` against keeping it, and the LMs that it may live in (`banks`: the first that it prefers; none: it is not kept)."""

    order: tuple[int, ...]
    bias: Mapping[int, float] = field(default_factory=dict)
    banks: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    reach: int | None = None  # turns after its making in which an item may be read in LM; None: any


@dataclass
class Stay:
    """An item in an LM from the turn that makes it to the last one that reads it there. `hits`: (position, operand)."""

    item: int
    bank: int
    made: int  # position
    result: int
    hits: list[tuple[int, int]]
    address: int = 0  # grains

    @property
    def last(self) -> int:
        return self.hits[-1][0]


@dataclass(frozen=True)
class Schedule:
    """`lives[p]`: where the operands of the turn at position p are; the addresses stand in `stays`."""

    order: tuple[int, ...]
    stays: tuple[Stay, ...]
    lives: tuple[Lives, ...]
    steps: int
    dram_lw: int
    cost: float


@dataclass
class _Made:
    """One making of an item."""

    item: int
    position: int
    result: int
    uses: list[tuple[int, int]] = field(default_factory=list)
    first: bool = True  # not a repetition


def evaluate(problem: Problem, genes: Genes, pack: Pack = first_fit) -> Schedule:
    """The schedule that genes stand for; exact, but for nothing: what it says is what linking emits."""
    made = _makings(problem, genes.order)
    stays = _belady(problem, genes, made)
    refused: set[tuple[int, int]] = set()
    while True:
        lives, costs, trouble = _places(problem, genes.order, made, stays)
        if trouble:
            refused |= trouble
            stays = _without(stays, refused)
            continue
        homeless = _addresses(problem, costs, stays, pack)
        if not homeless:
            return _schedule(genes.order, lives, costs, stays)
        stays = [s for s in stays if id(s) not in homeless]


def in_dram(problem: Problem) -> Schedule:
    """Every operand in DRAM, in the graph's own order."""
    return evaluate(problem, Genes(tuple(range(len(problem.turns))), {}, {i: () for i in range(len(problem.items))}))


def _makings(problem: Problem, order: Sequence[int]) -> list[_Made]:
    found: list[_Made] = []
    latest: dict[int, _Made] = {}
    for position, turn in enumerate(order):
        for operand, item in enumerate(problem.turns[turn].reads):
            if item >= 0:
                latest[item].uses.append((position, operand))
        for result, item in enumerate(problem.turns[turn].makes):
            latest[item] = made = _Made(item, position, result, first=item not in latest)
            found.append(made)
    return found


# ---- who stays ----------------------------------------------------------------------------------------------------


def _belady(problem: Problem, genes: Genes, made: Sequence[_Made]) -> list[Stay]:
    at: dict[int, list[_Made]] = {}
    for m in made:
        at.setdefault(m.position, []).append(m)
    live: list[tuple[Stay, list[tuple[int, int]]]] = []  # with the uses to come, the next one last
    done: list[Stay] = []
    order, items = genes.order, problem.items
    for position, turn in enumerate(order):
        for m in at.get(position, ()):
            chosen = _wanted(
                problem, genes, m, lambda: [(s.bank, coming[0][0], items[s.item].grains) for s, coming in live]
            )
            if chosen is not None:
                live.append(chosen)
        for bank in (0, 1) if live else ():
            room = problem.room[turn][bank]
            here = [entry for entry in live if entry[0].bank == bank]
            used = sum(items[s.item].grains for s, _ in here)
            if used <= room:
                continue
            here.sort(key=lambda e: -(e[1][-1][0] - position + 0.5) * genes.bias.get(e[0].item, 1.0))
            for entry in here:
                if used <= room:
                    break
                used -= items[entry[0].item].grains
                live.remove(entry)
                done.append(entry[0])
        for entry in list(live):
            stay, coming = entry
            while coming and coming[-1][0] == position:
                stay.hits.append(coming.pop())
            if not coming:
                live.remove(entry)
                done.append(stay)
    return [s for s in done if s.hits and _pays(problem, order, s)]


def _pays(problem: Problem, order: Sequence[int], stay: Stay) -> bool:
    """Whether what was brought to LM for its readers saves more than that took; one whose readers went elsewhere may not."""
    turn = order[stay.made]
    if not problem.turns[turn].loads:
        return True
    brought = problem.cost(turn, problem.lives(turn, (), [(stay.result, stay.bank)]))
    saved = sum(problem.read_gain(order[p], i, stay.bank) or 0 for p, i in stay.hits)
    return brought is not None and brought.total < saved


def _wanted(
    problem: Problem, genes: Genes, m: _Made, live: Callable[[], Sequence[tuple[int, int, int]]]
) -> tuple[Stay, list[tuple[int, int]]] | None:
    """An item in the LM where it saves most, or in the other one if only that has room beside `live` (LM, last use, grains);
    with its uses there in reverse."""
    banks = genes.banks.get(m.item, (0, 1))
    gains = [(problem.gain(m.item, bank), -at, bank) for at, bank in enumerate(banks)]
    found = [(gain, at, bank) for gain, at, bank in gains if gain is not None and gain > 0]
    if not found:
        return None
    bank = found[0][2]
    if m.item not in genes.banks and len(found) > 1:
        preferred = [bank for _, _, bank in sorted(found, reverse=True)]
        there = live()
        bank = next((bank for bank in preferred if _fits(problem, genes.order, m, bank, there)), preferred[0])
    uses = [
        (p, i)
        for p, i in m.uses
        if (genes.reach is None or p - m.position <= genes.reach) and problem.reads(genes.order[p], i, bank)
    ]
    return (Stay(m.item, bank, m.position, m.result, []), uses[::-1]) if uses else None


def _fits(problem: Problem, order: Sequence[int], m: _Made, bank: int, live: Sequence[tuple[int, int, int]]) -> bool:
    """Whether an LM has room for an item until its last use, if all that is there now stays until its own."""
    size, room = problem.items[m.item].grains, problem.room
    last = m.uses[-1][0] if m.uses else m.position
    others = sorted((until, grains) for b, until, grains in live if b == bank)
    used = size + sum(grains for _, grains in others)
    gone = 0
    for p in range(m.position, last + 1):
        while gone < len(others) and others[gone][0] < p:
            used -= others[gone][1]
            gone += 1
        if used > room[order[p]][bank]:
            return False
    return True


def _without(stays: Sequence[Stay], refused: set[tuple[int, int]]) -> list[Stay]:
    """Stays less the uses (position, operand) that are refused; operand -1: the making itself."""
    found = []
    for s in stays:
        s.hits = [h for h in s.hits if h not in refused]
        if s.hits and (s.made, -1) not in refused:
            found.append(s)
    return found


# ---- where everything is ------------------------------------------------------------------------------------------


def _places(
    problem: Problem, order: Sequence[int], made: Sequence[_Made], stays: Sequence[Stay]
) -> tuple[list[Lives], list[Cost], set[tuple[int, int]]]:
    """Where the operands of each turn are, what it costs, and what turns out to be no candidate: uses, or (position, -1) for
    results."""
    reads: dict[int, list[tuple[int, int]]] = {}
    keeps: dict[int, list[tuple[int, int]]] = {}
    only: dict[int, set[int]] = {}
    hits: dict[tuple[int, int], int] = {}  # making -> uses in LM
    for s in stays:
        keeps.setdefault(s.made, []).append((s.result, s.bank))
        hits[s.made, s.result] = len(s.hits)
        for position, operand in s.hits:
            reads.setdefault(position, []).append((operand, s.bank))
    for m in made:
        count = hits.get((m.position, m.result))
        if count is not None and count == len(m.uses) and not (problem.items[m.item].wanted and m.first):
            only.setdefault(m.position, set()).add(m.result)
    found = problem.candidates(
        [
            (turn, tuple(reads.get(p, ())), tuple(keeps.get(p, ())), tuple(sorted(only.get(p, ()))))
            for p, turn in enumerate(order)
        ]
    )
    costs: list[Cost] = []
    trouble = set()
    for position, (turn, (_, cost)) in enumerate(zip(order, found)):
        if cost is None:
            r = reads.get(position)
            trouble.add((position, r[-1][0]) if r else (position, -1))
            cost = problem.in_dram(turn)
        costs.append(cost)
    return [lives for lives, _ in found], costs, trouble


def _addresses(problem: Problem, costs: Sequence[Cost], stays: Sequence[Stay], pack: Pack) -> set[int]:
    """Give every stay its address; the ids of those that find no room, or exceed the budget."""
    scratch = [cost.scratch for cost in costs]
    homeless: set[int] = set()
    for bank in (0, 1):
        mine = [s for s in stays if s.bank == bank]
        if not mine:
            continue
        rects = [Rect(s.made, s.last, problem.items[s.item].grains) for s in mine]
        found = pack(rects, GRAINS, [own[bank] for own in scratch])
        for s, address in zip(mine, found):
            if address is None:
                homeless.add(id(s))
            else:
                s.address = address
        for position, own in enumerate(scratch) if problem.capacity < GRAINS else ():
            here = [s for s in mine if s.made <= position <= s.last and id(s) not in homeless]
            sizes = [problem.items[s.item].grains for s in here]
            if here and own[bank].bit_count() + sum(sizes) > problem.capacity:
                homeless.add(id(here[sizes.index(max(sizes))]))
    return homeless


def _schedule(order: Sequence[int], lives: Sequence[Lives], costs: Sequence[Cost], stays: Sequence[Stay]) -> Schedule:
    steps, dram = sum(c.steps for c in costs), sum(c.dram_lw for c in costs)
    return Schedule(tuple(order), tuple(stays), tuple(lives), steps, dram, sum(c.total for c in costs))
