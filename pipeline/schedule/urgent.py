"""An order for nodes that overlap: what most of the program waits for comes first, and what nothing waits for fills the gaps.

A turn's rest is what is left to do from its beginning to the end of the longest chain behind it. Of the turns that could be next,
the one with the longest rest is. While what it reads is still on its way from DRAM, others are done that fit into the time. What
several read is brought to LM right before the first of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlsdk.pipeline.ops.simulation import DRAM_LW
from mlsdk.pipeline.schedule.problem import Problem


def urgent(problem: Problem) -> tuple[int, ...]:
    turns, costs = problem.turns, [problem.in_dram(t) for t in range(len(problem.turns))]
    traffic = [cost.dram_lw / DRAM_LW for cost in costs]
    work = [max(1.0, cost.steps - busy) for cost, busy in zip(costs, traffic)]
    followers: list[list[int]] = [[] for _ in turns]
    for t, turn in enumerate(turns):
        for before in turn.after:
            followers[before].append(t)
    rest = _rests(followers, [cost.steps for cost in costs])
    loads = {item: t for t, turn in enumerate(turns) if turn.loads for item in turn.makes}
    waiting = [sum(not turns[before].loads for before in turn.after) for turn in turns]
    ready = {t for t, n in enumerate(waiting) if n == 0 and not turns[t].loads}
    sources = frozenset(ready)
    found: list[int] = []
    now = moved = 0.0  # when the PEs, and when the DRAMs, are done with what was chosen so far

    def urgency(t: int) -> tuple[float, int]:
        return rest[t], -t

    while ready:
        chosen = max(ready, key=urgency)
        if chosen in sources:  # the data of others come while nodes before them compute
            there = moved + traffic[chosen]
            fitting = [t for t in ready if max(now, moved + traffic[t]) + work[t] <= there]
            chosen = max(fitting, key=urgency, default=chosen)
            moved += traffic[chosen]
        now = max(now, moved) + work[chosen]
        ready.remove(chosen)
        found += [loads.pop(item) for item in dict.fromkeys(turns[chosen].reads) if item in loads]
        found.append(chosen)
        for t in followers[chosen]:
            waiting[t] -= 1
            if not waiting[t]:
                ready.add(t)
    return tuple(found)


def _rests(followers: Sequence[Sequence[int]], steps: Sequence[int]) -> list[float]:
    """Steps from the beginning of each turn to the end of the longest chain behind it. Turns come after what they need."""
    found = [0.0] * len(steps)
    for t in reversed(range(len(steps))):
        found[t] = steps[t] + max((found[f] for f in followers[t]), default=0.0)
    return found
