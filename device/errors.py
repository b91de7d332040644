"""What can go wrong on the emulated board. Each class is one party who must act; each message names the thing, the fact
and what to do, in one line. All are DeviceErrors, the class that users of the package catch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlsdk.errors import DeviceError

if TYPE_CHECKING:
    from .isa.diagnostics import Diagnostic

__all__ = [
    "AssemblyError",
    "DeviceBusy",
    "DeviceClosed",
    "DeviceError",
    "DeviceNotFound",
    "DeviceReset",
    "DeviceStateError",
    "ExecutionError",
    "Unimplemented",
    "Unspecified",
    "UndefinedBehaviour",
]


class AssemblyError(DeviceError):
    """The text or the statements are not a program. `diagnostics` holds every finding, the message the first ones."""

    def __init__(self, diagnostics: Sequence[Diagnostic], shown: int = 10) -> None:
        self.diagnostics = tuple(diagnostics)
        errors = [d for d in self.diagnostics if d.severity == "error"]
        lines = [str(d) for d in errors[:shown]]
        if len(errors) > shown:
            lines.append(f"... and {len(errors) - shown} more errors")
        super().__init__("\n".join(lines))


class ExecutionError(DeviceError):
    """A program cannot be executed any further, for instance an address outside a memory."""


class UndefinedBehaviour(ExecutionError):
    """Strict mode: the program relies on something that the manual calls undefined."""


class Unspecified(ExecutionError):
    """Strict mode: the program relies on something that the manual does not say (never-written memory, open points)."""


class Unimplemented(ExecutionError):
    """The program uses something that exists on the chip and that this emulator does not execute."""


class DeviceNotFound(DeviceError):
    """No board has this name or index."""


class DeviceBusy(DeviceError):
    """Another program holds the board; the message names it."""


class DeviceReset(DeviceError):
    """The board was reset while this program was using it; its data is void."""


class DeviceStateError(DeviceError):
    """The board's state directory cannot be used (permissions, damage, no space)."""


class DeviceClosed(DeviceError):
    """The board object was closed, or belongs to the process that this one was forked from."""
