"""spill_opt: a value stays in LM until its last use, or until LM is full; then the one goes whose next use is farthest (Belady).

The order is the best that a beam search finds (`beam.py`). A value that somebody reads in DRAM is put there by the node that
makes it, which costs what a later upload would.
"""

from __future__ import annotations

from mlsdk.pipeline.schedule.beam import search_order
from mlsdk.pipeline.schedule.options import ScheduleOptions
from mlsdk.pipeline.schedule.problem import Problem
from mlsdk.pipeline.schedule.residence import Schedule, in_dram
from mlsdk.pipeline.schedule.search import Record


def spill_opt(problem: Problem, options: ScheduleOptions, record: Record) -> Schedule:
    run = record.run("order", "beam search, Belady")
    before = in_dram(problem)
    best = search_order(problem, options, run)
    if best.steps > before.steps:
        best = before
    run.facts.update(
        {"cost in DRAM": round(before.cost, 1), "cost": round(best.cost, 1), "values in LM": len(best.stays)}
    )
    return best
