"""Orders: the graph's own and depth first, and a beam search from there.

In each turn of the beam every order that is kept gives some others, in which one node stands at another legal place; the best
`width` of all go on. It ends after `max_turn` turns, or after `prune_limit` without a better one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice

from mlsdk.pipeline.schedule.options import ScheduleOptions
from mlsdk.pipeline.schedule.problem import Problem
from mlsdk.pipeline.schedule.residence import Genes, Schedule, evaluate
from mlsdk.pipeline.schedule.search import Run

NEIGHBOURS, DRAWS = 6, 60  # of each order in a turn; how often one is drawn at most


def depth_first(problem: Problem) -> tuple[int, ...]:
    """An order in which a node that can follow the one before it does, the one that reads most of what was just made first."""
    waiting = [len(turn.after) for turn in problem.turns]
    followers: list[list[int]] = [[] for _ in problem.turns]
    for t, turn in enumerate(problem.turns):
        for before in turn.after:
            followers[before].append(t)
    ready = [t for t, n in enumerate(waiting) if n == 0][::-1]
    found: list[int] = []
    while ready:
        t = ready.pop()
        found.append(t)
        freed = []
        for f in followers[t]:
            waiting[f] -= 1
            if not waiting[f]:
                freed.append(f)
        ready += sorted(freed, reverse=True)
    return tuple(found)


def reach_of(problem: Problem, order: Sequence[int], at: int) -> tuple[int, int]:
    """The first and the last position that the turn at a position may have, the others in the same order."""
    turn = order[at]
    first, last = 0, len(order) - 1
    needs = set(problem.turns[turn].after)
    for p in range(at - 1, -1, -1):
        if order[p] in needs:
            first = p + 1
            break
    for p in range(at + 1, len(order)):
        if turn in problem.turns[order[p]].after:
            last = p - 1
            break
    return first, last


def moved(order: Sequence[int], at: int, to: int) -> tuple[int, ...]:
    """The turn at one position at another."""
    rest = [*order[:at], *order[at + 1 :]]
    return (*rest[:to], order[at], *rest[to:])


def another(problem: Problem, order: Sequence[int], rng: random.Random) -> tuple[int, ...] | None:
    """An order that differs by one turn, near or far; None where the turn that was drawn cannot move."""
    at = rng.randrange(len(order))
    first, last = reach_of(problem, order, at)
    if first == last:
        return None
    near = 1 + int(rng.expovariate(0.5))
    to = at + rng.choice((-near, near))
    to = min(max(to, first), last)
    return moved(order, at, to) if to != at else None


def search_order(problem: Problem, options: ScheduleOptions, run: Run) -> Schedule:
    """The best schedule found; `run` records how it went."""
    rng = random.Random(0)
    own = tuple(range(len(problem.turns)))
    known: dict[tuple[int, ...], Schedule] = {}

    def tried(order: tuple[int, ...]) -> Schedule:
        if order not in known:
            known[order] = evaluate(problem, Genes(order))
        return known[order]

    beam = sorted({own, depth_first(problem)}, key=lambda order: (tried(order).cost, order))
    best = tried(beam[0])
    run.note(0, best.cost, best.cost)
    turn = idle = 0
    while turn != options.beam_max_turn and idle < options.beam_prune_limit:
        if not options.watch(f"turn {turn} of the search for an order: cost {best.cost:,.0f}"):
            break
        turn += 1
        grown = set(beam)
        for order in beam:
            drawn = (another(problem, order, rng) for _ in range(DRAWS))
            grown.update(islice((other for other in drawn if other is not None), NEIGHBOURS))
        beam = sorted(grown, key=lambda order: (tried(order).cost, order))[: max(1, options.beam_width)]
        found = tried(beam[0])
        idle = idle + 1 if found.cost >= best.cost else 0
        if found.cost < best.cost:
            best = found
        run.note(turn, found.cost, best.cost)
    run.facts.update({"orders tried": len(known), "turns": turn, "width": options.beam_width})
    return best
