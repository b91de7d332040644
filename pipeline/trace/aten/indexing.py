"""Reading and writing at indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlsdk.pipeline.ir.graph import FLOATS, Value
from mlsdk.pipeline.trace.aten.table import Type, Unsupported, aten, in_range, operand, promoted, row
from mlsdk.pipeline.trace.builder import Builder

Number = float | int | bool


@row(aten.embedding.default)
def _embedding(b: Builder, out: list[Type], weight: Value, indices: Value, *ignored: Any) -> Value:
    return b.op("Gather", weight, indices, axis=0)


@row(aten.index_select.default)
def _index_select(b: Builder, out: list[Type], x: Value, dim: int, indices: Value) -> Value:
    if not x.shape:
        return b.reshape(b.op("Gather", b.reshape(x, [1]), indices, axis=0), ())
    return b.op("Gather", x, b.reshape(indices, [indices.size]), axis=dim % len(x.shape))


@row(aten.take.default)
def _take(b: Builder, out: list[Type], x: Value, indices: Value) -> Value:
    return b.op("Gather", b.reshape(x, [x.size]), indices, axis=0)


@row(aten.put.default)
def _put(b: Builder, out: list[Type], x: Value, indices: Value, source: Value, accumulate: bool = False) -> Value:
    places = b.reshape(b.cast(indices, "int64"), (indices.size, 1))
    reduction = "add" if accumulate else "none"
    updates = b.reshape(source, (indices.size,))
    return b.reshape(b.op("ScatterND", b.reshape(x, [x.size]), places, updates, reduction=reduction), x.shape)


@row(aten.gather.default)
def _gather(b: Builder, out: list[Type], x: Value, dim: int, indices: Value, *, sparse_grad: bool = False) -> Value:
    if not x.shape:
        return x
    return b.op("GatherElements", x, indices, axis=dim % len(x.shape))


# --- advanced indexing: x[a, :, b] ---


class Places:
    """The index tensors of x[...], brought together at the front.

    `perm` brings the indexed axes of x to the front; `indices` is int64[shape..., number of indexed axes]; `unperm`
    brings the axes of the result to where torch has them.
    """

    def __init__(self, b: Builder, x: Value, indices: Sequence[Value | None]):
        axes = [axis for axis, index in enumerate(indices) if index is not None]
        rest = [axis for axis in range(len(x.shape)) if axis not in axes]
        tensors = [index for index in indices if index is not None]
        if any(index.dtype in ("bool", "uint8") for index in tensors):
            raise Unsupported("a boolean mask together with other indices")
        self.shape = np.broadcast_shapes(*(index.shape for index in tensors))
        self.axes = axes
        self.perm = axes + rest
        self.rest_shape = tuple(x.shape[axis] for axis in rest)
        columns = [b.reshape(b.expand(b.cast(index, "int64"), self.shape), (*self.shape, 1)) for index in tensors]
        self.columns = columns
        rank = len(self.shape)
        # torch leaves the indexed axes in place when they stand together, else it moves them to the front
        together = axes == list(range(axes[0], axes[-1] + 1))
        lead = axes[0] if together else 0
        self.unperm = [*range(rank, rank + lead), *range(rank), *range(rank + lead, rank + len(rest))]

    def indices(self, b: Builder) -> Value:
        return b.concat(self.columns, len(self.shape))


def reads_one_axis(indices: Sequence[Value | None]) -> int | None:
    """The axis of x[:, index] when a single axis is indexed."""
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    return axes[0] if len(axes) == 1 else None


@row(aten.index.Tensor, aten._unsafe_index.Tensor)
def _index(b: Builder, out: list[Type], x: Value, indices: Sequence[Value | None]) -> Value:
    axis = reads_one_axis(indices)
    if axis is not None:
        index = indices[axis]
        assert index is not None
        return b.op("Gather", x, b.cast(index, "int64"), axis=axis)
    places = Places(b, x, indices)
    result = b.op("GatherND", b.transpose(x, places.perm), places.indices(b))
    return b.transpose(result, places.unperm)


@row(aten.index_put.default, aten._unsafe_index_put.default)
def _index_put(
    b: Builder, out: list[Type], x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Value:
    values = b.cast(values, x.dtype)
    if any(index is not None and index.dtype in ("bool", "uint8") for index in indices):
        return _masked_put(b, x, indices, values, accumulate)
    places = Places(b, x, indices)
    natural = tuple((*places.shape, *places.rest_shape)[axis] for axis in places.unperm)
    updates = b.expand(values, natural)
    updates = b.transpose(updates, np.argsort(places.unperm).tolist())
    reduction = "add" if accumulate else "none"
    result = b.op("ScatterND", b.transpose(x, places.perm), places.indices(b), updates, reduction=reduction)
    return b.transpose(result, np.argsort(places.perm).tolist())


def _masked_put(b: Builder, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool) -> Value:
    """x[mask] = values, where the values do not depend on how many elements the mask selects."""
    mask = indices[0]
    if mask is None or any(index is not None for index in indices[1:]):
        raise Unsupported("a boolean mask together with other indices")
    rest = len(x.shape) - len(mask.shape)
    if len(values.shape) > rest and any(extent != 1 for extent in values.shape[: len(values.shape) - rest]):
        raise Unsupported("x[mask] = values with a value for each selected element; use torch.where(mask, values, x)")
    condition = b.reshape(b.cast(mask, "bool"), (*mask.shape, *(1,) * rest))
    updates = b.reshape(values, values.shape[max(len(values.shape) - rest, 0) :])
    return b.where(condition, b.op("Add", x, updates) if accumulate else updates, x)


@row(aten.masked_scatter.default)
def _masked_scatter(b: Builder, out: list[Type], x: Value, mask: Value, source: Value) -> Value:
    """The n-th selected element gets the n-th element of the source."""
    wide = b.reshape(b.expand(mask, x.shape), (x.size,))
    count = b.op("CumSum", b.cast(wide, "int64"), b.scalar(0, "int64"))
    place = b.op(
        "Clip", b.op("Sub", count, b.scalar(1, "int64")), b.scalar(0, "int64"), b.scalar(source.size - 1, "int64")
    )
    chosen = b.op("Gather", b.reshape(source, (source.size,)), place, axis=0)
    return b.reshape(b.where(wide, chosen, b.reshape(x, (x.size,))), x.shape)


# --- along one axis ---


def moved(rank: int, axis: int) -> list[int]:
    """The order of axes that brings `axis` to the front."""
    return [axis, *(other for other in range(rank) if other != axis)]


def _index_write(b: Builder, x: Value, dim: int, index: Value, source: Value, reduction: str) -> Value:
    """x with slices along an axis replaced or added."""
    if not x.shape:
        return b.reshape(_index_write(b, b.reshape(x, [1]), 0, index, b.reshape(source, [1]), reduction), ())
    perm = moved(len(x.shape), dim % len(x.shape))
    places = b.reshape(b.cast(index, "int64"), (index.size, 1))
    result = b.op("ScatterND", b.transpose(x, perm), places, b.transpose(source, perm), reduction=reduction)
    return b.transpose(result, np.argsort(perm).tolist())


@row(aten.index_add.default)
def _index_add(
    b: Builder, out: list[Type], x: Value, dim: int, index: Value, source: Value, *, alpha: Number = 1
) -> Value:
    if alpha != 1:
        source = b.op("Mul", source, b.scalar(alpha, source.dtype))
    return _index_write(b, x, dim, index, source, "add")


@row(aten.index_copy.default)
def _index_copy(b: Builder, out: list[Type], x: Value, dim: int, index: Value, source: Value) -> Value:
    return _index_write(b, x, dim, index, source, "none")


@row(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def _index_fill(b: Builder, out: list[Type], x: Value, dim: int, index: Value, value: Value | Number) -> Value:
    axis = dim % len(x.shape)
    shape = (*x.shape[:axis], index.size, *x.shape[axis + 1 :])
    return _index_write(b, x, dim, index, b.expand(operand(b, value, x.dtype), shape), "none")


# --- one element for each index ---


def _scatter(b: Builder, x: Value, dim: int, index: Value, source: Value, reduction: str) -> Value:
    if not x.shape:
        whole = _scatter(b, b.reshape(x, [1]), 0, b.reshape(index, [1]), b.reshape(source, [1]), reduction)
        return b.reshape(whole, ())
    for axis, extent in enumerate(index.shape):  # the source may be larger than the index
        source = b.slice(source, axis, 0, extent)
    return b.op("ScatterElements", x, index, b.cast(source, x.dtype), axis=dim % len(x.shape), reduction=reduction)


@row(aten.scatter.src)
def _scatter_src(b: Builder, out: list[Type], x: Value, dim: int, index: Value, source: Value) -> Value:
    return _scatter(b, x, dim, index, source, "none")


@row(aten.scatter.value)
def _scatter_value(b: Builder, out: list[Type], x: Value, dim: int, index: Value, value: Number) -> Value:
    return _scatter(b, x, dim, index, b.full(index.shape, value, x.dtype), "none")


@row(aten.scatter_add.default)
def _scatter_add(b: Builder, out: list[Type], x: Value, dim: int, index: Value, source: Value) -> Value:
    return _scatter(b, x, dim, index, source, "add")


@row(aten.scatter.reduce)
def _scatter_reduce_old(
    b: Builder, out: list[Type], x: Value, dim: int, index: Value, source: Value, *, reduce: str
) -> Value:
    return _scatter(b, x, dim, index, source, {"add": "add", "multiply": "mul"}[reduce])


@row(aten.scatter.value_reduce)
def _scatter_value_reduce(
    b: Builder, out: list[Type], x: Value, dim: int, index: Value, value: Number, *, reduce: str
) -> Value:
    source = b.full(index.shape, value, x.dtype)
    return _scatter(b, x, dim, index, source, {"add": "add", "multiply": "mul"}[reduce])


REDUCE = {"sum": ("add", 0.0), "prod": ("mul", 1.0), "amax": ("max", -np.inf), "amin": ("min", np.inf)}


@row(aten.scatter_reduce.two)
def _scatter_reduce(
    b: Builder,
    out: list[Type],
    x: Value,
    dim: int,
    index: Value,
    source: Value,
    reduce: str,
    *,
    include_self: bool = True,
) -> Value:
    if reduce == "mean" and x.dtype in FLOATS:
        ones = b.full(index.shape, 1, x.dtype)
        counts = _scatter(b, b.full(x.shape, int(include_self), x.dtype), dim, index, ones, "add")
        total = _scatter_reduce(b, out, x, dim, index, source, "sum", include_self=include_self)
        return b.op("Div", total, b.op("Max", counts, b.scalar(1, x.dtype)))
    if reduce not in REDUCE:
        raise Unsupported(f"scatter_reduce with reduce={reduce!r}")
    reduction, neutral = REDUCE[reduce]
    if not include_self:
        x = _scatter(b, x, dim, index, b.full(index.shape, in_range(neutral, x.dtype), x.dtype), "none")
    return _scatter(b, x, dim, index, source, reduction)


@row(aten.index_reduce.default)
def _index_reduce(
    b: Builder,
    out: list[Type],
    x: Value,
    dim: int,
    index: Value,
    source: Value,
    reduce: str,
    *,
    include_self: bool = True,
) -> Value:
    """scatter_reduce with one index for a whole slice."""
    axis, rank = dim % max(1, len(source.shape)), len(source.shape)
    along = [index.size if a == axis else 1 for a in range(rank)]
    wide = b.expand(b.reshape(b.cast(index, "int64"), along), source.shape)
    return _scatter_reduce(b, out, x, dim, wide, source, reduce, include_self=include_self)


# --- places in a sorted sequence ---


@row(aten.searchsorted.Tensor)
def _searchsorted(
    b: Builder,
    out: list[Type],
    sequence: Value,
    x: Value,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    """How many elements of the sequence come before x: it goes behind those that are not above (right) or are below it."""
    if sorter is not None:
        sequence = b.op("GatherElements", sequence, sorter, axis=len(sequence.shape) - 1)
    kind = promoted(sequence, x)
    lead = () if len(sequence.shape) == 1 else sequence.shape[:-1]
    count = sequence.shape[-1]
    sequence = b.cast(b.reshape(sequence, (*lead, *(1,) * (len(x.shape) - len(lead)), count)), kind)
    after = "Greater" if right or side == "right" else "GreaterOrEqual"
    before = b.op("Not", b.op(after, sequence, b.cast(b.reshape(x, (*x.shape, 1)), kind)))
    return b.reduce("ReduceSum", b.cast(before, out[0][0]), [len(x.shape)])


@row(aten.searchsorted.Scalar)
def _searchsorted_number(b: Builder, out: list[Type], sequence: Value, x: float | int, **options: Any) -> Value:
    return _searchsorted(b, out, sequence, operand(b, x, sequence.dtype), **options)
