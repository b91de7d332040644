"""What a task gives."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Artifact:
    """A named result. Volatile: may differ when the task is repeated (a log, a wall time). Optional: may be absent."""

    name: str
    kind: str = "data"
    volatile: bool = False
    optional: bool = False
