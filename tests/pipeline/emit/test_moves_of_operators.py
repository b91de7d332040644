"""Operators that only rearrange elements: every dtype, odd shapes, against the reference functions."""

import numpy as np
import pytest
from emulated import compiled, run
from hypothesis import given
from hypothesis import strategies as st
from reference import DTYPES, agree, numbers

from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.ops import infer
from mlsdk.pipeline.ops.interpreter import run_reference
from mlsdk.pipeline.ops.table import Operand

every_dtype = pytest.mark.parametrize(("float_dtype", "dtype"), DTYPES)


def ints(*values):
    return np.array(values, np.int64)


def x_of(shape, dtype, seed=0):
    return numbers(np.random.default_rng(seed), shape, dtype)


@every_dtype
@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize(
    ("shape", "pads"),
    [
        ((7, 17), (1, 2, 3, 0)),
        ((3, 5, 40), (0, 2, 4, 1, 0, 3)),
        ((17,), (5, 5)),
        ((2, 3, 6, 6), (0, 0, 1, 1, 0, 0, 1, 1)),
    ],
)
def test_pad(shape, pads, mode, float_dtype, dtype):
    fill = None if mode != "constant" else np.array(1 if dtype == "bool" else 3, dtype)
    agree("Pad", {"x": (x_of(shape, dtype),), "p": ints(*pads), "f": fill}, 1, {"mode": mode}, float_dtype)


@every_dtype
def test_pad_that_cuts_and_names_axes(float_dtype, dtype):
    operands = {"x": (x_of((5, 40), dtype),), "p": ints(-3, 2), "f": None, "a": ints(-1)}
    agree("Pad", operands, 1, {"mode": "constant"}, float_dtype)


@pytest.mark.parametrize("float_dtype", ["float", "half", "double"])
@pytest.mark.parametrize("fill", [-np.inf, 0.0, 2.0**-20, -1.5])
def test_pad_with_any_number(fill, float_dtype):
    operands = {"x": (x_of((3, 20), "float32"),), "p": ints(1, 1, 0, 30), "f": np.array(fill, np.float32)}
    agree("Pad", operands, 1, {"mode": "constant"}, float_dtype)


@every_dtype
def test_pad_with_a_number_known_at_run_time(float_dtype, dtype):
    fill = np.array(1, dtype)
    agree(
        "Pad",
        {"x": (x_of((3, 20), dtype),), "p": ints(1, 1, 0, 30), "f": (fill,)},
        1,
        {"mode": "constant"},
        float_dtype,
    )


@every_dtype
@pytest.mark.parametrize(
    ("shape", "repeats"), [((3, 5), (2, 3)), ((1, 7), (4, 1)), ((17,), (60,)), ((), ()), ((2, 1, 3), (1, 5, 2))]
)
def test_tile(shape, repeats, float_dtype, dtype):
    agree("Tile", {"x": (x_of(shape, dtype),), "r": ints(*repeats)}, 1, {}, float_dtype)


@every_dtype
@pytest.mark.parametrize(
    ("shape", "axis", "sizes"),
    [
        ((6, 48), 1, (16, 16, 16)),
        ((7, 33), -1, (1, 17, 15)),
        ((100, 3), 0, (50, 1, 49)),
        ((5, 8), 1, (0, 8)),
        ((10,), 0, None),
    ],
)
def test_split(shape, axis, sizes, float_dtype, dtype):
    count = 3 if sizes is None else len(sizes)
    agree(
        "Split",
        {"x": (x_of(shape, dtype),), "s": None if sizes is None else ints(*sizes)},
        count,
        {"axis": axis},
        float_dtype,
    )


@every_dtype
@pytest.mark.parametrize(
    ("shape", "new"), [((1, 5), (3, 5)), ((5, 1), (2, 5, 40)), ((), (7,)), ((3, 1, 17), (3, 1000, 17))]
)
def test_expand(shape, new, float_dtype, dtype):
    agree("Expand", {"x": (x_of(shape, dtype),), "s": ints(*new)}, 1, {}, float_dtype)


@every_dtype
@pytest.mark.parametrize("op", ["DepthToSpace", "SpaceToDepth"])
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_space_and_depth(op, mode, float_dtype, dtype):
    shape = (2, 12, 3, 5) if op == "DepthToSpace" else (2, 3, 6, 10)
    agree(op, {"x": (x_of(shape, dtype),)}, 1, {"blocksize": 2, "mode": mode}, float_dtype)


