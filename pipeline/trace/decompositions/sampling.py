"""The gradient of grid_sample: sampling in operators that have gradients, all modes and paddings, in two and three dimensions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mlsdk.pipeline.trace.decompositions.table import aten, decomposes, gradients

CUBIC = -0.75

#: (place, weight) of each element of an axis that counts for a point
Taps = list[tuple[Tensor, Tensor | None]]


def _linear(x: Tensor) -> Taps:
    low = x.detach().floor()
    return [(low, 1 - (x - low)), (low + 1, x - low)]


def _nearest(x: Tensor) -> Taps:
    return [(x.detach().round(), None)]


def _cubic(x: Tensor) -> Taps:
    low, a = x.detach().floor(), CUBIC
    part = x - low

    def near(t: Tensor) -> Tensor:
        return ((a + 2) * t - (a + 3)) * t * t + 1

    def far(t: Tensor) -> Tensor:
        return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a

    return [(low - 1, far(part + 1)), (low, near(part)), (low + 1, near(1 - part)), (low + 2, far(2 - part))]


def _border(x: Tensor, extent: int, corners: bool) -> Tensor:
    """torch passes no gradient on from the border itself."""
    inside = (x > 0) & (x < extent - 1)
    return torch.where(inside, x, x.detach().clamp(0, extent - 1))


def _reflection(x: Tensor, extent: int, corners: bool) -> Tensor:
    low, high = (0.0, extent - 1.0) if corners else (-0.5, extent - 0.5)
    span = high - low
    if span == 0:
        return _border(x * 0, extent, corners)
    there_and_back = torch.fmod((x - low).abs(), 2 * span)
    return _border(
        torch.where(there_and_back <= span, there_and_back, 2 * span - there_and_back) + low, extent, corners
    )


# as aten numbers them
TAPS = (_linear, _nearest, _cubic)
PADDINGS: tuple[Callable[[Tensor, int, bool], Tensor] | None, ...] = (None, _border, _reflection)


def sampled(x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> Tensor:
    """grid_sample of x (N, C, extents...) at grid (N, places..., axes), whose last axis begins with the innermost one."""
    n, c, *extents = x.shape
    pad, cubic = PADDINGS[padding], TAPS[mode] is _cubic
    axes: list[Taps] = []
    for axis, extent in enumerate(extents):
        place = grid[..., len(extents) - 1 - axis].reshape(n, -1)
        place = (place + 1) * ((extent - 1) / 2) if corners else place * (extent / 2) + (extent - 1) / 2
        if pad is not None and not cubic:
            place = pad(place, extent, corners)
        taps = TAPS[mode](place)
        if pad is not None and cubic:
            taps = [(pad(tap, extent, corners), weight) for tap, weight in taps]
        axes.append([_kept(tap, weight, extent) for tap, weight in taps])
    flat = x.flatten(2)
    total: Tensor | None = None
    for corner in itertools.product(*axes):
        index, weight = torch.zeros_like(corner[0][0]), None
        for (place, factor), extent in zip(corner, extents):
            index = index * extent + place
            if factor is not None:
                weight = factor if weight is None else weight * factor
        part = flat.gather(2, index.unsqueeze(1).expand(-1, c, -1))
        part = part if weight is None else part * weight.unsqueeze(1)
        total = part if total is None else total + part
    assert total is not None
    return total.reshape(n, c, *grid.shape[1:-1])


def _kept(place: Tensor, weight: Tensor | None, extent: int) -> tuple[Tensor, Tensor]:
    """An index that exists, and its weight: 0 for what is outside."""
    kept = place.clamp(0, extent - 1)
    exists = (kept == place).to(place.dtype)
    return kept.to(torch.int64), exists if weight is None else weight * exists


@decomposes(aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default)
def _grid_sampler_backward(
    grad: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool, mask: Any
) -> tuple[Tensor | None, ...]:
    if TAPS[mode] is _nearest or math.prod(grad.shape) == 0:
        of_x = gradients(lambda a: sampled(a, grid, mode, padding, corners), [x], grad)
        found: tuple[Tensor, ...] = (*of_x, torch.zeros_like(grid))
    else:
        found = gradients(lambda a, b: sampled(a, b, mode, padding, corners), [x, grid], grad)
    return tuple(gradient if wanted else None for gradient, wanted in zip(found, mask))
