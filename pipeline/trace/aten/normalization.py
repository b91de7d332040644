"""Softmax and the normalisations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mlsdk.pipeline.ir.graph import Value
from mlsdk.pipeline.trace.aten.reduction import variance
from mlsdk.pipeline.trace.aten.table import Row, Type, aten, row, scaled
from mlsdk.pipeline.trace.builder import Builder


def _along(op: str) -> Row:
    def build(b: Builder, out: list[Type], x: Value, dim: int, half_to_float: bool = False) -> Value:
        x = b.cast(x, out[0][0])
        if not x.shape:
            return b.reshape(b.op(op, b.reshape(x, [1]), axis=0), ())
        return b.op(op, x, axis=dim % len(x.shape))

    return build


row(aten._softmax.default)(_along("Softmax"))
row(aten._log_softmax.default)(_along("LogSoftmax"))


@row(aten._safe_softmax.default)
def _safe_softmax(b: Builder, out: list[Type], x: Value, dim: int, dtype: Any = None) -> Value:
    """A row of -inf gives zeros, as attention wants it for a query that may see nothing."""
    x = b.cast(x, out[0][0])
    axis = dim % len(x.shape)
    peak = b.reduce("ReduceMax", x, [axis], True)
    nothing = b.op("Equal", peak, b.scalar(-np.inf, x.dtype))
    return b.where(nothing, b.scalar(0, x.dtype), b.op("Softmax", x, axis=axis))


# --- batch normalisation ---


def channels(b: Builder, vector: Value | None, count: int, fill: float, dtype: str) -> Value:
    """A vector over channels; constant when there is none."""
    return b.constant(np.full(count, fill), dtype) if vector is None else vector


def per_channel(b: Builder, vector: Value, rank: int) -> Value:
    """A vector over axis 1 in a shape that broadcasts against a tensor of that rank."""
    return b.reshape(vector, (1, vector.size, *(1,) * (rank - 2)))


@row(aten._native_batch_norm_legit_no_training.default)
def _batch_norm_inference(
    b: Builder,
    out: list[Type],
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    var: Value,
    momentum: float,
    eps: float,
) -> list[Value]:
    count = x.shape[1]
    scale, shift = channels(b, weight, count, 1, x.dtype), channels(b, bias, count, 0, x.dtype)
    y = b.op("BatchNormalization", x, scale, shift, mean, var, epsilon=eps)
    if not out[1][1][0]:
        return [y, b.constant([], out[1][0]), b.constant([], out[2][0])]
    # Of an input whose elements do not lie one behind the other, torch keeps the statistics.
    return [y, mean, b.op("Rsqrt", b.op("Add", var, b.scalar(eps, var.dtype)))]


def batch_statistics(b: Builder, x: Value, eps: float) -> tuple[Value, Value, Value]:
    """Mean, variance (both over all axes but the channels', as vectors) and 1 / sqrt(variance + eps)."""
    axes = [axis for axis in range(len(x.shape)) if axis != 1]
    var, mean = variance(b, x, axes, 0, False)
    return mean, var, b.op("Rsqrt", b.op("Add", var, b.scalar(eps, x.dtype)))


def standardised(b: Builder, x: Value, mean: Value, inverse: Value, weight: Value | None, bias: Value | None) -> Value:
    rank = len(x.shape)
    factor = inverse if weight is None else b.op("Mul", inverse, b.cast(weight, x.dtype))
    y = b.op("Mul", b.op("Sub", x, per_channel(b, mean, rank)), per_channel(b, factor, rank))
    return y if bias is None else b.op("Add", y, per_channel(b, b.cast(bias, x.dtype), rank))


@row(aten._native_batch_norm_legit.no_stats)
def _batch_norm_no_stats(
    b: Builder,
    out: list[Type],
    x: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Value]:
    mean, _, inverse = batch_statistics(b, x, eps)
    return [standardised(b, x, mean, inverse, weight, bias), mean, inverse]


@row(aten._native_batch_norm_legit_functional.default)
def _batch_norm_training(
    b: Builder,
    out: list[Type],
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Value]:
    mean, var, inverse = batch_statistics(b, x, eps)
    count = x.size // max(x.shape[1], 1)
    unbiased = scaled(b, var, count / max(count - 1, 1))
    new_mean, new_var = (
        b.op("Add", scaled(b, old, 1 - momentum), scaled(b, b.cast(new, old.dtype), momentum))
        for old, new in ((running_mean, mean), (running_var, unbiased))
    )
    return [standardised(b, x, mean, inverse, weight, bias), mean, inverse, new_mean, new_var]


# --- normalisation over the last axes, or over groups of channels ---


@row(aten.native_layer_norm.default)
def _layer_norm(
    b: Builder, out: list[Type], x: Value, shape: Sequence[int], weight: Value | None, bias: Value | None, eps: float
) -> list[Value]:
    scale = weight if weight is not None else b.constant([1], x.dtype)
    y, mean, inverse = b.nodes_of(
        "LayerNormalization", x, scale, bias, outputs=3, axis=len(x.shape) - len(shape), epsilon=eps
    )
    return [y, b.cast(mean, out[1][0]), b.cast(inverse, out[2][0])]


@row(aten.native_group_norm.default)
def _group_norm(
    b: Builder,
    out: list[Type],
    x: Value,
    weight: Value | None,
    bias: Value | None,
    n: int,
    c: int,
    pixels: int,
    groups: int,
    eps: float,
) -> list[Value]:
    grouped = b.reshape(x, (n, groups, c // groups * pixels))
    y, mean, inverse = b.nodes_of(
        "LayerNormalization", grouped, b.constant([1], x.dtype), outputs=3, axis=2, epsilon=eps
    )
    y = b.reshape(y, x.shape)
    if weight is not None:
        y = b.op("Mul", y, per_channel(b, weight, len(x.shape)))
    if bias is not None:
        y = b.op("Add", y, per_channel(b, bias, len(x.shape)))
    return [y, *(b.cast(b.reshape(item, (n, groups)), kind) for item, (kind, _) in zip((mean, inverse), out[1:]))]


@row(aten._fused_rms_norm.default)
def _rms_norm(
    b: Builder, out: list[Type], x: Value, shape: Sequence[int], weight: Value | None, eps: float | None
) -> list[Value]:
    axis = len(x.shape) - len(shape)
    epsilon = float(np.finfo(x.dtype).eps) if eps is None else eps
    scale = weight if weight is not None else b.constant([1], x.dtype)
    y = b.op("RMSNormalization", x, scale, axis=axis, epsilon=epsilon)
    wide = b.cast(x, out[1][0])
    axes = list(range(axis, len(x.shape)))
    mean = b.reduce("ReduceMean", b.op("Mul", wide, wide), axes, True)
    return [y, b.op("Rsqrt", b.op("Add", mean, b.scalar(epsilon, wide.dtype)))]


def elements(shape: Sequence[int]) -> int:
    return math.prod(shape)
