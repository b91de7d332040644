"""Each option and variable of the schedule changes what the phase gives, and nothing where it has no say."""

import json

import numpy as np
import pytest

from mlsdk.errors import OptionError, ScheduleError
from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.layout import LayoutOptions, plan
from mlsdk.tasks import adapters, presets
from mlsdk.tasks.options import resolve
from mlsdk.tasks.phases import PHASES


def placed() -> bytes:
    """Six products that wait for each other, at 16,384 rows."""
    rng = np.random.default_rng(0)
    values, nodes, constants = {}, [], {}

    def put(name, op, inputs, **attrs):
        values[name] = Value(name, "float32", (16384, 32))
        nodes.append(Node(f"make {name}", op, inputs, (name,), attrs))

    values["x"] = Value("x", "float32", (16384, 32))
    for i in range(6):
        constants[f"w{i}"] = rng.standard_normal((32, 32)).astype(np.float32)
        values[f"w{i}"] = Value(f"w{i}", "float32", (32, 32))
        put(f"h{i}", "MatMul", ("x", f"w{i}"))
    for i, j in ((0, 5), (1, 4), (2, 3)):
        put(f"m{i}", "Mul", (f"h{i}", f"h{j}"))
        put(f"s{i}", "Softmax", (f"m{i}",), axis=1)
    put("a", "Add", ("s0", "s1"))
    put("y", "Add", ("a", "s2"))
    graph = Graph("fan", ("x",), ("y",), tuple(nodes), values, constants)
    return plan(graph, LayoutOptions("float"))[0].to_json()


@pytest.fixture(scope="module")
def scheduled():
    data = placed()

    def run(**given):
        options = resolve(given).of_phase("Schedule")
        return adapters.schedule({"placed.json": data}, options, None)

    return run


def points(artifacts, run):
    return json.loads(artifacts["search.json"])["runs"][run]["points"]


def test_the_scheduler_changes_the_plan(scheduled):
    names = ("always_from_dram", "reuse_consecutive", "spill_opt", "auto_recompute_sa")
    found = {name: scheduled(scheduler=name) for name in names}
    assert len({a["plan.json"] for a in found.values()}) >= 3
    assert [name for name, a in found.items() if "search.json" in a] == ["spill_opt", "auto_recompute_sa"]
    assert set(found["spill_opt"]) == {a.name for a in PHASES["Schedule"].gives}


def test_the_budget_changes_the_plan_of_every_scheduler(scheduled):
    whole, little = (scheduled(scheduler="spill_opt", sram_budget=b)["plan.json"] for b in (1.0, 0.1))
    assert whole.count(b'"lm') > little.count(b'"lm')
    for name in ("always_from_dram", "spill_opt"):
        with pytest.raises(ScheduleError, match="and sram_budget 0.0 allows 0"):
            scheduled(scheduler=name, sram_budget=0)


@pytest.mark.parametrize("given", [{"sa_expected_run_iters": 37}, {"envs": {"CODEGEN_SA_STEPS": "37"}}])
def test_the_rounds_of_annealing(scheduled, given):
    artifacts = scheduled(scheduler="auto_recompute_sa", **given)
    assert json.loads(artifacts["search.json"])["runs"][1]["facts"]["rounds"] == 37
    assert points(artifacts, 1)[-1][0] <= 37


def test_the_variable_wins_over_the_option(scheduled):
    artifacts = scheduled(scheduler="auto_recompute_sa", sa_expected_run_iters=5, envs={"CODEGEN_SA_STEPS": "3"})
    assert json.loads(artifacts["search.json"])["runs"][1]["facts"]["rounds"] == 3


def test_the_beam(scheduled):
    def facts(**envs):
        given = {f"CODEGEN_SCHEDULE_PP_BEAM_{name}": str(value) for name, value in envs.items()}
        return json.loads(scheduled(scheduler="spill_opt", envs=given)["search.json"])["runs"][0]["facts"]

    assert facts(MAX_TURN=2, TURN_PRUNE_LIMIT=9)["turns"] == 2
    assert facts(MAX_TURN=0)["turns"] == 0
    assert facts(MAX_TURN=-1, TURN_PRUNE_LIMIT=1)["turns"] < facts(MAX_TURN=-1, TURN_PRUNE_LIMIT=6)["turns"]
    narrow, wide = (facts(WIDTH=w, MAX_TURN=4, TURN_PRUNE_LIMIT=9)["orders tried"] for w in (1, 8))
    assert narrow < wide


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("CODEGEN_SA_STEPS", "many", "CODEGEN_SA_STEPS is 'many'; give a whole number from 0"),
        ("CODEGEN_SCHEDULE_PP_BEAM_WIDTH", "0", "give a whole number from 1"),
        ("CODEGEN_SCHEDULE_PP_BEAM_MAX_TURN", "-2", "give a whole number from -1"),
        ("CODEGEN_SCHEDULE_PP_BEAM_TURN_PRUNE_LIMIT", "1.5", "give a whole number from 1"),
    ],
)
def test_a_bad_number_is_said(scheduled, name, value, told):
    with pytest.raises(OptionError, match=told):
        scheduled(scheduler="spill_opt", envs={name: value})


def test_presets_go_from_quick_to_thorough(scheduled):
    """What each finds costs no more than what the one before found."""
    found = []
    for name in ("debug", "O0", "O1", "O2"):
        assert name in presets.BUILT_IN
        artifacts = scheduled(option_json=name)
        costs = [run["points"][-1][2] for run in json.loads(artifacts.get("search.json", b'{"runs": []}'))["runs"]]
        found.append(min(costs, default=float("inf")))
    assert found == sorted(found, reverse=True) and found[-1] < found[1]
