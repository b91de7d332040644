"""The schedule phase: Placed becomes a Plan."""

from mlsdk.pipeline.schedule.schedulers import ScheduleOptions, schedule

__all__ = ["ScheduleOptions", "schedule"]
