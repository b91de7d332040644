"""Annealings side by side: `python -m mlsdk.pipeline.schedule.chains`, one asked and one answered a line.

Each process builds the problem anew from the placed graph and the costs that are known. An annealing depends on its number
alone: who does it changes nothing. What a process that died had taken is done here.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from mlsdk.pipeline.ir.placed import Placed
from mlsdk.pipeline.ops.emitters.home import Lives
from mlsdk.pipeline.ops.processes import Process, ask, end, serve
from mlsdk.pipeline.ops.processes import start as start_process
from mlsdk.pipeline.ops.simulation import Simulation, from_data, to_data
from mlsdk.pipeline.schedule.options import ScheduleOptions
from mlsdk.pipeline.schedule.problem import Problem, problem_of
from mlsdk.pipeline.schedule.residence import Genes, Schedule, evaluate, in_dram
from mlsdk.pipeline.schedule.search import Run

#: (problem, options, its record, where it starts, its random numbers, most steps) -> the best, and its genes
Anneal = Callable[[Problem, ScheduleOptions, Run, Schedule, random.Random, int], tuple[Schedule, Genes]]
Found = tuple[Schedule, Genes]

WORD = 0.2  # seconds between two looks at whether the search shall end
WORTH = 2000  # rounds of an annealing for which a process is started: that takes a second or two


def side_by_side(
    anneal: Anneal, problem: Problem, options: ScheduleOptions, runs: Sequence[Run], start: Schedule, limit: int
) -> list[Found]:
    """What each annealing finds, in their order; those that had no time are left out."""
    found: dict[int, Found] = {}
    left = deque(range(len(runs)))
    most = options.helpers.most if options.helpers is not None and options.sa_steps >= WORTH else 1
    processes = [start_process(__name__) for _ in range(min(len(runs), most) - 1 if problem.of is not None else 0)]
    asked = _request(anneal, problem, options, start, limit) if processes else {}
    answers: dict[int, Mapping[str, Any]] = {}
    threads = [
        threading.Thread(target=_asked, args=(process, asked, left, answers), daemon=True) for process in processes
    ]

    def here(chain: int) -> None:
        found[chain] = anneal(problem, options, runs[chain], start, random.Random(chain), limit)

    try:
        for thread in threads:
            thread.start()
        while left:
            with contextlib.suppress(IndexError):  # another took the last one
                here(left.popleft())
        while any(thread.is_alive() for thread in threads) and options.watch("annealings side by side"):
            next(thread for thread in threads if thread.is_alive()).join(WORD)
    finally:
        left.clear()
        end(processes)
        for thread in threads:
            thread.join()
    for chain, answer in sorted(answers.items()):
        problem.know(_costs(answer["costs"]))
        genes = _genes(answer["genes"]) if answer["genes"] else Genes(start.order)
        runs[chain].points = [tuple(point) for point in answer["points"]]
        runs[chain].facts.update(answer["facts"])
        found[chain] = evaluate(problem, genes) if answer["genes"] else start, genes
    for chain in range(len(runs)):
        if chain not in found and options.watch(f"annealing {chain + 1}"):
            here(chain)
    return [found[chain] for chain in sorted(found)]


def _asked(process: Process, asked: Mapping[str, Any], left: deque[int], answers: dict[int, Mapping[str, Any]]) -> None:
    """A thread: let a process do one annealing after another."""
    with contextlib.suppress(OSError, ValueError, IndexError):  # it died, or nothing is left
        while True:
            chain = left.pop()
            answers[chain] = json.loads(ask(process, json.dumps({**asked, "chain": chain})))


# ---- as data ------------------------------------------------------------------------------------------------------


def _request(anneal: Anneal, problem: Problem, options: ScheduleOptions, start: Schedule, limit: int) -> dict[str, Any]:
    assert problem.of is not None and options.measure is not None
    placed, budget = problem.of
    return {
        "anneal": _name(anneal),
        "measure": _name(options.measure),
        "placed": placed.to_json().decode(),
        "budget": budget,
        "costs": _from_costs(problem.known),
        "order": start.order,
        "stays": bool(start.stays),
        "rounds": options.sa_steps,
        "limit": limit,
    }


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}:{function.__qualname__}"


def _named(name: str) -> Any:
    module, function = name.split(":")
    return getattr(import_module(module), function)


def _from_costs(costs: Mapping[tuple[int, Lives], Any]) -> list[Any]:
    return [[turn, [lives.reads, lives.keeps, lives.stored], to_data(cost)] for (turn, lives), cost in costs.items()]


def _costs(data: Sequence[Any]) -> dict[tuple[int, Lives], Any]:
    return {(turn, Lives(*map(tuple, lives))): from_data(cost) for turn, lives, cost in data}


def _from_genes(genes: Genes) -> dict[str, Any]:
    return {"order": genes.order, "bias": [*genes.bias.items()], "banks": [*genes.banks.items()]}


def _genes(data: Mapping[str, Any]) -> Genes:
    banks = {item: tuple(where) for item, where in data["banks"]}
    return Genes(tuple(data["order"]), dict(map(tuple, data["bias"])), banks)


def answer(line: str) -> str:
    """The answer to a line."""
    asked = json.loads(line)
    placed, measure = Placed.from_json(asked["placed"].encode()), _named(asked["measure"])
    told = _costs(asked["costs"])
    problem = problem_of(placed, Simulation(measure), asked["budget"], told)
    start = evaluate(problem, Genes(tuple(asked["order"]))) if asked["stays"] else in_dram(problem)
    run, options = Run("", ""), ScheduleOptions(measure=measure, sa_steps=asked["rounds"])
    best, genes = _named(asked["anneal"])(problem, options, run, start, random.Random(asked["chain"]), asked["limit"])
    new = {key: cost for key, cost in problem.known.items() if key not in told}
    return json.dumps(
        {
            "genes": None if best is start else _from_genes(genes),
            "points": run.points,
            "facts": run.facts,
            "costs": _from_costs(new),
        }
    )


if __name__ == "__main__":
    serve(answer)