@every_dtype
@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize(("shape", "k"), [((5, 5), 0), ((3, 40), 2), ((2, 17, 9), -3), ((1, 1), 0), ((4, 4), 9)])
def test_triangles(shape, k, upper, float_dtype, dtype):
    agree("Trilu", {"x": (x_of(shape, dtype),), "k": np.array(k)}, 1, {"upper": upper}, float_dtype)


@every_dtype
@pytest.mark.parametrize(
    ("shape", "axis", "indices"),
    [((7, 17), 0, [[6, -1], [0, 3]]), ((7, 17), 1, [16, 2, 2, -17]), ((1000,), 0, 7), ((2, 3, 4), -1, [1])],
)
def test_gather_at_known_indices(shape, axis, indices, float_dtype, dtype):
    agree("Gather", {"x": (x_of(shape, dtype),), "i": np.array(indices)}, 1, {"axis": axis}, float_dtype)


@every_dtype
def test_elements_at_known_indices(float_dtype, dtype):
    rng = np.random.default_rng(3)
    x = x_of((7, 17), dtype)
    agree("GatherElements", {"x": (x,), "i": rng.integers(-7, 7, (9, 11))}, 1, {"axis": 0}, float_dtype)
    agree("GatherND", {"x": (x,), "i": rng.integers(-7, 7, (5, 2))}, 1, {}, float_dtype)
    agree("GatherND", {"x": (x,), "i": rng.integers(-7, 7, (7, 3, 1))}, 1, {"batch_dims": 1}, float_dtype)


@every_dtype
def test_writes_at_known_indices(float_dtype, dtype):
    rng = np.random.default_rng(4)
    x, u = x_of((7, 17), dtype), x_of((3, 17), dtype, 1)
    agree("ScatterND", {"x": (x,), "i": np.array([[2], [-1], [2]]), "u": (u,)}, 1, {}, float_dtype)
    agree("ScatterElements", {"x": (x,), "i": rng.integers(-17, 17, (3, 17)), "u": (u,)}, 1, {"axis": 1}, float_dtype)
    agree(
        "ScatterND", {"x": (x,), "i": np.zeros((2, 0), np.int64), "u": (x_of((2, 7, 17), dtype),)}, 1, {}, float_dtype
    )
    agree("ScatterND", {"x": (x,), "i": np.zeros((0, 1), np.int64), "u": (x_of((0, 17), dtype),)}, 1, {}, float_dtype)


@every_dtype
@pytest.mark.parametrize(
    ("op", "new"), [("Unsqueeze", (0, 2)), ("Squeeze", None), ("Flatten", None), ("Identity", None)]
)
def test_views(op, new, float_dtype, dtype):
    shape = (1, 5, 1, 9) if op == "Squeeze" else (5, 9, 2)
    operands = {"x": (x_of(shape, dtype),)} | ({"a": ints(*new)} if new else {})
    agree(op, operands, 1, {}, float_dtype)


@every_dtype
def test_what_is_made_of_nothing(float_dtype, dtype):
    fill = np.array([1], dtype)
    agree("ConstantOfShape", {"s": ints(40, 100)}, 1, {"value": fill}, float_dtype)
    if dtype != "bool":
        agree("EyeLike", {"x": (x_of((40, 70), dtype),)}, 1, {"k": 3}, float_dtype)
    if dtype in ("float32", "float64", "int32", "int64") and float_dtype != "half":
        agree(
            "Range", {"a": np.array(3, dtype), "b": np.array(2000, dtype), "c": np.array(2, dtype)}, 1, {}, float_dtype
        )


@every_dtype
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat_of_unequal_parts(axis, float_dtype, dtype):
    shapes = {
        0: [(3, 17, 2), (1, 17, 2), (0, 17, 2)],
        1: [(3, 17, 2), (3, 1, 2)],
        -1: [(3, 5, 2), (3, 5, 31), (3, 5, 1)],
    }[axis]
    operands = {f"x{i}": (x_of(s, dtype, i),) for i, s in enumerate(shapes)}
    agree("Concat", operands, 1, {"axis": axis}, float_dtype)


sizes = st.sampled_from([1, 2, 3, 5, 7, 16, 17, 33])


