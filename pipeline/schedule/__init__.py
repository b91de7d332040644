"""The schedule phase: Placed becomes a Plan."""

from mlsdk.pipeline.schedule.ladder import LADDER
from mlsdk.pipeline.schedule.options import ScheduleOptions
from mlsdk.pipeline.schedule.schedulers import SCHEDULERS, schedule
from mlsdk.pipeline.schedule.search import Record

__all__ = ["LADDER", "SCHEDULERS", "Record", "ScheduleOptions", "schedule"]
