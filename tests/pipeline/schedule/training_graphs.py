"""Synthetic problems: a chain forward with residuals, and backward over what it saved. One LM, and a unit of cost for each grain
that goes to DRAM or comes from there."""

import random

from mlsdk.pipeline.ops.emitters.home import LM
from mlsdk.pipeline.schedule.problem import Cost, Item, Problem, Turn

BASE = 1000  # steps of every node: far more than any transfer, so that it is never worth to compute again


def training(seed, forward):
    """About twice `forward` turns."""
    rng = random.Random(seed)
    reads = [[]]
    for t in range(1, forward):
        reads.append([t - 1])
        if t > 2 and rng.random() < 0.35:
            reads[-1].append(rng.randrange(t - 2))
    for t in reversed(range(forward - 1)):  # the gradient of turn t, from the one behind it and what turn t made
        reads.append([len(reads) - 1, t])
        if rng.random() < 0.25:
            reads[-1].append(rng.randrange(forward))
    reads = [sorted(set(r)) for r in reads]
    sizes = [4 * rng.randint(1, 8) for _ in reads]
    need = max(sizes[t] + sum(sizes[i] for i in r) for t, r in enumerate(reads))
    return problem(reads, sizes, int(1.3 * need))


def problem(reads, sizes, capacity):
    """Turn t makes item t of `sizes[t]` grains and reads the items `reads[t]`; the last one is wanted in DRAM."""
    turns = [Turn(f"t{t}", tuple(r), (True,) * len(r), (t,), tuple(sorted(r))) for t, r in enumerate(reads)]
    items = [Item(f"v{t}", size, t == len(reads) - 1) for t, size in enumerate(sizes)]

    def cost_of(turn, lives):
        if LM[1] in (*lives.reads, *lives.keeps):
            return None
        paid = sum(sizes[i] for k, i in enumerate(reads[turn]) if not (lives.reads and lives.reads[k]))
        stored = lives.stored[0] if lives.stored else True
        return Cost(BASE + paid + (sizes[turn] if stored else 0), 0)

    return Problem(turns, items, cost_of, capacity)


def traffic(problem, schedule):
    """Grains that a schedule moves."""
    return schedule.cost - BASE * len(problem.turns)
