"""Convolutions of volumes as those of planes: each slice of the depth is an image, and what a filter meets in other slices lies
beside the channels of its own.

    y[n, o, d, ..] = sum over taps k and channels i of x[n, i, d s + k a - p, ..] w[o, i, k, ..]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ops.convolution import Window

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner

#: (n, c, d, h, w) <-> (n, d, c, h, w)
DEPTH_FIRST = (0, 2, 1, 3, 4)


def conv_of_volume(planner: Planner, node: Node, window: Window, groups: int) -> None:
    x, w = node.inputs[:2]
    bias = [name for name in node.inputs[2:] if name]
    n, _, depth, height, width = planner.shape(node.outputs[0])
    taps = _taps(planner, node, x, window, depth)
    if groups == 1:
        taps, filters = [_beside(planner, node, taps)], [_joined(planner, node, w)]
    else:
        filters = _filters(planner, node, w)
    attrs: dict[str, Any] = {"group": groups, "strides": window.strides[1:], "dilations": window.dilations[1:]}
    attrs["pads"] = (*window.before[1:], *window.after[1:])
    result = ""
    for part, filter in zip(taps, filters):
        shape = (n * depth, planner.shape(w)[0], height, width)
        y = planner.apply(node, "Conv", (part, filter, *([] if result else bias)), shape, **attrs)
        result = planner.apply(node, "Add", (result, y), shape) if result else y
    seen = (n, depth, *planner.shape(result)[1:])
    result = planner.apply(node, "Reshape", (result,), seen)
    planner.apply(node, "Transpose", (result,), planner.shape(node.outputs[0]), out=node.outputs[0], perm=DEPTH_FIRST)


def _taps(planner: Planner, node: Node, x: str, window: Window, depth: int) -> list[str]:
    """For each tap of the window along the depth, the slices that it meets, as images."""
    n, c, have, *plane = planner.shape(x)
    size, step, apart, before = window.kernel[0], window.strides[0], window.dilations[0], window.before[0]
    x = planner.apply(node, "Transpose", (x,), (n, have, c, *plane), perm=DEPTH_FIRST)
    axis = 1
    if n == 1:  # volumes need not be kept apart
        x, axis = planner.apply(node, "Reshape", (x,), (have, c, *plane)), 0
    after = max(0, (depth - 1) * step + (size - 1) * apart + 1 - before - have)
    if before or after:
        pads = np.zeros((2, len(planner.shape(x))), np.int64)
        pads[:, axis] = before, after
        wide = [extent + (a == axis) * (before + after) for a, extent in enumerate(planner.shape(x))]
        fill = planner.new_constant(f"{node.name}.fill", np.zeros((), planner.value(x).dtype))
        x = planner.apply(node, "Pad", (x, planner.new_constant(f"{node.name}.pads", pads.reshape(-1)), fill), wide)
    found = []
    for tap in range(size):
        first = tap * apart
        part = _cut(planner, node, x, axis, first, first + (depth - 1) * step + 1, step, depth)
        found.append(planner.apply(node, "Reshape", (part,), (n * depth, c, *plane)) if axis else part)
    return found


def _cut(planner: Planner, node: Node, x: str, axis: int, first: int, end: int, step: int, count: int) -> str:
    shape = planner.shape(x)
    if shape[axis] == count:
        return x
    numbers = [planner.new_constant(f"{node.name}.cut", np.array([v], np.int64)) for v in (first, end, axis, step)]
    cut = [count if a == axis else extent for a, extent in enumerate(shape)]
    return planner.apply(node, "Slice", (x, *numbers), cut)


def _filters(planner: Planner, node: Node, w: str) -> list[str]:
    """The filters of each tap along the depth."""
    out, each, size, *kernel = planner.shape(w)
    data = planner.data(w)
    if data is not None:
        return [planner.new_constant(f"{w}.tap", np.ascontiguousarray(data[:, :, tap])) for tap in range(size)]
    parts = [_cut(planner, node, w, 2, tap, tap + 1, 1, 1) for tap in range(size)]
    return [planner.apply(node, "Reshape", (part,), (out, each, *kernel)) for part in parts]


def _joined(planner: Planner, node: Node, w: str) -> str:
    """The filters of all taps along the depth, beside each other as the taps are."""
    out, each, size, *kernel = planner.shape(w)
    data = planner.data(w)
    if data is not None:
        beside = data.transpose(DEPTH_FIRST).reshape(out, size * each, *kernel)
        return planner.new_constant(f"{w}.joined", np.ascontiguousarray(beside))
    w = planner.apply(node, "Transpose", (w,), (out, size, each, *kernel), perm=DEPTH_FIRST)
    return planner.apply(node, "Reshape", (w,), (out, size * each, *kernel))


def _beside(planner: Planner, node: Node, parts: Sequence[str]) -> str:
    """Images joined along their channels."""
    first, channels, *rest = planner.shape(parts[0])
    joined = (first, channels * len(parts), *rest)
    return planner.apply(node, "Concat", parts, joined, axis=1) if len(parts) > 1 else parts[0]
