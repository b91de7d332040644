"""Elementwise operators: one result element from the elements at the same (broadcast) place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np

from mlsdk.errors import GraphError
from mlsdk.pipeline.ir.graph import DTYPES, FLOATS, INTEGERS, Node
from mlsdk.pipeline.ir.onnx_io import DTYPE_OF_ELEMENT_TYPE
from mlsdk.pipeline.ops.lazy_torch import torch_map
from mlsdk.pipeline.ops.table import (
    REQUIRED,
    Operator,
    Type,
    attributes,
    broadcast,
    register,
    require,
    require_dtype,
    require_same_dtype,
)

NUMBERS = (*FLOATS, *INTEGERS)
ALL = tuple(DTYPES)
BOOL = ("bool",)

Array = np.ndarray


# --- unary ---


def unary(
    name: str,
    function: Callable[..., Array],
    dtypes: Iterable[str],
    doc: str,
    result: str | None = None,
    attrs: dict[str, Any] | None = None,
) -> None:
    """A row that maps each element by `function(x, **attributes)`; `result` names another result dtype."""

    def infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
        require_dtype(inputs[0], dtypes)
        return [(result or inputs[0].dtype, inputs[0].shape)]

    def reference(node: Node, inputs: Sequence[Any]) -> list[Array]:
        (x,) = inputs
        out = function(in_single(x), **attributes(node))
        return [np.asarray(out, DTYPES[result] if result else x.dtype)]

    register(Operator(name, infer, reference, doc, (1, 1), attrs or {}, "elementwise"))


def in_single(x: Array) -> Array:
    """Halves are computed in single and rounded once."""
    return x.astype(np.float32) if x.dtype == np.float16 else x


def sign(x: Array) -> Array:
    """-1, 0 or 1; 0 for NaN, as torch has it."""
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype) if x.dtype != np.uint8 else np.sign(x)


def sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def erf(x: Array) -> Array:
    return torch_map("erf", x)


def gelu(x: Array, approximate: str) -> Array:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(np.asarray(math.sqrt(2 / math.pi), x.dtype) * (x + 0.044715 * x**3)))
    require(approximate == "none", f"approximate is {approximate!r}; allowed are 'none' and 'tanh'")
    return 0.5 * x * (1 + erf(x * np.asarray(math.sqrt(0.5), x.dtype)))


def is_inf(x: Array, detect_negative: int, detect_positive: int) -> Array:
    return np.asarray((np.isposinf(x) & bool(detect_positive)) | (np.isneginf(x) & bool(detect_negative)))


def round_to_bfloat16(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return x.astype(ml_dtypes.bfloat16).astype(x.dtype)


def reciprocal_root(x: Array) -> Array:
    return 1 / np.sqrt(x)


unary("Identity", lambda x: x, ALL, "The input, unchanged.")
unary("Neg", np.negative, (*FLOATS, "int32", "int64"), "-x.")
unary("Abs", np.abs, NUMBERS, "|x|.")
unary("Sign", sign, NUMBERS, "-1, 0 or 1; 0 for NaN.")
unary("Floor", np.floor, FLOATS, "The largest whole number that is not above x.")
unary("Ceil", np.ceil, FLOATS, "The smallest whole number that is not below x.")
unary("Round", np.rint, FLOATS, "The nearest whole number, halves to the even one.")
unary("RoundToBfloat16", round_to_bfloat16, ("float32",), "The nearest bfloat16, of two the even one.")
unary("Sqrt", np.sqrt, FLOATS, "The square root; NaN below 0.")
unary("Rsqrt", reciprocal_root, FLOATS, "1 / sqrt(x).")
unary("Reciprocal", lambda x: 1 / x, FLOATS, "1 / x.")
unary("Exp", np.exp, FLOATS, "e to the x.")
unary("Expm1", np.expm1, FLOATS, "exp(x) - 1, exact near 0.")
unary("Log", np.log, FLOATS, "The natural logarithm.")
unary("Log1p", np.log1p, FLOATS, "log(1 + x), exact near 0.")
unary("Sin", np.sin, FLOATS, "The sine of x in radians.")
unary("Cos", np.cos, FLOATS, "The cosine of x in radians.")
unary("Tan", np.tan, FLOATS, "The tangent of x in radians.")
unary("Asin", np.arcsin, FLOATS, "The inverse sine.")
unary("Acos", np.arccos, FLOATS, "The inverse cosine.")
unary("Atan", np.arctan, FLOATS, "The inverse tangent.")
unary("Sinh", np.sinh, FLOATS, "The hyperbolic sine.")
unary("Cosh", np.cosh, FLOATS, "The hyperbolic cosine.")
unary("Tanh", np.tanh, FLOATS, "The hyperbolic tangent.")
unary("Asinh", np.arcsinh, FLOATS, "The inverse hyperbolic sine.")
unary("Acosh", np.arccosh, FLOATS, "The inverse hyperbolic cosine.")
unary("Atanh", np.arctanh, FLOATS, "The inverse hyperbolic tangent.")
unary("Erf", erf, FLOATS, "The error function.")
unary("Sigmoid", sigmoid, FLOATS, "1 / (1 + exp(-x)).")
unary("Relu", lambda x: np.maximum(x, x.dtype.type(0)), NUMBERS, "max(x, 0).")
unary("Silu", lambda x: x * sigmoid(x), FLOATS, "x * sigmoid(x).")
unary("Gelu", gelu, FLOATS, "x * Phi(x), exact or by tanh.", attrs={"approximate": "none"})
unary("Softplus", softplus, FLOATS, "log(1 + exp(x)).")
unary("Softsign", lambda x: x / (1 + np.abs(x)), FLOATS, "x / (1 + |x|).")
unary("Mish", lambda x: x * np.tanh(softplus(x)), FLOATS, "x * tanh(softplus(x)).")
unary("HardSwish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1), FLOATS, "x * clip(x / 6 + 1 / 2, 0, 1).")
unary(
    "HardSigmoid",
    lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
    FLOATS,
    "clip(alpha * x + beta, 0, 1).",
    attrs={"alpha": 0.2, "beta": 0.5},
)
unary(
    "LeakyRelu",
    lambda x, alpha: np.where(x < 0, np.asarray(alpha, x.dtype) * x, x),
    FLOATS,
    "x, and alpha * x below 0.",
    attrs={"alpha": 0.01},
)
unary(
    "ThresholdedRelu",
    lambda x, alpha: np.where(x > alpha, x, x.dtype.type(0)),
    FLOATS,
    "x above alpha, else 0.",
    attrs={"alpha": 1.0},
)
unary(
    "Elu",
    lambda x, alpha: np.where(x < 0, np.asarray(alpha, x.dtype) * np.expm1(np.minimum(x, 0)), x),
    FLOATS,
    "x, and alpha * (exp(x) - 1) below 0.",
    attrs={"alpha": 1.0},
)
unary(
    "Celu",
    lambda x, alpha: np.maximum(x, 0) + np.minimum(0, np.asarray(alpha, x.dtype) * np.expm1(x / alpha)),
    FLOATS,
    "max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)).",
    attrs={"alpha": 1.0},
)
unary(
    "Selu",
    lambda x, alpha, gamma: np.asarray(gamma, x.dtype) * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
    FLOATS,
    "gamma * x, and gamma * alpha * (exp(x) - 1) up to 0.",
    attrs={"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
)
unary("Not", np.logical_not, BOOL, "Logical not.")
unary("BitwiseNot", np.invert, INTEGERS, "Every bit inverted.")
unary("IsNaN", np.isnan, FLOATS, "Whether x is NaN.", result="bool")
unary(
    "IsInf",
    is_inf,
    FLOATS,
    "Whether x is infinite.",
    result="bool",
    attrs={"detect_negative": 1, "detect_positive": 1},
)


# --- binary, with broadcasting ---


def binary(
    name: str,
    function: Callable[..., Array],
    dtypes: Iterable[str],
    doc: str,
    result: str | None = None,
    attrs: dict[str, Any] | None = None,
) -> None:
    """A row over two operands of one dtype, broadcast against each other."""

    def infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
        require_dtype(inputs[0], dtypes)
        dtype = require_same_dtype(inputs)
        return [(result or dtype, broadcast(inputs[0].shape, inputs[1].shape))]

    def reference(node: Node, inputs: Sequence[Any]) -> list[Array]:
        a, b = inputs
        out = function(in_single(a), in_single(b), **attributes(node))
        return [np.asarray(out, DTYPES[result] if result else a.dtype)]

    register(Operator(name, infer, reference, doc, (2, 2), attrs or {}, "elementwise"))


def divide(a: Array, b: Array) -> Array:
    """Quotient of floats; of integers cut towards 0, and 0 where the divisor is 0."""
    if a.dtype.kind == "f":
        return a / b
    quotient = np.floor_divide(a, b)
    inexact = (np.multiply(quotient, b) != a) & (b != 0)
    return np.where(inexact & ((a < 0) != (b < 0)), quotient + a.dtype.type(1), quotient)


def modulo(a: Array, b: Array, fmod: int) -> Array:
    """The remainder: with the divisor's sign, or with the dividend's for fmod=1."""
    return np.fmod(a, b) if fmod else np.mod(a, b)


def bit_shift(a: Array, b: Array, direction: str) -> Array:
    require(direction in ("LEFT", "RIGHT"), f"direction is {direction!r}; allowed are 'LEFT' and 'RIGHT'")
    return np.left_shift(a, b) if direction == "LEFT" else np.right_shift(a, b)


binary("Add", np.add, NUMBERS, "a + b.")
binary("Sub", np.subtract, NUMBERS, "a - b.")
binary("Mul", np.multiply, NUMBERS, "a * b.")
binary("Div", divide, NUMBERS, "a / b; of integers cut towards 0.")
binary("Mod", modulo, NUMBERS, "The remainder of a / b.", attrs={"fmod": 0})
binary("Atan2", np.arctan2, FLOATS, "The angle of the point (b, a).")
binary("BitShift", bit_shift, INTEGERS, "a shifted by b bits.", attrs={"direction": REQUIRED})
binary("BitwiseAnd", np.bitwise_and, INTEGERS, "Bitwise and.")
binary("BitwiseOr", np.bitwise_or, INTEGERS, "Bitwise or.")
binary("BitwiseXor", np.bitwise_xor, INTEGERS, "Bitwise exclusive or.")
binary("And", np.logical_and, BOOL, "Logical and.")
binary("Or", np.logical_or, BOOL, "Logical or.")
binary("Xor", np.logical_xor, BOOL, "Logical exclusive or.")
binary("Equal", np.equal, ALL, "a == b.", "bool")
binary("Less", np.less, NUMBERS, "a < b.", "bool")
binary("LessOrEqual", np.less_equal, NUMBERS, "a <= b.", "bool")
binary("Greater", np.greater, NUMBERS, "a > b.", "bool")
binary("GreaterOrEqual", np.greater_equal, NUMBERS, "a >= b.", "bool")
binary("PRelu", lambda x, slope: np.where(x < 0, x * slope, x), NUMBERS, "x, and slope * x below 0.")


# --- power: the exponent may have its own dtype ---


def _pow_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    base, exponent = inputs
    require_dtype(base, NUMBERS)
    require_dtype(exponent, NUMBERS)
    return [(base.dtype, broadcast(base.shape, exponent.shape))]


def _pow(node: Node, inputs: Sequence[Any]) -> list[Array]:
    base, exponent = inputs
    if base.dtype.kind == "f":
        wide = in_single(base)
        return [np.power(wide, exponent.astype(wide.dtype)).astype(base.dtype)]
    if exponent.dtype.kind == "f":
        return [np.power(base.astype(np.float64), exponent.astype(np.float64)).astype(base.dtype)]
    return [integer_power(base, exponent)]


def integer_power(base: Array, exponent: Array) -> Array:
    """base ** exponent in the base's dtype; negative exponents give the whole part (1, -1 or 0)."""
    negative = exponent < 0
    power = np.power(base, np.where(negative, 0, exponent).astype(base.dtype))
    odd = (exponent % 2) == 1
    unit = np.where(base == 1, 1, np.where(base == -1, np.where(odd, -1, 1), 0))
    return np.where(negative, unit, power).astype(base.dtype)


