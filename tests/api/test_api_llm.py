"""Helpers for language models, and the linter."""

from __future__ import annotations

import pytest
import torch

from fx2onnx.linter import LintLevel, LintResult, lint
from mlsdk.experimental.llm.attention_mask import prepare_4d_causal_attention_mask_with_cache_position
from mlsdk.experimental.llm.kv_cache import kv_cache_to_legacy, kv_cache_to_plamo, kv_cache_to_tensor
from mlsdk.experimental.llm.modeling_staged_llama import split_llama

LEAST = torch.finfo(torch.float32).min


def mask_of(exists, positions, dtype=torch.float32):
    return prepare_4d_causal_attention_mask_with_cache_position(torch.tensor(exists), torch.tensor(positions), dtype)


def test_the_mask_of_a_prompt_is_causal():
    mask = mask_of([[1, 1, 1]], [[0, 1, 2]])
    assert mask.shape == (1, 1, 3, 3)
    assert mask[0, 0].tolist() == [[0, LEAST, LEAST], [0, 0, LEAST], [0, 0, 0]]


@pytest.mark.parametrize("positions", [[[0, 0, 1, 2]], [[1, 2, 3, 4]], [[1.0, 2.0, 3.0, 4.0]]])
def test_padding_on_the_left_is_hidden(positions):
    mask = mask_of([[0, 1, 1, 1]], positions)
    assert (mask[0, 0, -1] == 0).tolist() == [False, True, True, True]
    assert (mask[0, 0, 1] == 0).tolist() == [False, True, False, False]


def of_transformers(exists, queries, start):
    """The rule of transformers 4.44: a triangle from the cache's position on, and no visible key that is padding."""
    keys = exists.shape[1]
    hidden = torch.full((queries, keys), LEAST)
    if queries != 1:
        hidden = hidden.triu(1)
    hidden = hidden * (torch.arange(keys) > torch.arange(start, start + queries)[:, None])
    mask = hidden[None, None].expand(exists.shape[0], 1, -1, -1).clone()
    return mask.masked_fill(mask + exists[:, None, None, :] == 0, LEAST)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_mask_of_transformers(seed):
    """Prompts with any padding on the left, and the next token behind them."""
    generator = torch.Generator().manual_seed(seed)
    keys = int(torch.randint(1, 9, (), generator=generator))
    padding = torch.randint(0, keys, (3, 1), generator=generator)
    exists = (torch.arange(keys) >= padding).long()
    positions = (exists.cumsum(1) - 1).clamp(min=0)
    mask = prepare_4d_causal_attention_mask_with_cache_position(exists, positions, torch.float32)
    assert torch.equal(mask, of_transformers(exists, keys, 0))
    longer, next_position = torch.cat([exists, torch.ones(3, 1, dtype=torch.long)], 1), positions[:, -1:] + 1
    mask = prepare_4d_causal_attention_mask_with_cache_position(longer, next_position, torch.float32)
    assert torch.equal(mask, of_transformers(longer, 1, keys))


def test_the_next_step_rolls_the_last_row():
    mask = mask_of([[0, 0, 1, 1]], [[0, 0, 0, 1]])
    row = mask[:, :, -1:].roll(-1, dims=-1)
    row[..., -1] = 0
    assert torch.equal(row, mask_of([[0, 1, 1, 1]], [[2]]))


def test_the_mask_has_the_models_dtype():
    assert mask_of([[1, 1]], [[0, 1]], torch.float16).dtype == torch.float16
    with pytest.raises(ValueError, match="dtype is torch.int64; give a floating-point type"):
        mask_of([[1, 1]], [[0, 1]], torch.int64)
    with pytest.raises(ValueError, match=r"attention_mask_2d has shape \[2\]; give \[batch, keys\]"):
        mask_of([1, 1], [[0, 1]])
    with pytest.raises(ValueError, match="position_ids has shape"):
        mask_of([[1, 1]], [0, 1])


def test_the_cache_has_three_forms():
    tensor = torch.randn(3, 2, 1, 4, 5, 8)
    for form in (kv_cache_to_legacy(tensor), kv_cache_to_plamo(tensor)):
        assert len(form) == 3 and form[1][0].shape == (1, 4, 5, 8)
        assert torch.equal(kv_cache_to_tensor(form), tensor)

    class Cache:
        def to_legacy_cache(self):
            return kv_cache_to_legacy(tensor)

    class Layered:
        layers = [type("Layer", (), {"keys": keys, "values": values}) for keys, values in kv_cache_to_legacy(tensor)]

    for cache in (Cache(), Layered(), tensor, list(kv_cache_to_legacy(tensor))):
        assert torch.equal(kv_cache_to_tensor(cache), tensor)
    with pytest.raises(ValueError, match=r"this one has \[3, 2\]"):
        kv_cache_to_legacy(torch.zeros(3, 2))
    with pytest.raises(ValueError, match="the cache has no layers"):
        kv_cache_to_tensor(())


