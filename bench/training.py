"""Training steps: an MLP on the emulated board, and time and memory of a ResNet-18 step on the reference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable

COMMON = """
import json, resource, sys, time, warnings
import torch, torch.nn as nn, torch.nn.functional as F
from mlsdk import Context, MNCoreSGD, MNDevice, storage
warnings.simplefilter("ignore")
torch.manual_seed(0)
folder = sys.argv[1]
figures = {}

def compiled(device, model, batch, **options):
    optimizer = MNCoreSGD(model.parameters(), lr=0.05, momentum=0.9)
    context = Context(MNDevice(device))
    context.registry.register("model", model)
    context.registry.register("optimizer", optimizer)
    def train_step(inputs):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs["x"]), inputs["y"])
        loss.backward()
        optimizer.step()
        return {"loss": loss}
    start = time.perf_counter()
    step = context.compile(train_step, batch, storage.path(folder + "/step"), options=options, quiet=True)
    figures["compile"] = time.perf_counter() - start
    return step

def timed(step, batch, count):
    step(batch)["loss"].item()
    start = time.perf_counter()
    losses = [step(batch)["loss"].item() for _ in range(count)]
    assert losses[-1] < losses[0], losses
    figures["seconds"] = (time.perf_counter() - start) / count
"""

MLP = (
    COMMON
    + """
model = nn.Sequential(nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 10))
batch = {"x": torch.randn(64, 1024), "y": torch.randint(0, 10, (64,))}
timed(compiled("emu2", model, batch, float_dtype="mixed"), batch, 5)
report = json.load(open(folder + "/step/report.json"))
figures["steps"] = report["steps"]
figures["switches"] = report["by_operator"].get("MNCoreLayoutSwitch", {}).get("steps", 0)
print(json.dumps(figures))
"""
)

RESNET = (
    COMMON
    + """
from mlsdk.workflows.resnet_model import ResNet18
model = ResNet18()
batch = {"x": torch.randn(8, 3, 64, 64), "y": torch.arange(8)}
timed(compiled("pfvm:cpu", model, batch), batch, 2)
figures["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps(figures))
"""
)


def measure(note: Callable[..., None]) -> None:
    mlp = _figures(MLP)
    note("MLP 1024-256-10, batch 64, mixed: steps", mlp["steps"], "steps", "<= 5,000", "weights, momentum once 2,060")
    note("  of which between layouts", mlp["switches"], "steps")
    note("  emulated", 1 / mlp["seconds"], "iterations/s", ">= 5")
    note("  compile", mlp["compile"], "s")
    resnet = _figures(RESNET)
    note("ResNet-18 step, batch 8, 64x64: trace to ONNX, pfvm:cpu", resnet["compile"], "s", "< 10")
    note("  an iteration on pfvm:cpu", resnet["seconds"], "s")
    note("  peak memory", resnet["memory"], "GiB", "< 6")


def _figures(program: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "MLSDK_STORE": f"{folder}/store", "MLSDK_STATE": f"{folder}/state"}
        done = subprocess.run(
            [sys.executable, "-c", program, folder], env=environment, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)
