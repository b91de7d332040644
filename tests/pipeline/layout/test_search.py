"""The layout planners: what they find, and that no choice that a search may try changes a result."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mlsdk.errors import LayoutError, MLSDKError
from mlsdk.pipeline.layout import PLANNERS, TRIALS, LayoutOptions, plan
from mlsdk.pipeline.layout.planner import Planner
from mlsdk.pipeline.layout.search import _candidates, _state
from mlsdk.pipeline.ops.simulation import Simulation
from mlsdk.pipeline.optimize import optimize
from mlsdk.pipeline.simulate import measure
from mlsdk.pipeline.trace import trace

sys.path.insert(0, str(Path(__file__).parents[1] / "emit"))
from emulated import run, steps_of

#: relative to the whole result, as tests of networks have it
TOLERANCE = {"float": 2e-6, "mixed": 1e-2}

pytestmark = pytest.mark.filterwarnings("ignore::mlsdk.errors.UnregisteredTensorWarning")


class Block(nn.Module):
    """A decoder's block: where products, rows and heads want to lie differently."""

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 5 * width), nn.GELU(), nn.Linear(5 * width, width))

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, d))
        return x + self.mlp(x)


class UNet(nn.Module):
    """Planes, their halves and doubles, and what lies beside each other."""

    def __init__(self, c=5):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, c, 3, padding=1), nn.Conv2d(c, 2 * c, 3, padding=1, stride=2)
        self.norm, self.up = nn.GroupNorm(2, 2 * c), nn.ConvTranspose2d(2 * c, c, 2, 2)
        self.out = nn.Conv2d(2 * c, 2, 1)

    def forward(self, x):
        a = F.silu(self.a(x))
        return self.out(torch.cat([self.up(F.silu(self.norm(self.b(a)))), a], 1)).flatten(2).softmax(-1)


class Mixer(nn.Module):
    """Products along either axis."""

    def __init__(self, tokens=10, width=40):
        super().__init__()
        self.tokens, self.width, self.norm = nn.Linear(tokens, tokens), nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, x):
        x = x + self.tokens(self.norm(x).mT).mT
        return (x + torch.tanh(self.width(x))).sum(1)


NETWORKS = {"block": (Block, (2, 7, 24)), "unet": (UNet, (1, 3, 10, 14)), "mixer": (Mixer, (3, 10, 40))}


def network(name):
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    model, x = make().eval(), torch.randn(shape)
    graph = optimize(trace(lambda batch: {"y": model(batch["x"])}, {"x": x}).graph)
    with torch.no_grad():
        return graph, {graph.inputs[0]: x.numpy()}, model.double()(x.double()).numpy()


def check(graph, inputs, want, dtype, **options):
    (got,) = run(graph, inputs, dtype, **options)[0].values()
    assert np.linalg.norm(got - want) <= TOLERANCE[dtype] * np.linalg.norm(want)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("planner", PLANNERS)