class Layer(torch.nn.Module):
    """What split_llama needs of a decoder layer."""

    def __init__(self, index):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.self_attn = torch.nn.Module()
        self.self_attn.layer_idx = index

    def forward(
        self,
        hidden,
        attention_mask=None,
        position_ids=None,
        past_key_value=None,
        use_cache=False,
        position_embeddings=None,
    ):
        new = self.linear(hidden)[:, None]
        keys, values = past_key_value.update(new, new + 1, self.self_attn.layer_idx)
        cos, sin = position_embeddings
        return hidden * cos + sin + keys.sum(2) * values.mean(2), past_key_value


class Llama(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.model = torch.nn.Module()
        self.model.embed_tokens = torch.nn.Embedding(10, 4)
        self.model.rotary_emb = lambda hidden, positions: (positions[..., None].cos(), positions[..., None].sin())
        self.model.layers = torch.nn.ModuleList(Layer(index) for index in range(layers))
        self.model.norm = torch.nn.LayerNorm(4)
        self.lm_head = torch.nn.Linear(4, 10)


def run_stages(stages, ids, positions, caches):
    state = stages[0](input_ids=ids, position_ids=positions)
    assert sorted(state) == ["hidden_states_out", "position_embeddings_cos_out", "position_embeddings_sin_out"]
    filled = []
    for stage, cache in zip(stages[1:-1], caches):
        state = stage(
            **{name.removesuffix("_out"): state[name] for name in sorted(state) if name != "past_key_values_out"},
            attention_mask=None,
            position_ids=positions,
            past_key_values=cache,
        )
        filled.append(state["past_key_values_out"])
    return stages[-1](hidden_states=state["hidden_states_out"])["logits"], filled


def test_a_llama_in_stages_computes_the_same():
    model = Llama(5)
    ids, positions = torch.tensor([[1, 2, 3]]), torch.tensor([[0.0, 1.0, 2.0]])
    whole, _ = run_stages(split_llama(model, 3), ids, positions, [None])
    stages = split_llama(model)
    assert [len(stage.layers) for stage in stages[1:-1]] == [3, 2]
    parts, caches = run_stages(stages, ids, positions, [None, None])
    assert torch.allclose(whole, parts)
    assert caches[0].shape == (3, 2, 1, 1, 3, 4)
    _, longer = run_stages(stages, ids[:, :1], positions[:, :1], caches)
    assert longer[0].shape == (3, 2, 1, 1, 4, 4) and torch.equal(longer[0][..., :3, :], caches[0])
    pairs = [kv_cache_to_legacy(cache) for cache in caches]
    assert torch.equal(run_stages(stages, ids[:, :1], positions[:, :1], pairs)[1][0], longer[0])
    for stages in (2, 9):
        with pytest.raises(ValueError):
            split_llama(model, stages)


# --- linter ---


def test_the_linter_lists_what_cannot_be_exported():
    def function(inputs):
        return {"y": torch.linalg.svd(inputs["x"])[1]}

    (found,) = lint(function, {"x": torch.zeros(3, 3)})
    assert isinstance(found, LintResult) and found.level is LintLevel.ERROR
    assert "svd" in found.message and "test_api_llm.py" in found.source


def test_the_linter_reports_constants_and_contents():
    weight = torch.ones(3)
    found = lint(lambda i: {"y": i["x"] * weight}, {"x": torch.zeros(3)})
    assert [one.level for one in found] == [LintLevel.WARNING, LintLevel.INFO]
    assert "not registered, and now constant" in found[0].message and "1 nodes of 1 operators: Mul" in found[1].message
    registered = lint(
        lambda i: {"y": i["x"] * weight}, {"x": torch.zeros(3)}, state={"w": weight}, level=LintLevel.WARNING
    )
    assert registered == []


def test_the_linter_finds_branches():
    (found,) = lint(lambda i: {"y": i["x"] if i["x"].sum() > 0 else -i["x"]}, {"x": torch.zeros(3)})
    assert found.level is LintLevel.ERROR and found.source.startswith("test_api_llm.py:")
    assert str(found).startswith(f"{found.source}: error: Python needs the value of a tensor (if, while")


def test_the_linter_lists_everything_at_once(monkeypatch):
    from mlsdk.pipeline.layout import rules

    known = rules.rule_of
    monkeypatch.setattr(rules, "rule_of", lambda node, planner: None if node.op == "Cos" else known(node, planner))

    def function(inputs):
        y = torch.linalg.svd(inputs["x"])[1]
        return {"y": y if torch.cos(inputs["x"]).sum() > 0 else -y}

    found = lint(function, {"x": torch.zeros(3, 4)}, level=LintLevel.ERROR)
    assert [str(one).split(": error: ")[-1].removeprefix("error: ")[:22] for one in found] == [
        "Python needs the value",
        "aten::_linalg_svd cann",
        "Cos cannot be compiled",
    ]


def test_older_programs_import_mncore():
    import mncore

    assert "mlsdk" in mncore.__doc__
