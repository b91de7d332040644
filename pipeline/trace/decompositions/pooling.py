"""Pooling whose windows lie where numbers that are drawn say."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mlsdk.pipeline.trace.decompositions.table import aten, decomposes


def _starts(samples: Tensor, extent: int, windows: int, width: int) -> Tensor:
    """Where the windows of an axis begin, for a sample of each image and channel."""
    last = torch.full((*samples.shape, 1), extent - width)
    if windows == 1:
        return last
    step = (extent - width) / (windows - 1)
    places = torch.arange(windows - 1, dtype=samples.dtype)
    found = ((places + samples[..., None]) * step).long() - (samples[..., None] * step).long()
    return torch.cat([found, last], -1)


@decomposes(aten.fractional_max_pool2d.default, aten.fractional_max_pool3d.default)
def _fractional_max_pool(
    x: Tensor, width: Sequence[int], size: Sequence[int], samples: Tensor
) -> tuple[Tensor, Tensor]:
    """The maxima, and their flat places. Of two axes the last has the first sample, of three the first has it."""
    axes = len(size)
    spatial, outer = x.shape[-axes:], x.shape[:-axes]
    samples = samples.reshape(*outer, axes).to(x.dtype)
    flat = torch.zeros((), dtype=torch.int64)
    for axis in range(axes):
        mine = samples[..., axes - 1 - axis if axes == 2 else axis]
        at = _starts(mine, spatial[axis], size[axis], width[axis])[..., None] + torch.arange(width[axis])
        shape = [1] * (2 * axes)
        shape[axis], shape[axes + axis] = size[axis], width[axis]
        flat = flat * spatial[axis] + at.reshape(*outer, *shape)
    flat = flat.flatten(-axes)
    found = x.flatten(-axes).gather(-1, flat.flatten(len(outer))).reshape(flat.shape)
    value, tap = found.max(-1)
    return value, flat.gather(-1, tap[..., None])[..., 0]


@decomposes(aten.fractional_max_pool2d_backward.default, aten.fractional_max_pool3d_backward.default)
def _fractional_max_pool_backward(
    grad: Tensor, x: Tensor, width: Sequence[int], size: Sequence[int], places: Tensor
) -> Tensor:
    axes = len(size)
    empty = torch.zeros_like(x).flatten(-axes)
    return empty.scatter_add(-1, places.flatten(-axes), grad.flatten(-axes)).reshape(x.shape)
