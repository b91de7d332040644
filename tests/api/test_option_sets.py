"""Random sets of options: the values stay right, and the option.json of a compile gives the same program again, bit for bit."""

from __future__ import annotations

import copy
import json
import random

import pytest
import torch
from torch import nn

from mlsdk.tasks.options import OPTIONS
from mlsdk.tasks.presets import BUILT_IN

pytestmark = pytest.mark.filterwarnings("ignore::mlsdk.errors.UnregisteredTensorWarning")

TOLERANCE = {"float": 2e-5, "mixed": 2e-2, "half": 5e-2, "double": 1e-6}
COMPILED = (
    "model.onnx",
    "placed.json",
    "plan.json",
    "l3ir.txt",
    "simulation_result.json",
    "model.vsm.zst",
    "model.app.zst",
)

#: option -> (how often it is given, values)
GIVEN = {
    "option_json": (0.4, tuple(BUILT_IN)),
    "layout_planner": (0.5, OPTIONS["layout_planner"].check.choices),
    "scheduler": (0.5, OPTIONS["scheduler"].check.choices),
    "simulation_mode": (0.5, ("auto", "fake", "fast", "default")),
    "sram_budget": (0.3, (0.6, 0.8, 1)),
    "num_threads": (0.2, (-1, 1, 2)),
}
VARIABLES = {
    "USE_MERGE": (0.4, ("1", "0", 1)),
    "USE_PARALLEL_MERGE": (0.2, ("1",)),
    "NUM_SA_THREADS": (0.2, (1, "2")),
    "SA_STEPS": (0.3, (0, 10, "40")),
    "SCHEDULE_PP_BEAM_WIDTH": (0.2, (1, "3")),
    "SCHEDULE_PP_BEAM_MAX_TURN": (0.2, (0, "3", -1)),
    "SCHEDULE_PP_BEAM_TURN_PRUNE_LIMIT": (0.2, (1, 2)),
    "OP_DEF": (0.2, ("MatMul=Rows", "Gemm=Columns", "MatMul=Columns,Gemm=Rows")),
    "OPS_ON_HOST": (0.2, ("Softmax", "Gelu,Softmax")),
    "FIND_BETTER_COMPILE_OPTIONS": (0.1, ("1",)),
    "MAX_TIME_SLICE": (0.1, ("400",)),
    "LAYOUT_PLANNER_Z": (0.1, ("1",)),
    "ALARM": (0.1, (3600,)),
}


def drawn(rng):
    options = {name: rng.choice(values) for name, (often, values) in GIVEN.items() if rng.random() < often}
    envs = {
        f"CODEGEN_{name}": rng.choice(values) for name, (often, values) in VARIABLES.items() if rng.random() < often
    }
    return {
        "float_dtype": rng.choice(list(TOLERANCE)),
        "sa_expected_run_iters": rng.choice((1, 30)),
        **options,
        **({"envs": envs} if envs else {}),
    }


class Block(nn.Module):
    """Products, a normalisation, a softmax, a residual, and moves."""

    def __init__(self, width):
        super().__init__()
        self.up, self.norm, self.down = (
            nn.Linear(width, 2 * width),
            nn.LayerNorm(2 * width),
            nn.Linear(2 * width, width),
        )

    def forward(self, x):
        y = self.down(nn.functional.gelu(self.norm(self.up(x)))) + x
        return torch.cat([y.softmax(-1), y.transpose(0, 1).reshape(y.shape)], -1)


@pytest.mark.parametrize("seed", [3, 4, *(pytest.param(s, marks=pytest.mark.slow) for s in range(10, 30))])
def test_a_random_set_of_options(context, tmp_path, monkeypatch, seed):
    rng = random.Random(seed)
    options, width = drawn(rng), rng.choice((24, 40, 64))
    net, x = Block(width).eval(), torch.randn(rng.choice((5, 16, 33)), width)
    want = copy.deepcopy(net).double()(x.double()).detach()

    def infer(inputs):
        return {"y": net(inputs["x"])}

    compiled = context.compile(infer, {"x": x}, tmp_path / "one", options=options, quiet=True)
    found = compiled({"x": x})["y"].cpu().double()
    assert float((found - want).abs().max() / want.abs().max()) < TOLERANCE[options["float_dtype"]], options
    monkeypatch.setenv("MLSDK_STORE", str(tmp_path / "store"))  # nothing is known there
    again = {"option_json": str(tmp_path / "one" / "option.json")}
    context.compile(infer, {"x": x}, tmp_path / "two", options=again, quiet=True)
    for name in COMPILED:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), (name, options)
    resolved = [json.loads((tmp_path / one / "option.json").read_text())["options"] for one in ("one", "two")]
    assert resolved[0] | {"option_json": None} == resolved[1] | {"option_json": None}
