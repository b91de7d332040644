"""The operator table: every row is complete, its rule agrees with its reference, and wrong nodes are refused."""

from __future__ import annotations

import numpy as np
import pytest

from mlsdk.errors import GraphError, InputMismatch, UnknownOperator
from mlsdk.pipeline.ir.graph import DTYPES, FLOATS, Graph, Node, Value
from mlsdk.pipeline.ops import OPERATORS, Operand, Operator, infer, lookup, register, run
from mlsdk.pipeline.ops.check import check, known_operators
from mlsdk.pipeline.ops.interpreter import run_reference
from mlsdk.pipeline.ops.table import _ROWS


def operand(name, array, known=False):
    return Operand(name, str(array.dtype), array.shape, array if known else None)


def both(op, *arrays, known=(), outputs=1, **attrs):
    """Rule and reference on arrays; `known`: the places whose data the rule may see. Returns the results."""
    node = Node("n", op, tuple(f"x{i}" for i in range(len(arrays))), ("y",) * outputs, attrs)
    types = infer(node, [operand(f"x{i}", array, i in known) for i, array in enumerate(arrays)])
    results = run(node, arrays)
    assert [(str(result.dtype), result.shape) for result in results] == types
    return results


def test_every_row_is_documented():
    for name, row in OPERATORS.items():
        assert row.name == name and row.doc.endswith((".", ")")) and row.family, name
        fewest, most = row.arity
        assert fewest >= 0 and (most is None or fewest <= most)


def test_the_operators_that_programs_need_are_there():
    needed = (
        "Add Sub Mul Neg Relu MatMul Gemm Softmax ReduceSum ReduceMax ReduceMean ArgMax Cast Reshape Transpose Concat "
        "Slice Identity Constant Expand Squeeze Unsqueeze Flatten Conv ConvTranspose MaxPool AveragePool Gather ScatterND"
    )
    assert set(needed.split()) <= set(OPERATORS)


def test_unknown_names_get_the_nearest():
    with pytest.raises(UnknownOperator, match="operator Matmul is not in the table; did you mean MatMul"):
        lookup("Matmul")


def test_a_row_can_be_added_once():
    row = Operator("TestDouble", lambda n, i: [(i[0].dtype, i[0].shape)], lambda n, i: [i[0] * 2], "2 * x.")
    register(row)
    try:
        assert both("TestDouble", np.ones(3, np.float32))[0].tolist() == [2, 2, 2]
        with pytest.raises(GraphError, match="registered twice"):
            register(row)
    finally:
        del _ROWS["TestDouble"]


SHAPES = [(), (1,), (0,), (3,), (1, 1), (3, 1), (2, 0), (2, 3, 1), (5, 1, 7)]
UNARY = [name for name, row in OPERATORS.items() if row.family == "elementwise" and row.arity == (1, 1)]
BINARY = [name for name, row in OPERATORS.items() if row.family == "elementwise" and row.arity == (2, 2)]
ATTRS = {"BitShift": {"direction": "LEFT"}, "Cast": {"to": 1}}


def numbers(shape, dtype, seed=0):
    generator = np.random.default_rng(seed)
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype in FLOATS:
        return generator.uniform(0.1, 0.9, shape).astype(dtype)
    return generator.integers(1, 4, shape).astype(dtype)


@pytest.mark.parametrize("op", UNARY)
def test_unary_rows_keep_their_rule(op):
    ran = 0
    for dtype in DTYPES:
        for shape in SHAPES:
            try:
                both(op, numbers(shape, dtype), **ATTRS.get(op, {}))
                ran += 1
            except GraphError as error:
                assert "has dtype" in str(error)
    assert ran >= len(SHAPES)


@pytest.mark.parametrize("op", BINARY)
def test_binary_rows_broadcast_as_numpy(op):
    ran = 0
    for dtype in DTYPES:
        for shape in SHAPES:
            for other in ((), (1,), shape, shape[-1:]):
                try:
                    both(op, numbers(shape, dtype), numbers(other, dtype, 1), **ATTRS.get(op, {}))
                    ran += 1
                except GraphError as error:
                    assert "has dtype" in str(error)
    assert ran


REDUCTIONS = [name for name in OPERATORS if name.startswith("Reduce")]


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions_take_every_set_of_axes(op):
    for dtype in DTYPES:
        for shape in SHAPES:
            for axes in ([], [-1], [0], list(range(len(shape)))):
                for keepdims in (0, 1):
                    if axes and not shape:
                        continue
                    try:
                        both(op, numbers(shape, dtype), np.array(axes, np.int64), known=(1,), keepdims=keepdims)
                    except GraphError as error:
                        assert "has dtype" in str(error)


def test_sums_of_halves_are_taken_in_single():
    x = np.full(4096, 0.1, np.float16)
    assert both("ReduceSum", x)[0] == np.float16(np.sum(x, dtype=np.float64))
    a = np.full((1, 4096), 0.1, np.float16)
    assert both("MatMul", a, a.T)[0][0, 0] == np.float16(4096 * np.float64(np.float16(0.1)) ** 2)


def test_integers_divide_as_c_does():
    a, b = np.array([7, -7, 7, -7, 5], np.int32), np.array([2, 2, -2, -2, 0], np.int32)
    assert both("Div", a, b)[0].tolist() == [3, -3, -3, 3, 0]
    assert both("Mod", a[:4], b[:4])[0].tolist() == [1, 1, -1, -1]
    assert both("Mod", a[:4], b[:4], fmod=1)[0].tolist() == [1, -1, 1, -1]


