"""Options of the layout planner, as a program gives them."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn


def steps(directory) -> int:
    return json.loads((directory / "simulation_result.json").read_text())["steps"]


@pytest.fixture
def program():
    model = nn.Sequential(nn.LayerNorm(40), nn.Linear(40, 150), nn.GELU(), nn.Linear(150, 40)).eval()
    return (lambda inputs: {"y": inputs["x"] + model(inputs["x"]).softmax(-1)}), {"x": torch.randn(3, 10, 40)}, model


@pytest.mark.filterwarnings("ignore::mlsdk.errors.UnregisteredTensorWarning")
def test_planners_and_effort_change_the_plan_and_not_the_result(context, tmp_path, program):
    function, sample, model = program
    want = (sample["x"].double() + model.double()(sample["x"].double()).softmax(-1)).float()
    model.float()
    taken = {}
    for name, options in {
        "legacy": {"layout_planner": "legacy"},
        "bidi": {"layout_planner": "bidi"},
        "fake": {"simulation_mode": "fake"},
        "fast": {"simulation_mode": "fast"},
        "best": {"simulation_mode": "best"},
    }.items():
        compiled = context.compile(function, sample, tmp_path / name, options=options)
        torch.testing.assert_close(compiled(sample)["y"].cpu(), want, rtol=1e-5, atol=1e-6)
        taken[name] = steps(tmp_path / name)
    assert taken["fake"] == taken["legacy"] >= taken["fast"] >= taken["best"] < taken["legacy"]
    assert "tried and" in (tmp_path / "best" / "layout_plan_history.html").read_text()
