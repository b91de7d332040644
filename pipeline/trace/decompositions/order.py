"""What runs along an axis, by doubling, and what stands in the middle."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from mlsdk.pipeline.trace.decompositions.table import Decomposition, aten, decomposes

# --- running along an axis, by doubling: after a step of s each element knows the 2s elements that end in it ---


def _running_extremum(at_least: Callable[[Tensor, Tensor], Tensor]) -> Decomposition:
    """Values and indices; of equal elements the last, and NaN from the first NaN on."""

    def running(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        if not x.ndim:
            return x.clone(), torch.zeros_like(x, dtype=torch.int64)
        extent = x.shape[dim]
        places = torch.arange(extent).reshape(extent, *(1,) * (x.ndim - 1 - dim % x.ndim)).expand(x.shape)

        def earlier(item: Tensor, step: int) -> Tensor:
            return torch.cat([item.narrow(dim, 0, step), item.narrow(dim, 0, extent - step)], dim)

        for step in (2**n for n in range(max(extent - 1, 0).bit_length())):
            other = earlier(x, step)
            stays = at_least(x, other)
            if x.is_floating_point():
                stays = stays | x.isnan()
            places = torch.where(stays, places, earlier(places, step))
            x = torch.where(stays, x, other)
        return x.clone(), places.clone()

    return running


decomposes(aten.cummax.default)(_running_extremum(torch.ge))
decomposes(aten.cummin.default)(_running_extremum(torch.le))


@decomposes(aten.logcumsumexp.default)
def _logcumsumexp(x: Tensor, dim: int) -> Tensor:
    if not x.ndim:
        return x.clone()
    extent = x.shape[dim]
    for step in (2**n for n in range(max(extent - 1, 0).bit_length())):
        nothing = torch.full_like(x.narrow(dim, 0, step), -math.inf)
        x = torch.logaddexp(x, torch.cat([nothing, x.narrow(dim, 0, extent - step)], dim))
    return x.clone()


# --- repeating ---


@decomposes(aten.repeat_interleave.Tensor)
def _repeat_interleave(counts: Tensor, *, output_size: int) -> Tensor:
    """The number of each item as many times as its count says; of what is beyond their sum, the last one."""
    ends = counts.cumsum(0)
    return torch.searchsorted(ends, torch.arange(output_size), right=True).clamp(max=len(counts) - 1)


# --- medians: of an even number of elements the lower one ---


@decomposes(aten.median.dim)
def _median(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """NaN, and the place of the first one, where there is one."""
    if not x.ndim:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, places = x.kthvalue((x.shape[dim] + 1) // 2, dim, keepdim)
    if not x.is_floating_point():
        return values, places
    missing = x.isnan()
    lost = missing.any(dim, keepdim)
    first = missing.to(torch.uint8).argmax(dim, keepdim)
    return values.masked_fill(lost, math.nan), torch.where(lost, first, places)


@decomposes(aten.nanmedian.dim)
def _nanmedian(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Among what is not NaN."""
    if not x.ndim or not x.is_floating_point():
        return _median(x, dim, keepdim)
    missing = x.isnan()
    ordered, places = x.masked_fill(missing, math.inf).sort(stable=True, dim=dim)
    last = missing.logical_not().sum(dim, keepdim=True) - 1
    middle = torch.clamp(last, min=0) // 2
    value = torch.where(last < 0, math.nan, ordered.gather(dim, middle))
    place = places.gather(dim, middle)
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


@decomposes(aten.median.default)
def _median_of_all(x: Tensor) -> Tensor:
    return _median(x.flatten(), 0)[0]


@decomposes(aten.nanmedian.default)
def _nanmedian_of_all(x: Tensor) -> Tensor:
    return _nanmedian(x.flatten(), 0)[0]


@decomposes(aten.mode.default)
def _mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The least of the elements that occur most often, and the last place where it stands."""
    if not x.ndim:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    rows = x.movedim(dim, -1)
    ordered = rows.sort(stable=True).values
    counts = (ordered[..., :, None] == ordered[..., None, :]).sum(-1)
    value = ordered.gather(-1, counts.argmax(-1, keepdim=True))
    last = torch.where(rows == value, torch.arange(rows.shape[-1]), -1).amax(-1, keepdim=True)
    value, last = value.movedim(-1, dim), last.movedim(-1, dim)
    return (value, last) if keepdim else (value.squeeze(dim), last.squeeze(dim))
