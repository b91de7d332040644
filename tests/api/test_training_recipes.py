"""Training programs of many kinds on the board against eager torch in double: results, weights, statistics, optimizer state."""

from __future__ import annotations

import pytest
import torch
from training_nets import agree
from training_recipes import LONG, RECIPES, Kit

#: relative to the largest element
TOLERANCE = {"float": 2e-5, "double": 2e-5, "mixed": 2e-2}


def both(recipe):
    """The recipe for the board and for eager torch, from the same numbers."""
    made = []
    for ours in (True, False):
        torch.manual_seed(0)
        kit = Kit(ours)
        made.append((kit, *recipe(kit)))
    return made


def double(batch):
    return {key: value.double() if value.is_floating_point() else value for key, value in batch.items()}


STATE = ("momentum_buffer", "exp_avg", "exp_avg_sq", "step")


def left_by(kit):
    """By kind, what the calls leave, each kind as one vector: what rounding makes of a gradient that cancels is small in it."""
    stepped = [(o, p) for o in kit.optimizers for group in o.param_groups for p in group["params"]]
    found = {
        "parameters": [parameter for module in kit.modules for parameter in module.parameters()],
        "buffers": [buffer for module in kit.modules for buffer in module.buffers()],
        **{key: [o.state[p][key] for o, p in stepped if key in o.state[p]] for key in STATE},
    }
    return {kind: torch.cat([torch.zeros(1), *(t.detach().flatten() for t in ts)]) for kind, ts in found.items()}


def trained(context, directory, recipe, float_dtype):
    """Every call of the recipe; its results and what it leaves agree."""
    (kit, functions, calls), (other, eager, _) = both(recipe)
    for number, module in enumerate(kit.modules):
        context.registry.register(f"model{number}", module)
    for number, optimizer in enumerate(kit.optimizers):
        context.registry.register(f"optimizer{number}", optimizer)
    options = {"float_dtype": float_dtype}
    samples = {name: batch for name, batch in reversed(calls)}
    compiled = {
        name: context.compile(function, samples[name], directory / name, options=options, quiet=True)
        for name, function in functions.items()
    }
    tolerance = TOLERANCE[float_dtype]
    for name, batch in calls:
        results = {key: proxy.cpu() for key, proxy in compiled[name](batch).items()}
        other.given = results
        for key, value in eager[name](double(batch)).items():
            agree(results[key], value.detach(), tolerance)
    context.synchronize()
    mine, theirs = left_by(kit), left_by(other)
    for kind, vector in theirs.items():
        agree(mine[kind], vector, tolerance)


@pytest.mark.filterwarnings("ignore:.*the GradScaler is left out")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in ("running", "gan", "gradient_penalty")))
        for name in RECIPES
    ],
)
def test_on_the_board(context, tmp_path, name):
    trained(context, tmp_path, RECIPES[name], "float")


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_longer_ones_on_the_board(context, tmp_path, name):
    trained(context, tmp_path, LONG[name], "float")


@pytest.mark.parametrize("name", ["odd_maxima", "siamese"])
def test_longer_ones_on_the_reference(host, tmp_path, name):
    trained(host, tmp_path, LONG[name], "float")


@pytest.mark.slow
@pytest.mark.parametrize("float_dtype", ["mixed", "double"])
@pytest.mark.parametrize("name", [name for name in [*RECIPES, *LONG] if name not in ("odd_maxima", "siamese")])
def test_in_other_precisions(context, tmp_path, name, float_dtype):
    """Not those where other halves win the maxima."""
    trained(context, tmp_path, {**RECIPES, **LONG}[name], float_dtype)
