"""Strided convolutions of images with few channels: s x s neighbours become channels, so that the lanes are in use.

x[n, c, s r + i, s q + j] is seen as x'[n, (c, i, j), r, q]: the input is placed so that both are the same memory. With
k - p = s a + i the convolution has the filters w'[o, (c, i, j), a, b] = w[o, c, s a + i + p, s b + j + p], stride 1 and, of each
edge k, about k / s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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


def to_depth(planner: Planner, node: Node, window: Window, dtype: str, split: Split) -> Node | None:
    """The convolution rewritten, its input placed and seen as it wants it; None where that is not possible or no gain.

    `split`: how the image (n, c s s, h / s, w / s) is shared out. The input has to be one of the program that nothing else
    reads and nobody has placed, the weights constant.
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
        or planner.data(w) is None
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
    weights = planner.data(w)
    assert weights is not None
    filters, before = deep_filters(weights, s, window.before)
    out = planner.shape(node.outputs[0])
    after = [max(0, o - 1 + k - b - n) for o, k, b, n in zip(out[2:], filters.shape[2:], before, depth[2:])]
    attrs: dict[str, Attr] = {"group": 1, "dilations": (1, 1), "strides": (1, 1), "pads": (*before, *after)}
    attrs["kernel_shape"] = tuple(filters.shape[2:])
    inputs = (seen, planner.new_constant(f"{w}.depth", filters), *node.inputs[2:])
    return replace(node, inputs=inputs, attrs=attrs)


def deep_filters(w: np.ndarray, s: int, before: Sequence[int]) -> tuple[np.ndarray, tuple[int, int]]:
    """w (o, c, kh, kw) as w' (o, c s s, ..), and the borders before the image."""
    o, c, *kernel = w.shape
    first = [-(-p // s) for p in before]  # places of x' before the image
    skip = [s * f - p for f, p in zip(first, before)]
    sizes = [-(-(d + k) // s) for d, k in zip(skip, kernel)]
    wide = np.zeros((o, c, sizes[0] * s, sizes[1] * s), w.dtype)
    wide[:, :, skip[0] : skip[0] + kernel[0], skip[1] : skip[1] + kernel[1]] = w
    parts = wide.reshape(o, c, sizes[0], s, sizes[1], s).transpose(0, 1, 3, 5, 2, 4)
    return np.ascontiguousarray(parts.reshape(o, c * s * s, *sizes)), (first[0], first[1])


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
