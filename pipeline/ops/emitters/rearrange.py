"""Operators that only rearrange elements: which element of the result is which element of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ops.emitters.asm import Asm
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.move import SourceOf, emit_move
from mlsdk.pipeline.ops.table import attributes

Shape = tuple[int, ...]
Map = Callable[[Node, Sequence[Shape], Shape], SourceOf]


def emit_rearrange(call: Call) -> tuple[Asm, dict[str, np.ndarray]]:
    sources = [t for t in call.inputs if t is not None]
    out = call.outputs[0]
    source_of = MAPS[call.node.op](call.node, [t.shape for t in sources], out.shape)
    return emit_move(sources, out, source_of, clean=bool(call.node.attrs.get("clean", 0)))


def same_order(node: Node, shapes: Sequence[Shape], out: Shape) -> SourceOf:
    """Flat element i of the result is flat element i of the input."""
    return lambda element: (np.zeros_like(element), element)


def _by_index(shapes: Sequence[Shape], out: Shape, of_axis: Callable[[int, np.ndarray], np.ndarray]) -> SourceOf:
    """One input; its index on axis a is a function of the result's index on axis a."""

    def source_of(element: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        flat, weight, rest = np.zeros_like(element), prod(shapes[0]), element
        step = 1
        for axis in range(len(out) - 1, -1, -1):
            rest, index = np.divmod(rest, out[axis])
            flat += of_axis(axis, index) * step
            step *= shapes[0][axis]
        assert step == weight
        return np.zeros_like(element), flat

    return source_of


def slices(node: Node, shapes: Sequence[Shape], out: Shape) -> SourceOf:
    shape, rank = shapes[0], len(shapes[0])
    starts = [int(x) for x in node.attrs["input1"]]  # type: ignore[union-attr]
    axes = [int(x) % rank for x in node.attrs.get("input3", range(len(starts)))]  # type: ignore[union-attr]
    steps = [int(x) for x in node.attrs.get("input4", [1] * len(starts))]  # type: ignore[union-attr]
    first, stride = [0] * rank, [1] * rank
    for axis, start, step in zip(axes, starts, steps):
        n = shape[axis]
        start = start + n if start < 0 else start
        first[axis] = min(max(start, 0), n if step > 0 else n - 1)
        stride[axis] = step
    return _by_index(shapes, out, lambda axis, index: first[axis] + index * stride[axis])


def expand(node: Node, shapes: Sequence[Shape], out: Shape) -> SourceOf:
    shape = (1,) * (len(out) - len(shapes[0])) + tuple(shapes[0])
    return _by_index([shape], out, lambda axis, index: index if shape[axis] > 1 else np.zeros_like(index))


def concat(node: Node, shapes: Sequence[Shape], out: Shape) -> SourceOf:
    axis = int(attributes(node)["axis"]) % len(out)
    ends = np.cumsum([shape[axis] for shape in shapes])
    starts = np.concatenate([[0], ends[:-1]])
    sizes = np.array([shape[axis] for shape in shapes])
    inner = prod(out[axis + 1 :])

    def source_of(element: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rest, low = np.divmod(element, inner)
        outer, index = np.divmod(rest, out[axis])
        source = np.searchsorted(ends, index, side="right")
        return source, (outer * sizes[source] + index - starts[source]) * inner + low

    return source_of


MAPS: dict[str, Map] = {
    "MNCoreLayoutSwitch": same_order,
    "Reshape": same_order,
    "Flatten": same_order,
    "Squeeze": same_order,
    "Unsqueeze": same_order,
    "Slice": slices,
    "Expand": expand,
    "Concat": concat,
}
