"""A compile whose searches are ended: the program is right, and only what nobody interrupted is kept."""

from __future__ import annotations

import json
import os
import signal

import pytest
import torch
from torch import nn

from mlsdk.tasks.patience import Patience

OPTIONS = {"scheduler": "auto_recompute_sa", "sa_expected_run_iters": 10**8, "simulation_mode": "full"}


pytestmark = pytest.mark.filterwarnings("ignore::mlsdk.errors.UnregisteredTensorWarning")


@pytest.fixture
def compile_it(context, tmp_path):
    model = nn.Sequential(nn.Linear(40, 60), nn.GELU(), nn.LayerNorm(60), nn.Linear(60, 10)).eval()
    sample = {"x": torch.randn(12, 40)}

    def run(**options):
        compiled = context.compile(lambda inputs: {"y": model(inputs["x"])}, sample, tmp_path / "app", options=options)
        torch.testing.assert_close(compiled(sample)["y"].cpu(), model(sample["x"]).detach(), rtol=1e-5, atol=1e-6)
        log = (tmp_path / "app" / "CLOG.log").read_text()
        runs = json.loads((tmp_path / "app" / "search.json").read_text())["runs"]
        return {line.split()[2].rstrip(":"): line.split()[3] for line in log.splitlines()[1:]}, runs

    return run


def test_ctrl_c_takes_the_best_so_far_and_keeps_it_for_nobody(compile_it, monkeypatch):
    calls = []
    real = Patience.__call__

    def pressed(self, words):
        calls.append(words)
        if words.startswith("round 20 "):
            os.kill(os.getpid(), signal.SIGINT)
        return real(self, words)

    monkeypatch.setattr(Patience, "__call__", pressed)
    for _ in range(2):
        calls.clear()
        phases, runs = compile_it(**OPTIONS)
        assert phases["Schedule"] == "built"
        assert runs[1]["facts"]["rounds"] == 20
    assert phases["LayoutPlan"] == "cached"
    assert not any(words.startswith("trial") for words in calls)


def test_the_alarm_takes_the_best_so_far(compile_it):
    options = {**OPTIONS, "envs": {"CODEGEN_ALARM": "0.2"}}
    phases, runs = compile_it(**options)
    assert phases["LayoutPlan"] == phases["Schedule"] == "built"
    assert runs[1]["facts"]["rounds"] < 10**6
    phases, _ = compile_it(**options)
    assert phases["LayoutPlan"] == phases["Schedule"] == "cached"
