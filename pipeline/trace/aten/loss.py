"""Losses, and the gradients of those that come as one aten operator."""

from __future__ import annotations

import numpy as np

from mlsdk.pipeline.ir.graph import Value
from mlsdk.pipeline.trace.aten.table import Row, Type, aten, row, scaled
from mlsdk.pipeline.trace.builder import Builder

NONE, MEAN, SUM = 0, 1, 2


def reduced(b: Builder, losses: Value, reduction: int) -> Value:
    """Losses of each element under torch's reduction number."""
    if reduction == NONE:
        return losses
    return b.reduce("ReduceMean" if reduction == MEAN else "ReduceSum", losses, None)


def spread(b: Builder, grad: Value, x: Value, reduction: int) -> Value:
    """The gradient of each element's loss; of a mean it is divided by the number of elements."""
    return scaled(b, grad, 1 / x.size) if reduction == MEAN and x.size else grad


# --- elementwise losses ---


@row(aten.mse_loss.default)
def _mse(b: Builder, out: list[Type], x: Value, target: Value, reduction: int = MEAN) -> Value:
    difference = b.op("Sub", b.cast(x, out[0][0]), b.cast(target, out[0][0]))
    return reduced(b, b.op("Mul", difference, difference), reduction)


@row(aten.mse_loss_backward.default)
def _mse_backward(b: Builder, out: list[Type], grad: Value, x: Value, target: Value, reduction: int) -> Value:
    difference = scaled(b, b.op("Sub", x, target), 2)
    return b.op("Mul", difference, spread(b, grad, difference, reduction))


def _bent(b: Builder, x: Value, target: Value, bend: float, inner: float, slope: float) -> Value:
    """inner * d^2 up to |d| = bend, then a line of that slope."""
    size = b.op("Abs", b.op("Sub", x, target))
    square = scaled(b, b.op("Mul", size, size), inner)
    line = scaled(b, b.op("Sub", size, b.scalar(bend / 2, x.dtype)), slope)
    return b.where(b.op("Less", size, b.scalar(bend, x.dtype)), square, line)


@row(aten.smooth_l1_loss.default)
def _smooth_l1(b: Builder, out: list[Type], x: Value, target: Value, reduction: int = MEAN, beta: float = 1.0) -> Value:
    if beta == 0:
        return reduced(b, b.op("Abs", b.op("Sub", x, target)), reduction)
    return reduced(b, _bent(b, x, target, beta, 0.5 / beta, 1.0), reduction)


@row(aten.huber_loss.default)
def _huber(b: Builder, out: list[Type], x: Value, target: Value, reduction: int = MEAN, delta: float = 1.0) -> Value:
    return reduced(b, _bent(b, x, target, delta, 0.5, delta), reduction)


def _bent_backward(slope: bool) -> Row:
    """smooth_l1 (slope 1) and huber (slope delta): the clipped difference."""

    def build(b: Builder, out: list[Type], grad: Value, x: Value, target: Value, reduction: int, bend: float) -> Value:
        difference = b.op("Sub", x, target)
        if bend == 0:
            direction = b.op("Sign", difference)
        else:
            direction = b.op("Clip", difference, b.scalar(-bend, x.dtype), b.scalar(bend, x.dtype))
            direction = direction if slope else scaled(b, direction, 1 / bend)
        return b.op("Mul", direction, spread(b, grad, difference, reduction))

    return build


row(aten.smooth_l1_loss_backward.default)(_bent_backward(False))
row(aten.huber_loss_backward.default)(_bent_backward(True))


@row(aten.binary_cross_entropy_with_logits.default)
def _bce_logits(
    b: Builder,
    out: list[Type],
    x: Value,
    target: Value,
    weight: Value | None = None,
    pos_weight: Value | None = None,
    reduction: int = MEAN,
) -> Value:
    one = b.scalar(1, x.dtype)
    soft = b.op("Softplus", b.op("Neg", x))
    if pos_weight is not None:
        soft = b.op("Mul", soft, b.op("Add", b.op("Mul", b.op("Sub", pos_weight, one), target), one))
    losses = b.op("Add", b.op("Mul", b.op("Sub", one, target), x), soft)
    return reduced(b, losses if weight is None else b.op("Mul", losses, weight), reduction)


