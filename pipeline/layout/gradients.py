"""The planner's rules for gradients that come as one operator."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.layout.moving import window_slice
from mlsdk.pipeline.ops.convolution import Window, window_of
from mlsdk.pipeline.ops.table import attributes

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner

Rule = Callable[["Planner", Node], None]


def max_pool_gradient(planner: Planner, node: Node) -> None:
    """For each tap of the window, the gradients of the windows whose first maximum it is; then each to its place."""
    x, gradient = node.inputs
    shape, places = planner.shape(x), planner.shape(gradient)
    window = window_of(node, shape[2:], tuple(attributes(node)["kernel_shape"]))
    best = _pooled(planner, node)
    wide = [
        max(n + before, (count - 1) * step + span)
        for n, before, count, step, span in zip(shape[2:], window.before, places[2:], window.strides, window.span)
    ]
    ends = [size - n - before for size, n, before in zip(wide, shape[2:], window.before)]
    bordered = _pad(planner, node, x, window.before, ends, -np.inf)
    kind = planner.value(gradient).dtype
    taps = list(itertools.product(*(range(size) for size in window.kernel)))

    def number(value: int) -> str:
        return planner.new_constant(f"{node.name}.number", np.array(value, kind))

    first = ""  # the number of the first tap that meets the maximum
    for index, tap in reversed(list(enumerate(taps))):
        offset = tuple(place * apart for place, apart in zip(tap, window.dilations))
        met = window_slice(planner, node, bordered, offset, places[2:], window.strides)
        hit = planner.apply(node, "Equal", (met, best), places, dtype="bool")
        planner.once.add(hit)
        first = planner.apply(node, "Where", (hit, number(index), first or number(len(taps))), places, dtype=kind)
    parts: dict[tuple[int, ...], str] = {}
    for index, tap in enumerate(taps):
        offset = tuple(place * apart for place, apart in zip(tap, window.dilations))
        mine = planner.apply(node, "Equal", (first, number(index)), places, dtype="bool")
        planner.once.add(mine)
        parts[offset] = planner.apply(node, "Where", (mine, gradient, number(0)), places, dtype=kind)
    total = _placed(planner, node, parts, window, wide)
    starts, reach = window.before, shape[2:]
    if tuple(planner.shape(total)[2:]) != tuple(reach) or any(starts):
        total = window_slice(planner, node, total, starts, reach, (1,) * len(reach))
    planner.apply(node, "Identity", (total,), shape, out=node.outputs[0])


def _pooled(planner: Planner, node: Node) -> str:
    """The maxima: those of the forward pass, if it computes them."""
    x, gradient = node.inputs
    own = _window_attrs(node)
    for other in planner.graph.nodes:
        if other.op == "MaxPool" and other.inputs == (x,) and _window_attrs(other) == own:
            best = planner.placed(other.outputs[0])
            if best is not None and best.device_dtype == planner.device_dtype(x):  # a rounded one equals no element
                return best.name
    attrs: dict[str, Any] = dict(node.attrs)
    return planner.apply(node, "MaxPool", (x,), planner.shape(gradient), dtype=planner.value(x).dtype, **attrs)


def _window_attrs(node: Node) -> dict[str, object]:
    found = attributes(node)
    return {key: found[key] for key in ("kernel_shape", "strides", "dilations", "pads", "auto_pad", "ceil_mode")}


def _placed(planner: Planner, node: Node, parts: dict[tuple[int, ...], str], window: Window, wide: list[int]) -> str:
    """The sum of the parts, each element at its window's place plus the part's offset, in extents `wide` at least.

    Offsets that differ by whole strides are added first: then one element of each remains at every place of a stride, and
    they are woven into each other.
    """
    strides, rank = window.strides, len(window.strides)
    cells = [-(-size // step) for size, step in zip(wide, strides)]
    woven: dict[tuple[int, ...], str] = {}
    for offset, part in parts.items():
        before = [o // s for o, s in zip(offset, strides)]
        after = [cell - n - b for cell, n, b in zip(cells, planner.shape(part)[2:], before)]
        part = _pad(planner, node, part, before, after, 0.0)
        phase = tuple(o % s for o, s in zip(offset, strides))
        woven[phase] = _add(planner, node, woven[phase], part) if phase in woven else part
    phases = list(itertools.product(*(range(step) for step in strides)))
    lead = planner.shape(next(iter(woven.values())))[:2]
    if len(phases) == 1:
        return woven[phases[0]]
    dtype = planner.value(node.inputs[1]).dtype
    nothing = planner.new_constant(f"{node.name}.nothing", np.zeros((*lead, *cells, 1), dtype))
    columns = [_reshape(planner, node, woven[p], (*lead, *cells, 1)) if p in woven else nothing for p in phases]
    whole = planner.apply(node, "Concat", columns, (*lead, *cells, len(phases)), axis=rank + 2)
    split = (*lead, *cells, *strides)
    whole = _reshape(planner, node, whole, split)
    perm = (0, 1, *(axis for a in range(rank) for axis in (2 + a, 2 + rank + a)))
    whole = planner.apply(node, "Transpose", (whole,), [split[a] for a in perm], perm=perm)
    return _reshape(planner, node, whole, (*lead, *(cell * step for cell, step in zip(cells, strides))))


def _reshape(planner: Planner, node: Node, name: str, shape: Sequence[int]) -> str:
    return planner.apply(node, "Reshape", (name,), shape)


def _add(planner: Planner, node: Node, a: str, b: str) -> str:
    return planner.apply(node, "Add", (a, b), planner.shape(a))


def _pad(planner: Planner, node: Node, x: str, before: Sequence[int], after: Sequence[int], fill: float) -> str:
    """Borders of the spatial axes."""
    if not any(before) and not any(after):
        return x
    shape = planner.shape(x)
    pads = np.array([0, 0, *before, 0, 0, *after], np.int64)
    value = np.array(fill, planner.value(x).dtype)
    inputs = [x, planner.new_constant(f"{node.name}.pads", pads), planner.new_constant(f"{node.name}.fill", value)]
    return planner.apply(node, "Pad", inputs, [*shape[:2], *(b + n + a for b, n, a in zip(before, shape[2:], after))])


RULES: dict[str, Rule] = {"MaxPoolGrad": max_pool_gradient}
