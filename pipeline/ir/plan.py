"""Plan: in which order nodes run, at which DRAM address each value lies, and which values live in LM.

A step says what its node reads in LM, what it leaves there, and which of its results go nowhere else. A value that is left in
LM lies there until the last step that reads it; a step that does not name it reads it in DRAM. A node may run several times.
What lies in DRAM from the start may be brought to LM for several steps that read it there: a step of its own does that (`load`).

A segment is a piece of DRAM of the same size and address in all four groups; its address is known only when the program is
loaded. Inputs, outputs, state and constants have a segment each, intermediate values share the segment `work` or lie on the
chip: a slot in `pdm` is a place in each group's PDM, whose address is known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ir.placed import LOAD, Placed, PlacedNode
from mlsdk.pipeline.ir.written import Written

INPUT, OUTPUT, CONSTANT, WORK = "input", "output", "constant", "work"
PDM = "pdm"


@dataclass(frozen=True)
class Segment:
    """`size` in LW of each group."""

    name: str
    kind: str
    size: int


@dataclass(frozen=True)
class Slot:
    """Where a value lies: `offset` LW from the segment's address, or from the beginning of PDM, in each group. `cut`: only so
    many LW of it (0: all); the rest lies in the segment `work` from `rest` on, so that both memories are at work for it."""

    segment: str
    offset: int = 0
    cut: int = 0
    rest: int = 0

    def at(self, address: int) -> tuple[str, int]:
        """Segment and offset of the LW at an address of the value."""
        if self.cut and address >= self.cut:
            return WORK, self.rest + address - self.cut
        return self.segment, self.offset + address


@dataclass(frozen=True)
class Home:
    """Where in LM a value lies: `space` (lm0 or lm1, the same in all PEs), `word` its first word."""

    space: str
    word: int


Homes = tuple[tuple[int, Home], ...]


@dataclass(frozen=True)
class Step:
    """One node's turn. `note`: what the scheduler wants to say about it (downloads, uploads, spills). `reads`: the inputs that
    it reads in LM; `keeps`: the results that it leaves there; `only`: those of them that do not go to DRAM; by number."""

    node: str
    note: str = ""
    reads: Homes = ()
    keeps: Homes = ()
    only: tuple[int, ...] = ()

    @property
    def in_dram(self) -> bool:
        """Nothing of it is in LM."""
        return not (self.reads or self.keeps)


@dataclass(frozen=True)
class Plan(Written):
    """`merged`: how many steps ahead of its use a move may start (pipeline/ops/overlap.py), 0 where nodes do not overlap."""

    scheduler: str
    steps: tuple[Step, ...]
    slots: Mapping[str, Slot]
    segments: Mapping[str, Segment]
    merged: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", MappingProxyType(dict(self.slots)))
        object.__setattr__(self, "segments", MappingProxyType(dict(self.segments)))

    def _data(self) -> dict[str, Any]:
        return {
            "scheduler": self.scheduler,
            "merged": self.merged,
            "steps": [_step_json(s) for s in self.steps],
            "slots": {name: _slot_json(s) for name, s in self.slots.items()},
            "segments": [[s.name, s.kind, s.size] for s in self.segments.values()],
        }

    @classmethod
    def from_json(cls, data: bytes) -> Plan:
        d = json.loads(data)
        segments = [Segment(*s) for s in d["segments"]]
        return cls(
            d["scheduler"],
            tuple(_step(*s) for s in d["steps"]),
            {name: Slot(*s) for name, s in d["slots"].items()},
            {s.name: s for s in segments},
            d["merged"],
        )


def _slot_json(s: Slot) -> list[Any]:
    return [s.segment, s.offset, s.cut, s.rest] if s.cut else [s.segment, s.offset]


def _step_json(s: Step) -> list[Any]:
    homes = [[[i, h.space, h.word] for i, h in part] for part in (s.reads, s.keeps)]
    return [s.node, s.note] if s.in_dram else [s.node, s.note, *homes, s.only]


def _step(node: str, note: str, reads: Any = (), keeps: Any = (), only: Any = ()) -> Step:
    found = [tuple((i, Home(space, word)) for i, space, word in part) for part in (reads, keeps)]
    return Step(node, note, found[0], found[1], tuple(only))


# ---- loads --------------------------------------------------------------------------------------------------------

_LOAD = "load:"


def load(value: str) -> PlacedNode:
    """What brings an input or a constant to LM, under the name of its step."""
    return PlacedNode(Node(f"{_LOAD}{value}", "MNCoreDownload", (value,), (value,)), LOAD)


def nodes_of(placed: Placed, steps: Sequence[Step]) -> dict[str, PlacedNode]:
    """The nodes of steps by name: the graph's, and loads."""
    found = {p.node.name: p for p in placed.nodes}
    loaded = (s.node for s in steps if s.node.startswith(_LOAD) and s.node not in found)
    return found | {name: load(name.removeprefix(_LOAD)) for name in loaded}
