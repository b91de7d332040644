"""Pooling over spatial windows, and the gradient of max pooling."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mlsdk.pipeline.ir.graph import FLOATS, INTEGERS, Node
from mlsdk.pipeline.ops.convolution import Window, output_extents, window_of
from mlsdk.pipeline.ops.table import (
    REQUIRED,
    Operator,
    Type,
    accumulating,
    attributes,
    register,
    require,
    require_dtype,
)

Array = np.ndarray


def row(name: str, infer: Any, reference: Any, doc: str, arity: tuple[int, int | None], **attrs: Any) -> None:
    register(Operator(name, infer, reference, doc, arity, attrs, "pooling"))


def pool_window(node: Node, shape: tuple[int, ...]) -> tuple[Window, tuple[int, ...]]:
    """The window of a pool node over an input of `shape`, and the spatial output extents. Raises GraphError."""
    kernel = tuple(attributes(node)["kernel_shape"])
    rank = len(shape) - 2
    require(rank >= 1, f"takes a batch, channels and spatial axes, got {list(shape)}")
    require(len(kernel) == rank, f"kernel_shape has {len(kernel)} entries for {rank} spatial axes")
    window = window_of(node, shape[2:], kernel)
    for size, before, after in zip(window.span, window.before, window.after):
        require(before < size and after < size, f"pads {before}, {after} are not below the window's {size}")
    return window, output_extents(window, shape[2:], bool(attributes(node)["ceil_mode"]))


def taps(x: Array, window: Window, extents: tuple[int, ...], fill: Any) -> Iterator[tuple[tuple[int, ...], Array]]:
    """For each tap of the window: its offset in the padded input, and the elements that it meets at every place."""
    reach = [(count - 1) * stride + span for count, stride, span in zip(extents, window.strides, window.span)]
    after = [max(r - extent - before, 0) for r, extent, before in zip(reach, x.shape[2:], window.before)]
    wide = np.pad(x, [(0, 0), (0, 0), *zip(window.before, after)], constant_values=fill)
    for tap in itertools.product(*(range(size) for size in window.kernel)):
        offset = tuple(index * dilation for index, dilation in zip(tap, window.dilations))
        cut = tuple(
            slice(start, start + (count - 1) * stride + 1, stride)
            for start, count, stride in zip(offset, extents, window.strides)
        )
        yield offset, wide[(slice(None), slice(None), *cut)]


# --- maximum ---


def _max_pool_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    (x,) = inputs
    require_dtype(x, (*FLOATS, *INTEGERS))
    require(attributes(node)["storage_order"] == 0, "storage_order 1 is not supported")
    _, extents = pool_window(node, x.shape)
    shape = (*x.shape[:2], *extents)
    return [(x.dtype, shape), ("int64", shape)][: max(len(node.outputs), 1)]


def max_and_place(node: Node, x: Array) -> tuple[Array, Array]:
    """The maximum of each window, and the index of the first one in the flattened spatial axes (int64)."""
    window, extents = pool_window(node, x.shape)
    low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    best: Array | None = None
    place = np.zeros((*x.shape[:2], *extents), np.int64)
    lines = [np.arange(n) * s - b for n, s, b in zip(extents, window.strides, window.before)]
    starts = np.meshgrid(*lines, indexing="ij")
    for offset, values in taps(x, window, extents, low):
        index = np.zeros(extents, np.int64)
        inside = np.ones(extents, bool)
        for start, shift, extent in zip(starts, offset, x.shape[2:]):
            position = start + shift
            inside &= (position >= 0) & (position < extent)
            index = index * extent + position
        if best is None:
            best = np.where(inside, values, np.asarray(low, x.dtype))
            place[:] = np.where(inside, index, -1)
            continue
        better = inside & ((values > best) | (place < 0) | (values != values))
        best = np.where(better, values, best)
        place = np.where(better, index, place)
    assert best is not None
    return best, place


def _max_pool(node: Node, inputs: Sequence[Any]) -> list[Array]:
    (x,) = inputs
    if len(node.outputs) > 1:
        best, place = max_and_place(node, x)
        size = int(np.prod(x.shape[2:]))
        images = np.arange(x.shape[0] * x.shape[1]).reshape((*x.shape[:2],) + (1,) * (x.ndim - 2))
        return [best, place + images * size]
    window, extents = pool_window(node, x.shape)
    low = np.asarray(-np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min, x.dtype)
    out: Array | None = None
    for _, values in taps(x, window, extents, low):
        out = values.copy() if out is None else np.maximum(out, values, out=out)
    assert out is not None
    return [out]


def _max_pool_grad_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    x, gy = inputs
    require_dtype(x, FLOATS)
    _, extents = pool_window(node, x.shape)
    require(gy.shape == (*x.shape[:2], *extents) and gy.dtype == x.dtype, "the gradient does not fit the pooled shape")
    return [(x.dtype, x.shape)]


def _max_pool_grad(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, gy = inputs
    _, place = max_and_place(node, x)
    out = accumulating(np.zeros((x.shape[0] * x.shape[1], int(np.prod(x.shape[2:]))), x.dtype))
    images = np.arange(out.shape[0])[:, None]
    np.add.at(out, (images, place.reshape(out.shape[0], -1)), accumulating(gy).reshape(out.shape[0], -1))
    return [out.reshape(x.shape).astype(x.dtype)]


WINDOW = {"auto_pad": "NOTSET", "ceil_mode": 0, "dilations": None, "pads": None, "strides": None}

row(
    "MaxPool",
    _max_pool_infer,
    _max_pool,
    "The maximum of each window, and on demand its flat index.",
    (1, 1),
    kernel_shape=REQUIRED,
    storage_order=0,
    **WINDOW,
)
row(
    "MaxPoolGrad",
    _max_pool_grad_infer,
    _max_pool_grad,
    "x, gy: gy added to the place of the first maximum of each window of x.",
    (2, 2),
    kernel_shape=REQUIRED,
    **WINDOW,
)


# --- average ---


def average_counts(node: Node, shape: tuple[int, ...]) -> Array:
    """How many elements each window of an AveragePool node divides by, in its spatial output shape (float64)."""
    window, extents = pool_window(node, shape)
    ones = np.ones((1, 1, *shape[2:]))
    if attributes(node)["count_include_pad"]:
        ones = np.pad(ones, [(0, 0), (0, 0), *zip(window.before, window.after)], constant_values=1)
        none = (0,) * len(extents)
        window = Window(window.kernel, window.strides, window.dilations, none, none)
    return sum(values for _, values in taps(ones, window, extents, 0))[0, 0]  # type: ignore[index]


def _average_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    (x,) = inputs
    require_dtype(x, FLOATS)
    _, extents = pool_window(node, x.shape)
    return [(x.dtype, (*x.shape[:2], *extents))]


def _average(node: Node, inputs: Sequence[Any]) -> list[Array]:
    (x,) = inputs
    window, extents = pool_window(node, x.shape)
    wide = accumulating(x)
    out = np.zeros((*x.shape[:2], *extents), wide.dtype)
    for _, values in taps(wide, window, extents, 0):
        out += values
    return [(out / average_counts(node, x.shape).astype(wide.dtype)).astype(x.dtype)]


row(
    "AveragePool",
    _average_infer,
    _average,
    "The mean of each window; borders count only with count_include_pad.",
    (1, 1),
    kernel_shape=REQUIRED,
    count_include_pad=0,
    **WINDOW,
)


# --- over everything ---


def _global_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    (x,) = inputs
    require_dtype(x, FLOATS)
    require(len(x.shape) >= 2, "takes a batch, channels and spatial axes")
    return [(x.dtype, (*x.shape[:2], *(1 for _ in x.shape[2:])))]


def _global(fold: Any) -> Any:
    def reference(node: Node, inputs: Sequence[Any]) -> list[Array]:
        (x,) = inputs
        return [fold(accumulating(x), axis=tuple(range(2, x.ndim)), keepdims=True).astype(x.dtype)]

    return reference


row("GlobalAveragePool", _global_infer, _global(np.mean), "The mean over the spatial axes.", (1, 1))
row("GlobalMaxPool", _global_infer, _global(np.max), "The maximum over the spatial axes.", (1, 1))
