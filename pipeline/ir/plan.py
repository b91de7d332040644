"""Plan: in which order nodes run, and at which DRAM address each value lies.

A segment is a piece of DRAM of the same size and address in all four groups; its address is known only when the program is
loaded. Inputs, outputs, state and constants have a segment each, intermediate values share the segment `work`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

INPUT, OUTPUT, CONSTANT, WORK = "input", "output", "constant", "work"


@dataclass(frozen=True)
class Segment:
    """`size` in LW of each group."""

    name: str
    kind: str
    size: int


@dataclass(frozen=True)
class Slot:
    """Where a value lies: `offset` LW from the segment's address, in each group."""

    segment: str
    offset: int = 0


@dataclass(frozen=True)
class Step:
    """One node's turn. `note`: what the scheduler wants to say about it (downloads, uploads, spills)."""

    node: str
    note: str = ""


@dataclass(frozen=True)
class Plan:
    scheduler: str
    steps: tuple[Step, ...]
    slots: Mapping[str, Slot]
    segments: Mapping[str, Segment]

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", MappingProxyType(dict(self.slots)))
        object.__setattr__(self, "segments", MappingProxyType(dict(self.segments)))

    def to_json(self) -> bytes:
        data = {
            "scheduler": self.scheduler,
            "steps": [[s.node, s.note] for s in self.steps],
            "slots": {name: [s.segment, s.offset] for name, s in self.slots.items()},
            "segments": [[s.name, s.kind, s.size] for s in self.segments.values()],
        }
        return (json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes) -> Plan:
        d = json.loads(data)
        segments = [Segment(*s) for s in d["segments"]]
        return cls(
            d["scheduler"],
            tuple(Step(*s) for s in d["steps"]),
            {name: Slot(*s) for name, s in d["slots"].items()},
            {s.name: s for s in segments},
        )
