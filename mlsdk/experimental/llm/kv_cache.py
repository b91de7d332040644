"""The key/value cache of a language model as one tensor, and as the tuples that models take.

The tensor is [layers, 2, batch, key/value heads, positions, head size]; keys are at 0 of the second axis, values at 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["kv_cache_to_legacy", "kv_cache_to_plamo", "kv_cache_to_tensor"]

Pair = tuple[torch.Tensor, torch.Tensor]


def kv_cache_to_legacy(tensor: torch.Tensor) -> tuple[Pair, ...]:
    """The tensor -> one (keys, values) for each layer, each [batch, heads, positions, head size]: views of it.
    ValueError when it has not six axes, or not two along the second one."""
    if tensor.dim() != 6 or tensor.shape[1] != 2:
        raise ValueError(
            f"a cache has shape [layers, 2, batch, heads, positions, head size], this one has {list(tensor.shape)}"
        )
    return tuple((tensor[layer, 0], tensor[layer, 1]) for layer in range(tensor.shape[0]))


def kv_cache_to_plamo(tensor: torch.Tensor) -> tuple[Pair, ...]:
    """The same for PLaMo, whose layers take pairs too."""
    return kv_cache_to_legacy(tensor)


def kv_cache_to_tensor(past_key_values: Any) -> torch.Tensor:
    """Pairs of keys and values by layer, or a cache object of transformers -> the tensor. ValueError for an empty one."""
    pairs = _pairs(past_key_values)
    if not pairs:
        raise ValueError("the cache has no layers")
    return torch.stack([torch.stack([keys, values]) for keys, values in pairs])


def _pairs(cache: Any) -> Sequence[Pair]:
    if hasattr(cache, "to_legacy_cache"):
        cache = cache.to_legacy_cache()
    elif hasattr(cache, "layers"):  # transformers from 4.56 on
        cache = [(layer.keys, layer.values) for layer in cache.layers]
    return [(layer[0], layer[1]) for layer in cache]
