"""Every elementwise operator on the board, in every dtype, against its reference function in double: odd shapes, broadcasting."""

import numpy as np
import pytest
from emulated import graph_of, run

from mlsdk.errors import GraphError
from mlsdk.pipeline.ir.graph import DTYPES, Node
from mlsdk.pipeline.ops import OPERATORS, infer
from mlsdk.pipeline.ops.emitters.kernels import KERNELS
from mlsdk.pipeline.ops.table import Operand
from mlsdk.pipeline.ops.table import run as reference

FLOAT_DTYPES = ("float", "half", "mixed", "double")
#: relative error that the dtypes themselves and small errors of the functions leave
RELATIVE = {"float": 4e-7, "mixed": 4e-7, "half": 4e-3, "double": 2e-7}
SHAPES = ((37, 21), (3, 1, 7), (1000,), (1,), ())

anything = lambda rng, shape: rng.standard_normal(shape) * 3  # noqa: E731
positive = lambda rng, shape: np.abs(rng.standard_normal(shape)) * 3 + 0.01  # noqa: E731
inside = lambda rng, shape: rng.uniform(-0.95, 0.95, shape)  # noqa: E731
above_one = lambda rng, shape: 1.01 + np.abs(rng.standard_normal(shape)) * 3  # noqa: E731

#: operator -> (what its operands are drawn from, attributes)
UNARY = {
    "Abs": (anything, {}), "Acos": (inside, {}), "Acosh": (above_one, {}), "Asin": (inside, {}), "Asinh": (anything, {}),
    "Atan": (anything, {}), "Atanh": (inside, {}), "Ceil": (anything, {}), "Celu": (anything, {"alpha": 0.7}),
    "Cos": (anything, {}), "Cosh": (anything, {}), "Elu": (anything, {"alpha": 1.3}), "Erf": (anything, {}),
    "Exp": (anything, {}), "Expm1": (anything, {}), "Floor": (anything, {}), "Gelu": (anything, {}),
    "HardSigmoid": (anything, {}), "HardSwish": (anything, {}), "Identity": (anything, {}),
    "LeakyRelu": (anything, {"alpha": 0.1}), "Log": (positive, {}), "Log1p": (positive, {}), "Mish": (anything, {}),
    "Neg": (anything, {}), "Reciprocal": (positive, {}), "Relu": (anything, {}), "Round": (anything, {}),
    "Rsqrt": (positive, {}), "Selu": (anything, {}), "Sigmoid": (anything, {}), "Sign": (anything, {}), "Silu": (anything, {}),
    "Sin": (anything, {}), "Sinh": (anything, {}), "Softplus": (anything, {}), "Softsign": (anything, {}),
    "Sqrt": (positive, {}), "Tan": (inside, {}), "Tanh": (anything, {}), "ThresholdedRelu": (anything, {"alpha": 0.4}),
}  # fmt: skip
BINARY = {
    "Add": (anything, anything), "Atan2": (anything, anything), "Div": (anything, positive), "Max": (anything, anything),
    "Min": (anything, anything), "Mul": (anything, anything), "PRelu": (anything, anything), "Sub": (anything, anything),
}  # fmt: skip
COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")


def on_board(op, inputs, attrs=None, float_dtype="float", constants=None, out=None):
    """The operator's result on the board, and the reference's in double on what the board was given."""
    named = {f"x{i}": a for i, a in enumerate(inputs)}
    wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in inputs]
    node = Node(op, op, (), ("y",), attrs or {})
    fixed = [*(constants or {}).values()]
    with np.errstate(all="ignore"):
        want = reference(node, [*wide, *(c.astype(np.float64) if c.dtype == np.float32 else c for c in fixed)])[0]
    dtype = out or str(inputs[0].dtype)
    graph = graph_of(
        op, {n: (str(a.dtype), a.shape) for n, a in named.items()}, {"y": (dtype, want.shape)}, attrs, constants
    )
    result, _ = run(graph, named, float_dtype)
    return result["y"], want


def halved(x):
    """Rounded to 10 bits, so that a half holds it."""
    m, e = np.frexp(x)
    return np.ldexp(np.rint(m * 1024) / 1024, e).astype(np.float32)


def near(result, want, float_dtype, scale=0.0):
    """Equal but for the relative errors of `float_dtype`; what half cannot hold is infinite or 0 there."""
    assert result.shape == want.shape
    if float_dtype == "half":
        low, high = np.abs(want) < 2.0**-30, np.abs(want) >= 2.0**32 - 2.0**21
        want = np.where(high, np.copysign(np.inf, want), np.where(low & (result == 0), 0, want))
    error = np.where(result == want, 0, np.abs(result.astype(np.float64) - want))
    assert (error <= RELATIVE[float_dtype] * (np.abs(want) + scale) + 1e-30).all(), error.max()


