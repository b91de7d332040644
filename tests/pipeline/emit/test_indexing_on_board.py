"""Reading and writing at indices that are computed at run time, against the reference functions."""

import numpy as np
import pytest
from emulated import compiled, run
from hypothesis import given
from hypothesis import strategies as st
from reference import DTYPES, agree, node_graph, numbers

from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.ir.program import Program
from mlsdk.pipeline.ops.clock import Clock
from mlsdk.pipeline.ops.table import run as run_operator

every_dtype = pytest.mark.parametrize(("float_dtype", "dtype"), DTYPES)


def x_of(shape, dtype, seed=0):
    return numbers(np.random.default_rng(seed), shape, dtype)


def indices(extent, shape, seed=1, dtype=np.int64):
    return np.random.default_rng(seed).integers(-extent, extent, shape).astype(dtype)


@every_dtype
@pytest.mark.parametrize(
    ("shape", "axis", "index"),
    [
        ((7, 17), 0, (5,)),
        ((7, 17), 1, (3,)),
        ((1000, 33), 0, (3, 7)),
        ((3, 5, 40), 1, (6,)),
        ((3, 5, 40), 2, ()),
        ((300,), 0, (17,)),
        ((300,), 0, (3, 20)),
        ((1, 1), 0, (1,)),
        ((40, 2), 0, (1000,)),
        ((2, 1000), 1, (70,)),
    ],
)
def test_gather(shape, axis, index, float_dtype, dtype):
    i = indices(shape[axis], index)
    agree("Gather", {"x": (x_of(shape, dtype),), "i": (i,)}, 1, {"axis": axis}, float_dtype)


@every_dtype
@pytest.mark.parametrize(
    ("shape", "index", "axis"),
    [
        ((7, 17), (5, 17), 0),
        ((7, 17), (7, 3), 1),
        ((7, 17), (2, 9), 0),
        ((3, 5, 40), (3, 8, 40), 1),
        ((64, 1000), (64, 1), 1),
        ((300,), (20,), 0),
        ((1, 1), (3, 1), 0),
        ((20, 3), (50, 3), 0),
    ],
)
def test_gather_elements(shape, index, axis, float_dtype, dtype):
    i = indices(shape[axis], index)
    agree("GatherElements", {"x": (x_of(shape, dtype),), "i": (i,)}, 1, {"axis": axis}, float_dtype)


@every_dtype
@pytest.mark.parametrize(
    ("shape", "index", "batch"),
    [
        ((7, 17), (5, 2), 0),
        ((7, 17), (5, 1), 0),
        ((3, 5, 40), (4, 6, 2), 0),
        ((3, 5, 40), (3, 7, 1), 1),
        ((3, 5, 40), (3, 2), 1),
        ((2, 3, 4, 5), (2, 3, 1), 2),
        ((2, 3, 4, 5), (7, 4), 0),
        ((2, 3, 4, 5), (7, 3), 0),
    ],
)
def test_gather_nd(shape, index, batch, float_dtype, dtype):
    i = np.stack([indices(shape[batch + k], index[:-1], k) for k in range(index[-1])], axis=-1)
    agree("GatherND", {"x": (x_of(shape, dtype),), "i": (i,)}, 1, {"batch_dims": batch}, float_dtype)


@pytest.mark.parametrize("float_dtype", ["float", "half", "double"])
@pytest.mark.parametrize(
    ("shape", "axis", "index"), [((5000, 33), 0, (11,)), ((9000,), 0, (33,)), ((4500, 8), 0, (40,))]
)
def test_rows_that_do_not_fit_lm_come_in_chunks(shape, axis, index, float_dtype, monkeypatch):
    monkeypatch.setattr("mlsdk.pipeline.layout.fetching.MOST", 0)
    x, i = x_of(shape, "float32"), indices(shape[axis], index)
    agree("Gather", {"x": (x,), "i": (i,)}, 1, {"axis": axis}, float_dtype)
    if len(shape) > 1:
        i = indices(shape[0], (*index, shape[1]))
        agree("GatherElements", {"x": (x,), "i": (i,)}, 1, {"axis": 0}, float_dtype)


