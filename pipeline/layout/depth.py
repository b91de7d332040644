"""Strided convolutions of images with few channels: s x s neighbours become channels, so that the lanes are in use.

x[n, c, s r + i, s q + j] is seen as x'[n, (c, i, j), r, q]: the input is placed so that both are the same memory. With
k - p = s a + i the convolution has the filters w'[o, (c, i, j), a, b] = w[o, c, s a + i + p, s b + j + p], stride 1 and, of each
edge k, about k / s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from mlsdk.pipeline.ir.graph import Attr, Node
from mlsdk.pipeline.ir.layout import Layout, Sub
from mlsdk.pipeline.ir.planes import Split, plane_scheme
from mlsdk.pipeline.ir.scheme import BLOCK
from mlsdk.pipeline.ops.convolution import Window
from mlsdk.pipeline.ops.table import attributes

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner


#: places of a result from which on it pays to make the filters on the board
LEAST = 4096


def to_depth(planner: Planner, node: Node, window: Window, dtype: str, split: Split) -> Node | None:
    """The convolution rewritten, its input placed and seen as it wants it; None where that is not possible or no gain.

    `split`: how the image (n, c s s, h / s, w / s) is shared out. The input has to be one of the program that nothing else
    reads and nobody has placed.
    """
    x, w = node.inputs[:2]
    shape, s = planner.shape(x), window.strides[0]
    if (
        len(shape) != 4
        or window.strides != (s, s)
        or s == 1
        or window.dilations != (1, 1)
        or shape[1] * s * s > BLOCK
        or int(attributes(node)["group"]) != 1
        or not planner.free(x)
        or len(planner.readers.get(x, ())) != 1
        or (planner.data(w) is None and prod(planner.shape(node.outputs[0])[2:]) < LEAST)
    ):
        return None
    depth = (shape[0], shape[1] * s * s, -(-shape[2] // s), -(-shape[3] // s))
    scheme = plane_scheme(depth, split)
    layout = _apart(scheme.layout(dtype), shape[1], s)
    if layout is None:
        return None
    planner.place_input(x, layout, None, dtype, f"neighbours as channels of {node.op}")
    seen = planner.temporary(x, depth)
    view = Node(planner.fresh(f"{node.name}.depth"), "SpaceToDepth", (x,), (seen,), {"blocksize": s})
    planner.view(replace(view, source=node.source, scope=node.scope), x, scheme)
    deep, before = _filters(planner, node, w, s, window.before)
    sizes = planner.shape(deep)[2:]
    out = planner.shape(node.outputs[0])
    after = [max(0, o - 1 + k - b - n) for o, k, b, n in zip(out[2:], sizes, before, depth[2:])]
    attrs: dict[str, Attr] = {"group": 1, "dilations": (1, 1), "strides": (1, 1), "pads": (*before, *after)}
    attrs["kernel_shape"] = sizes
    inputs = (seen, deep, *node.inputs[2:])
    return replace(node, inputs=inputs, attrs=attrs)


@dataclass(frozen=True)
class Deep:
    """How filters of `kernel` taps are those of s x s neighbours: `first` places of x' lie before the image, and the filters
    begin behind `skip` zeros, of `sizes` s in all."""

    first: tuple[int, int]
    skip: tuple[int, int]
    sizes: tuple[int, int]

    @classmethod
    def of(cls, kernel: Sequence[int], s: int, before: Sequence[int]) -> Deep:
        first = [-(-p // s) for p in before]
        skip = [s * f - p for f, p in zip(first, before)]
        sizes = [-(-(d + k) // s) for d, k in zip(skip, kernel)]
        return cls((first[0], first[1]), (skip[0], skip[1]), (sizes[0], sizes[1]))


def _filters(planner: Planner, node: Node, w: str, s: int, before: Sequence[int]) -> tuple[str, tuple[int, int]]:
    """The filters of the deep image, constant or made on the board, and the borders before the image."""
    data = planner.data(w)
    if data is not None:
        filters, first = deep_filters(data, s, before)
        return planner.new_constant(f"{w}.depth", filters), first
    o, c, *kernel = planner.shape(w)
    deep = Deep.of(kernel, s, before)
    rows, columns = deep.sizes
    after = [n * s - d - k for n, d, k in zip(deep.sizes, deep.skip, kernel)]
    pads = planner.new_constant(f"{node.name}.pads", np.array([0, 0, *deep.skip, 0, 0, *after], np.int64))
    wide = planner.apply(node, "Pad", (w, pads), (o, c, rows * s, columns * s))
    cut = planner.apply(node, "Reshape", (wide,), (o, c, rows, s, columns, s))
    turned = planner.apply(node, "Transpose", (cut,), (o, c, s, s, rows, columns), perm=(0, 1, 3, 5, 2, 4))
    return planner.apply(node, "Reshape", (turned,), (o, c * s * s, rows, columns)), deep.first


def deep_filters(w: np.ndarray, s: int, before: Sequence[int]) -> tuple[np.ndarray, tuple[int, int]]:
    """w (o, c, kh, kw) as w' (o, c s s, ..), and the borders before the image."""
    o, c, *kernel = w.shape
    deep = Deep.of(kernel, s, before)
    (rows, columns), (a, b) = deep.sizes, deep.skip
    wide = np.zeros((o, c, rows * s, columns * s), w.dtype)
    wide[:, :, a : a + kernel[0], b : b + kernel[1]] = w
    parts = wide.reshape(o, c, rows, s, columns, s).transpose(0, 1, 3, 5, 2, 4)
    return np.ascontiguousarray(parts.reshape(o, c * s * s, rows, columns)), deep.first


def _apart(layout: Layout, channels: int, s: int) -> Layout | None:
    """The layout of (n, (c, i, j), r, q) as one of (n, c, (r, i), (q, j)), or None where a digit would be cut badly."""
    n, lanes, rows, columns = layout.axes
    rest = list(lanes)
    taken: list[tuple[Sub, ...]] = []
    for size in (s, s):
        digits: list[Sub] = []
        while size > 1:
            if not rest:
                return None
            digit = rest.pop()
            if digit.n > size:  # its minor part is taken, the rest stays
                if digit.n % size:
                    return None
                rest.append(Sub(digit.n // size, digit.level, digit.stride * size))
                digit = Sub(size, digit.level, digit.stride)
            if size % digit.n:
                return None
            size //= digit.n
            digits.insert(0, digit)
        taken.append(tuple(digits))
    j, i = taken
    return Layout((n, tuple(rest), rows + i, columns + j), layout.broadcast)