@pytest.mark.parametrize("float_dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("op", UNARY)
def test_functions_of_one_operand(op, float_dtype):
    draw, attrs = UNARY[op]
    rng = np.random.default_rng(len(op))
    for shape in SHAPES:
        x = halved(draw(rng, shape))
        result, want = on_board(op, [x], attrs, float_dtype)
        near(result, want, float_dtype, scale=np.abs(x) if op in ("Gelu", "HardSwish", "Sin", "Cos") else 1e-6)


@pytest.mark.parametrize("float_dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("op", BINARY)
def test_functions_of_two_operands(op, float_dtype):
    first, second = BINARY[op]
    rng = np.random.default_rng(len(op))
    for a, b in (((37, 21), (37, 21)), ((5, 1, 7), (9, 1)), ((), (33,)), ((1,), ()), ((2, 3, 17), (17,))):
        x, y = halved(first(rng, a)), halved(second(rng, b))
        result, want = on_board(op, [x, y], {}, float_dtype)
        near(result, want, float_dtype, scale=np.abs(x) + np.abs(y) if op in ("Add", "Sub") else 0.0)


@pytest.mark.parametrize("float_dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons_of_floats(op, float_dtype):
    rng = np.random.default_rng(0)
    x, y = rng.integers(-2, 3, (37, 21)).astype(np.float32), rng.integers(-2, 3, (21,)).astype(np.float32)
    x[0, :6], y[:6] = (0.0, -0.0, np.inf, -np.inf, np.inf, 1.2e-9), (-0.0, 0.0, np.inf, np.inf, -np.inf, 2e-9)
    result, want = on_board(op, [x, y], {}, float_dtype, out="bool")
    assert np.array_equal(result, want)


INTEGER = {
    "Add": {}, "Sub": {}, "Mul": {}, "Div": {}, "Mod": {"fmod": 0}, "Max": {}, "Min": {}, "Equal": {}, "Greater": {}, "Less": {},
    "GreaterOrEqual": {}, "LessOrEqual": {}, "BitwiseAnd": {}, "BitwiseOr": {}, "BitwiseXor": {}, "PRelu": {},
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("op", INTEGER)
def test_integer_operators(op, dtype):
    rng = np.random.default_rng(1)
    low, high = (0, 256) if dtype == "uint8" else (-(2**31), 2**31)
    x, y = (rng.integers(low, high, s) for s in ((37, 21), (21,)))
    y = np.where(rng.random(21) < 0.7, y >> rng.integers(0, 31, 21), y) if dtype != "uint8" else y
    x.flat[:4], y[:4] = (0, low, high - 1, 5), (0, 1, 3, -1 if low else 1)
    x, y = x.astype(dtype), y.astype(dtype)
    result, want = on_board(op, [x, y], INTEGER[op], out="bool" if op in COMPARISONS else dtype)
    cut = want.astype(np.int32) if dtype == "int64" and want.dtype != bool else want
    assert np.array_equal(result, cut.astype(result.dtype))


@pytest.mark.parametrize("op", ["Abs", "Neg", "Sign", "Relu", "BitwiseNot", "Identity"])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_integer_functions(op, dtype):
    if op == "Neg" and dtype == "uint8":
        pytest.skip("the operator does not take uint8")
    x = np.array([0, 1, 5, 200, 255] if dtype == "uint8" else [0, 1, -1, 7, -(2**30), 2**31 - 1, -(2**31) + 1], dtype)
    result, want = on_board(op, [x])
    assert np.array_equal(result, want)


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_remainders_and_shifts(dtype):
    rng = np.random.default_rng(2)
    x = rng.integers(0 if dtype == "uint8" else -100, 100, (19, 5)).astype(dtype)
    y = rng.integers(1, 8, (5,)).astype(dtype)
    for op, attrs in (("Mod", {"fmod": 1}), ("BitShift", {"direction": "LEFT"}), ("BitShift", {"direction": "RIGHT"})):
        result, want = on_board(op, [x, y], attrs)
        assert np.array_equal(result, want), (op, attrs)
    far = np.array([7, 8, 31, 32, 63, 64, 65, 127], dtype)
    for direction in ("LEFT", "RIGHT"):
        result, want = on_board("BitShift", [np.full_like(far, 77), far], {"direction": direction})
        assert np.array_equal(result, want), direction


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integer_powers(dtype):
    rng = np.random.default_rng(3)
    x, y = rng.integers(-12, 13, (23, 7)).astype(dtype), rng.integers(-3, 9, (7,)).astype(dtype)
    result, want = on_board("Pow", [x, y])
    assert np.array_equal(result, want)
    for exponent in (0, 1, 2, 5, 31, 64, -1, -2):
        x = np.array([2, 3, -7, 1, -1, 1000, -(2**31), 2**31 - 1], dtype)
        result, want = on_board("Pow", [x], constants={"e": np.array(exponent, dtype)})
        assert np.array_equal(result, want.astype(np.int32)), exponent


@pytest.mark.parametrize("exponents", [0.5, 1.5, [0.5, 2, 3.25, -1, 1 / 3]])
def test_integers_to_a_power_that_is_no_integer(exponents):
    """Cut towards zero, and whole where the power is: the root of a square, the cube of a number."""
    x = np.repeat(np.array([1, 2, 3, 4, 8, 9, 16, 25, 27, 99, 729], np.int32)[:, None], 5, 1)
    exponents = np.array(exponents, np.float32)
    for given in ({"inputs": [x, exponents]}, {"inputs": [x], "constants": {"e": exponents}}):
        result, want = on_board("Pow", **given)
        assert np.array_equal(result, want)


@pytest.mark.parametrize("op", ["And", "Or", "Xor", "Not"])
def test_logic(op):
    x, y = np.array([[True], [False]]), np.array([True, False, True])
    result, want = on_board(op, [x] if op == "Not" else [x, y], out="bool")
    assert result.dtype == bool and np.array_equal(result, want)


@pytest.mark.parametrize("float_dtype", FLOAT_DTYPES)
def test_where_broadcasts_its_condition(float_dtype):
    rng = np.random.default_rng(4)
    for c, a, b in (((37, 21), (37, 21), (21,)), ((37, 1), (), (37, 21)), ((5, 1, 3), (7, 1), (1, 7, 3)), ((), (), ())):
        condition = rng.random(c) < 0.5
        x, y = halved(anything(rng, a)), halved(anything(rng, b))
        result, want = on_board("Where", [condition, x, y], {}, float_dtype, out="float32")
        assert np.array_equal(result, want)


@pytest.mark.parametrize("dtype", ["float64", "int32", "uint8", "bool"])
def test_where_of_other_dtypes(dtype):
    rng = np.random.default_rng(5)
    condition = rng.random((33, 5)) < 0.5
    x, y = (rng.integers(0, 2, s).astype(dtype) for s in ((33, 5), (5,)))
    result, want = on_board("Where", [condition, x, y], out=dtype)
    assert np.array_equal(result, want)


@pytest.mark.parametrize("float_dtype", FLOAT_DTYPES)
def test_limits(float_dtype):
    x = halved(anything(np.random.default_rng(6), (37, 21)))
    low, high = np.array(-0.75, np.float32), np.array(1.5, np.float32)
    for constants in ({"low": low, "high": high}, {"low": low}):
        result, want = on_board("Clip", [x], {}, float_dtype, constants)
        assert np.array_equal(result, want)
    for bounds in ([low, high], [low.reshape(1), high], [low]):
        result, want = on_board("Clip", [x, *bounds], {}, float_dtype)
        assert np.array_equal(result, want)


def test_limits_of_integers():
    x = np.arange(-10, 10, dtype=np.int64)
    far = {"low": np.array(-3), "high": np.array(2**62)}
    result, want = on_board("Clip", [x], constants=far)
    assert np.array_equal(result, want)


@pytest.mark.parametrize("float_dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("op", ["Max", "Min", "Sum", "Mean"])
def test_any_number_of_operands(op, float_dtype):
    rng = np.random.default_rng(7)
    inputs = [halved(anything(rng, s)) for s in ((5, 17), (17,), (5, 1), ())]
    for count in (1, 3, 4):
        result, want = on_board(op, inputs[:count], {}, float_dtype)
        near(result, want, float_dtype, scale=8.0)


@pytest.mark.parametrize("float_dtype", FLOAT_DTYPES)
def test_powers(float_dtype):
    rng = np.random.default_rng(8)
    x = halved(positive(rng, (37, 21)))
    y = halved(rng.uniform(-2, 2, (21,)))
    near(*on_board("Pow", [x, y], {}, float_dtype), float_dtype)
    for exponent in (0, 1, -1, 2.5, 11):
        result, want = on_board("Pow", [x], {}, float_dtype, {"e": np.array(exponent, np.float32)})
        near(result, want, float_dtype)
    signed = halved(anything(rng, (37, 21)))
    for exponent in (np.array(3, np.int64), np.array(-3, np.int64), np.array([[2.0]], np.float32), np.array(9.0)):
        result, want = on_board("Pow", [signed], {}, float_dtype, {"e": exponent})
        near(result, want, float_dtype)


def test_powers_whose_exponent_is_an_integer_at_run_time():
    x, y = np.array([-2.0, 3.0, 0.5], np.float32), np.array([3, -2, 0], np.int64)
    near(*on_board("Pow", [x, y]), "float")


@pytest.mark.parametrize("float_dtype", FLOAT_DTYPES)
def test_remainders_of_floats(float_dtype):
    rng = np.random.default_rng(9)
    x, y = halved(rng.standard_normal((37, 21)) * 100), halved(positive(rng, (21,)) * rng.choice([-1, 1], 21))
    for fmod in (0, 1):
        result, want = on_board("Mod", [x, y], {"fmod": fmod}, float_dtype)
        near(result, want, float_dtype)


@pytest.mark.parametrize("float_dtype", FLOAT_DTYPES)
def test_both_forms_of_gelu(float_dtype):
    x = halved(anything(np.random.default_rng(10), (37, 21)))
    for form in ("none", "tanh"):
        near(*on_board("Gelu", [x], {"approximate": form}, float_dtype), float_dtype, scale=np.abs(x))


@pytest.mark.parametrize("float_dtype", FLOAT_DTYPES)
def test_questions_about_infinity(float_dtype):
    x = np.array([0, 1, np.inf, -np.inf, 3e9], np.float32)
    for attrs in ({}, {"detect_negative": 0}, {"detect_positive": 0}, {"detect_negative": 0, "detect_positive": 0}):
        result, want = on_board("IsInf", [x], attrs, float_dtype, out="bool")
        assert np.array_equal(result, want), attrs
    result, _ = on_board("IsNaN", [x], {}, float_dtype, out="bool")
    assert not result.any()


def test_a_value_takes_the_dtype_of_another():
    x = np.array([-1.5, 0.0, 2.5], np.float32)
    result, want = on_board("CastLike", [x, np.zeros(1, np.int32)], out="int32")
    assert np.array_equal(result, want)


def test_every_elementwise_operator_has_a_kernel():
    names = {op for op, _ in KERNELS} | {"CastLike", "Cast", "Sum", "Mean"}
    missing = [row.name for row in OPERATORS.values() if row.family == "elementwise" and row.name not in names]
    assert not missing


ELEMENTWISE = [row.name for row in OPERATORS.values() if row.family == "elementwise"]
NEEDED = {"Cast": {"to": 1}, "BitShift": {"direction": "LEFT"}}


def some(rng, op, dtype):
    """Operands of one dtype in the domain of the operator."""
    count = {"Clip": 3, "Where": 3}.get(op, max(OPERATORS[op].arity[0], 2 if OPERATORS[op].arity[1] is None else 1))
    shapes = [(5, 3), (), ()] if op == "Clip" else [(5, 3)] * count
    if dtype.startswith("float"):
        operands = [rng.integers(1, 16, s) / 16 + (op == "Acosh") for s in shapes]
    else:
        operands = [rng.integers(*{"bool": (0, 2), "uint8": (0, 7)}.get(dtype, (-7, 8)), s) for s in shapes]
    operands = [np.asarray(x).astype(dtype) for x in operands]
    return [rng.random((5, 3)) < 0.5, *operands[1:]] if op == "Where" else operands


@pytest.mark.slow
@pytest.mark.parametrize("op", ELEMENTWISE)
def test_every_dtype_that_the_operator_takes(op):
    for dtype in DTYPES:
        operands = some(np.random.default_rng(len(op)), op, dtype)
        node = Node(op, op, tuple(f"x{i}" for i in range(len(operands))), ("y",), NEEDED.get(op, {}))
        try:
            [(out, _)] = infer(node, [Operand(f"x{i}", str(x.dtype), x.shape, None) for i, x in enumerate(operands)])
        except GraphError:
            continue
        for float_dtype in FLOAT_DTYPES if dtype.startswith("float") else ("float",):
            result, want = on_board(op, operands, node.attrs, float_dtype, out=out)
            precision = "half" if dtype == "float16" else float_dtype
            near(result.astype(np.float64), np.asarray(want, np.float64), precision, scale=1e-2)