@every_dtype
@pytest.mark.parametrize(
    ("shape", "axis", "index", "most"),
    [
        ((4000, 512), 0, (8,), 230),
        ((4000, 64), 0, (), 200),
        ((2500, 200), 0, (3, 5), 320),
        ((2500, 200), 0, (3, 2, 8), 330),
        ((2500, 200), 0, (1, 11, 1), 220),
        ((3, 3000, 40), 1, (7,), 250),
        ((2000, 5, 48), 0, (9, 1), 300),
        ((20000, 128), 0, (600,), 2000),
        ((8, 40000), 1, (3,), 250),
    ],
)
def test_few_rows_are_fetched(shape, axis, index, most, float_dtype, dtype):
    """Those far outside are the nearest."""
    x, i = x_of(shape, dtype), indices(shape[axis], index)
    operands = {"x": (x,) if shape[-1] == 512 else x, "i": (i,)}
    graph = node_graph("Gather", operands, 1, {"axis": axis})[0]
    placed, _, program, _ = compiled(graph, float_dtype)
    assert [p.emitter for p in placed.nodes if p.node.op == "Gather"] == ["fetch"]
    agree("Gather", operands, 1, {"axis": axis}, float_dtype)
    assert Clock().run(program.statements) <= most * (2 if float_dtype == "double" else 1)
    back = Program.from_json(program.to_json())
    assert back.vsm() == program.vsm() and "$di0" in back.vsm()


def test_rows_outside_are_the_nearest_ones():
    x, i = x_of((3000, 512), "float32"), np.array([-3000, -3001, -(2**31), 2999, 3000, 2**31 - 1, 0], np.int64)
    graph = node_graph("Gather", {"x": (x,), "i": (i,)}, 1, {"axis": 0})[0]
    (result,) = run(graph, {"x": x, "i": i})[0].values()
    assert np.array_equal(result, x[[0, 0, 0, 2999, 2999, 2999, 0]])


def test_what_others_read_is_not_laid_out_for_its_rows():
    """Nor is what lies in few PEs so, for then another function may have to compute with it there."""

    def emitters(width, *more):
        shapes = {"x": (4000, width), "y": (8, width), "z": (4000, width)}
        values = {n: Value(n, "float32", s) for n, s in shapes.items()} | {"i": Value("i", "int64", (8,))}
        nodes = (Node("gather", "Gather", ("x", "i"), ("y",), {"axis": 0}), *more)
        outputs = tuple(name for node in nodes for name in node.outputs)
        used = {n: v for n, v in values.items() if n in ("x", "i", *outputs)}
        return {p.emitter for p in compiled(Graph("g", ("x", "i"), outputs, nodes, used, {}))[0].nodes}

    assert "fetch" in emitters(512)
    assert "fetch" not in emitters(512, Node("relu", "Relu", ("x",), ("z",)))
    assert "fetch" not in emitters(64)


