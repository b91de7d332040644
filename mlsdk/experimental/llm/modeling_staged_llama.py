"""A Llama cut into stages, each a module of its own, for one board each.

    embedding   input_ids, position_ids -> hidden_states_out, position_embeddings_cos_out, position_embeddings_sin_out
    decoder     hidden_states, position_embeddings_cos, position_embeddings_sin, attention_mask, position_ids,
                past_key_values -> the same three names with _out, past_key_values_out
    head        hidden_states -> logits

Stages are called with keyword arguments and return dicts. The parts are those of the given model, not copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from mlsdk.experimental.llm.kv_cache import kv_cache_to_tensor

__all__ = ["split_llama"]

Tensors = dict[str, torch.Tensor]


class EmbeddingStage(nn.Module):
    """Token embedding and rotary tables."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.embed_tokens = model.embed_tokens
        self.rotary_emb = model.rotary_emb

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor, **ignored: Any) -> Tensors:
        hidden = self.embed_tokens(input_ids)
        cos, sin = self.rotary_emb(hidden, position_ids)
        return {
            "hidden_states_out": hidden,
            "position_embeddings_cos_out": cos,
            "position_embeddings_sin_out": sin,
        }


class DecoderStage(nn.Module):
    """Some of the decoder layers. `past_key_values` is a cache as one tensor (see kv_cache), or None without a past."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_embeddings_cos: torch.Tensor,
        position_embeddings_sin: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: torch.Tensor | None = None,
        **ignored: Any,
    ) -> Tensors:
        caches = [_OneLayer(None if past_key_values is None else past_key_values[n]) for n in range(len(self.layers))]
        hidden = hidden_states
        for number, (layer, cache) in enumerate(zip(self.layers, caches)):
            cache.index = _layer_index(layer, number)
            result = layer(
                hidden,
                attention_mask=attention_mask,
                position_ids=position_ids,
                position_embeddings=(position_embeddings_cos, position_embeddings_sin),
                use_cache=True,
                **{_cache_keyword(layer): cache},
            )
            hidden = result[0] if isinstance(result, tuple) else result
        return {
            "hidden_states_out": hidden,
            "position_embeddings_cos_out": position_embeddings_cos,
            "position_embeddings_sin_out": position_embeddings_sin,
            "past_key_values_out": kv_cache_to_tensor([(cache.keys, cache.values) for cache in caches]),
        }


class HeadStage(nn.Module):
    """Final norm and language model head."""

    def __init__(self, model: Any, head: nn.Module) -> None:
        super().__init__()
        self.norm = model.norm
        self.lm_head = head

    def forward(self, hidden_states: torch.Tensor, **ignored: Any) -> Tensors:
        return {"logits": self.lm_head(self.norm(hidden_states))}


class _OneLayer:
    """What a layer of transformers needs of a cache: it gives its new keys and values, and gets all of them back."""

    index = 0

    def __init__(self, past: torch.Tensor | None) -> None:
        self.past = past
        self.keys: torch.Tensor | None = None
        self.values: torch.Tensor | None = None

    def update(self, keys: torch.Tensor, values: torch.Tensor, *ignored: Any, **also: Any) -> Any:
        if self.past is not None:
            keys = torch.cat([self.past[0], keys], dim=-2)
            values = torch.cat([self.past[1], values], dim=-2)
        self.keys, self.values = keys, values
        return keys, values

    def get_seq_length(self, layer_idx: int | None = None) -> int:
        return 0 if self.past is None else self.past.shape[-2]

    def get_usable_length(self, new_seq_length: int, layer_idx: int | None = None) -> int:
        return self.get_seq_length()

    def get_max_length(self) -> int | None:
        return None

    get_max_cache_shape = get_max_length


def split_llama(model: Any, n_stages: int = 4) -> list[nn.Module]:
    """A LlamaForCausalLM of transformers -> an embedding stage, `n_stages - 2` decoder stages of
    ceil(layers / (n_stages - 2)) layers each, and a head stage. ValueError for fewer than three stages, or more decoder
    stages than layers can fill."""
    inner, head = model.model, model.lm_head
    layers = list(inner.layers)
    if not isinstance(n_stages, int) or n_stages < 3:
        raise ValueError(f"n_stages is {n_stages!r}; give at least 3: embedding, decoder, head")
    each = -(-len(layers) // (n_stages - 2))
    parts = [layers[start : start + each] for start in range(0, len(layers), each)]
    if len(parts) != n_stages - 2:
        raise ValueError(f"{len(layers)} layers make {len(parts)} decoder stages of {each}, not {n_stages - 2}")
    return [EmbeddingStage(inner), *(DecoderStage(part) for part in parts), HeadStage(inner, head)]


def _layer_index(layer: nn.Module, default: int) -> int:
    index: int = getattr(getattr(layer, "self_attn", None), "layer_idx", default)
    return index


def _cache_keyword(layer: nn.Module) -> str:
    """`past_key_value` up to transformers 4.55, `past_key_values` after."""
    import inspect

    parameters = inspect.signature(layer.forward).parameters
    return "past_key_values" if "past_key_values" in parameters else "past_key_value"