register(Operator("Pow", _pow_infer, _pow, "a to the power b, in a's dtype.", (2, 2), {}, "elementwise"))


# --- any number of operands ---


def variadic(name: str, function: Callable[..., Array], dtypes: Iterable[str], doc: str) -> None:
    """A row that folds one or more broadcast operands of one dtype."""

    def infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
        require_dtype(inputs[0], dtypes)
        return [(require_same_dtype(inputs), broadcast(*(operand.shape for operand in inputs)))]

    def reference(node: Node, inputs: Sequence[Any]) -> list[Array]:
        return [np.asarray(reduce(function, inputs), inputs[0].dtype)]

    register(Operator(name, infer, reference, doc, (1, None), {}, "elementwise"))


variadic("Min", np.minimum, NUMBERS, "The smallest operand; NaN if one is NaN.")
variadic("Max", np.maximum, NUMBERS, "The largest operand; NaN if one is NaN.")
variadic("Sum", np.add, FLOATS, "The sum of the operands.")


def _mean_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    require_dtype(inputs[0], FLOATS)
    return [(require_same_dtype(inputs), broadcast(*(operand.shape for operand in inputs)))]


def _mean(node: Node, inputs: Sequence[Any]) -> list[Array]:
    total = reduce(np.add, [in_single(operand) for operand in inputs])
    return [np.asarray(total / len(inputs), inputs[0].dtype)]