@every_dtype
@pytest.mark.parametrize(
    ("op", "shape", "index"),
    [
        ("GatherElements", (64, 1000), (64, 1)),
        ("GatherElements", (5, 200), (5, 7)),
        ("GatherElements", (3, 7, 100), (3, 7, 4)),
        ("Gather", (64, 1000), (3,)),
        ("Gather", (2000, 40), (2, 2)),
        ("GatherElements", (5, 20000), (5, 3)),
    ],
)
def test_rows_on_the_lanes(op, shape, index, float_dtype, dtype):
    """The data lie as a reduction along the last axis wants them, and stay there."""
    x, axis = x_of(shape, dtype), len(shape) - 1
    i = indices(shape[axis], index)
    values = {"x": Value("x", dtype, shape), "i": Value("i", "int64", index)}
    values |= {"a": Value("a", "int64", (1,)), "m": Value("m", dtype, (*shape[:-1], 1))}
    reduce = Node("reduce", "ReduceMax", ("x", "a"), ("m",), {"keepdims": 1})
    node = Node("read", op, ("x", "i"), ("y",), {"axis": axis})
    want = run_operator(node, [x, i])[0]
    values["y"] = Value("y", dtype, want.shape)
    graph = Graph("g", ("x", "i"), ("m", "y"), (reduce, node), values, {"a": np.array([axis])})
    got, _ = run(graph, {"x": x, "i": i}, float_dtype)
    np.testing.assert_array_equal(got["y"], want)
    placed = compiled(graph, float_dtype)[0]
    assert [p.kernel for p in placed.nodes if p.node.name == "read"] == ["lanes"]


@pytest.mark.parametrize("index", [-8, 7, 100, -(2**31), 2**31 - 1])
def test_an_index_outside_reads_the_nearest_row(index):
    x = x_of((7, 20), "float32")
    graph, _ = node_graph("Gather", {"x": (x,), "i": (np.array([index]),)}, 1, {"axis": 0})
    got, _ = run(graph, {"x": x, "i": np.array([index])})
    np.testing.assert_array_equal(got["y0"], x[[0 if index < 0 else 6]])


sizes = st.sampled_from([1, 2, 3, 5, 16, 17, 40])


@given(data=st.data(), shape=st.lists(sizes, min_size=1, max_size=3), kind=st.sampled_from(DTYPES[:4]))
def test_any_gather(data, shape, kind):
    axis = data.draw(st.integers(0, len(shape) - 1))
    index = tuple(data.draw(st.lists(st.sampled_from([1, 3, 17]), max_size=2)))
    i = indices(shape[axis], index, data.draw(st.integers(0, 99)))
    agree("Gather", {"x": (x_of(tuple(shape), kind[1]),), "i": (i,)}, 1, {"axis": axis}, kind[0])


@given(data=st.data(), shape=st.lists(sizes, min_size=1, max_size=3), kind=st.sampled_from(DTYPES[:4]))
def test_any_gather_of_elements(data, shape, kind):
    axis = data.draw(st.integers(0, len(shape) - 1))
    index = tuple(data.draw(st.integers(1, n if a != axis else 20)) for a, n in enumerate(shape))
    i = indices(shape[axis], index, data.draw(st.integers(0, 99)))
    agree("GatherElements", {"x": (x_of(tuple(shape), kind[1]),), "i": (i,)}, 1, {"axis": axis}, kind[0])


# ---- writing ------------------------------------------------------------------------------------------------------

REDUCTIONS = ["none", "add", "mul", "max", "min"]
WRITES = [("float", "float32"), ("half", "float32"), ("double", "float64"), ("float", "int32"), ("float", "uint8"),
          ("float", "bool")]  # fmt: skip


def operands(shape, dtype, index, updates, reduction, extent):
    """Updates that no reduction takes out of what the dtype holds exactly."""
    rng = np.random.default_rng(7)
    x, u = numbers(rng, shape, dtype, -9, 9), numbers(rng, updates, dtype, -9, 9)
    if reduction == "mul" and dtype != "bool":
        u = np.where(rng.random(updates) < 0.8, 1, u).astype(dtype)
    return {"x": (x,), "i": (index,), "u": (u,)}


@pytest.mark.parametrize(("float_dtype", "dtype"), WRITES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("shape", "index", "axis"),
    [((7, 17), (5, 17), 0), ((7, 17), (7, 30), 1), ((7, 17), (2, 9), 0), ((300,), (20,), 0), ((20, 3), (50, 3), 0)],
)
def test_scatter_elements(shape, index, axis, reduction, float_dtype, dtype):
    i = indices(shape[axis], index)
    agree("ScatterElements", operands(shape, dtype, i, index, reduction, shape[axis]), 1,
          {"axis": axis, "reduction": reduction}, float_dtype)  # fmt: skip


