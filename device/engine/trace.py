"""Events of a run as Chrome trace JSON: one lane for each unit, times in microseconds of the chip's clock."""

from __future__ import annotations

import json
from pathlib import Path

from .. import spec

#: More events than this are not recorded: a viewer would not open them.
MAX_EVENTS = 2_000_000
LANES = ("alu", "mau", "mwrite", "mread", "l1bm", "l2bm", "dar", "mv", "wait")


class TraceWriter:
    """Collects events; `write` puts them into a file."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, int, int, int]] = []
        self.dropped = 0

    def __call__(self, unit: str, name: str, start: int, cycles: int, line: int) -> None:
        if len(self.events) < MAX_EVENTS:
            self.events.append((unit, name, start, cycles, line))
        else:
            self.dropped += 1

    def write(self, path: Path) -> None:
        microseconds = 1e6 / spec.CLOCK_HZ
        lanes = {unit: number for number, unit in enumerate(LANES, 1)}
        rows: list[dict] = [
            {"name": "thread_name", "ph": "M", "pid": 1, "tid": number, "args": {"name": unit}}
            for unit, number in lanes.items()
        ]
        rows.append({"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "MN-Core 2 (emulated)"}})
        for unit, name, start, cycles, line in self.events:
            tid = lanes.setdefault(unit, len(lanes) + 1)
            rows.append(
                {
                    "name": name,
                    "cat": unit,
                    "ph": "X",
                    "pid": 1,
                    "tid": tid,
                    "ts": start * microseconds,
                    "dur": cycles * microseconds,
                    "args": {"cycle": start, "line": line},
                }
            )
        path.write_text(
            json.dumps({"traceEvents": rows, "displayTimeUnit": "ns", "otherData": {"dropped": self.dropped}})
        )
