"""Addresses of what does not live in LM: a segment of DRAM for each input, output and constant; what lies between is in PDM where
it may be and there is room, else in a common segment of DRAM, by first fit.

A group's PDM and its DRAM are two memories, each with a port of its own: a value whose two L2Bs' parts lie in one each is moved
in half the time, while weights may have to wait for it. Which is quicker is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mlsdk.device import spec
from mlsdk.errors import ScheduleError
from mlsdk.pipeline.ir.placed import ON_HOST, VIEW, Placed, PlacedNode
from mlsdk.pipeline.ir.plan import CONSTANT, INPUT, OUTPUT, PDM, WORK, Segment, Slot, Step, nodes_of
from mlsdk.pipeline.ops.emitters import emit
from mlsdk.pipeline.ops.emitters.home import Lives
from mlsdk.pipeline.ops.emitters.on_chip import PDM_FIRST, PDM_SIZE
from mlsdk.pipeline.schedule.local import Rect, place_in_order

ALIGN = 64
#: LW of a grain of PDM
GRAIN = 256


#: what `assign` may be asked: all in DRAM; values in PDM, whole; or one half of them there
DRAM, CHIP, HALVES = "dram", "chip", "halves"


def assign(placed: Placed, steps: Sequence[Step], where: str = DRAM) -> tuple[dict[str, Slot], dict[str, Segment]]:
    """A slot for every value that is ever in DRAM or, as `where` says, in PDM. Raises ScheduleError when a group's DRAM is too
    small, with the bytes needed."""
    slots: dict[str, Slot] = {}
    segments: dict[str, Segment] = {}
    source = _view_sources(placed)

    def own(name: str, prefix: str, kind: str) -> None:
        segment = Segment(f"{prefix}:{name}", kind, _size(placed, name))
        segments[segment.name] = segment
        slots[name] = Slot(segment.name)

    for name in placed.inputs:
        own(name, "in", INPUT)
    for name, value in placed.values.items():
        if value.origin == "constant":
            own(name, "const", CONSTANT)
    for name in dict.fromkeys(_base(o, source) for o in placed.outputs):
        if name not in slots:
            own(name, "out", OUTPUT)

    spans = {name: span for name, span in _spans(placed, steps, source).items() if name not in slots}
    if where != DRAM:
        slots |= _in_pdm(placed, steps, source, spans, where == HALVES)
    free = _FreeList()
    live: list[tuple[int, int, int]] = []  # last use, offset, size
    made: dict[int, list[str]] = {}
    for name, span in spans.items():
        if name not in slots or slots[name].cut:
            made.setdefault(span[0], []).append(name)
    for at in sorted(made):
        for entry in [e for e in live if e[0] < at]:
            live.remove(entry)
            free.give(*entry[1:])
        for name in made[at]:
            half = slots.get(name)
            size = _size(placed, name) - (half.cut if half else 0)
            offset = free.take(size)
            slots[name] = replace(half, rest=offset) if half else Slot(WORK, offset)
            live.append((spans[name][-1], offset, size))
    if free.high:
        segments[WORK] = Segment(WORK, WORK, free.high)
    for name in placed.values:
        if name not in slots and _base(name, source) in slots:
            slots[name] = slots[_base(name, source)]
    total = sum(s.size for s in segments.values())
    if total > spec.DRAM_LW:
        raise ScheduleError(
            f"the program needs {total * 8:,} bytes of each group's DRAM, the board has {spec.DRAM_LW * 8:,}; "
            f"largest: {', '.join(s.name for s in sorted(segments.values(), key=lambda s: -s.size)[:3])}"
        )
    return slots, segments


def _spans(placed: Placed, steps: Sequence[Step], source: Mapping[str, str]) -> dict[str, list[int]]:
    """Where what is made and stored is written and read: name -> steps, the first making first."""
    nodes = nodes_of(placed, steps)
    found: dict[str, list[int]] = {}
    for at, step in enumerate(steps):
        here = {i for i, _ in step.reads}
        for i, name in enumerate(nodes[step.node].node.inputs):
            name = _base(name, source)
            if name in found and i not in here:
                found[name].append(at)
        for name in _stored(nodes[step.node], step):
            if name not in source:
                found.setdefault(name, []).append(at)
    return found


def _in_pdm(
    placed: Placed, steps: Sequence[Step], source: Mapping[str, str], spans: Mapping[str, Sequence[int]], halves: bool
) -> dict[str, Slot]:
    """Places in PDM for the values that may lie there, or for their first halves, those first that are moved most often for their
    time. Nothing stays there while the host computes: other programs may run meanwhile."""
    nodes = nodes_of(placed, steps)
    refused: set[str] = set()
    whole: set[str] = set()  # some move takes a part of both halves
    height = PDM_SIZE // GRAIN
    taken = [0] * len(steps)
    for at, step in enumerate(steps):
        node = nodes[step.node]
        inputs, outputs = node.node.inputs, [o for o in node.node.outputs if o]
        if node.emitter == ON_HOST:
            taken[at] = (1 << height) - 1
        elif node.emitter != VIEW:
            fragment = emit(node, placed.values, Lives.of(step, len(inputs), len(outputs)))
            for prefix, operands in (("in", inputs), ("out", outputs)):
                for i, name in enumerate(operands):
                    value = _base(name, source)
                    if f"{prefix}{i}" in fragment.dram_only:
                        refused.add(value)
                    if value in spans:
                        cut = _half(placed, value)
                        if any(a < cut < b for a, b in fragment.extents.get(f"{prefix}{i}", ())):
                            whole.add(value)
    names = [name for name in spans if name not in refused]
    cuts = [_half(placed, n) if halves and n not in whole else 0 for n in names]
    rects = [Rect(spans[n][0], spans[n][-1], -(-(c or _size(placed, n)) // GRAIN)) for n, c in zip(names, cuts)]
    time_of_a_move = [(r.last - r.first + 1) / len(spans[n]) for n, r in zip(names, rects)]
    order = sorted(range(len(names)), key=lambda i: (time_of_a_move[i], i))
    found = place_in_order(rects, height, taken, order)
    return {n: Slot(PDM, PDM_FIRST + GRAIN * at, cut) for n, at, cut in zip(names, found, cuts) if at is not None}


def _half(placed: Placed, name: str) -> int:
    """LW of a value that the first L2B of each group has; 0 where that is all, or not whole moves."""
    image = placed.values[name].image
    return image.l2b_size if image.l2bs_used > 1 and image.l2b_size % ALIGN == 0 else 0


def _base(name: str, source: Mapping[str, str]) -> str:
    while name in source:
        name = source[name]
    return name


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
