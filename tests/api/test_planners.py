"""Options of the layout planner, as a program gives them."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from mlsdk.errors import LayoutError


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
        "better": {"envs": {"CODEGEN_FIND_BETTER_COMPILE_OPTIONS": "1"}, "simulation_mode": "fake"},
    }.items():
        compiled = context.compile(function, sample, tmp_path / name, options=options)
        torch.testing.assert_close(compiled(sample)["y"].cpu(), want, rtol=1e-5, atol=1e-6)
        taken[name] = steps(tmp_path / name)
    assert taken["fake"] == taken["legacy"] >= taken["fast"] >= taken["best"] < taken["legacy"]
    assert taken["better"] == taken["best"]
    assert "tried and" in (tmp_path / "best" / "layout_plan_history.html").read_text()


@pytest.mark.filterwarnings("ignore::mlsdk.errors.UnregisteredTensorWarning")
def test_layouts_are_pinned_by_a_file(context, tmp_path, program):
    function, sample, _model = program
    layout = "((3_L2B:1),(2_L1B:1,5:3),(3:1,4_PE:1,4_W:1);B@[MAB])"
    file = tmp_path / "layouts.json"
    file.write_text(json.dumps([{"trigger": "FixOutput", "op_type": "Gelu", "shape": [3, 10, 150], "layout": layout}]))
    options = {"layout_spec": str(file), "float_dtype": "half"}
    with pytest.raises(LayoutError, match="layout_spec FixOutput Gelu .* holds 48"):
        context.compile(function, sample, tmp_path / "wrong", options=options)
    file.write_text(file.read_text().replace("(3:1,4_PE", "(10:1,4_PE").replace("5:3", "5:10"))
    context.compile(function, sample, tmp_path / "app", options=options)
    assert "((3_L2B:1),(2_L1B:1,5:10),(10:1,4_PE:1,4_W:1)" in (tmp_path / "app" / "l3ir.txt").read_text()
