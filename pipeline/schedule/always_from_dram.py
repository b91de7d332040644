"""always_from_dram: the graph's own order; every node takes its operands from DRAM and puts its results there."""

from __future__ import annotations

from mlsdk.pipeline.schedule.options import ScheduleOptions
from mlsdk.pipeline.schedule.problem import Problem
from mlsdk.pipeline.schedule.residence import Schedule, in_dram
from mlsdk.pipeline.schedule.search import Record


def always_from_dram(problem: Problem, options: ScheduleOptions, record: Record) -> Schedule:
    return in_dram(problem)
