"""Presets, planners and schedulers change how fast a program is, and not what it computes. Programs are those of bench/models.py,
smaller."""

from __future__ import annotations

import copy
import itertools
import json

import pytest
import torch
from torch import nn

from bench.models import Recurrent, Transformer, UNet, ViT, convolutions, mlp
from mlsdk import MNCoreSGD, set_buffer_name_in_optimizer, set_tensor_name_in_module
from mlsdk.tasks.options import OPTIONS
from mlsdk.tasks.presets import BUILT_IN

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

NETS = {
    "mlp": (lambda: mlp(96, 40, 10), lambda: torch.randn(16, 96)),
    "cnn": (convolutions, lambda: torch.randn(2, 3, 16, 16)),
    "lstm": (lambda: Recurrent(24), lambda: torch.randn(2, 6, 32)),
    "transformer": (lambda: Transformer(32, 1, 60, 12), lambda: torch.randint(0, 60, (1, 12))),
    "vit": (lambda: ViT(24, 1), lambda: torch.randn(1, 3, 32, 32)),
    "unet": (lambda: UNet(8), lambda: torch.randn(1, 3, 16, 16)),
}
#: as a part of the largest value
TOLERANCE = {"float": 5e-5, "mixed": 2e-2}
PLANNERS, SCHEDULERS = (OPTIONS[name].check.choices for name in ("layout_planner", "scheduler"))
EFFORT = {"sa_expected_run_iters": 60}

LONG = [name for name in NETS if name not in ("mlp", "cnn")]


def each(names):
    return [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in names]


def agrees(context, folder, net, sample, dtype, settings):
    """Compile with each of some settings; every result is near torch's in double. Steps by setting."""
    steps = {}
    exact = copy.deepcopy(net).double()
    want = exact(sample.double() if sample.is_floating_point() else sample).detach()
    for name, options in settings.items():
        function = lambda inputs: {"y": net(inputs["x"])}  # noqa: E731
        options = {"float_dtype": dtype, **EFFORT, **options}
        compiled = context.compile(function, {"x": sample}, folder / name, options=options, quiet=True)
        found = compiled({"x": sample})["y"].cpu().double()
        worst = float((found - want).abs().max() / want.abs().max())
        assert worst < TOLERANCE[dtype], (name, worst)
        steps[name] = json.loads((folder / name / "report.json").read_text())["steps"]
    return steps


def made(context, name):
    make, draw = NETS[name]
    net = make().eval()
    set_tensor_name_in_module(net, "model")
    for tensor in (*net.parameters(), *net.buffers()):
        context.register_param(tensor) if tensor.requires_grad else context.register_buffer(tensor)
    return net, draw()


@pytest.mark.parametrize("dtype", ["mixed", pytest.param("float", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", each(NETS))
def test_every_preset_gives_the_same_values(context, tmp_path, name, dtype):
    net, sample = made(context, name)
    steps = agrees(context, tmp_path, net, sample, dtype, {preset: {"option_json": preset} for preset in BUILT_IN})
    assert steps["O4"] <= steps["O0"] and steps["debug"] == steps["O0"]


@pytest.mark.slow
@pytest.mark.parametrize("name", list(NETS))
def test_every_planner_with_every_scheduler(context, tmp_path, name):
    net, sample = made(context, name)
    pairs = itertools.product(PLANNERS, SCHEDULERS)
    agrees(context, tmp_path, net, sample, "mixed",
           {f"{p}-{s}": {"layout_planner": p, "scheduler": s} for p, s in pairs})  # fmt: skip


def test_a_training_step_is_the_same(context, tmp_path):
    """Three steps of an MLP with momentum, beside torch."""
    net, sample = made(context, "mlp")
    twin = mlp(96, 40, 10)
    twin.load_state_dict(net.state_dict())
    optimizer, reference = (
        MNCoreSGD(net.parameters(), lr=0.1, momentum=0.9),
        torch.optim.SGD(twin.parameters(), 0.1, 0.9),
    )

    def step(module, its):
        def run(inputs):
            its.zero_grad()
            loss = nn.functional.cross_entropy(module(inputs["x"]), inputs["t"])
            loss.backward()
            its.step()
            return {"loss": loss.detach()}

        return run

    set_buffer_name_in_optimizer(optimizer, "optimizer")
    context.register_optimizer_buffers(optimizer)
    batch = {"x": sample, "t": torch.randint(0, 10, (16,))}
    options = {"float_dtype": "mixed", "option_json": "O3", **EFFORT}
    compiled = context.compile(step(net, optimizer), batch, tmp_path / "step", options=options, quiet=True)
    eager = step(twin, reference)
    for _ in range(3):
        torch.testing.assert_close(compiled(batch)["loss"].cpu(), eager(batch)["loss"], rtol=5e-3, atol=5e-3)