def test_results_are_right_with_each_planner(name, planner):
    check(*network(name), "mixed", planner=planner, measure=measure, trials=12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", ["float", "mixed"])
@pytest.mark.parametrize("name", NETWORKS)
def test_no_choice_changes_a_result(name, dtype, seed):
    """Choices at random, the bad ones too, each on top of those before."""
    graph, inputs, want = network(name)
    rng = random.Random(f"{name} {dtype} {seed}")
    state = _state(graph, LayoutOptions(dtype), costs := Simulation(lambda statements: (len(statements), 0)))
    for _ in range(8):
        candidates = sorted(_candidates(state, graph), key=lambda c: (c.kind, c.nodes))
        if not candidates:
            break
        some = rng.choice(candidates)
        now = state.options
        chosen = replace(now, wishes={**now.wishes, **some.wishes}, ways={**now.ways, **some.ways})
        try:
            state = _state(graph, chosen, costs)
        except MLSDKError:
            continue  # not every candidate can be had; a search drops it, too
    assert state.options.wishes or state.options.ways
    check(graph, inputs, want, dtype, wishes=state.options.wishes, ways=state.options.ways)


class Known:
    """What a store does for a search: JSON data under JSON data."""

    def __init__(self):
        self.answers, self.asked = {}, 0

    def recall_many(self, keys):
        self.asked += len(keys)
        return [json.loads(self.answers.get(json.dumps(key, sort_keys=True), "null")) for key in keys]

    def remember(self, key, value):
        self.answers[json.dumps(key, sort_keys=True)] = json.dumps(value)


def test_what_a_search_has_counted_the_next_one_knows(monkeypatch):
    graph, *_ = network("block")
    counted = []

    def counts(statements):
        counted.append(measure(statements))
        return counted[-1]

    def searched(known):
        monkeypatch.setattr(Simulation, "_answers", {})  # as in another process
        counted.clear()
        return plan(graph, LayoutOptions("mixed", measure=counts, trials=12, known=known))[0].to_json()

    known = Known()
    first = searched(known)
    assert len(known.answers) == len(counted) == known.asked > 10
    assert sorted(json.loads(v)["steps"] for v in known.answers.values()) == sorted(steps for steps, _ in counted)
    assert {"fragment", "op", "inputs", "outputs"} <= json.loads(next(iter(known.answers))).keys()
    assert searched(known) == first
    assert not counted
    assert searched(None) == first
    assert counted


def test_costs_of_another_measure_are_others():
    graph, *_ = network("block")
    one = _state(graph, LayoutOptions("mixed"), Simulation(lambda statements: (1, 0)))
    two = _state(graph, LayoutOptions("mixed"), Simulation(lambda statements: (2, 0)))
    assert two.total == 2 * one.total > 0


@pytest.mark.parametrize("name", NETWORKS)
def test_a_search_saves_steps_and_is_the_same_each_time(name):
    graph, *_ = network(name)
    options = LayoutOptions("mixed", measure=measure, trials=12)
    (placed, history), (again, _) = plan(graph, options), plan(graph, options)
    assert placed.to_json() == again.to_json()
    assert any("tried" in event.reason for event in history)
    rules = steps_of(graph, "mixed", planner="legacy")
    found = steps_of(graph, "mixed", measure=measure, trials=12)
    assert found <= rules and (found < rules or name == "block")  # whose rules know it all


def test_more_trials_are_never_worse():
    graph, *_ = network("unet")
    steps = [steps_of(graph, "mixed", measure=measure, trials=n) for n in (0, 4, 12, 40)]
    assert steps == sorted(steps, reverse=True) and steps[0] > steps[-1]


def test_a_judge_may_keep_what_fewer_trials_found(monkeypatch):
    """It is asked about what less effort would have given, and all trials win where it does not matter."""
    monkeypatch.setitem(TRIALS, "fast", 2)
    graph, *_ = network("unet")
    placed = {n: plan(graph, LayoutOptions("mixed", measure=measure, trials=n))[0].to_json() for n in (2, 12)}
    assert placed[2] != placed[12]
    for best in placed.values():
        options = LayoutOptions("mixed", measure=measure, trials=12, judge=lambda p, best=best: p.to_json() != best)
        found, history = plan(graph, options)
        assert found.to_json() == best
        assert any(event.value == "trials" and "False steps after" in event.reason for event in history)
    assert plan(graph, replace(options, judge=lambda p: 1))[0].to_json() == placed[12]


def test_bidi_moves_no_more_elements_than_the_rules():
    graph, *_ = network("block")
    moved = {
        name: sum(
            np.prod(p.values[n.node.outputs[0]].shape) for n in p.nodes if n.emitter == "move"
        )
        for name in ("legacy", "bidi")
        for p in [plan(graph, LayoutOptions("mixed", planner=name))[0]]
    }  # fmt: skip
    assert moved["bidi"] <= moved["legacy"]


def test_a_wish_of_another_value_is_ignored():
    """Names of temporary values may mean others in another plan."""
    graph, *_ = network("mixer")
    scheme = next(v.scheme for v in Planner(graph, LayoutOptions()).run()[0].values.values() if v.scheme)
    wishes = dict.fromkeys([n for n in graph.values if len(graph.values[n].shape) != len(scheme.axes)], scheme)
    assert wishes
    assert plan(graph, LayoutOptions(wishes=wishes))[0].to_json() == plan(graph, LayoutOptions())[0].to_json()


def test_a_planner_that_there_is_not():
    with pytest.raises(LayoutError, match="no layout planner lpy; choose one of legacy, bidi, lpz"):
        plan(network("mixer")[0], LayoutOptions(planner="lpy"))
