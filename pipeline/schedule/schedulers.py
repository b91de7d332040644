"""The schedulers by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlsdk.errors import ScheduleError
from mlsdk.pipeline.ir.placed import Placed
from mlsdk.pipeline.ir.plan import Plan, Step
from mlsdk.pipeline.schedule.addresses import assign


@dataclass(frozen=True)
class ScheduleOptions:
    scheduler: str = "always_from_dram"


def schedule(placed: Placed, options: ScheduleOptions | None = None) -> Plan:
    """The order of the nodes and the addresses of the values."""
    options = options or ScheduleOptions()
    found = SCHEDULERS.get(options.scheduler)
    if found is None:
        raise ScheduleError(f"there is no scheduler {options.scheduler}; choose one of {', '.join(SCHEDULERS)}")
    steps = found(placed)
    slots, segments = assign(placed, steps)
    return Plan(options.scheduler, steps, slots, segments)


def always_from_dram(placed: Placed) -> tuple[Step, ...]:
    """The graph's own order; every node takes its operands from DRAM and puts its results there."""
    return tuple(Step(p.node.name) for p in placed.nodes)


SCHEDULERS: dict[str, Callable[[Placed], tuple[Step, ...]]] = {"always_from_dram": always_from_dram}