@given(data=st.data(), shape=st.lists(sizes, min_size=1, max_size=3), kind=st.sampled_from(DTYPES[:4]))
def test_any_slice(data, shape, kind):
    starts, ends, steps = [], [], []
    for n in shape:
        a, b = data.draw(st.integers(-n - 1, n + 1)), data.draw(st.integers(-n - 1, n + 1))
        step = data.draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
        starts.append(a), ends.append(b), steps.append(step)
    axes = ints(*range(len(shape)))
    x = x_of(tuple(shape), kind[1])
    agree("Slice", {"x": (x,), "s": ints(*starts), "e": ints(*ends), "a": axes, "t": ints(*steps)}, 1, {}, kind[0])


@given(data=st.data(), shape=st.lists(sizes, min_size=1, max_size=3), kind=st.sampled_from(DTYPES[:4]))
def test_any_pad(data, shape, kind):
    mode = data.draw(st.sampled_from(["constant", "edge", "wrap", "reflect"]))
    low = [data.draw(st.integers(-(n // 3) if mode == "constant" else 0, 5)) for n in shape]
    high = [data.draw(st.integers(-(n // 3) if mode == "constant" else 0, 5)) for n in shape]
    fill = np.array(7, kind[1]) if mode == "constant" and data.draw(st.booleans()) else None
    agree("Pad", {"x": (x_of(tuple(shape), kind[1]),), "p": ints(*low, *high), "f": fill}, 1, {"mode": mode}, kind[0])


@pytest.mark.parametrize(
    ("op", "operands", "attrs"),
    [
        ("Concat", {}, {"axis": 1}),
        ("Pad", {"p": ints(0, 0, 2, 1, 0, 0, 1, 2)}, {"mode": "reflect"}),
        ("Slice", {"from": ints(1), "to": ints(9), "axes": ints(2)}, {}),
    ],
)
def test_between_windows_planes_stay_planes(op, operands, attrs):
    """A convolution, a move, a convolution: nothing is brought to another layout and back."""
    shape = (2, 20, 10, 12)
    rng = np.random.default_rng(0)
    names = ("a", "a") if op == "Concat" else ("a",)
    constants = {"v": rng.integers(-2, 3, (20, 20, 1, 1)).astype(np.float32), **operands}
    known = [Operand(n, "float32", shape, None) for n in names]
    known += [Operand(n, str(a.dtype), a.shape, a) for n, a in operands.items()]
    move = Node("move", op, (*names, *operands), ("m",), attrs)
    ((_, moved),) = infer(move, known)
    constants["w"] = rng.integers(-2, 3, (20, moved[1], 1, 1)).astype(np.float32)
    shapes = {"x": shape, "a": shape, "m": moved, "y": (2, 20, *moved[2:])}
    values = {n: Value(n, "float32", s) for n, s in shapes.items()}
    values |= {n: Value(n, str(a.dtype), a.shape) for n, a in constants.items()}
    nodes = (Node("c", "Conv", ("x", "v"), ("a",)), move, Node("d", "Conv", ("m", "w"), ("y",)))
    graph = Graph("g", ("x",), ("y",), nodes, values, constants)
    x = rng.integers(-2, 3, shape).astype(np.float32)
    np.testing.assert_array_equal(run(graph, {"x": x})[0]["y"], run_reference(graph, {"x": x})["y"])
    assert [p.node.op for p in compiled(graph)[0].nodes] == ["Conv", op, "Conv"]


@given(data=st.data(), shape=st.lists(sizes, min_size=1, max_size=3), kind=st.sampled_from(DTYPES[:4]))
def test_any_concat(data, shape, kind):
    axis = data.draw(st.integers(0, len(shape) - 1))
    parts = data.draw(st.lists(st.sampled_from([0, 1, 3, 16, 17]), min_size=1, max_size=4))
    operands = {f"x{i}": (x_of((*shape[:axis], n, *shape[axis + 1 :]), kind[1], i),) for i, n in enumerate(parts)}
    agree("Concat", operands, 1, {"axis": axis}, kind[0])


@given(data=st.data(), shape=st.lists(sizes, min_size=1, max_size=4), kind=st.sampled_from(DTYPES[:4]))
def test_any_reshape(data, shape, kind):
    rest, new = int(np.prod(shape)), []
    while rest > 1 and len(new) < 4:
        new.append(data.draw(st.sampled_from([n for n in range(1, rest + 1) if rest % n == 0])))
        rest //= new[-1]
    new.insert(data.draw(st.integers(0, len(new))), rest)
    agree("Reshape", {"x": (x_of(tuple(shape), kind[1]),), "s": ints(*new)}, 1, {}, kind[0])
