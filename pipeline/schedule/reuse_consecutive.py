"""reuse_consecutive: the graph's own order; what the next node reads stays in LM until then, if there is room."""

from __future__ import annotations

from mlsdk.pipeline.schedule.options import ScheduleOptions
from mlsdk.pipeline.schedule.problem import Problem
from mlsdk.pipeline.schedule.residence import Genes, Schedule, evaluate
from mlsdk.pipeline.schedule.search import Record


def reuse_consecutive(problem: Problem, options: ScheduleOptions, record: Record) -> Schedule:
    return evaluate(problem, Genes(tuple(range(len(problem.turns))), reach=1))
