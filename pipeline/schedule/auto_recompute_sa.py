"""auto_recompute_sa: annealing over the order, over what stays in LM, and over what is computed again.

It starts from what spill_opt finds. A round changes one thing: a turn stands elsewhere; a value is kept more or less readily
(its bias); it prefers the other LM, or may not stay at all; a node that reads nothing but what is there is computed again before
a later use of its result, or not any more. Costs are exact (`residence.evaluate`), and every state is a legal schedule, so the
best so far is kept and may be taken at any time. A worse one is accepted with probability exp(-change / (T cost)); T falls from
0.3 / turns, less than the share of one turn in the whole, to nothing. Of several annealings, each with random numbers of its own,
the best is taken; other processes do some of them, where there are any (`chains.py`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

from mlsdk.pipeline.schedule.beam import another
from mlsdk.pipeline.schedule.chains import side_by_side
from mlsdk.pipeline.schedule.local import search
from mlsdk.pipeline.schedule.options import ScheduleOptions
from mlsdk.pipeline.schedule.problem import Problem
from mlsdk.pipeline.schedule.residence import Genes, Schedule, evaluate
from mlsdk.pipeline.schedule.search import Record, Run
from mlsdk.pipeline.schedule.spill_opt import spill_opt

BIASES = (0.1, 0.3, 1.0, 3.0, 10.0)
START = 0.3

Change = Callable[[Problem, Genes, random.Random], "Genes | None"]


def auto_recompute_sa(problem: Problem, options: ScheduleOptions, record: Record) -> Schedule:
    best = before = spill_opt(problem, options, record)
    genes, limit = Genes(best.order), in_dram_steps(problem)
    runs = [
        record.run("schedule", f"annealing {chain + 1} of {options.sa_chains}" if chain else "annealing")
        for chain in range(options.sa_chains)
    ]
    for found, its in side_by_side(annealed, problem, options, runs, before, limit):
        if found.cost < best.cost:
            best, genes = found, its
    if best.cost < before.cost:
        closer = evaluate(problem, genes, search)  # more may find room
        if closer.cost < best.cost and closer.steps <= limit:
            best = closer
    run = runs[-1]
    run.facts.update({"cost": round(best.cost, 1), "start": round(before.cost, 1)})
    run.facts["computed again"] = len(best.order) - len(problem.turns)
    return best


def annealed(
    problem: Problem, options: ScheduleOptions, run: Run, start: Schedule, rng: random.Random, limit: int
) -> tuple[Schedule, Genes]:
    """The best that one annealing finds, of those that take at most `limit` steps, and its genes."""
    best = now = start
    best_genes = genes = Genes(start.order)
    rounds, n = options.sa_steps, len(problem.turns)
    done = accepted = 0
    run.note(0, best.cost, best.cost)
    while done < rounds and options.watch(f"round {done} of {rounds}: cost {best.cost:,.0f}"):
        part = done / rounds
        done += 1
        temperature = START / n * (1 - part) / (1 + 8 * part)
        other = rng.choices(CHANGES, WEIGHTS)[0](problem, genes, rng)
        if other is None:
            continue
        found = evaluate(problem, other)
        worse = (found.cost - now.cost) / max(now.cost, 1e-9)
        if found.steps <= limit and (worse <= 0 or rng.random() < math.exp(-worse / max(temperature, 1e-12))):
            genes, now = other, found
            accepted += 1
            if found.cost < best.cost:
                best, best_genes = found, other
        run.note(done, found.cost, best.cost)
    run.facts.update({"rounds": done, "accepted": accepted})
    return best, best_genes


def in_dram_steps(problem: Problem) -> int:
    return sum(problem.in_dram(t).steps for t in range(len(problem.turns)))


# ---- changes ------------------------------------------------------------------------------------------------------


def _order(problem: Problem, genes: Genes, rng: random.Random) -> Genes | None:
    found = another(problem, genes.order, rng)
    return None if found is None or not legal(problem, found) else replace(genes, order=found)


def _bias(problem: Problem, genes: Genes, rng: random.Random) -> Genes | None:
    item = rng.randrange(len(problem.items))
    return replace(genes, bias={**genes.bias, item: rng.choice(BIASES)})


def _bank(problem: Problem, genes: Genes, rng: random.Random) -> Genes | None:
    item = rng.randrange(len(problem.items))
    if problem.gain(item, 0) is None and problem.gain(item, 1) is None:
        return None
    return replace(genes, banks={**genes.banks, item: rng.choice(((0, 1), (1, 0), (0,), (1,), ()))})


def _again(problem: Problem, genes: Genes, rng: random.Random) -> Genes | None:
    """A turn once more, right before a later reader of its result; or a repetition away."""
    order, seen, repeated = genes.order, set[int](), []
    for p, turn in enumerate(order):
        if turn in seen:
            repeated.append(p)
        seen.add(turn)
    if repeated and rng.random() < 0.5:
        at = rng.choice(repeated)
        return replace(genes, order=(*order[:at], *order[at + 1 :]))
    item = rng.randrange(len(problem.items))
    maker = problem.maker[item][0]
    readers = [p for p, turn in enumerate(order) if item in problem.turns[turn].reads]
    if len(readers) < 2 or not problem.in_dram(maker).steps:
        return None
    at = rng.choice(readers[1:])
    return replace(genes, order=(*order[:at], maker, *order[at:]))


def legal(problem: Problem, order: tuple[int, ...]) -> bool:
    """Every turn after what it needs."""
    seen: set[int] = set()
    for turn in order:
        if not seen.issuperset(problem.turns[turn].after):
            return False
        seen.add(turn)
    return True


CHANGES: tuple[Change, ...] = (_order, _bias, _bank, _again)
WEIGHTS = (4, 2, 3, 1)
