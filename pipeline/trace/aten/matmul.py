"""Matrix products."""

from __future__ import annotations

from mlsdk.pipeline.ir.graph import Value
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
    return b.op("Gemm", x, y, c, alpha=float(alpha), beta=float(beta))


@row(aten.baddbmm.default, aten.addmv.default)
def _baddbmm(
    b: Builder, out: list[Type], c: Value, x: Value, y: Value, *, beta: Number = 1, alpha: Number = 1
) -> Value:
    product = scaled(b, b.op("MatMul", x, y), alpha)
    return product if beta == 0 else b.op("Add", scaled(b, c, beta), product)
