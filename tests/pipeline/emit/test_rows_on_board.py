"""Reductions, softmax, ArgMax and ArgMin on the board against numpy."""

import numpy as np
import pytest
from emulated import compare, graph_of, run
from hypothesis import given
from hypothesis import strategies as st

from mlsdk.pipeline.ir.graph import Graph, Node, Value

REDUCE = {"ReduceSum": np.sum, "ReduceMax": np.max, "ReduceMean": np.mean, "ReduceMin": np.min}
SHAPES = [((3, 4), (1,)), ((3, 4), (0,)), ((3, 4), (0, 1)), ((64, 64), (0,)), ((100, 70), (1,)), ((100, 70), (0, 1)),
          ((1000,), (0,)), ((2, 3, 5, 7), (1, 3)), ((2, 3, 5, 7), (0, 2)), ((5, 1), (1,)), ((1,), (0,)), ((300, 200), (0,)),
          ((7, 2000), (1,))]  # fmt: skip


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("dtype", ["float", "half", "double"])
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
@pytest.mark.parametrize("op", sorted(REDUCE))
def test_reductions_match_numpy(op, shape, axes, dtype, keep):
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    want = REDUCE[op](x.astype(np.float64), axis=axes, keepdims=bool(keep))
    graph = graph_of(
        op, {"x": ("float32", shape)}, {"y": ("float32", want.shape)}, {"keepdims": keep}, {"axes": np.array(axes)}
    )
    result, _ = run(graph, {"x": x}, dtype)
    scale = {"ReduceSum": np.abs(x).sum(), "ReduceMean": np.abs(x).mean()}.get(op, np.abs(x).max())
    compare(result["y"], want, dtype, scale)


@pytest.mark.parametrize("dtype", ["float", "half", "double"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((3, 4), -1),
        ((3, 4), 0),
        ((64, 64), 0),
        ((64, 10), -1),
        ((2, 3, 5, 7), 2),
        ((5, 1), 1),
        ((1,), 0),
        ((), -1),
        ((300, 100), 1),
    ],
)
def test_softmax_matches_numpy(shape, axis, dtype):
    x = (np.random.default_rng(6).standard_normal(shape) * 3).astype(np.float32)
    e = np.exp(x.astype(np.float64) - x.max(axis=axis if shape else None, keepdims=True))
    want = e / e.sum(axis=axis if shape else None, keepdims=True)
    result, _ = run(
        graph_of("Softmax", {"x": ("float32", shape)}, {"y": ("float32", shape)}, {"axis": axis}), {"x": x}, dtype
    )
    if dtype == "half":  # a rounded input moves the result by its size times 2^-10
        assert np.abs(result["y"] - want).max() <= 2**-7 * want.max()
    else:
        assert np.abs(result["y"] / want - 1).max() <= {"float": 3e-6, "double": 3e-7}[dtype]


@pytest.mark.parametrize("dtype", ["float", "half", "double", "int"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((3, 4), -1), ((3, 4), 0), ((64, 10), -1), ((100, 70), 1), ((2, 3, 5, 7), 2), ((5, 1), 0), ((1000,), 0)],
)
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_ties_go_to_the_first_or_the_last(op, shape, axis, dtype, last):
    x = np.random.default_rng(7).integers(-5, 5, shape).astype(np.int32 if dtype == "int" else np.float32)
    pick = np.argmax if op == "ArgMax" else np.argmin
    want = np.asarray(shape[axis] - 1 - pick(np.flip(x, axis), axis=axis) if last else pick(x, axis=axis))
    attrs = {"axis": axis, "keepdims": 0, "select_last_index": last}
    graph = graph_of(op, {"x": (str(x.dtype), shape)}, {"y": ("int64", want.shape)}, attrs)
    result, _ = run(graph, {"x": x}, "float" if dtype == "int" else dtype)
    assert np.array_equal(result["y"], want)


@given(rows=st.integers(1, 40), columns=st.integers(1, 90), seed=st.integers(0, 2**31))
def test_sums_over_rows_and_columns_agree(rows, columns, seed):
    x = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    for axis in (0, 1):
        want = x.astype(np.float64).sum(axis=axis)
        graph = graph_of(
            "ReduceSum",
            {"x": ("float32", x.shape)},
            {"y": ("float32", want.shape)},
            {"keepdims": 0},
            {"axes": np.array([axis])},
        )
        result, _ = run(graph, {"x": x})
        compare(result["y"], want, "float", np.abs(x).sum(axis=axis))