# torch limits the logarithms of binary_cross_entropy from below
LOWEST_LOG = -100.0


@row(aten.binary_cross_entropy.default)
def _bce(
    b: Builder, out: list[Type], x: Value, target: Value, weight: Value | None = None, reduction: int = MEAN
) -> Value:
    one, low = b.scalar(1, x.dtype), b.scalar(LOWEST_LOG, x.dtype)
    yes = b.op("Max", b.op("Log", x), low)
    no = b.op("Max", b.op("Log1p", b.op("Neg", x)), low)
    losses = b.op("Sub", b.op("Mul", b.op("Sub", target, one), no), b.op("Mul", target, yes))
    return reduced(b, losses if weight is None else b.op("Mul", losses, weight), reduction)


@row(aten.binary_cross_entropy_backward.default)
def _bce_backward(
    b: Builder,
    out: list[Type],
    grad: Value,
    x: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = MEAN,
) -> Value:
    spread_out = b.op("Max", b.op("Mul", b.op("Sub", b.scalar(1, x.dtype), x), x), b.scalar(1e-12, x.dtype))
    direction = b.op("Div", b.op("Sub", x, target), spread_out)
    direction = direction if weight is None else b.op("Mul", direction, weight)
    return b.op("Mul", direction, spread(b, grad, x, reduction))


# --- negative log likelihood: x is [C] or [N, C, ...], target [] or [N, ...] ---


class Picked:
    """What both directions of nll_loss need: the class of each target, its weight, and whether it counts."""

    def __init__(self, b: Builder, x: Value, target: Value, weight: Value | None, ignore: int):
        self.axis = 0 if len(x.shape) == 1 else 1
        self.counts = b.op("Not", b.op("Equal", target, b.scalar(ignore, target.dtype)))
        self.label = b.where(self.counts, target, b.scalar(0, target.dtype))
        one = b.scalar(1, x.dtype)
        weights = one if weight is None else b.op("Gather", weight, self.label, axis=0)
        self.weight = b.where(self.counts, weights, b.scalar(0, x.dtype))
        shape = list(target.shape)
        shape.insert(self.axis, 1)
        self.shape = tuple(shape)


def _nll(
    b: Builder, out: list[Type], x: Value, target: Value, weight: Value | None, reduction: int, ignore: int
) -> list[Value]:
    p = Picked(b, x, target, weight, ignore)
    chosen = b.op("GatherElements", x, b.reshape(p.label, p.shape), axis=p.axis)
    losses = b.op("Mul", b.op("Neg", b.reshape(chosen, target.shape)), p.weight)
    losses = b.where(p.counts, losses, b.scalar(0, x.dtype))  # an ignored log probability may be -inf
    total = b.reduce("ReduceSum", p.weight, None)
    if reduction == NONE:
        return [losses, b.scalar(0, x.dtype)]
    loss = b.reduce("ReduceSum", losses, None)
    return [b.op("Div", loss, total) if reduction == MEAN else loss, total]


row(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)(_nll)


def _nll_backward(
    b: Builder,
    out: list[Type],
    grad: Value,
    x: Value,
    target: Value,
    weight: Value | None,
    reduction: int,
    ignore: int,
    total: Value,
) -> Value:
    p = Picked(b, x, target, weight, ignore)
    each = b.op("Div", grad, total) if reduction == MEAN else grad
    each = b.op("Mul", b.op("Neg", each), p.weight)
    classes = np.arange(x.shape[p.axis]).reshape((-1,) + (1,) * (len(x.shape) - p.axis - 1))
    chosen = b.op("Equal", b.reshape(p.label, p.shape), b.constant(classes, target.dtype))
    return b.where(chosen, b.reshape(each, p.shape), b.scalar(0, x.dtype))


row(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)(_nll_backward)
