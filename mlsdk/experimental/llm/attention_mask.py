"""Attention masks for functions of static shape."""

from __future__ import annotations

import torch

__all__ = ["prepare_4d_causal_attention_mask_with_cache_position"]


def prepare_4d_causal_attention_mask_with_cache_position(
    attention_mask_2d: torch.Tensor, position_ids: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """The additive mask of causal attention: [batch, 1, queries, keys], 0 where a query may look, else the least number.

    `attention_mask_2d`: [batch, keys], 1 where a key exists, 0 where it is padding. `position_ids`: [batch, queries]. With
    as many queries as keys, query i looks at the keys up to i that exist. With fewer queries, a query looks at as many of
    the existing keys as its position says (position 0 at the first one only). Raises ValueError for other shapes, and a
    `dtype` that is not floating.
    """
    if attention_mask_2d.dim() != 2:
        raise ValueError(f"attention_mask_2d has shape {list(attention_mask_2d.shape)}; give [batch, keys]")
    batch, keys = attention_mask_2d.shape
    if position_ids.dim() != 2 or position_ids.shape[0] not in (1, batch):
        raise ValueError(f"position_ids has shape {list(position_ids.shape)}; give [{batch}, queries]")
    if not dtype.is_floating_point:
        raise ValueError(f"dtype is {dtype}; give a floating-point type")
    exists = attention_mask_2d != 0
    queries = position_ids.shape[1]
    if queries == keys:
        causal = torch.ones(queries, keys, dtype=torch.bool).tril()[None]
    else:
        places = exists.long().cumsum(1) - 1  # of each key among those that exist
        causal = places[:, None, :] <= position_ids[:, :, None].to(places.dtype)
    visible = causal & exists[:, None, :]
    least = torch.finfo(dtype).min
    mask = torch.zeros(visible.shape, dtype=dtype).masked_fill(~visible, least)
    return mask[:, None, :, :]
