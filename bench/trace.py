"""Figures of tracing and graph optimisation; each in a process of its own, after the import of torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

PROGRAM = """
import json, sys, time, warnings
import torch, torch.nn as nn, torch.nn.functional as F
warnings.simplefilter("ignore")
figures = {}
def timed(name, function):
    start = time.perf_counter()
    result = function()
    figures[name] = time.perf_counter() - start
    return result
trace = timed("import of the tracer", lambda: __import__("mlsdk.pipeline.trace", fromlist=["trace"]).trace)
from mlsdk.pipeline.optimize import optimize
from mlsdk.workflows.resnet_model import ResNet18

def state_of(model):
    return dict([*model.named_parameters(), *model.named_buffers()])

mlp = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
timed("MLP, first trace", lambda: trace(lambda d: {"y": mlp(d["x"])}, {"x": torch.zeros(8, 64)}, state=state_of(mlp)))
net = ResNet18().eval()
image = {"x": torch.zeros(1, 3, 224, 224)}
traced = timed("ResNet-18 inference", lambda: trace(lambda d: {"y": net(d["x"])}, image, state=state_of(net)))
timed("ResNet-18 inference, optimised", lambda: optimize(traced.graph))
net.train()
def step(d):
    net.zero_grad()
    loss = F.cross_entropy(net(d["x"]), d["t"])
    loss.backward()
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.1 * p.grad
    return {"loss": loss}
batch = {"x": torch.zeros(8, 3, 64, 64), "t": torch.arange(8)}
traced = timed("ResNet-18 training step", lambda: trace(step, batch, state=state_of(net)))
graph = timed("ResNet-18 training step, optimised", lambda: optimize(traced.graph))
timed("ResNet-18 training step, ONNX", graph.to_onnx)
figures["nodes"] = len(graph.nodes)
print(json.dumps(figures))
"""
REACH = {"MLP, first trace": "< 0.3", "ResNet-18 inference": "< 3", "ResNet-18 training step": "< 10"}


def measure(note: Callable[..., None]) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)
    nodes = figures.pop("nodes")
    for name, value in figures.items():
        note(name, value, "s", REACH.get(name, ""))
    note("ResNet-18 training step, nodes", nodes)
