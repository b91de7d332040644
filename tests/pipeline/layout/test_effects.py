"""Every option and every variable changes what its phase gives, or says why it has nothing to change."""

import json

import numpy as np
import pytest

from mlsdk.errors import LayoutError, MLSDKError, OptionError
from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.ir.placed import Placed
from mlsdk.tasks import adapters
from mlsdk.tasks.options import OPTIONS, resolve
from mlsdk.tasks.variables import VARIABLES


def model() -> bytes:
    """A block: it needs switches, has two products of which one has a name, and values that may stay."""
    rng = np.random.default_rng(0)
    values, nodes, constants = {}, [], {}

    def put(name, op, inputs, shape, **attrs):
        values[name] = Value(name, "float32", shape)
        nodes.append(Node(f"make {name}", op, inputs, (name,), attrs))

    values["x"] = Value("x", "float32", (3, 10, 40))
    for name, shape in (("up_weight", (40, 150)), ("down_weight", (150, 40))):
        constants[name] = rng.standard_normal(shape).astype(np.float32)
        values[name] = Value(name, "float32", shape)
    put("s", "Softmax", ("x",), (3, 10, 40), axis=2)
    put("t", "Transpose", ("s",), (10, 3, 40), perm=(1, 0, 2))
    put("u", "MatMul", ("t", "up_weight"), (10, 3, 150))
    put("g", "Gelu", ("u",), (10, 3, 150))
    put("d", "MatMul", ("g", "down_weight"), (10, 3, 40))
    put("e", "Exp", ("x",), (3, 10, 40))
    put("r", "ReduceSum", ("e", "axes"), (3, 10, 1), keepdims=1)
    values["axes"], constants["axes"] = Value("axes", "int64", (1,)), np.array([2])
    put("f", "Div", ("e", "r"), (3, 10, 40))
    put("b", "Transpose", ("f",), (10, 3, 40), perm=(1, 0, 2))
    put("y", "Add", ("d", "b"), (10, 3, 40))
    return Graph("block", ("x",), ("y",), tuple(nodes), values, constants).to_onnx()


@pytest.fixture(scope="module")
def phases():
    graph = model()
    known = {}

    def run(**options):
        resolved = resolve({"float_dtype": "mixed", **options})
        told = json.dumps(resolved.of_phase("LayoutPlan"), sort_keys=True)
        if told not in known:
            inputs = {"model.onnx": graph}
            known[told] = adapters.layout_plan(inputs, resolved.of_phase("LayoutPlan"), None)
        placed = {"placed.json": known[told]["placed.json"]}
        schedule = adapters.schedule(placed, resolved.of_phase("Schedule"), None)
        return {"LayoutPlan": known[told], "Schedule": schedule}

    return run


SA = {"scheduler": "auto_recompute_sa", "sa_expected_run_iters": 60}
SPILL = {"scheduler": "spill_opt"}
FIX = [{"trigger": "FixOutput", "op_type": "Exp", "shape": [3, 10, 40],
        "layout": "((3_L2B:1),(5_L1B:1,2:6),(3:2,4_PE:1,2:1,2_W:1);B@[MAB])"}]  # fmt: skip


def envs(**named):
    return {"envs": {f"CODEGEN_{name}": value for name, value in named.items()}}


