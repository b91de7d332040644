"""The errors that a user sees: one class for each party who must act.

A message says which thing, what is so, and what to do. Nothing here imports torch, onnx or a phase, so that
every folder may import this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "ContextError",
    "DataDependentControlFlow",
    "DeviceError",
    "EmitError",
    "GraphError",
    "InputMismatch",
    "LayoutError",
    "MLSDKError",
    "MLSDKWarning",
    "Misuse",
    "OptionError",
    "ScheduleError",
    "StoreError",
    "TraceError",
    "TraceWarning",
    "UnknownOperator",
    "UnregisteredTensor",
    "UnregisteredTensorWarning",
    "UnsupportedOperator",
]


# Between an error and the operators that cannot be compiled either.
BESIDES = "\nbesides, "

# What to do about operators that no phase can compile.
WHAT_TO_DO = "compute these parts outside of the function, or write them with supported operators"


class MLSDKError(Exception):
    """Base of all errors of Open MLSDK; `phase` and `node` are filled in where they are known."""

    phase: str = ""
    node: str = ""


class MLSDKWarning(UserWarning):
    """Base of all warnings of Open MLSDK."""


class TraceWarning(MLSDKWarning):
    """The traced program differs from what the Python function might be taken to do."""


class UnregisteredTensorWarning(TraceWarning):
    """A tensor of the closure is not registered and became a constant."""


class OptionError(MLSDKError):
    """An option is unknown, or its value is not one of those allowed."""


class InputMismatch(MLSDKError):
    """An input's key, dtype or shape differs from the sample's."""


class ContextError(MLSDKError):
    """A Context was used in a way that its state does not allow (invalidated, registered twice, no current one)."""


class GraphError(MLSDKError):
    """A graph or an ONNX file is malformed, or a node breaks its operator's rule."""


class TraceError(MLSDKError):
    """The Python function cannot become a graph."""

    phase = "Trace"
    partial: Any = None  # what could be traced: a Graph, with stand-ins for what could not
    misuses: tuple[Misuse, ...] = ()  # operators that cannot be compiled
    place: Misuse | None = None  # the one place that the message tells, and where the function ended

    @classmethod
    def at(cls, place: Misuse) -> TraceError:
        """The error about one place."""
        error = cls(str(place))
        error.place = place
        return error

    def besides(self, misuses: Sequence[Misuse]) -> TraceError:
        """The same error, which names other places too."""
        head = str(self).partition(BESIDES)[0]
        listing = UnsupportedOperator.listing([*self.misuses, *misuses], WHAT_TO_DO)
        return self._like(type(self)(f"{head}{BESIDES}{listing}"), listing.misuses)

    def _like(self, other: TraceError, misuses: tuple[Misuse, ...]) -> TraceError:
        other.partial, other.misuses, other.place = self.partial, misuses, self.place
        for note in getattr(self, "__notes__", ()):
            other.add_note(note)
        return other


class DataDependentControlFlow(TraceError):
    """Python asked for the value of a tensor that is known only when the program runs."""


class UnregisteredTensor(TraceError):
    """The function updates a tensor that is not registered, so the update would be lost."""


@dataclass(frozen=True)
class Misuse:
    """One place of a user's program: what is wrong there, `file:line`, the module path and the node of the graph (each may
    be empty)."""

    what: str
    source: str = ""
    scope: str = ""
    hint: str = ""
    node: str = field(default="", compare=False)

    def __str__(self) -> str:
        where = " in ".join(part for part in (self.source, self.scope) if part)
        text = f"{self.what} at {where}" if where else self.what
        return f"{text}: {self.hint}" if self.hint else text


class UnsupportedOperator(TraceError):
    """One or more operators cannot be compiled; `misuses` holds each with its place."""

    def __init__(self, message: str, misuses: Sequence[Misuse] = (), what_to_do: str = ""):
        super().__init__(message)
        self.misuses, self.what_to_do = tuple(misuses), what_to_do

    @classmethod
    def listing(cls, misuses: Sequence[Misuse], what_to_do: str) -> UnsupportedOperator:
        """All places at once, equal ones merged into one line with a count."""
        counts: dict[Misuse, int] = {}
        for misuse in misuses:
            counts[misuse] = counts.get(misuse, 0) + 1
        lines = [f"  {misuse}" + (f" ({count} times)" if count > 1 else "") for misuse, count in counts.items()]
        names = sorted({misuse.what for misuse in misuses})
        head = f"{len(names)} operator{'s' if len(names) > 1 else ''} not supported: {', '.join(names)}"
        return cls("\n".join([head, *lines, what_to_do]), misuses, what_to_do)

    def besides(self, misuses: Sequence[Misuse]) -> TraceError:
        listing = self.listing([*self.misuses, *misuses], self.what_to_do)
        return self._like(listing, listing.misuses)


class UnknownOperator(GraphError):
    """A node names an operator that has no row in the table."""


class LayoutError(MLSDKError):
    """No layout fits a value, or a layout text is malformed."""

    phase = "LayoutPlan"


class NotOnBoard(LayoutError):
    """A node, or this form of it, has no emitter; the planner collects these into one UnsupportedOperator."""


class ScheduleError(MLSDKError):
    """No order or address assignment fits the memories."""

    phase = "Schedule"


class EmitError(MLSDKError):
    """A node has no emitter for its operands' layouts or dtypes."""

    phase = "Emit"


class StoreError(MLSDKError):
    """The artifact store is damaged, full, or not a store."""


class DeviceError(MLSDKError):
    """A board cannot be opened, or refused a program."""


# Kinds of these that stand where they are raised, and can be imported from here too.
_ELSEWHERE = {
    "CodegenDirError": "mlsdk.tasks.errors",
    "DeviceBusy": "mlsdk.device.errors",
    "DeviceClosed": "mlsdk.device.errors",
    "DeviceNotFound": "mlsdk.device.errors",
    "DeviceReset": "mlsdk.device.errors",
    "DeviceStateError": "mlsdk.device.errors",
    "StoreFull": "mlsdk.store.errors",
    "StoreReadOnly": "mlsdk.store.errors",
    "WorkflowError": "mlsdk.tasks.errors",
}


def __getattr__(name: str) -> object:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_ELSEWHERE[name]), name)
