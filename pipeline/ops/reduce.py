"""Reductions over axes, and what is like them: arg-extrema, cumulative sums, the k largest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from mlsdk.pipeline.ir.graph import DTYPES, FLOATS, INTEGERS, Node
from mlsdk.pipeline.ops.table import (
    Operator,
    Type,
    accumulating,
    attributes,
    axes_of,
    axis_of,
    integers_of,
    register,
    require,
    require_dtype,
)

NUMBERS = (*FLOATS, *INTEGERS)
Array = np.ndarray


def reduced_axes(node: Node, axes: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """The axes that a Reduce node folds: all when none are named, unless `noop_with_empty_axes`."""
    if axes is None or len(axes) == 0:
        return () if attributes(node)["noop_with_empty_axes"] else tuple(range(rank))
    return axes_of(axes, rank)


def reduced_shape(shape: tuple[int, ...], axes: Iterable[int], keepdims: bool) -> tuple[int, ...]:
    axes = set(axes)
    if keepdims:
        return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def reduction(name: str, function: Callable[[Array, tuple[int, ...]], Array], dtypes: Iterable[str], doc: str) -> None:
    """A row `name(x, axes?)` whose `function(x, axes)` keeps the folded axes with extent 1."""

    def infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
        x = inputs[0]
        require_dtype(x, dtypes)
        named = None if inputs[1] is None else integers_of(inputs[1], "axes")
        axes = reduced_axes(node, named, len(x.shape))
        return [(x.dtype, reduced_shape(x.shape, axes, bool(attributes(node)["keepdims"])))]

    def reference(node: Node, inputs: Sequence[Any]) -> list[Array]:
        x, named = inputs
        axes = reduced_axes(node, None if named is None else [int(axis) for axis in named], x.ndim)
        shape = reduced_shape(x.shape, axes, bool(attributes(node)["keepdims"]))
        if not axes and attributes(node)["noop_with_empty_axes"]:
            return [x]
        return [np.asarray(function(accumulating(x), axes)).astype(x.dtype).reshape(shape)]

    attrs = {"keepdims": 1, "noop_with_empty_axes": 0}
    register(Operator(name, infer, reference, doc, (1, 2), attrs, "reduce"))


def lowest(dtype: np.dtype) -> Any:
    """The value below all others: the maximum over no elements."""
    return -np.inf if dtype.kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min


def highest(dtype: np.dtype) -> Any:
    return np.inf if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max


def total(x: Array, axes: tuple[int, ...]) -> Array:
    return np.sum(x, axis=axes, keepdims=True, dtype=x.dtype)


def largest(x: Array, axes: tuple[int, ...]) -> Array:
    return np.max(x, axis=axes, keepdims=True, initial=lowest(x.dtype))


def smallest(x: Array, axes: tuple[int, ...]) -> Array:
    return np.min(x, axis=axes, keepdims=True, initial=highest(x.dtype))


def mean(x: Array, axes: tuple[int, ...]) -> Array:
    count = int(np.prod([x.shape[axis] for axis in axes]))
    if x.dtype.kind == "f":
        return total(x, axes) / x.dtype.type(count)
    return np.trunc(np.sum(x, axis=axes, keepdims=True) / max(count, 1))


def log_sum_exp(x: Array, axes: tuple[int, ...]) -> Array:
    peak = largest(x, axes)
    peak = np.where(np.isfinite(peak), peak, x.dtype.type(0))
    return np.log(total(np.exp(x - peak), axes)) + peak


reduction("ReduceSum", total, NUMBERS, "The sum over axes.")
reduction("ReduceMean", mean, NUMBERS, "The mean over axes.")
reduction("ReduceMax", largest, tuple(DTYPES), "The maximum over axes; NaN if one is NaN; `or` for bool.")
reduction("ReduceMin", smallest, tuple(DTYPES), "The minimum over axes; NaN if one is NaN; `and` for bool.")
reduction(
    "ReduceProd", lambda x, axes: np.prod(x, axis=axes, keepdims=True, dtype=x.dtype), NUMBERS, "The product over axes."
)
reduction("ReduceL1", lambda x, axes: total(np.abs(x), axes), NUMBERS, "The sum of magnitudes over axes.")
reduction(
    "ReduceL2", lambda x, axes: np.sqrt(total(np.square(x), axes)), NUMBERS, "The root of the sum of squares over axes."
)
reduction("ReduceSumSquare", lambda x, axes: total(np.square(x), axes), NUMBERS, "The sum of squares over axes.")
reduction("ReduceLogSum", lambda x, axes: np.log(total(x, axes)), NUMBERS, "The logarithm of the sum over axes.")
reduction("ReduceLogSumExp", log_sum_exp, FLOATS, "log(sum(exp(x))) over axes, without overflow.")


# --- where the extremum stands ---


def arg_extremum(name: str, find: Callable[..., Array], doc: str) -> None:
    def infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
        x = inputs[0]
        require_dtype(x, NUMBERS)
        attrs = attributes(node)
        axis = axis_of(attrs["axis"], len(x.shape))
        require(x.shape[axis] > 0, f"axis {axis} is empty, so it has no extremum")
        return [("int64", reduced_shape(x.shape, [axis], bool(attrs["keepdims"])))]

    def reference(node: Node, inputs: Sequence[Any]) -> list[Array]:
        (x,) = inputs
        attrs = attributes(node)
        axis = attrs["axis"] % x.ndim
        if attrs["select_last_index"]:
            index = x.shape[axis] - 1 - find(np.flip(x, axis), axis=axis)
        else:
            index = find(x, axis=axis)
        return [np.asarray(np.expand_dims(index, axis) if attrs["keepdims"] else index, np.int64)]

    attrs = {"axis": 0, "keepdims": 1, "select_last_index": 0}
    register(Operator(name, infer, reference, doc, (1, 1), attrs, "reduce"))


arg_extremum("ArgMax", np.argmax, "The index of the first maximum along an axis; of the first NaN if there is one.")
arg_extremum("ArgMin", np.argmin, "The index of the first minimum along an axis; of the first NaN if there is one.")


# --- cumulative sum ---


def _cumsum_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    x = inputs[0]
    require_dtype(x, NUMBERS)
    axis_of(integers_of(inputs[1], "axis")[0], len(x.shape))
    return [(x.dtype, x.shape)]


def _cumsum(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, axis = inputs[0], int(inputs[1].reshape(()))
    attrs = attributes(node)
    source = np.flip(x, axis) if attrs["reverse"] else x
    wide = accumulating(source)
    out = np.cumsum(wide, axis=axis, dtype=wide.dtype)
    if attrs["exclusive"]:
        zero = np.zeros_like(np.take(out, [0] if out.shape[axis] else [], axis=axis))
        out = np.concatenate([zero, out], axis=axis)
        out = np.take(out, range(x.shape[axis]), axis=axis)
    if attrs["reverse"]:
        out = np.flip(out, axis)
    return [out.astype(x.dtype)]


register(
    Operator(
        "CumSum",
        _cumsum_infer,
        _cumsum,
        "The running sum along an axis.",
        (2, 2),
        {"exclusive": 0, "reverse": 0},
        "reduce",
    )
)


# --- the k largest or smallest ---


def _topk_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    x = inputs[0]
    require_dtype(x, NUMBERS)
    (k,) = integers_of(inputs[1], "k")
    axis = axis_of(attributes(node)["axis"], len(x.shape))
    require(0 <= k <= x.shape[axis], f"k is {k}, axis {axis} has {x.shape[axis]} elements")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return [(x.dtype, shape), ("int64", shape)]


def _topk(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, k = inputs[0], int(inputs[1].reshape(()))
    attrs = attributes(node)
    axis = attrs["axis"] % x.ndim
    if attrs["largest"]:  # descending, and equal elements in rising order of their index
        flipped = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
        order = x.shape[axis] - 1 - np.flip(flipped, axis)
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    index = np.take(order, range(k), axis=axis)
    return [np.take_along_axis(x, index, axis), index.astype(np.int64)]


register(
    Operator(
        "TopK",
        _topk_infer,
        _topk,
        "The k largest (or smallest) elements along an axis and their indices; equal ones by rising index.",
        (2, 2),
        {"axis": -1, "largest": 1, "sorted": 1},
        "reduce",
    )
)