#: name -> (the phase that it changes, an artifact of it, options before, options after)
EFFECTS = {
    "float_dtype": ("LayoutPlan", "placed.json", {}, {"float_dtype": "half"}),
    "layout_planner": ("LayoutPlan", "layout_plan_history.html", {"layout_planner": "legacy"}, {}),
    "layout_spec": ("LayoutPlan", "placed.json", {}, {"layout_spec": FIX}),
    "simulation_mode": ("LayoutPlan", "layout_plan_history.html", {"simulation_mode": "fake"}, {}),
    "scheduler": ("Schedule", "plan.json", {}, SPILL),
    "sa_expected_run_iters": ("Schedule", "search.json", SA, {**SA, "sa_expected_run_iters": 90}),
    "sram_budget": ("Schedule", "plan.json", SPILL, {**SPILL, "sram_budget": 0.02}),
    "option_json": ("Schedule", "plan.json", {}, {"option_json": "O1"}),
    "CODEGEN_ALARM": ("Schedule", "search.json", SA, {**SA, **envs(ALARM="1e-9")}),
    "CODEGEN_FIND_BETTER_COMPILE_OPTIONS": (
        "LayoutPlan", "layout_plan_history.html", {"simulation_mode": "fake"},
        {"simulation_mode": "fake", **envs(FIND_BETTER_COMPILE_OPTIONS="1")}),
    "CODEGEN_FIND_BEST_COMPILE_OPTIONS": (
        "LayoutPlan", "layout_plan_history.html", {"simulation_mode": "fake"},
        {"simulation_mode": "fake", **envs(FIND_BEST_COMPILE_OPTIONS="1")}),
    "CODEGEN_NUM_SA_THREADS": ("Schedule", "search.json", SA, {**SA, **envs(NUM_SA_THREADS="3")}),
    "CODEGEN_OPS_ON_HOST": ("LayoutPlan", "placed.json", {}, envs(OPS_ON_HOST="Gelu")),
    "CODEGEN_OP_DEF": ("LayoutPlan", "placed.json", envs(OP_DEF="MatMul=Rows"), envs(OP_DEF="MatMul=Columns")),
    "CODEGEN_SA_STEPS": ("Schedule", "search.json", SA, {**SA, **envs(SA_STEPS="5")}),
    "CODEGEN_SCHEDULE_PP_BEAM_WIDTH": (
        "Schedule", "search.json", SPILL, {**SPILL, **envs(SCHEDULE_PP_BEAM_WIDTH="9")}),
    "CODEGEN_SCHEDULE_PP_BEAM_MAX_TURN": (
        "Schedule", "search.json", SPILL, {**SPILL, **envs(SCHEDULE_PP_BEAM_MAX_TURN="1")}),
    "CODEGEN_SCHEDULE_PP_BEAM_TURN_PRUNE_LIMIT": (
        "Schedule", "search.json", SPILL, {**SPILL, **envs(SCHEDULE_PP_BEAM_TURN_PRUNE_LIMIT="9")}),
    "CODEGEN_USE_MERGE": ("Schedule", "plan.json", {}, envs(USE_MERGE="1")),
    "CODEGEN_USE_PARALLEL_MERGE": ("Schedule", "plan.json", {}, envs(USE_PARALLEL_MERGE="1")),
}  # fmt: skip

#: those whose effect is that something is refused, or no more
REFUSALS = {
    "gemm_layout_spec": (
        {"gemm_layout_spec": [{"key": "nobody", "C": FIX[0]["layout"]}]},
        "nobody: nothing of the graph",
    ),
    "CODEGEN_MAX_TIME_SLICE": (envs(MAX_TIME_SLICE="0"), "give a whole number from 1"),
}

#: those that change no phase, and what tests them
ELSEWHERE = {
    "envs": "each of them is a row here",
    "num_threads": "tests/pipeline/simulate/test_helpers.py: it changes no result",
    "out_onnx": "tests/api: a copy of a file",
    "CODEGEN_ALLOW_UNUSED_LAYOUT_SPEC": "test_unused_pins_are_allowed",
}


@pytest.mark.parametrize("name", EFFECTS)
def test_it_changes_what_its_phase_gives(phases, name):
    phase, artifact, before, after = EFFECTS[name]
    if name in OPTIONS and name != "option_json":
        assert OPTIONS[name].phases == ((phase,) if name != "scheduler" else ("LayoutPlan", "Schedule"))
    elif name in VARIABLES:
        assert phase in VARIABLES[name].phases
    assert phases(**before)[phase][artifact] != phases(**after)[phase][artifact]


