"""Bags of embeddings."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from mlsdk.errors import DataDependentControlFlow
from mlsdk.pipeline.trace.decompositions.table import aten, decomposes, gradients

SUM, MEAN, MAX = range(3)


class Bags:
    """What is in each bag: `places` int64[bags, most] into the indices, `rows` of the table at them, and which are `there`.

    Offsets that are known give bags as long as the longest; with others, any index may be in any bag.
    """

    def __init__(self, indices: Tensor, offsets: Tensor, ends_given: bool, padding: int):
        flat, count = indices.flatten(), indices.numel()
        starts = offsets[:-1] if ends_given else offsets
        ends = offsets[1:] if ends_given else torch.cat([offsets[1:], offsets.new_full((1,), count)])
        try:
            sizes = (ends - starts).numpy()
        except DataDependentControlFlow:
            self.places = torch.arange(count).expand(starts.numel(), count)
            self.there = (self.places >= starts[:, None]) & (self.places < ends[:, None])
        else:
            taps = torch.arange(sizes.max(initial=0))
            self.places = (starts[:, None] + taps).clamp(max=max(count - 1, 0))
            self.there = taps < (ends - starts)[:, None]
        self.rows = flat[self.places]
        if padding >= 0:
            self.there = self.there & (self.rows != padding)
        self.sizes = self.there.sum(1)

    def summed(self, weight: Tensor, weights: Tensor | None, mode: int) -> Tensor:
        """The sum or mean of each bag: [bags, features]."""
        share = self.there.to(weight.dtype)
        if weights is not None:
            share = share * weights[self.places]
        if mode == MEAN:
            share = share / self.sizes.clamp(min=1)[:, None].to(weight.dtype)
        return (torch.nn.functional.embedding(self.rows, weight) * share[..., None]).sum(1)


@decomposes(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    by_frequency: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    weights: Tensor | None = None,
    ends_given: bool = False,
    padding: int = -1,
) -> Any:
    """The result, the bag of each index, the size of each bag, and for MAX the row that gave each feature."""
    bags = Bags(indices, offsets, ends_given, padding)
    starts = offsets[:-1] if ends_given else offsets
    of_index = (starts <= torch.arange(indices.numel())[:, None]).sum(1) - 1
    sizes = bags.sizes.to(indices.dtype)
    if mode != MAX:
        return bags.summed(weight, weights, mode), of_index.to(indices.dtype), sizes, sizes.clone()
    found = torch.where(bags.there[..., None], weight[bags.rows], -math.inf)
    value, tap = found.max(1)
    rows = bags.rows.gather(1, tap)
    empty = bags.sizes[:, None] == 0
    return value.masked_fill(empty, 0), of_index.to(indices.dtype), sizes, rows.to(indices.dtype)


@decomposes(aten._embedding_bag_backward.default)
def _embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    of_index: Tensor,
    sizes: Tensor,
    winners: Tensor,
    count: int,
    by_frequency: bool,
    mode: int,
    sparse: bool,
    weights: Tensor | None,
    padding: int = -1,
) -> Any:
    if by_frequency or sparse:
        return NotImplemented
    table = grad.new_zeros(count, grad.shape[1])
    if mode == MAX:
        return table.scatter_add(0, winners.long(), grad.masked_fill(sizes[:, None] == 0, 0))
    ends_given = offsets.numel() == grad.shape[0] + 1
    bags = Bags(indices, offsets, ends_given, padding)
    return gradients(lambda weight: bags.summed(weight, weights, mode), [table], grad)[0]


@decomposes(aten._embedding_bag_per_sample_weights_backward.default)
def _embedding_bag_weights_backward(
    grad: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, of_index: Tensor, mode: int, padding: int = -1
) -> Tensor:
    flat = indices.flatten()
    each = (grad[of_index] * weight[flat]).sum(1)
    return each if padding < 0 else each.masked_fill(flat == padding, 0)


@decomposes(aten.embedding_renorm.default)
def _embedding_renorm(weight: Tensor, indices: Tensor, most: float, order: float) -> Tensor:
    """Rows that are looked up, no longer than `most`."""
    norms = torch.linalg.vector_norm(weight, order, 1, keepdim=True)
    wanted = torch.zeros(len(weight), 1, dtype=torch.bool).index_fill(0, indices.flatten(), True)
    return torch.where(wanted & (norms > most), weight * (most / (norms + 1e-7)), weight)
