"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from mlsdk.pipeline.ir.graph import Value
from mlsdk.pipeline.trace.aten.elementwise import exact
from mlsdk.pipeline.trace.aten.reduction import vector_norm
from mlsdk.pipeline.trace.aten.table import Type, aten, row, scaled
from mlsdk.pipeline.trace.builder import Builder

Number = float | int


@row(aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default)
def _mm(b: Builder, out: list[Type], x: Value, y: Value) -> Value:
    return b.op("MatMul", x, y)


@row(aten.addmm.default)
def _addmm(b: Builder, out: list[Type], c: Value, x: Value, y: Value, *, beta: Number = 1, alpha: Number = 1) -> Value:
    if beta == 0:  # torch ignores c then, NaN included
        return scaled(b, b.op("MatMul", x, y), alpha)
    if not (exact(alpha, x.dtype) and exact(beta, x.dtype)):
        return b.op("Add", scaled(b, b.op("MatMul", x, y), alpha), scaled(b, c, beta))
    return b.op("Gemm", x, y, c, alpha=float(alpha), beta=float(beta))


@row(aten.baddbmm.default, aten.addmv.default)
def _baddbmm(
    b: Builder, out: list[Type], c: Value, x: Value, y: Value, *, beta: Number = 1, alpha: Number = 1
) -> Value:
    product = scaled(b, b.op("MatMul", x, y), alpha)
    return product if beta == 0 else b.op("Add", scaled(b, c, beta), product)


@row(aten.addbmm.default)
def _addbmm(b: Builder, out: list[Type], c: Value, x: Value, y: Value, *, beta: Number = 1, alpha: Number = 1) -> Value:
    product = scaled(b, b.reduce("ReduceSum", b.op("MatMul", x, y), [0]), alpha)
    return product if beta == 0 else b.op("Add", scaled(b, c, beta), product)


@row(aten._cdist_forward.default)
def _cdist(b: Builder, out: list[Type], x: Value, y: Value, p: float, mode: int | None) -> Value:
    """The p-norms of all differences between rows of x and rows of y."""
    rows, others = (*x.shape[:-1], 1, x.shape[-1]), (*y.shape[:-2], 1, *y.shape[-2:])
    difference = b.op("Sub", b.reshape(x, rows), b.reshape(y, others))
    return vector_norm(b, difference, p, [len(difference.shape) - 1], False)


@row(aten._trilinear.default)
def _trilinear(
    b: Builder,
    out: list[Type],
    x: Value,
    y: Value,
    z: Value,
    expand_x: Sequence[int],
    expand_y: Sequence[int],
    expand_z: Sequence[int],
    summed: Sequence[int],
    unroll: int = 1,
) -> Value:
    def widened(value: Value, axes: Sequence[int]) -> Value:
        shape = list(value.shape)
        for axis in sorted(axes):
            shape.insert(axis, 1)
        return b.reshape(value, shape)

    product = b.op("Mul", b.op("Mul", widened(x, expand_x), widened(y, expand_y)), widened(z, expand_z))
    return b.reduce("ReduceSum", product, list(summed))
