"""Programs compiled with each scheduler and preset, as users do: training steps with state against eager torch, and the same
bits as without."""

from __future__ import annotations

import json

import pytest
import torch
from training_nets import NETS, agree, all_agree, pair, register, step_of

from mlsdk import set_tensor_name

TOLERANCE = 5e-5


@pytest.mark.parametrize(
    ("net", "kind", "options"),
    [
        ("mlp", "adamw", {"option_json": "O1"}),
        ("mlp", "momentum", {"option_json": "O2", "sa_expected_run_iters": 200}),
        pytest.param("cnn", "momentum", {"scheduler": "spill_opt"}, marks=pytest.mark.slow),
        pytest.param("transformer", "momentum", {"option_json": "O3", "sa_expected_run_iters": 300}, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_three_training_steps(context, tmp_path, net, kind, options):
    ours, theirs = pair(net, kind)
    batches = [NETS[net][1]() for _ in range(3)]
    register(context, *ours)
    step = context.compile(step_of(*ours), batches[0], tmp_path / "step", options=options, quiet=True)
    eager = step_of(*theirs)
    for batch in batches:
        agree(step(batch)["loss"].cpu(), eager(batch)["loss"].detach(), TOLERANCE)
    context.synchronize()
    all_agree(ours, theirs, TOLERANCE)
    assert "@lm" in (tmp_path / "step" / "l3ir.txt").read_text()
    assert (tmp_path / "step" / "search.json").exists()


@pytest.mark.parametrize("scheduler", ["reuse_consecutive", "spill_opt", "auto_recompute_sa"])
def test_the_same_bits_in_fewer_steps(context, tmp_path, scheduler):
    torch.manual_seed(0)
    weights = [torch.randn(64, 64) * 0.1 for _ in range(3)]
    for number, weight in enumerate(weights):
        set_tensor_name(weight, f"w{number}")
        context.register_buffer(weight)

    def net(inputs):
        x = inputs["x"]
        for weight in weights:
            x = torch.softmax(torch.nn.functional.gelu(x @ weight) + x, -1)
        return {"y": x}

    sample = {"x": torch.randn(256, 64)}
    results, reports = [], []
    for name in ("always_from_dram", scheduler):
        compiled = context.compile(net, sample, tmp_path / name, options={"scheduler": name}, quiet=True)
        results.append(compiled(sample)["y"].cpu())
        reports.append(json.loads((tmp_path / name / "report.json").read_text()))
    before, after = reports
    assert torch.equal(*results)
    assert after["steps"] < before["steps"] and after["dram_bytes"] < before["dram_bytes"]