@pytest.mark.parametrize(
    ("shape", "axes", "op"), [((0, 4), (0,), "ReduceSum"), ((4, 0), (1,), "ReduceSum"), ((0,), (0,), "ReduceSum")]
)
def test_a_sum_of_nothing_is_zero(shape, axes, op):
    want = np.zeros([n for a, n in enumerate(shape) if a not in axes], np.float32)
    graph = graph_of(
        op, {"x": ("float32", shape)}, {"y": ("float32", want.shape)}, {"keepdims": 0}, {"axes": np.array(axes)}
    )
    result, _ = run(graph, {"x": np.zeros(shape, np.float32)})
    assert np.array_equal(result["y"], want)


@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0, 2)])
def test_tensors_without_elements_keep_their_shape(shape):
    graph = graph_of("Add", {"a": ("float32", shape), "b": ("float32", shape)}, {"c": ("float32", shape)})
    result, _ = run(graph, {"a": np.zeros(shape, np.float32), "b": np.zeros(shape, np.float32)})
    assert result["c"].shape == shape


def test_a_product_over_no_lanes_is_zero():
    graph = graph_of("MatMul", {"a": ("float32", (3, 0)), "b": ("float32", (0, 5))}, {"y": ("float32", (3, 5))})
    result, _ = run(graph, {"a": np.zeros((3, 0), np.float32), "b": np.zeros((0, 5), np.float32)})
    assert np.array_equal(result["y"], np.zeros((3, 5)))


def test_concat_leaves_out_what_has_no_elements():
    x = np.ones((2, 3), np.float32)
    graph = graph_of(
        "Concat", {"a": ("float32", (0, 3)), "b": ("float32", (2, 3))}, {"y": ("float32", (2, 3))}, {"axis": 0}
    )
    result, _ = run(graph, {"a": np.zeros((0, 3), np.float32), "b": x})
    assert np.array_equal(result["y"], x)


@pytest.mark.parametrize(
    ("shape", "dtype", "op", "most"),
    [
        ((8, 16, 32, 32), "float", "ReduceSum", 1200),  # with the same work in every MAB, 3,300
        ((8, 32, 16, 16), "half", "ReduceMean", 600),
        ((8, 48, 8, 8), "mixed", "ReduceMean", 1200),
        ((1, 64, 56, 56), "half", "ReduceSum", 2200),
        ((8, 16, 28, 28), "mixed", "ReduceSum", 1000),  # columns that hold nothing: 3,278
        ((16, 32, 26, 26), "half", "ReduceMean", 2350),  # and rows, in one of the L2Bs: 8,569
        ((8, 16, 32, 32), "float", "ReduceMax", 3600),
    ],
)
def test_all_pes_share_in_the_sums_of_channels(shape, dtype, op, most):
    """Of planes, of which all L1Bs and MABs hold copies."""
    rng = np.random.default_rng(8)
    x = (rng.standard_normal(shape) - 9).astype(np.float32)
    nodes = (
        Node("planes", "MaxPool", ("x",), ("v",), {"kernel_shape": (1, 1)}),
        Node("reduced", op, ("v", "axes"), ("y",), {"keepdims": 0}),
    )
    shapes = {"x": shape, "v": shape, "y": (shape[1],)}
    values = {n: Value(n, "float32", s) for n, s in shapes.items()} | {"axes": Value("axes", "int64", (3,))}
    graph = Graph("g", ("x",), ("v", "y"), nodes, values, {"axes": np.array([0, 2, 3])})
    result, stats = run(graph, {"x": x}, dtype)
    v = result["v"].astype(np.float64)
    want = {"ReduceSum": v.sum, "ReduceMean": v.mean, "ReduceMax": v.max}[op]((0, 2, 3))
    assert np.abs(result["y"] - want).max() <= {"half": 2**-10}.get(dtype, 2**-21) * np.abs(want).max()
    assert stats.total_steps <= most