register(Operator("Mean", _mean_infer, _mean, "The mean of the operands.", (1, None), {}, "elementwise"))


# --- selection, limits, conversion ---


def _where_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    condition, a, b = inputs
    require_dtype(condition, BOOL)
    return [(require_same_dtype([a, b]), broadcast(condition.shape, a.shape, b.shape))]


def _clip_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    require_dtype(inputs[0], NUMBERS)
    require_same_dtype(inputs)
    for bound in inputs[1:]:
        require(bound is None or bound.size == 1, "its bounds are single numbers")
    return [(inputs[0].dtype, inputs[0].shape)]


def _clip(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, low, high = inputs
    if low is not None:
        x = np.maximum(x, low.reshape(()))
    if high is not None:
        x = np.minimum(x, high.reshape(()))
    return [x]


def _cast_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    return [(cast_target(node), inputs[0].shape)]


def cast_target(node: Node) -> str:
    """The dtype that a Cast node converts to. Raises GraphError."""
    dtype = DTYPE_OF_ELEMENT_TYPE.get(int(node.attrs["to"]))  # type: ignore[arg-type]
    if dtype is None:
        raise GraphError(f"casts to element type {node.attrs['to']}; allowed are {', '.join(DTYPES)}")
    return dtype


def cast(x: Array, dtype: np.dtype) -> Array:
    """Floats to integers are cut towards 0; everything but 0 is True; NaN to an integer is not defined."""
    if x.dtype.kind == "f" and dtype == np.uint8:
        return x.astype(np.int64).astype(np.uint8)
    return x.astype(dtype)


register(
    Operator(
        "Where",
        _where_infer,
        lambda node, inputs: [np.asarray(np.where(*inputs))],
        "a where the condition holds, else b.",
        (3, 3),
        {},
        "elementwise",
    )
)
register(Operator("Clip", _clip_infer, _clip, "x limited to [low, high].", (1, 3), {}, "elementwise"))
register(
    Operator(
        "Cast",
        _cast_infer,
        lambda node, inputs: [cast(inputs[0], DTYPES[cast_target(node)])],
        "x in another dtype.",
        (1, 1),
        {"to": REQUIRED, "saturate": 1},
        "elementwise",
    )
)


register(
    Operator(
        "CastLike",
        lambda node, inputs: [(inputs[1].dtype, inputs[0].shape)],
        lambda node, inputs: [cast(inputs[0], inputs[1].dtype)],
        "x in the dtype of another value.",
        (2, 2),
        {"saturate": 1},
        "elementwise",
    )
)
