"""The planner's rule for ConvTranspose: ordinary convolutions of the input as it is.

With stride 1 it is a convolution with flipped filters. With a larger one, output pixels in places of the same remainder by the
strides (a phase) are a convolution with some of the taps, and all phases are one convolution with a block of channels for each;
in the layouts of planes its channels are seen as pixels without a move. Groups keep few channels each, which blocks would waste:
there the input is stretched with zeros instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ir.scheme import BLOCK
from mlsdk.pipeline.layout.moving import window_slice
from mlsdk.pipeline.ops.convolution import Window, transposed_window
from mlsdk.pipeline.ops.table import attributes
from mlsdk.pipeline.ops.table import run as run_operator

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner

#: elements of filters that come at run time, for each of the result, up to which sorting them by phases takes fewer steps than
#: stretching the input (measured: 512 x 256 x 4 x 4 filters on 4 x 4 pixels take four times as many, on 28 x 28 a fifth)
MOST_FILTERS = 4


def conv_transpose(planner: Planner, node: Node) -> None:
    x, w = node.inputs[:2]
    window, _ = transposed_window(node, planner.shape(x)[2:], planner.shape(w)[2:])
    whole = int(attributes(node)["group"]) == 1 and max(window.strides, default=1) > 1
    light = planner.is_constant(w) or planner.value(w).size <= MOST_FILTERS * planner.value(node.outputs[0]).size
    (_by_phases if whole and light else _stretched)(planner, node, window)


# ---- by phases ----------------------------------------------------------------------------------------------------


def _by_phases(planner: Planner, node: Node, window: Window) -> None:
    x, w, *more = node.inputs
    apply = _applying(planner, node)
    n, inner, *extents = planner.shape(x)
    out = planner.shape(node.outputs[0])
    each, rank, strides = out[1], len(extents), window.strides
    block = -(-each // BLOCK) * BLOCK  # channels of a phase: as many as lie together
    first, taps = _taps(window)
    w = apply("Pad", w, np.array([0] * (3 + rank) + [block - each] + [1] * rank))  # behind each axis a tap of zeros
    for axis, tap in enumerate(taps):
        w = apply("Gather", w, np.array(tap).reshape(-1), axis=2 + axis)
    sizes = [len(tap[0]) for tap in taps]
    w = apply("Reshape", w, np.array([inner, block, *(v for pair in zip(strides, sizes) for v in pair)]))
    phases, places = range(2, 2 + 2 * rank, 2), range(3, 3 + 2 * rank, 2)
    w = apply("Transpose", w, perm=(*phases, 1, 0, *places))
    w = apply("Reshape", w, np.array([prod(strides) * block, inner, *sizes]))
    inputs = [w]
    if more and more[0]:
        bias = apply("Pad", more[0], np.array([0, block - each]))
        inputs.append(apply("Tile", bias, np.array([prod(strides)])))
    counts = [-(-o // s) for o, s in zip(out[2:], strides)]
    before = [-b for b in first]
    after = [c + size - 1 - e - b for c, size, e, b in zip(counts, sizes, extents, before)]
    x = _cropped(planner, node, x, before, after)
    pads = tuple(max(0, b) for b in before) + tuple(max(0, a) for a in after)
    y = planner.apply(node, "Conv", (x, *inputs), (n, prod(strides) * block, *counts), pads=pads)
    y = apply("Reshape", y, np.array([n, *strides, block, *counts]))
    pixels = [v for axis in range(rank) for v in (2 + rank + axis, 1 + axis)]
    y = apply("Transpose", y, perm=(0, 1 + rank, *pixels))
    y = apply("Reshape", y, np.array([n, block, *(c * s for c, s in zip(counts, strides))]))
    starts, ends = [0] * (1 + rank), [each, *out[2:]]
    if planner.shape(y) != out:
        y = apply("Slice", y, np.array(starts), np.array(ends), np.arange(1, 2 + rank))
    planner.apply(node, "Identity", (y,), out, out=node.outputs[0])


def _taps(window: Window) -> tuple[list[int], list[list[list[int]]]]:
    """For each axis: the place beside its own, in the input, that the first tap of an output pixel reads; and for each phase the
    taps of the kernel in the order of places, where the number behind the last is none."""
    first, taps = [], []
    for size, stride, dilation, cut in zip(window.kernel, window.strides, window.dilations, window.before):
        reads = [
            {
                (phase + cut - tap * dilation) // stride: tap
                for tap in range(size)
                if (phase + cut - tap * dilation) % stride == 0
            }
            for phase in range(stride)
        ]
        places = [place for some in reads for place in some] or [0]
        first.append(min(places))
        taps.append([[some.get(place, size) for place in range(min(places), max(places) + 1)] for some in reads])
    return first, taps


def _applying(planner: Planner, node: Node) -> Callable[..., str]:
    """apply(op, name, *numbers, **attributes): one more node, or its result where the operand is a constant."""

    def apply(op: str, name: str, *numbers: np.ndarray, **attrs: Any) -> str:
        data = planner.data(name) if planner.is_constant(name) else None
        probe = Node(op, op, ("x", *(f"n{i}" for i in range(len(numbers)))), ("y",), attrs)
        if data is not None:
            return planner.new_constant(f"{name}.{op.lower()}", run_operator(probe, [data, *numbers])[0])
        like = np.broadcast_to(np.zeros((), bool), planner.shape(name))
        shape = run_operator(probe, [like, *numbers])[0].shape
        constants = [planner.new_constant(f"{node.name}.number", number) for number in numbers]
        return planner.apply(node, op, (name, *constants), shape, **attrs)

    return apply


# ---- stretched ----------------------------------------------------------------------------------------------------


def _stretched(planner: Planner, node: Node, window: Window) -> None:
    """A convolution with flipped filters of an input that has zeros between its elements."""
    x, w, *more = node.inputs
    apply = _applying(planner, node)
    out = planner.shape(node.outputs[0])
    groups = int(attributes(node)["group"])
    x = _apart(planner, node, x, window.strides)
    shape = planner.shape(x)
    i, each, *kernel = planner.shape(w)
    for axis, size in enumerate(kernel):
        if size > 1:
            w = apply("Gather", w, np.arange(size)[::-1].copy(), axis=2 + axis)
    w = apply("Reshape", w, np.array([groups, i // groups, each, *kernel]))
    w = apply("Transpose", w, perm=(0, 2, 1, *range(3, 3 + len(kernel))))
    w = apply("Reshape", w, np.array([groups * each, i // groups, *kernel]))
    before = [span - 1 - cut for span, cut in zip(window.span, window.before)]
    after = [(o + span - 1) - n - b for o, span, n, b in zip(out[2:], window.span, shape[2:], before)]
    x = _cropped(planner, node, x, before, after)
    pads = tuple(max(0, b) for b in before) + tuple(max(0, a) for a in after)
    attrs: dict[str, Any] = {"group": groups, "dilations": window.dilations, "pads": pads}
    planner.apply(node, "Conv", (x, w, *more), out, out=node.outputs[0], **attrs)


def _apart(planner: Planner, node: Node, x: str, strides: tuple[int, ...]) -> str:
    """x with strides - 1 zeros behind each element but the last of an axis."""
    if all(step == 1 for step in strides):
        return x
    shape = planner.shape(x)
    apart = [*shape[:2], *(v for extent in shape[2:] for v in (extent, 1))]
    ends = [*shape[:2], *(v for extent, step in zip(shape[2:], strides) for v in (extent, step))]
    x = planner.apply(node, "Reshape", (x,), apart)
    pads = np.array([0] * len(apart) + [e - a for e, a in zip(ends, apart)], np.int64)
    x = planner.apply(node, "Pad", (x, planner.new_constant(f"{node.name}.apart", pads)), ends)
    x = planner.apply(node, "Reshape", (x,), [*shape[:2], *(n * s for n, s in zip(shape[2:], strides))])
    return _cropped(planner, node, x, [0] * len(strides), [1 - step for step in strides])


def _cropped(planner: Planner, node: Node, x: str, before: Sequence[int], after: Sequence[int]) -> str:
    """x without what negative borders cut off."""
    if all(b >= 0 for b in before) and all(a >= 0 for a in after):
        return x
    shape = planner.shape(x)
    starts = [max(0, -b) for b in before]
    counts = [n - start - max(0, -a) for n, start, a in zip(shape[2:], starts, after)]
    return window_slice(planner, node, x, starts, counts, [1] * len(counts))
