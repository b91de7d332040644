"""What the searches of LayoutPlan and Schedule count is kept in the store, for later compiles, and for `mlsdk store query`."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from mlsdk.pipeline import simulate
from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.ops.simulation import Simulation
from mlsdk.tasks import adapters, options, phases
from mlsdk.tasks.session import Services

# the real ones: the tests here run with stand-ins
layout_plan, schedule = adapters.layout_plan, adapters.schedule


def model() -> bytes:
    values = {name: Value(name, "float32", shape)
              for name, shape in {"x": (6, 20), "w": (20, 30), "y": (6, 30), "z": (6, 30)}.items()}  # fmt: skip
    nodes = (Node("fc", "MatMul", ("x", "w"), ("y",), {}), Node("act", "Relu", ("y",), ("z",), {}))
    weights = np.arange(600, dtype=np.float32).reshape(20, 30)
    return Graph("net", ("x",), ("z",), nodes, values, {"w": weights}).to_onnx()


@pytest.fixture
def phase(store, monkeypatch):
    """A phase as another process runs it: the number of nodes that it counted, and what it gives."""
    counted = []
    real = simulate.measure
    monkeypatch.setattr(simulate, "measure", lambda statements: counted.append(1) or real(statements))

    def run(name, function, inputs, given, memory=store.memory):
        monkeypatch.setattr(Simulation, "_answers", {})
        counted.clear()
        wanted = options.resolve(given).of_phase(name)
        outputs = function(inputs, wanted, Services(memory, lambda words: None))
        return len(counted), outputs

    return run


@pytest.fixture
def count(phase):
    def run(**given):
        number, outputs = phase("LayoutPlan", layout_plan, {"model.onnx": model()}, {"float_dtype": "mixed", **given})
        return number, outputs["placed.json"]

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


def test_what_is_computed_again_is_counted_again(store, phase):
    def forced(kind):
        return store.memory(kind, afresh=True)

    inputs = {"model.onnx": model()}
    first, plan = phase("LayoutPlan", layout_plan, inputs, {})
    assert phase("LayoutPlan", layout_plan, inputs, {}) == (0, plan)
    assert phase("LayoutPlan", layout_plan, inputs, {}, forced) == (first, plan)


def test_schedulers_know_it_too(store, phase, count):
    _, placed = count()

    def scheduled(scheduler):
        number, outputs = phase("Schedule", schedule, {"placed.json": placed}, {"scheduler": scheduler})
        return number, outputs["plan.json"]

    before = len(store.query("SELECT op FROM node_simulations"))
    first, plan = scheduled("spill_opt")
    rows = store.query("SELECT op, steps, node FROM node_simulations")
    assert first >= 1 and len(rows) > before + first - 1
    assert any(" in lm" in row["node"] for row in rows)
    assert scheduled("spill_opt") == (0, plan)
    assert scheduled("reuse_consecutive")[0] == 0
