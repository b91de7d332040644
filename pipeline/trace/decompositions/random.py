"""Draws that are made of uniform ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mlsdk.pipeline.trace.decompositions.table import aten, decomposes


@decomposes(aten.randperm.default, aten.randperm.generator)
def _randperm(n: int, *, dtype: Any = torch.int64, **ignored: Any) -> Tensor:
    return torch.rand(n).argsort(stable=True).to(dtype or torch.int64)


@decomposes(aten.multinomial.default)
def _multinomial(weights: Tensor, count: int, replacement: bool = False, **ignored: Any) -> Tensor:
    """With replacement: where a uniform number falls among the sums. Without: those that come first in a race."""
    if replacement:
        sums = weights.cumsum(-1)
        points = torch.rand(*weights.shape[:-1], count, 1, dtype=weights.dtype) * sums[..., None, -1:]
        return (sums[..., None, :] <= points).sum(-1).clamp(max=weights.shape[-1] - 1)
    return (torch.empty_like(weights).exponential_() / weights).topk(count, -1, largest=False).indices


@decomposes(aten.rrelu_with_noise_functional.default)
def _rrelu(
    x: Tensor, noise: Tensor, lower: Any = 0.125, upper: Any = 1 / 3, training: bool = False, generator: Any = None
) -> tuple[Tensor, Tensor]:
    """The result, and the slopes of a training step."""
    if not training:
        return torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise.clone()
    slopes = torch.where(x <= 0, torch.empty_like(x).uniform_(lower, upper), 1.0)
    return x * slopes, slopes
