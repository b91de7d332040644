"""Steps of standard operators beside what the machine cannot go below. Steps are exact: no machine's noise touches them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.layout import LayoutOptions, plan
from mlsdk.pipeline.ops.clock import Clock
from mlsdk.pipeline.ops.link import link
from mlsdk.pipeline.schedule import schedule

DRAM = 256  # LW a step between all DRAM and all L2BM

Types = Mapping[str, tuple[str, Sequence[int]]]


def one_node(
    op: str,
    inputs: Types,
    outputs: Types,
    attrs: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> Graph:
    """A graph of one node; inputs and outputs as {name: (dtype, shape)}, constants as arrays."""
    data = {name: np.asarray(value) for name, value in (constants or {}).items()}
    values = {n: Value(n, d, tuple(s)) for n, (d, s) in {**inputs, **outputs}.items()}
    values |= {n: Value(n, str(a.dtype), a.shape) for n, a in data.items()}
    node = Node(op, op, (*inputs, *data), tuple(outputs), attrs or {})
    return Graph(op, tuple(inputs), tuple(outputs), (node,), values, data)


def steps_of(graph: Graph, float_dtype: str) -> int:
    """Steps of the emitted program."""
    placed, _ = plan(graph, LayoutOptions(float_dtype))
    program, _ = link(placed, schedule(placed))
    return Clock().run(program.statements)


def product(m: int, k: int, n: int) -> Graph:
    weights = np.zeros((k, n), np.float32)
    return one_node("MatMul", {"a": ("float32", (m, k))}, {"y": ("float32", (m, n))}, {}, {"b": weights})


def elementwise(op: str, *shape: int) -> Graph:
    """Of two operands."""
    return one_node(op, {"x0": ("float32", shape), "x1": ("float32", shape)}, {"y": ("float32", shape)})


#: name -> (graph, float_dtype, target, bound in steps, what bounds it)
CASES: dict[str, tuple[Callable[[], Graph], str, str, float, str]] = {
    "GEMM 4096 x 4096 x 4096": (lambda: product(4096, 4096, 4096), "half", "<= 131,072", 65536, "MAU at its peak"),
    "GEMM 1024 x 1024 x 1024": (lambda: product(1024, 1024, 1024), "half", "<= 5,100", 4096, "moves"),
    "16 rows x 4096 x 4096": (lambda: product(16, 4096, 4096), "half", "<= 17,300", 16400, "moves"),
    "Add of 16 Mi singles": (lambda: elementwise("Add", 4096, 4096), "float", "<= 147,500", 98304, "DRAM"),
    "Softmax 4096 x 4096": (
        lambda: one_node(
            "Softmax", {"x": ("float32", (4096, 4096))}, {"y": ("float32", (4096, 4096))}, {"axis": 1}
        ),
        "float", "<= 262,000", 65536, "DRAM",
    ),
    "Conv 64 x 56 x 56, 3 x 3": (
        lambda: one_node(
            "Conv", {"x": ("float32", (1, 64, 56, 56))}, {"y": ("float32", (1, 64, 56, 56))},
            {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}, {"w": np.zeros((64, 64, 3, 3), np.float32)},
        ),
        "mixed", "", 576, "weights to all L2BMs",
    ),
}  # fmt: skip


def measure(note: Callable[..., None]) -> None:
    for name, (graph, dtype, reach, bound, why) in CASES.items():
        note(f"{name}, {dtype}", steps_of(graph(), dtype), "steps", reach, f"{bound:,.0f} ({why})")
    _resnet(note)


def _resnet(note: Callable[..., None]) -> None:
    """In a process of its own with an empty store: nothing of an earlier compile is known."""
    from bench.planning import fresh_store

    with fresh_store():
        run = subprocess.run([sys.executable, "-m", "bench.operators"], stdout=subprocess.PIPE, check=True, text=True)
    found = json.loads(run.stdout)
    note(
        "ResNet-18, batch 1, 224 x 224, mixed", found["steps"], "steps", "<= 60,000", "11,400 (each weight moved once)"
    )
    note("  of which tracing to assembly", found["seconds"], "s", "< 60")


def resnet() -> dict[str, float]:
    """Steps of its inference, and the time from the model to the assembly."""
    import torch

    from mlsdk.errors import UnregisteredTensorWarning
    from mlsdk.pipeline.optimize import optimize
    from mlsdk.pipeline.trace import trace
    from mlsdk.workflows.resnet_model import seeded

    model = seeded(0, 1000)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnregisteredTensorWarning)
        traced = trace(lambda batch: {"y": model(batch["x"])}, {"x": torch.zeros(1, 3, 224, 224)})
    steps = steps_of(optimize(traced.graph), "mixed")
    return {"steps": steps, "seconds": time.perf_counter() - started}


if __name__ == "__main__":
    print(json.dumps(resnet()))
