"""Parameters with a range: what does not fit is refused before anything runs, with the range.

batch = IntParameter(1, 4096, default=64)
"""

from __future__ import annotations

import math
from typing import Any

import luigi

from mlsdk.tasks.errors import WorkflowError

# What a seed may be: numpy and torch take these.
LARGEST_SEED = 2**32 - 1


class NotAllowed(WorkflowError, ValueError):
    """The text of a parameter is not what it takes."""


class IntParameter(luigi.IntParameter):
    """A whole number from `low` to `high`."""

    wanted = "a whole number"

    def __init__(self, low: int, high: int, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.low, self.high = low, high

    def parse(self, x: str) -> int:
        try:
            return int(x)
        except ValueError:
            raise NotAllowed(_refused(self, x)) from None

    def allows(self, value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high


class FloatParameter(luigi.FloatParameter):
    """A finite number from `low` to `high`."""

    wanted = "a number"

    def __init__(self, low: float, high: float, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.low, self.high = low, high

    def parse(self, x: str) -> float:
        try:
            return float(x)
        except ValueError:
            raise NotAllowed(_refused(self, x)) from None

    def allows(self, value: Any) -> bool:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and math.isfinite(value) and self.low <= value <= self.high


def check(task: luigi.Task) -> None:
    """WorkflowError for the first parameter that is out of its range."""
    for name, parameter in task.get_params():
        if isinstance(parameter, (IntParameter, FloatParameter)) and not parameter.allows(getattr(task, name)):
            raise wrong(type(task), name, parameter, getattr(task, name))


def wrong(of: type, name: str, parameter: luigi.Parameter[Any], value: Any) -> WorkflowError:
    """The error for a value that a parameter does not take."""
    return WorkflowError(f"parameter {name} of {of.__name__}: {_refused(parameter, value)}")


def _refused(parameter: luigi.Parameter[Any], value: Any) -> str:
    if isinstance(parameter, (IntParameter, FloatParameter)):
        wanted = f"{parameter.wanted} from {parameter.low} to {parameter.high}"
    else:
        wanted = f"a value of kind {type(parameter).__name__.removesuffix('Parameter').lower() or 'text'}"
    return f"{value!r:.60} is not allowed; give {wanted}"
