"""Replay: a small corpus goes through every phase, and what comes out is compared with what came out before.

A digest that changed although its phase kept its version means that stores in use would serve old results: raise the version
in tasks/phases.py, then record the new digests with `pytest tests/replay --update-golden`. Steps may only fall.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from mlsdk.pipeline.emit import emit
from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.layout import LayoutOptions, plan
from mlsdk.pipeline.optimize import optimize
from mlsdk.pipeline.schedule import schedule
from mlsdk.pipeline.simulate import simulate
from mlsdk.tasks.phases import PHASES

GOLDEN = Path(__file__).with_name("golden.json")


def mlp() -> Graph:
    """64 -> 64 -> 10 at batch 64 with a softmax and an ArgMax behind it."""
    rng = np.random.default_rng(0)
    shapes = {"x": (64, 64), "h": (64, 64), "r": (64, 64), "l": (64, 10), "p": (64, 10)}
    constants = {
        name: rng.standard_normal(s).astype(np.float32)
        for name, s in {"w1": (64, 64), "b1": (64,), "w2": (10, 64), "b2": (10,)}.items()
    }
    values = {n: Value(n, "float32", s) for n, s in shapes.items()}
    values |= {n: Value(n, "float32", a.shape) for n, a in constants.items()}
    values["k"] = Value("k", "int64", (64,))
    nodes = (
        Node("fc1", "Gemm", ("x", "w1", "b1"), ("h",), {"transB": 1}),
        Node("relu", "Relu", ("h",), ("r",)),
        Node("fc2", "Gemm", ("r", "w2", "b2"), ("l",), {"transB": 1}),
        Node("softmax", "Softmax", ("l",), ("p",), {"axis": 1}),
        Node("argmax", "ArgMax", ("p",), ("k",), {"axis": 1, "keepdims": 0}),
    )
    return Graph("mlp", ("x",), ("p", "k"), nodes, values, constants)


def rearranged() -> Graph:
    """A transpose, a reshape that has to move, a slice, a concat and a sum over rows."""
    shapes = {"x": (12, 35), "t": (35, 12), "v": (20, 21), "s": (10, 21), "c": (30, 21), "y": (21,)}
    values = {n: Value(n, "float32", s) for n, s in shapes.items()}
    constants = {"shape": np.array([20, 21]), "starts": np.array([10]), "ends": np.array([20]), "axes": np.array([0])}
    values |= {n: Value(n, "int64", a.shape) for n, a in constants.items()}
    nodes = (
        Node("transpose", "Transpose", ("x",), ("t",), {"perm": (1, 0)}),
        Node("reshape", "Reshape", ("t", "shape"), ("v",)),
        Node("slice", "Slice", ("v", "starts", "ends", "axes"), ("s",)),
        Node("concat", "Concat", ("v", "s"), ("c",), {"axis": 0}),
        Node("sum", "ReduceSum", ("c", "axes"), ("y",), {"keepdims": 0}),
    )
    return Graph("rearranged", ("x",), ("y",), nodes, values, constants)


CORPUS = {
    f"{graph.__name__}/{dtype}": (graph, dtype)
    for graph in (mlp, rearranged)
    for dtype in ("float", "half", "mixed", "double")
}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def replay(graph: Graph, float_dtype: str) -> dict:
    compiled = optimize(graph)
    placed, _ = plan(compiled, LayoutOptions(float_dtype))
    the_plan = schedule(placed)
    timeline = simulate(placed, the_plan)
    program, _ = emit(placed, the_plan)
    found = {
        "OptimizeOnnx": compiled.to_onnx(),
        "LayoutPlan": placed.to_json(),
        "Schedule": the_plan.to_json(),
        "Simulate": timeline.to_json(),
        "Emit": program.to_json(),
    }
    versions = {name: PHASES[name].version for name in found}
    return {"steps": timeline.steps, "phases": {name: [versions[name], digest(data)] for name, data in found.items()}}


@pytest.mark.parametrize("case", sorted(CORPUS))
def test_phases_give_what_they_gave_before(case, update_golden):
    make, dtype = CORPUS[case]
    found = replay(make(), dtype)
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if update_golden:
        golden[case] = found
        GOLDEN.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")
        return
    before = golden[case]
    for phase, (version, value) in found["phases"].items():
        old_version, old_value = before["phases"][phase]
        assert version != old_version or value == old_value, (
            f"{case}: {phase} version {version} gives another result than it did; raise its version in tasks/phases.py and "
            "record the new one with --update-golden"
        )
    assert found["steps"] <= before["steps"], f"{case}: {found['steps']} steps, {before['steps']} before"


def test_the_mlp_takes_the_steps_that_are_recorded():
    golden = json.loads(GOLDEN.read_text())
    assert golden["mlp/mixed"]["steps"] <= 1500
