"""Reductions, sorting and cumulative aten operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mlsdk.pipeline.ir.graph import Value
from mlsdk.pipeline.trace.aten.table import Row, Type, aten, axis_list, row, truth
from mlsdk.pipeline.trace.builder import Builder


def count(x: Value, axes: Sequence[int]) -> int:
    """How many elements a reduction over axes folds into one."""
    return math.prod(x.shape[axis] for axis in axes)


@row(aten.sum.default, aten.sum.dim_IntList)
def _sum(b: Builder, out: list[Type], x: Value, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return b.reduce("ReduceSum", b.cast(x, out[0][0]), axis_list(dims, len(x.shape)), keepdim)


@row(aten.mean.default, aten.mean.dim)
def _mean(
    b: Builder, out: list[Type], x: Value, dims: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Value:
    return b.reduce("ReduceMean", b.cast(x, out[0][0]), axis_list(dims, len(x.shape)), keepdim)


def _extremum(op: str) -> Row:
    def build(b: Builder, out: list[Type], x: Value, dims: Any = None, keepdim: bool = False) -> Value:
        return b.reduce(op, x, axis_list(dims, len(x.shape)), keepdim)

    return build


row(aten.amax.default, aten.max.default)(_extremum("ReduceMax"))
row(aten.amin.default, aten.min.default)(_extremum("ReduceMin"))


def _extremum_and_place(reduce: str, place: str) -> Row:
    def build(b: Builder, out: list[Type], x: Value, dim: int, keepdim: bool = False) -> list[Value]:
        if not x.shape:
            return [x, b.scalar(0, "int64")]
        numbers = b.cast(x, "uint8") if x.dtype == "bool" else x
        axis = dim % len(x.shape)
        return [b.reduce(reduce, x, [axis], keepdim), b.op(place, numbers, axis=axis, keepdims=int(keepdim))]

    return build


row(aten.max.dim)(_extremum_and_place("ReduceMax", "ArgMax"))
row(aten.min.dim)(_extremum_and_place("ReduceMin", "ArgMin"))


def _place(op: str) -> Row:
    def build(b: Builder, out: list[Type], x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        if not x.shape:
            return b.scalar(0, "int64")
        if dim is None:
            flat = b.op(op, b.reshape(x, [x.size]), axis=0, keepdims=0)
            return b.reshape(flat, out[0][1])
        return b.op(op, x, axis=dim % len(x.shape), keepdims=int(keepdim))

    return build


row(aten.argmax.default)(_place("ArgMax"))
row(aten.argmin.default)(_place("ArgMin"))


def _logical(op: str) -> Row:
    """any, all: the result is bool, but uint8 for uint8."""

    def build(b: Builder, out: list[Type], x: Value, dims: Any = None, keepdim: bool = False) -> Value:
        return b.cast(b.reduce(op, truth(b, x), axis_list(dims, len(x.shape)), keepdim), out[0][0])

    return build


row(aten.any.default, aten.any.dim, aten.any.dims)(_logical("ReduceMax"))
row(aten.all.default, aten.all.dim, aten.all.dims)(_logical("ReduceMin"))


@row(aten.prod.default)
def _prod(b: Builder, out: list[Type], x: Value, *, dtype: Any = None) -> Value:
    return b.reduce("ReduceProd", b.cast(x, out[0][0]), None)


@row(aten.prod.dim_int)
def _prod_dim(b: Builder, out: list[Type], x: Value, dim: int, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return b.reduce("ReduceProd", b.cast(x, out[0][0]), axis_list(dim, len(x.shape)), keepdim)


def variance(b: Builder, x: Value, axes: Sequence[int], correction: float, keepdim: bool) -> tuple[Value, Value]:
    """Variance and mean over axes; the sum of squares is divided by the count less `correction`."""
    mean = b.reduce("ReduceMean", x, axes, True)
    centred = b.op("Sub", x, mean)
    total = b.reduce("ReduceSum", b.op("Mul", centred, centred), axes, keepdim)
    divisor = max(count(x, axes) - correction, 0)
    kept = total.shape
    return b.op("Div", total, b.scalar(divisor, x.dtype)), b.reshape(mean, kept)


@row(aten.var.correction)
def _var(
    b: Builder, out: list[Type], x: Value, dims: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Value:
    axes = axis_list(dims, len(x.shape))
    return variance(b, x, axes, 1 if correction is None else correction, keepdim)[0]


@row(aten.std.correction)
def _std(
    b: Builder, out: list[Type], x: Value, dims: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Value:
    return b.op("Sqrt", _var(b, out, x, dims, correction=correction, keepdim=keepdim))


@row(aten.var_mean.correction)
def _var_mean(
    b: Builder, out: list[Type], x: Value, dims: Any = None, *, correction: Any = None, keepdim: bool = False
) -> list[Value]:
    axes = axis_list(dims, len(x.shape))
    return list(variance(b, x, axes, 1 if correction is None else correction, keepdim))


def vector_norm(b: Builder, x: Value, order: float, axes: Sequence[int], keepdim: bool) -> Value:
    """The norm over axes: (sum |x|^order)^(1/order), and its limits."""
    if order in (1, 2):
        return b.reduce(f"ReduceL{int(order)}", x, axes, keepdim)
    size = b.op("Abs", x)
    if math.isinf(order):
        return b.reduce("ReduceMax" if order > 0 else "ReduceMin", size, axes, keepdim)
    if order == 0:
        return b.reduce("ReduceSum", b.cast(truth(b, size), x.dtype), axes, keepdim)
    total = b.reduce("ReduceSum", b.op("Pow", size, b.scalar(order, x.dtype)), axes, keepdim)
    return b.op("Pow", total, b.scalar(1 / order, x.dtype))


@row(aten.linalg_vector_norm.default)
def _norm(
    b: Builder,
    out: list[Type],
    x: Value,
    order: float = 2,
    dims: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Value:
    return vector_norm(b, b.cast(x, out[0][0]), order, axis_list(dims, len(x.shape)), keepdim)


@row(aten._pdist_forward.default)
def _pdist(b: Builder, out: list[Type], x: Value, p: float = 2) -> Value:
    """Norms of the differences of all pairs of rows, the first one before the second."""
    first, second = (b.op("Gather", x, b.constant(rows), axis=0) for rows in np.triu_indices(x.shape[0], 1))
    return vector_norm(b, b.op("Sub", first, second), p, [1], False)


@row(aten.logsumexp.default)
def _logsumexp(b: Builder, out: list[Type], x: Value, dims: Any, keepdim: bool = False) -> Value:
    return b.reduce("ReduceLogSumExp", b.cast(x, out[0][0]), axis_list(dims, len(x.shape)), keepdim)


@row(aten.count_nonzero.default, aten.count_nonzero.dim_IntList)
def _count_nonzero(b: Builder, out: list[Type], x: Value, dims: Any = None) -> Value:
    return b.reduce("ReduceSum", b.cast(truth(b, x), "int64"), axis_list(dims, len(x.shape)))


@row(aten.cumsum.default)
def _cumsum(b: Builder, out: list[Type], x: Value, dim: int, *, dtype: Any = None) -> Value:
    x = b.cast(x, out[0][0])
    return b.op("CumSum", x, b.scalar(dim % len(x.shape), "int64")) if x.shape else x


# --- sorting ---


def sorted_along(b: Builder, x: Value, dim: int, k: int, largest: bool) -> list[Value]:
    """The first k elements in order along an axis, and their indices."""
    if not x.shape:
        return [x, b.scalar(0, "int64")]
    numbers = b.cast(x, "uint8") if x.dtype == "bool" else x
    values, places = b.nodes_of(
        "TopK", numbers, b.ints([k]), outputs=2, axis=dim % len(x.shape), largest=int(largest), sorted=1
    )
    return [b.cast(values, x.dtype), places]


@row(aten.topk.default)
def _topk(
    b: Builder, out: list[Type], x: Value, k: int, dim: int = -1, largest: bool = True, ordered: bool = True
) -> list[Value]:
    return sorted_along(b, x, dim, k, largest)


@row(aten.sort.default)
def _sort(b: Builder, out: list[Type], x: Value, dim: int = -1, descending: bool = False) -> list[Value]:
    return sorted_along(b, x, dim, x.shape[dim] if x.shape else 1, descending)


@row(aten.sort.stable)
def _sort_stable(
    b: Builder, out: list[Type], x: Value, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> list[Value]:
    # TopK keeps equal elements in rising order of their index, so it is stable
    return sorted_along(b, x, dim, x.shape[dim] if x.shape else 1, descending)


@row(aten.kthvalue.default)
def _kthvalue(b: Builder, out: list[Type], x: Value, k: int, dim: int = -1, keepdim: bool = False) -> list[Value]:
    if not x.shape:
        return sorted_along(b, x, dim, 1, False)
    axis = dim % len(x.shape)
    return [
        b.reshape(b.slice(item, axis, k - 1, k), shape)
        for item, (_, shape) in zip(sorted_along(b, x, dim, k, False), out)
    ]


@row(aten.cumprod.default)
def _cumprod(b: Builder, out: list[Type], x: Value, dim: int, *, dtype: Any = None) -> Value:
    x = b.cast(x, out[0][0])
    if not x.shape:
        return x
    axis = dim % len(x.shape)
    extent = x.shape[axis]
    # doubling: after step s each element holds the product of the 2s elements that end in it
    step = 1
    while step < extent:
        shifted = b.concat(
            [
                b.constant(np.ones((*x.shape[:axis], step, *x.shape[axis + 1 :])), x.dtype),
                b.slice(x, axis, 0, extent - step),
            ],
            axis,
        )
        x = b.op("Mul", x, shifted)
        step *= 2
    return x