def test_a_scheduler_that_searches_judges_layouts(phases):
    known = [
        phases(scheduler=name)["LayoutPlan"]["layout_plan_history.html"] for name in ("always_from_dram", "spill_opt")
    ]
    assert [b"less effort" in page or b"; scheduled: " in page for page in known] == [False, True]


@pytest.mark.parametrize("name", REFUSALS)
def test_it_refuses(phases, name):
    options, told = REFUSALS[name]
    with pytest.raises(MLSDKError, match=told):
        phases(**options)


def test_unused_pins_are_allowed(phases):
    pins = {"gemm_layout_spec": [{"key": "nobody", "C": FIX[0]["layout"]}]}
    allowed = phases(**pins, **envs(ALLOW_UNUSED_LAYOUT_SPEC="1"))
    assert allowed["LayoutPlan"]["placed.json"] == phases()["LayoutPlan"]["placed.json"]


def test_lanes_that_are_no_whole_blocks_are_refused(phases):
    halves = [{**FIX[0], "layout": FIX[0]["layout"].replace("2:6", "2:5").replace("3:2,4_PE:1,2:1", "5:1,4_PE:1")}]
    with pytest.raises(LayoutError, match="layout_spec FixOutput Exp .* none of the layouts that the planner works in"):
        phases(layout_spec=halves)


def test_each_option_and_variable_is_here():
    idle = {name for name, row in VARIABLES.items() if row.why}
    idle |= {name for name, option in OPTIONS.items() if option.note and not option.phases}
    assert all(bool(row.effect) != bool(row.why) for row in VARIABLES.values())
    assert not any(row.phases for row in VARIABLES.values() if row.why)
    assert set(EFFECTS) | set(REFUSALS) | set(ELSEWHERE) | idle == set(OPTIONS) | set(VARIABLES)
    assert not (set(EFFECTS) | set(REFUSALS)) & idle


# ---- CODEGEN_MAX_TIME_SLICE and CODEGEN_OP_DEF --------------------------------------------------------------------


def tall(rows):
    values = {name: Value(name, "float32", (rows, 64)) for name in ("x", "y")}
    return Graph("tall", ("x",), ("y",), (Node("act", "Relu", ("x",), ("y",), {}),), values, {}).to_onnx()


def test_time_slices_are_bounded_and_written_down():
    def placed(most):
        wanted = resolve(envs(MAX_TIME_SLICE=most) if most else {})
        given = adapters.layout_plan({"model.onnx": tall(1 << 20)}, wanted.of_phase("LayoutPlan"), None)
        return given["placed.json"]

    data = placed("")
    slices = Placed.from_json(data).values["x"].image.slices
    assert slices > 1 and placed(str(slices)) == data
    with pytest.raises(LayoutError, match=rf"x has {slices} time slices in .* allows {slices - 1}; set it to {slices}"):
        placed(str(slices - 1))
    text = adapters.schedule({"placed.json": data}, resolve({}).of_phase("Schedule"), None)["l3ir.txt"].decode()
    assert f"MNCoreInputSplit(x)  # {slices} time slices or more" in text
    assert f"MNCoreOutputConcat(y)  # {slices} time slices or more" in text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("MatMul=columns", "give one of MatMul=Rows, MatMul=Columns, MatMul=Grid; did you mean 'Columns'"),
        ("MatMul", "give one of MatMul=Rows"),
        ("Relu=Fast", "Relu has one implementation; leave it out"),
        ("MatMull=Rows", "there is no operator 'MatMull'; did you mean 'MatMul'"),
        ("=Rows", "there is no operator ''"),
    ],
)
def test_an_implementation_that_there_is_not(phases, text, told):
    with pytest.raises(OptionError, match=told):
        phases(**envs(OP_DEF=text))


def test_official_names_of_what_is_not_here_change_nothing(phases):
    given = phases(**envs(OP_DEF="Gather=GatherBcast, ChainerIndexAdd=IndexAddBcast,", OPS_ON_HOST="ChainerAdamW"))
    assert given["LayoutPlan"]["placed.json"] == phases()["LayoutPlan"]["placed.json"]
