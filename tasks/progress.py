"""What a listener hears while tasks run, and the lines that a terminal shows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

STATES = ("start", "waiting", "running", "built", "cached", "failed")


@dataclass(frozen=True)
class Progress:
    """A phase of a build has reached a state."""

    state: str
    phase: str
    label: str
    seconds: float = 0.0
    detail: str = ""


Listener = Callable[[Progress], None]


def quiet(_progress: Progress) -> None:
    """Says nothing."""


def for_stream(stream: TextIO | None = None) -> Listener:
    """One line for each phase when the stream is a terminal, nothing otherwise."""
    stream = sys.stderr if stream is None else stream
    return Lines(stream) if stream.isatty() else quiet


class Lines:
    """A line for each finished phase, and a spinner while one runs."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=stream, highlight=False)
        self._status: Any = None

    def __call__(self, progress: Progress) -> None:
        from rich.text import Text

        if progress.state in ("start", "waiting", "running"):
            detail = "" if progress.state == "start" else progress.detail  # of a start, it is the reason
            self._spin(f"{progress.phase:<14} {detail}".rstrip())
            return
        self.stop()
        style = {"built": "green", "cached": "dim", "failed": "red"}[progress.state]
        seconds = f"{progress.seconds:8.2f} s" if progress.state == "built" else ""
        line = Text(f"{progress.phase:<14}")
        line.append(f"{progress.state:<8}", style)
        line.append(seconds)
        if progress.detail and progress.state == "built":
            line.append(f"   {progress.detail}", "dim")
        self._console.print(line, overflow="ellipsis", no_wrap=True)

    def stop(self) -> None:
        """End the spinner, if there is one."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _spin(self, text: str) -> None:
        from rich.text import Text

        line = Text(text, overflow="ellipsis", no_wrap=True)
        if self._status is not None:
            self._status.update(line)
            return
        self._status = self._console.status(line)
        self._status.start()
