"""DRAM addresses: a segment for each input, output and constant, and first-fit in a common one for what lies between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlsdk.device import spec
from mlsdk.errors import ScheduleError
from mlsdk.pipeline.ir.placed import Placed, PlacedNode
from mlsdk.pipeline.ir.plan import CONSTANT, INPUT, OUTPUT, WORK, Segment, Slot, Step, nodes_of

ALIGN = 64


def assign(placed: Placed, steps: Sequence[Step]) -> tuple[dict[str, Slot], dict[str, Segment]]:
    """A slot for every value that is ever in DRAM. Raises ScheduleError when a group's DRAM is too small, with the bytes
    needed."""
    slots: dict[str, Slot] = {}
    segments: dict[str, Segment] = {}
    nodes = nodes_of(placed, steps)
    source = _view_sources(placed)

    def base(name: str) -> str:
        while name in source:
            name = source[name]
        return name

    def own(name: str, prefix: str, kind: str) -> None:
        segment = Segment(f"{prefix}:{name}", kind, _size(placed, name))
        segments[segment.name] = segment
        slots[name] = Slot(segment.name)

    for name in placed.inputs:
        own(name, "in", INPUT)
    for name, value in placed.values.items():
        if value.origin == "constant":
            own(name, "const", CONSTANT)
    for name in dict.fromkeys(base(o) for o in placed.outputs):
        if name not in slots:
            own(name, "out", OUTPUT)

    last: dict[str, int] = {}
    for at, step in enumerate(steps):
        here = {i for i, _ in step.reads}
        for i, name in enumerate(nodes[step.node].node.inputs):
            if name and i not in here:
                last[base(name)] = at
        for name in _stored(nodes[step.node], step):
            last[name] = at
    free = _FreeList()
    live: list[tuple[int, str]] = []
    for at, step in enumerate(steps):
        for name in _stored(nodes[step.node], step):
            if name not in source and name not in slots:
                slots[name] = Slot(WORK, free.take(_size(placed, name)))
                live.append((last[name], name))
        for entry in [e for e in live if e[0] <= at]:
            live.remove(entry)
            free.give(slots[entry[1]].offset, _size(placed, entry[1]))
    if free.high:
        segments[WORK] = Segment(WORK, WORK, free.high)
    for name in placed.values:
        if name not in slots and name in source and base(name) in slots:
            slots[name] = slots[base(name)]
    total = sum(s.size for s in segments.values())
    if total > spec.DRAM_LW:
        raise ScheduleError(
            f"the program needs {total * 8:,} bytes of each group's DRAM, the board has {spec.DRAM_LW * 8:,}; "
            f"largest: {', '.join(s.name for s in sorted(segments.values(), key=lambda s: -s.size)[:3])}"
        )
    return slots, segments


def _stored(placed: PlacedNode, step: Step) -> list[str]:
    """The results of a step that go to DRAM."""
    return [name for o, name in enumerate(n for n in placed.node.outputs if n) if o not in step.only]


def _size(placed: Placed, name: str) -> int:
    size = placed.values[name].image.group_size
    return max(ALIGN, -(-size // ALIGN) * ALIGN)


def _view_sources(placed: Placed) -> Mapping[str, str]:
    return {p.node.outputs[0]: p.node.inputs[0] for p in placed.nodes if p.emitter == "view"}


class _FreeList:
    """First fit over an unbounded segment; `high` is how much of it was ever used."""

    def __init__(self) -> None:
        self.holes: list[tuple[int, int]] = []  # (start, size), sorted
        self.high = 0

    def take(self, size: int) -> int:
        for i, (start, room) in enumerate(self.holes):
            if room >= size:
                self.holes[i : i + 1] = [(start + size, room - size)] if room > size else []
                return start
        start = self.high
        if self.holes and self.holes[-1][0] + self.holes[-1][1] == self.high:
            start = self.holes.pop()[0]
        self.high = start + size
        return start

    def give(self, start: int, size: int) -> None:
        self.holes.append((start, size))
        self.holes.sort()
        merged: list[tuple[int, int]] = []
        for hole in self.holes:
            if merged and merged[-1][0] + merged[-1][1] == hole[0]:
                merged[-1] = (merged[-1][0], merged[-1][1] + hole[1])
            else:
                merged.append(hole)
        self.holes = merged
