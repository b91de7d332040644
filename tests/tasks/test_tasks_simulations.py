"""What LayoutPlan's search counts is kept in the store, for later compiles, and for `mlsdk store query`."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from mlsdk.pipeline import simulate
from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.layout import search
from mlsdk.tasks import adapters, options, phases
from mlsdk.tasks.session import Services

layout_plan = adapters.layout_plan  # the real one: the tests here run with stand-ins


def model() -> bytes:
    values = {name: Value(name, "float32", shape)
              for name, shape in {"x": (6, 20), "w": (20, 30), "y": (6, 30), "z": (6, 30)}.items()}  # fmt: skip
    nodes = (Node("fc", "MatMul", ("x", "w"), ("y",), {}), Node("act", "Relu", ("y",), ("z",), {}))
    weights = np.arange(600, dtype=np.float32).reshape(20, 30)
    return Graph("net", ("x",), ("z",), nodes, values, {"w": weights}).to_onnx()


@pytest.fixture
def count(store, monkeypatch):
    """LayoutPlan as another process runs it: the number of nodes that it counted, and its plan."""
    counted = []
    real = simulate.measure
    monkeypatch.setattr(simulate, "measure", lambda statements: counted.append(1) or real(statements))

    def run(**given):
        monkeypatch.setattr(search, "_STEPS", {})
        counted.clear()
        wanted = options.resolve({"float_dtype": "mixed", **given}).of_phase("LayoutPlan")
        outputs = layout_plan({"model.onnx": model()}, wanted, Services(store.memory, lambda words: None))
        return len(counted), outputs["placed.json"]

    return run


def test_simulations_are_kept_and_can_be_asked_for(store, count, monkeypatch):
    first, plan = count()
    rows = store.query("SELECT op, steps, dram_lw FROM node_simulations")
    assert first == len(rows) >= 2
    assert {"MatMul", "Relu"} & {row["op"] for row in rows}
    assert all(row["steps"] > 0 and row["dram_lw"] > 0 for row in rows)
    assert count() == (0, plan)
    assert count(simulation_mode="best")[0] < first
    # The emitters of another version may take other steps.
    emit = phases.PHASES["Emit"]
    monkeypatch.setitem(phases.PHASES, "Emit", dataclasses.replace(emit, version=emit.version + 1))
    assert count() == (first, plan)
