"""Steps and DRAM traffic of a ResNet-18 and of a transformer by scheduler, beside the traffic that nothing can avoid."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import torch
from torch import nn

from mlsdk.errors import UnregisteredTensorWarning
from mlsdk.pipeline.ir.placed import Placed
from mlsdk.pipeline.layout import LayoutOptions, plan
from mlsdk.pipeline.optimize import optimize
from mlsdk.pipeline.schedule import SCHEDULERS, ScheduleOptions, schedule
from mlsdk.pipeline.simulate import measure as counted
from mlsdk.pipeline.simulate import simulate
from mlsdk.pipeline.trace import trace
from mlsdk.workflows.resnet_model import seeded


def measure(note: Callable[..., None]) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, norm_first=True, activation="gelu")
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    for name, net, shape in (
        ("ResNet-18, batch 1, mixed", seeded(0, 1000), (1, 3, 224, 224)),
        ("transformer, 2 layers of 256, 128 tokens, mixed", encoder, (1, 128, 256)),
    ):
        _network(note, name, net, torch.zeros(shape))


def _network(note: Callable[..., None], name: str, net: nn.Module, x: torch.Tensor) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnregisteredTensorWarning)
        graph = optimize(trace(lambda batch: {"y": net(batch["x"])}, {"x": x}).graph)
    placed, _ = plan(graph, LayoutOptions("mixed"))
    note(f"{name}: weights, inputs and outputs, once", _once(placed) / 1e6, "MB")
    for scheduler in SCHEDULERS:
        started = time.perf_counter()
        found = schedule(placed, ScheduleOptions(scheduler, counted))
        seconds = time.perf_counter() - started
        timeline = simulate(placed, found)
        note(f"  {scheduler}: steps", timeline.steps, "steps")
        note(f"  {scheduler}: DRAM traffic", timeline.dram_bytes / 1e6, "MB")
        note(f"  {scheduler}: time to find it, with what the schedulers before it had emitted", seconds, "s")


def _once(placed: Placed) -> int:
    """Bytes of the program's own data in DRAM; what is the same in all groups is read from each of them."""
    read = {name for p in placed.nodes for name in p.node.inputs}
    own = [n for n, v in placed.values.items() if (v.origin != "node" and n in read) or n in placed.outputs]
    return sum(4 * 8 * placed.values[name].image.group_size for name in own)
