"""grid_sample: an image read between its elements, at places that a grid gives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from mlsdk.pipeline.ir.graph import Value
from mlsdk.pipeline.trace.aten.table import Type, Unsupported, aten, row, scaled
from mlsdk.pipeline.trace.builder import Builder

#: (place of the lower neighbour of an axis, distance from it) -> [(place, weight)]; a weight of None is 1
Taps = list[tuple[Value, Value | None]]
CUBIC = -0.75


def _shift(b: Builder, x: Value, number: float) -> Value:
    return x if number == 0 else b.op("Add", x, b.scalar(number, x.dtype))


def _inside(b: Builder, x: Value, extent: int) -> Value:
    """x, limited to the places of an axis."""
    return b.op("Clip", x, b.scalar(0, x.dtype), b.scalar(extent - 1, x.dtype))


def _reflected(b: Builder, x: Value, low: float, high: float) -> Value:
    """x, mirrored at low and high until it lies between them."""
    span = high - low
    if span == 0:
        return b.full(x.shape, 0, x.dtype)
    there_and_back = b.op("Mod", b.op("Abs", _shift(b, x, -low)), b.scalar(2 * span, x.dtype), fmod=1)
    back = b.op("Sub", b.scalar(2 * span, x.dtype), there_and_back)
    return _shift(b, b.op("Min", there_and_back, back), low)


def _pixels(b: Builder, x: Value, extent: int, align: bool) -> Value:
    """Places in [-1, 1] as places among the elements of an axis."""
    if align:
        return scaled(b, _shift(b, x, 1), (extent - 1) / 2)
    return _shift(b, scaled(b, x, extent / 2), (extent - 1) / 2)


def _border(b: Builder, x: Value, extent: int, align: bool) -> Value:
    return _inside(b, x, extent)


def _mirror(b: Builder, x: Value, extent: int, align: bool) -> Value:
    low, high = (0, extent - 1) if align else (-0.5, extent - 0.5)
    return _inside(b, _reflected(b, x, low, high), extent)


#: padding_mode of aten -> what becomes of a place outside; zeros: nothing, its element counts as 0
PADDINGS: tuple[Callable[..., Value] | None, ...] = (None, _border, _mirror)


def _nearest(b: Builder, x: Value) -> Taps:
    return [(b.op("Round", x), None)]


def _linear(b: Builder, x: Value) -> Taps:
    low = b.op("Floor", x)
    part = b.op("Sub", x, low)
    return [(low, b.op("Sub", b.scalar(1, x.dtype), part)), (_shift(b, low, 1), part)]


def _polynomial(b: Builder, x: Value, *factors: float) -> Value:
    """Horner's rule, the highest power first."""
    result = b.scalar(factors[0], x.dtype)
    for factor in factors[1:]:
        result = _shift(b, b.op("Mul", result, x), factor)
    return result


def _cubic(b: Builder, x: Value) -> Taps:
    low, a = b.op("Floor", x), CUBIC
    part = b.op("Sub", x, low)
    rest = b.op("Sub", b.scalar(1, x.dtype), part)
    far, near = (a, -5 * a, 8 * a, -4 * a), (a + 2, -(a + 3), 0, 1)
    taps: Taps = []
    for step, factors, distance in (
        (-1, far, _shift(b, part, 1)),
        (0, near, part),
        (1, near, rest),
        (2, far, _shift(b, rest, 1)),
    ):
        taps.append((_shift(b, low, step), _polynomial(b, distance, *factors)))
    return taps


#: interpolation_mode of aten -> the taps of an axis
TAPS: tuple[Callable[[Builder, Value], Taps], ...] = (_linear, _nearest, _cubic)


@row(aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def _grid_sample(b: Builder, out: list[Type], x: Value, grid: Value, mode: int, padding: int, align: bool) -> Value:
    """x (N, C, spatial...) at grid (N, places..., axes), whose last axis counts from the innermost spatial axis of x."""
    n, c, *extents = x.shape
    spatial, count = math.prod(extents), math.prod(grid.shape[1:-1])
    if 0 in (*x.shape, *grid.shape):
        raise Unsupported("of no elements")
    flat = b.reshape(grid, (n, count, len(extents)))
    pad, cubic = PADDINGS[padding], TAPS[mode] is _cubic
    axes: list[Taps] = []
    for axis, extent in enumerate(extents):
        column = len(extents) - 1 - axis
        place = _pixels(b, b.reshape(b.slice(flat, 2, column, column + 1), (n, count)), extent, align)
        if pad is not None and not cubic:
            place = pad(b, place, extent, align)
        axes.append(
            [_within(b, tap, extent, align, pad if cubic else None, pad is None) for tap in TAPS[mode](b, place)]
        )
    rows = b.reshape(b.transpose(x, [0, *range(2, len(x.shape)), 1]), (n * spatial, c))
    first = b.constant(np.arange(n, dtype=np.int64)[:, None] * spatial)
    total: Value | None = None
    for corner in itertools.product(*axes):
        index = first
        for (place, _), stride in zip(corner, np.cumprod([1, *extents[:0:-1]])[::-1].tolist()):
            index = b.op("Add", index, scaled(b, place, stride))
        part = b.op("Gather", rows, index, axis=0)
        weight: Value | None = None
        for _, factor in corner:
            if factor is not None:
                weight = factor if weight is None else b.op("Mul", weight, factor)
        if weight is not None:
            part = b.op("Mul", part, b.reshape(weight, (n, count, 1)))
        total = part if total is None else b.op("Add", total, part)
    assert total is not None
    return b.reshape(b.transpose(total, [0, 2, 1]), out[0][1])


def _within(
    b: Builder, tap: tuple[Value, Value | None], extent: int, align: bool, pad: Callable[..., Value] | None, zeros: bool
) -> tuple[Value, Value | None]:
    """A tap as an int64 place that exists, and its weight: 0 for what is outside where `zeros` stand there."""
    place, weight = tap
    if pad is not None:
        place = pad(b, place, extent, align)
    kept = _inside(b, place, extent)
    if zeros:
        exists = b.cast(b.op("Equal", kept, place), place.dtype)
        weight = exists if weight is None else b.op("Mul", weight, exists)
    return b.cast(kept, "int64"), weight