@pytest.mark.parametrize(("float_dtype", "dtype"), WRITES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("shape", "index"),
    [
        ((7, 17), (5, 2)),
        ((7, 17), (20, 1)),
        ((3, 5, 40), (4, 6, 2)),
        ((2, 3, 4, 5), (7, 3)),
        ((30,), (50, 1)),
        ((7, 1), (3, 1)),
    ],
)
def test_scatter_nd(shape, index, reduction, float_dtype, dtype):
    i = np.stack([indices(shape[k], index[:-1], k) for k in range(index[-1])], axis=-1)
    updates = (*index[:-1], *shape[index[-1] :])
    agree("ScatterND", operands(shape, dtype, i, updates, reduction, 0), 1, {"reduction": reduction}, float_dtype)


@pytest.mark.parametrize("reduction", ["none", "add"])
@pytest.mark.parametrize(("shape", "index"), [((9000, 20), (30, 1)), ((100000,), (40, 1)), ((3, 5000), (10, 2))])
def test_rows_that_are_written_may_come_in_chunks_and_be_shared_out(shape, index, reduction):
    i = np.stack([indices(shape[k], index[:-1], k) for k in range(index[-1])], axis=-1)
    updates = (*index[:-1], *shape[index[-1] :])
    agree("ScatterND", operands(shape, "float32", i, updates, reduction, 0), 1, {"reduction": reduction})


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_equal_indices_are_applied_in_order(reduction):
    x, u = x_of((5, 8), "int32"), x_of((200, 8), "int32", 1)
    u = np.where(np.random.default_rng(1).random(u.shape) < 0.9, 1, u).astype(np.int32)
    for known in (False, True):
        i = np.array([[3]] * 150 + [[1], [3]] * 25)
        agree("ScatterND", {"x": (x,), "i": i if known else (i,), "u": (u,)}, 1, {"reduction": reduction})


@pytest.mark.parametrize("index", [-8, 7, 100, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("reduction", ["none", "add"])
def test_a_write_outside_is_left_out(index, reduction):
    x, u = x_of((7, 20), "float32"), x_of((1, 20), "float32", 1)
    i = np.array([[index]])
    graph, _ = node_graph("ScatterND", {"x": (x,), "i": (i,), "u": (u,)}, 1, {"reduction": reduction})
    got, _ = run(graph, {"x": x, "i": i, "u": u})
    np.testing.assert_array_equal(got["y0"], x)


@given(data=st.data(), shape=st.lists(sizes, min_size=1, max_size=3), kind=st.sampled_from(WRITES))
def test_any_scatter_of_elements(data, shape, kind):
    axis = data.draw(st.integers(0, len(shape) - 1))
    index = tuple(data.draw(st.integers(1, n if a != axis else 20)) for a, n in enumerate(shape))
    i = indices(shape[axis], index, data.draw(st.integers(0, 99)))
    reduction = data.draw(st.sampled_from(["none", "add", "max"]))
    agree("ScatterElements", operands(tuple(shape), kind[1], i, index, reduction, 0), 1,
          {"axis": axis, "reduction": reduction}, kind[0])  # fmt: skip


@every_dtype
@pytest.mark.parametrize(
    ("shape", "depth", "axis"), [((7,), 10, -1), ((3, 5), 40, 0), ((3, 5), 1, 1), ((), 17, 0), ((300,), 2, 1)]
)
def test_one_hot(shape, depth, axis, float_dtype, dtype):
    i = np.random.default_rng(2).integers(-depth - 2, depth + 2, shape)
    values = np.array([0, 1] if dtype == "bool" else [2, 7], dtype)
    agree("OneHot", {"i": (i,), "d": np.array(depth), "v": values}, 1, {"axis": axis}, float_dtype)
