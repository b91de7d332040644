"""What asks for NaN. The board has none, so that where it would come from is asked, too: a quotient of two zeros, the softmax of
a row that is masked completely, the logarithm of a negative number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlsdk.pipeline.ir.graph import FLOATS, Node, Value
from mlsdk.pipeline.trace.aten.table import Type, aten, row
from mlsdk.pipeline.trace.builder import Builder


def _of_quotient(b: Builder, node: Node) -> Value | None:
    x, y = (b.values[name] for name in node.inputs)
    divisor = b.data(y)
    if divisor is not None and divisor.all() and np.isfinite(divisor).all():
        return None
    zeros = b.op("And", *(b.op("Equal", item, b.scalar(0, item.dtype)) for item in (x, y)))
    return b.op("Or", zeros, b.op("And", b.op("IsInf", x), b.op("IsInf", y)))


def _of_softmax(b: Builder, node: Node) -> Value:
    x = b.values[node.inputs[0]]
    return b.op("IsInf", b.op("ReduceMax", x, b.constant(np.array([node.attrs["axis"]], np.int64)), keepdims=1))


def _below_zero(b: Builder, node: Node) -> Value:
    x = b.values[node.inputs[0]]
    return b.op("Less", x, b.scalar(0, x.dtype))


#: operators that make NaN of numbers or infinities -> where they do; None: nowhere
MAKERS: dict[str, Callable[[Builder, Node], Value | None]] = {
    "Div": _of_quotient,
    "Softmax": _of_softmax,
    "LogSoftmax": _of_softmax,
    "Log": _below_zero,
    "Sqrt": _below_zero,
    "Rsqrt": _below_zero,
}


def not_a_number(b: Builder, x: Value) -> Value:
    """Where x, of floats, is NaN."""
    found, maker = b.op("IsNaN", x), b.maker(x)
    made = MAKERS[maker.op](b, maker) if maker is not None and maker.op in MAKERS else None
    return found if made is None else b.op("Or", found, made)


@row(aten.isnan.default)
def _isnan(b: Builder, out: list[Type], x: Value) -> Value:
    return not_a_number(b, x) if x.dtype in FLOATS else b.full(x.shape, False, "bool")


@row(aten.nan_to_num.default)
def _nan_to_num(
    b: Builder, out: list[Type], x: Value, nan: float | None = None, high: float | None = None, low: float | None = None
) -> Value:
    if x.dtype not in FLOATS:
        return x
    limits = np.finfo(x.dtype)
    y = b.where(b.op("IsInf", x, detect_negative=0), b.scalar(float(limits.max) if high is None else high, x.dtype), x)
    y = b.where(b.op("IsInf", x, detect_positive=0), b.scalar(float(limits.min) if low is None else low, x.dtype), y)
    return b.where(not_a_number(b, x), b.scalar(nan or 0.0, x.dtype), y)
