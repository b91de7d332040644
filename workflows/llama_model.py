"""A small decoder in the manner of Llama: RMSNorm, rotary positions, grouped attention over a KV cache, SwiGLU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


def rotate(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding of x (batch, heads, T, d) at `positions` (T,)."""
    half = x.shape[-1] // 2
    angles = positions[:, None].float() / 10000.0 ** (torch.arange(half) / half)
    cos, sin, low, high = angles.cos(), angles.sin(), x[..., :half], x[..., half:]
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


class Layer(nn.Module):
    """Attention and feed-forward with their norms; `keys` and `values` (1, groups, length, d) are the cache."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, width: int, heads: int, groups: int, length: int):
        super().__init__()
        self.heads, self.groups, self.each = heads, groups, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, groups * self.each, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, bias=False)
        self.register_buffer("keys", torch.zeros(1, groups, length, self.each))
        self.register_buffer("values", torch.zeros(1, groups, length, self.each))

    def forward(self, x: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        q = rotate(self._split(self.q(y), self.heads), positions)
        self.keys.index_copy_(2, positions, rotate(self._split(self.k(y), self.groups), positions))
        self.values.index_copy_(2, positions, self._split(self.v(y), self.groups))
        times = self.heads // self.groups
        keys, values = self.keys.repeat_interleave(times, 1), self.values.repeat_interleave(times, 1)
        attended = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        x = x + self.o(attended.transpose(1, 2).reshape(x.shape))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))

    def _split(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        return x.view(x.shape[0], x.shape[1], heads, self.each).transpose(1, 2)


class Llama(nn.Module):
    """Token numbers (1, T) at positions (T,) to logits (1, T, vocabulary); the cache keeps `length` positions."""

    def __init__(self, vocabulary: int, width: int, heads: int, groups: int, layers: int, length: int):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(vocabulary, width), nn.RMSNorm(width)
        self.layers = nn.ModuleList(Layer(width, heads, groups, length) for _ in range(layers))
        self.length = length

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        mask = torch.arange(self.length)[None, :] <= positions[:, None]
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, positions, mask)
        return self.norm(x) @ self.embedding.weight.T