def test_infinities_and_nan_in_softmax():
    x = np.array([[1e30, -1e30, 0], [-np.inf, 0, 0]], np.float32)
    np.testing.assert_array_equal(both("Softmax", x)[0], np.array([[1, 0, 0], [0, 0.5, 0.5]], np.float32))
    assert np.isnan(both("ReduceMax", np.array([1, np.nan], np.float32))[0])


WRONG = {
    "takes 2 inputs, got 1": ("Add", [np.ones(2)], {}),
    "different dtypes float64, float32": ("Add", [np.ones(2), np.ones(2, np.float32)], {}),
    r"shapes \[2\] and \[3\] do not broadcast": ("Add", [np.ones(2), np.ones(3)], {}),
    "has dtype bool; allowed": ("Add", [np.ones(2, bool), np.ones(2, bool)], {}),
    r"cannot contract \[2, 3\] with \[2, 3\]": ("MatMul", [np.ones((2, 3)), np.ones((2, 3))], {}),
    "has no attribute axes; did you mean axis": ("Softmax", [np.ones(2)], {"axes": 0}),
    "needs the attribute axis": ("Concat", [np.ones(2)], {}),
    "axis 2 is outside a tensor of rank 1": ("Softmax", [np.ones(2)], {"axis": 2}),
    "is computed at run time; make it constant": ("Reshape", [np.ones(2), np.array([2])], {}),
    r"perm \[0, 0\] is not an order of 2 axes": ("Transpose", [np.ones((2, 2))], {"perm": (0, 0)}),
    "the window of 5 does not fit": ("Conv", [np.ones((1, 1, 3)), np.ones((1, 1, 5))], {}),
    "casts to element type 16": ("Cast", [np.ones(2)], {"to": 16}),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_nodes_are_refused(message):
    op, arrays, attrs = WRONG[message]
    node = Node("n", op, tuple(f"x{i}" for i in range(len(arrays))), ("y",), attrs, "model.py:3")
    with pytest.raises(GraphError, match=rf"node n \({op}\) at model.py:3: .*{message}"):
        infer(node, [operand(f"x{i}", array) for i, array in enumerate(arrays)])


RESHAPES = {
    (2, 3): [
        ((3, 2), (3, 2)),
        ((-1,), (6,)),
        ((0, -1), (2, 3)),
        ((1, 6, 1), (1, 6, 1)),
        ((4, 2), None),
        ((-1, -1), None),
    ],
    (): [((), ()), ((1, 1), (1, 1)), ((0,), None)],
    (0, 3): [((0, 5), (0, 5)), ((3, 0), None), ((-1,), (0,)), ((0, 3), (0, 3))],
}


@pytest.mark.parametrize("shape", RESHAPES, ids=str)
def test_reshape(shape):
    for wanted, result in RESHAPES[shape]:
        arguments = np.zeros(shape, np.float32), np.array(wanted, np.int64)
        if result is None:
            with pytest.raises(GraphError):
                both("Reshape", *arguments, known=(1,))
        else:
            assert both("Reshape", *arguments, known=(1,))[0].shape == result


def chain():
    values = {name: Value(name, "float32", (2,)) for name in ("x", "a", "y")}
    nodes = (Node("one", "Neg", ("x",), ("a",)), Node("two", "Relu", ("a",), ("y",)))
    return Graph("chain", ("x",), ("y", "a"), nodes, values)


def test_interpreter():
    seen = []
    x = np.array([1, -2], np.float32)
    results = run_reference(chain(), {"x": x}, watch=lambda node, arrays: seen.append((node.name, len(arrays))))
    assert results["y"].tolist() == [0, 2] and results["a"].tolist() == [-1, 2] and list(results) == ["y", "a"]
    assert seen == [("one", 1), ("two", 1)]
    with pytest.raises(InputMismatch, match="input x is missing"):
        run_reference(chain(), {})
    with pytest.raises(InputMismatch, match=r"input x is float64\[2\], compiled for float32\[2\]"):
        run_reference(chain(), {"x": x.astype(np.float64)})
    with pytest.raises(InputMismatch, match=r"input x is float32\[1\]"):
        run_reference(chain(), {"x": x[:1]})


def test_indices_outside_are_an_error():
    x = np.arange(3)
    with pytest.raises(GraphError, match="index 3 is outside an axis of 3 elements"):
        both("Gather", x, np.array([0, 3]))
    assert both("Gather", x, np.array([-1]))[0].tolist() == [2]


def test_all_unknown_operators_at_once():
    values = {name: Value(name, "float32", (2,)) for name in ("x", "a", "y")}
    nodes = (Node("one", "Sofmax", ("x",), ("a",), {}, "m.py:1"), Node("two", "Zzz", ("a",), ("y",)))
    with pytest.raises(UnknownOperator) as caught:
        known_operators(Graph("g", ("x",), ("y",), nodes, values))
    assert "Sofmax (node one, m.py:1); did you mean Softmax?" in str(caught.value) and "Zzz" in str(caught.value)


def test_check_compares_declared_types():
    graph = chain()
    wrong = {**graph.values, "y": Value("y", "float32", (3,))}
    with pytest.raises(GraphError, match=r"output y is declared float32\[3\], its operator gives float32\[2\]"):
        check(Graph("g", graph.inputs, graph.outputs, graph.nodes, wrong))
