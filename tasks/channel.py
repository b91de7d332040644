"""What worker processes tell the process that started them: lines of JSON in a file that all append to."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Told:
    """A task reached its result in a worker process, or failed there."""

    task: str  # task_id
    phase: str
    label: str
    outcome: str  # started, built, failed
    seconds: float = 0.0
    reason: str = ""
    error: str = ""
    node: str = ""
    kind: str = ""  # of an error: store, interrupted, error, bug


class Channel:
    """One file for one build; it has no name that others could open."""

    def __init__(self) -> None:
        self._file: Any = tempfile.TemporaryFile()  # noqa: SIM115  it is closed with the channel
        self.pid = os.getpid()

    def tell(self, told: Told) -> None:
        """One line in one write, so that lines of several processes never mix."""
        os.write(self._file.fileno(), (json.dumps(asdict(told)) + "\n").encode())

    def heard(self) -> list[Told]:
        """Everything that was told so far."""
        size = os.fstat(self._file.fileno()).st_size
        data = os.pread(self._file.fileno(), size, 0)
        return [Told(**json.loads(line)) for line in data.splitlines()]

    def close(self) -> None:
        self._file.close()
