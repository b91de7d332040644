"""Elementwise aten operators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mlsdk.pipeline.ir.graph import FLOATS, Value
from mlsdk.pipeline.trace.aten.table import Row, Type, Unsupported, aten, operand, promoted, row, scaled, truth
from mlsdk.pipeline.trace.builder import Builder

Number = float | int | bool

# --- one operand: the operand is cast to the result's dtype first ---

UNARY: dict[Any, tuple[str, dict[str, Any]]] = {
    aten.abs.default: ("Abs", {}),
    aten.acos.default: ("Acos", {}),
    aten.acosh.default: ("Acosh", {}),
    aten.asin.default: ("Asin", {}),
    aten.asinh.default: ("Asinh", {}),
    aten.atan.default: ("Atan", {}),
    aten.atanh.default: ("Atanh", {}),
    aten.cos.default: ("Cos", {}),
    aten.cosh.default: ("Cosh", {}),
    aten.erf.default: ("Erf", {}),
    aten.exp.default: ("Exp", {}),
    aten.expm1.default: ("Expm1", {}),
    aten.hardswish.default: ("HardSwish", {}),
    aten.log.default: ("Log", {}),
    aten.log1p.default: ("Log1p", {}),
    aten.mish.default: ("Mish", {}),
    aten.reciprocal.default: ("Reciprocal", {}),
    aten.relu.default: ("Relu", {}),
    aten.rsqrt.default: ("Rsqrt", {}),
    aten.sgn.default: ("Sign", {}),
    aten.sigmoid.default: ("Sigmoid", {}),
    aten.sign.default: ("Sign", {}),
    aten.silu.default: ("Silu", {}),
    aten.sin.default: ("Sin", {}),
    aten.sinh.default: ("Sinh", {}),
    aten.sqrt.default: ("Sqrt", {}),
    aten.tan.default: ("Tan", {}),
    aten.tanh.default: ("Tanh", {}),
}


def _unary(op: str, attrs: dict[str, Any]) -> Row:
    def build(b: Builder, out: list[Type], x: Value) -> Value:
        return b.op(op, b.cast(x, out[0][0]), **attrs)

    return build


for _func, (_op, _attrs) in UNARY.items():
    row(_func)(_unary(_op, _attrs))


@row(aten.neg.default)
def _neg(b: Builder, out: list[Type], x: Value) -> Value:
    """ONNX negates no bytes; 0 - x wraps as torch does."""
    return b.op("Sub", b.scalar(0, "uint8"), x) if x.dtype == "uint8" else b.op("Neg", x)


def _whole(op: str) -> Row:
    """Rounding: integers are whole already."""

    def build(b: Builder, out: list[Type], x: Value) -> Value:
        return b.op(op, x) if x.dtype in FLOATS else x

    return build


row(aten.floor.default)(_whole("Floor"))
row(aten.ceil.default)(_whole("Ceil"))
row(aten.round.default)(_whole("Round"))


@row(aten.round.decimals)
def _round_decimals(b: Builder, out: list[Type], x: Value, *, decimals: int) -> Value:
    if x.dtype not in FLOATS:
        raise Unsupported("round of integers with decimals")
    factor = b.scalar(10.0 ** abs(decimals), x.dtype)
    before, after = ("Mul", "Div") if decimals >= 0 else ("Div", "Mul")
    return b.op(after, b.op("Round", b.op(before, x, factor)), factor)


def truncated(b: Builder, x: Value) -> Value:
    """x without its fraction."""
    return b.op("Mul", b.op("Sign", x), b.op("Floor", b.op("Abs", x))) if x.dtype in FLOATS else x


@row(aten.trunc.default)
def _trunc(b: Builder, out: list[Type], x: Value) -> Value:
    return truncated(b, x)


@row(aten.frac.default)
def _frac(b: Builder, out: list[Type], x: Value) -> Value:
    return b.op("Sub", x, truncated(b, x))


@row(aten.exp2.default)
def _exp2(b: Builder, out: list[Type], x: Value) -> Value:
    return b.op("Pow", b.scalar(2, out[0][0]), b.cast(x, out[0][0]))


def _log_base(base: float) -> Row:
    def build(b: Builder, out: list[Type], x: Value) -> Value:
        return b.op("Div", b.op("Log", b.cast(x, out[0][0])), b.scalar(math.log(base), out[0][0]))

    return build


row(aten.log2.default)(_log_base(2))
row(aten.log10.default)(_log_base(10))


@row(aten.erfc.default)
def _erfc(b: Builder, out: list[Type], x: Value) -> Value:
    return b.op("Sub", b.scalar(1, out[0][0]), b.op("Erf", b.cast(x, out[0][0])))


@row(aten.square.default)
def _square(b: Builder, out: list[Type], x: Value) -> Value:
    return b.op("Mul", x, x)


@row(aten.gelu.default)
def _gelu(b: Builder, out: list[Type], x: Value, *, approximate: str = "none") -> Value:
    return b.op("Gelu", x, approximate=approximate)


@row(aten.softplus.default)
def _softplus(b: Builder, out: list[Type], x: Value, beta: Number = 1, threshold: Number = 20) -> Value:
    t = scaled(b, x, beta)
    y = scaled(b, b.op("Softplus", t), 1 / beta)
    if threshold >= 20 and x.dtype != "float64":
        return y  # the curve and its asymptote are the same single from there on
    return b.where(b.op("Greater", t, b.scalar(threshold, x.dtype)), x, y)


@row(aten.log_sigmoid_forward.default)
def _log_sigmoid(b: Builder, out: list[Type], x: Value) -> list[Value]:
    return [b.op("Neg", b.op("Softplus", b.op("Neg", x))), b.full(out[1][1], 0, out[1][0])]


def exact(number: float, dtype: str) -> bool:
    """Whether a number keeps its value as an attribute (a float32) of a node that computes in `dtype`."""
    return dtype != "float64" or float(np.float32(number)) == number


@row(aten.hardsigmoid.default)
def _hardsigmoid(b: Builder, out: list[Type], x: Value) -> Value:
    if exact(1 / 6, x.dtype):
        return b.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)
    line = b.op("Add", scaled(b, x, 1 / 6), b.scalar(0.5, x.dtype))
    return b.op("Clip", line, b.scalar(0, x.dtype), b.scalar(1, x.dtype))


@row(aten.elu.default)
def _elu(b: Builder, out: list[Type], x: Value, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Value:
    if input_scale == 1 and exact(alpha, x.dtype):
        return scaled(b, b.op("Elu", x, alpha=float(alpha)), scale)
    low = scaled(b, b.op("Expm1", scaled(b, x, input_scale)), alpha * scale)
    return b.where(b.op("Greater", x, b.scalar(0, x.dtype)), scaled(b, x, scale), low)


@row(aten.leaky_relu.default)
def _leaky_relu(b: Builder, out: list[Type], x: Value, slope: Number = 0.01) -> Value:
    if exact(slope, x.dtype):
        return b.op("LeakyRelu", x, alpha=float(slope))
    return b.where(b.op("Less", x, b.scalar(0, x.dtype)), scaled(b, x, slope), x)


@row(aten._prelu_kernel.default)
def _prelu(b: Builder, out: list[Type], x: Value, slope: Value) -> Value:
    return b.op("PRelu", x, slope)


@row(aten.threshold.default)
def _threshold(b: Builder, out: list[Type], x: Value, threshold: Number, value: Number) -> Value:
    below = b.op("LessOrEqual", x, b.scalar(threshold, x.dtype))
    return b.where(below, b.scalar(value, x.dtype), x)


@row(aten.signbit.default)
def _signbit(b: Builder, out: list[Type], x: Value) -> Value:
    # 1 / -0 is -infinity, which tells -0 from 0
    if x.dtype not in FLOATS:
        return b.op("Less", x, b.scalar(0, x.dtype))
    zero = b.scalar(0, x.dtype)
    return b.op("Or", b.op("Less", x, zero), b.op("Less", b.op("Reciprocal", x), zero))


@row(aten.copysign.Tensor, aten.copysign.Scalar)
def _copysign(b: Builder, out: list[Type], x: Value, y: Value | Number) -> Value:
    size = b.op("Abs", b.cast(x, out[0][0]))
    negative = _signbit(b, out, operand(b, y, out[0][0]))
    return b.where(negative, b.op("Neg", size), size)


@row(aten.hypot.default)
def _hypot(b: Builder, out: list[Type], x: Value, y: Value) -> Value:
    return b.op("Sqrt", b.op("Add", b.op("Mul", x, x), b.op("Mul", y, y)))


# --- predicates ---


@row(aten.isinf.default)
def _isinf(b: Builder, out: list[Type], x: Value) -> Value:
    return b.op("IsInf", x) if x.dtype in FLOATS else b.full(x.shape, False, "bool")


@row(aten.logical_not.default)
def _logical_not(b: Builder, out: list[Type], x: Value) -> Value:
    return b.op("Not", truth(b, x))


@row(aten.bitwise_not.default)
def _bitwise_not(b: Builder, out: list[Type], x: Value) -> Value:
    return b.op("Not" if x.dtype == "bool" else "BitwiseNot", x)


# --- two operands ---


def both(b: Builder, x: Value | Number, y: Value | Number, dtype: str) -> tuple[Value, Value]:
    return operand(b, x, dtype), operand(b, y, dtype)


@row(aten.add.Tensor, aten.add.Scalar)
def _add(b: Builder, out: list[Type], x: Value, y: Value | Number, alpha: Number = 1) -> Value:
    if out[0][0] == "bool":
        return b.op("Or", x, operand(b, y, "bool"))
    x, y = both(b, x, y, out[0][0])
    return b.op("Add", x, scaled(b, y, alpha))


@row(aten.sub.Tensor, aten.sub.Scalar)
def _sub(b: Builder, out: list[Type], x: Value, y: Value | Number, alpha: Number = 1) -> Value:
    x, y = both(b, x, y, out[0][0])
    return b.op("Sub", x, scaled(b, y, alpha))


@row(aten.rsub.Tensor, aten.rsub.Scalar)
def _rsub(b: Builder, out: list[Type], x: Value, y: Value | Number, alpha: Number = 1) -> Value:
    x, y = both(b, x, y, out[0][0])
    return b.op("Sub", y, scaled(b, x, alpha))


@row(aten.mul.Tensor, aten.mul.Scalar)
def _mul(b: Builder, out: list[Type], x: Value, y: Value | Number) -> Value:
    if out[0][0] == "bool":
        return b.op("And", x, operand(b, y, "bool"))
    return b.op("Mul", *both(b, x, y, out[0][0]))


def floor_quotient(b: Builder, x: Value, y: Value) -> Value:
    """floor(x / y) as torch computes it: from the remainder, so that it is right where x / y rounds up."""
    if x.dtype not in FLOATS:
        quotient = b.op("Div", x, y)
        rest = b.op("Sub", x, b.op("Mul", quotient, y))
        return b.where(_opposed(b, rest, y), b.op("Sub", quotient, b.scalar(1, x.dtype)), quotient)
    rest = b.op("Mod", x, y, fmod=1)
    quotient = b.op("Div", b.op("Sub", x, rest), y)
    quotient = b.where(_opposed(b, rest, y), b.op("Sub", quotient, b.scalar(1, x.dtype)), quotient)
    quotient = b.op("Floor", b.op("Add", quotient, b.scalar(0.5, x.dtype)))
    return b.where(b.op("Equal", y, b.scalar(0, x.dtype)), b.op("Div", x, y), quotient)


def _opposed(b: Builder, rest: Value, y: Value) -> Value:
    """rest is not 0 and has the other sign than y."""
    zero = b.scalar(0, y.dtype)
    signs = b.op("Xor", b.op("Less", rest, zero), b.op("Less", y, zero))
    return b.op("And", b.op("Not", b.op("Equal", rest, zero)), signs)


@row(aten.div.Tensor, aten.div.Scalar)
def _div(b: Builder, out: list[Type], x: Value, y: Value | Number) -> Value:
    return b.op("Div", *both(b, x, y, out[0][0]))


@row(aten.div.Tensor_mode, aten.div.Scalar_mode)
def _div_mode(b: Builder, out: list[Type], x: Value, y: Value | Number, *, rounding_mode: str | None) -> Value:
    x, y = both(b, x, y, out[0][0])
    if rounding_mode == "floor":
        return floor_quotient(b, x, y)
    quotient = b.op("Div", x, y)
    return truncated(b, quotient) if rounding_mode == "trunc" else quotient


@row(aten.floor_divide.default, aten.floor_divide.Scalar)
def _floor_divide(b: Builder, out: list[Type], x: Value, y: Value | Number) -> Value:
    return floor_quotient(b, *both(b, x, y, out[0][0]))


@row(aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor)
def _remainder(b: Builder, out: list[Type], x: Value | Number, y: Value | Number) -> Value:
    x, y = both(b, x, y, out[0][0])
    if x.dtype not in FLOATS:
        return b.op("Mod", x, y, fmod=0)
    rest = b.op("Mod", x, y, fmod=1)
    return b.where(_opposed(b, rest, y), b.op("Add", rest, y), rest)


@row(aten.fmod.Tensor, aten.fmod.Scalar)
def _fmod(b: Builder, out: list[Type], x: Value, y: Value | Number) -> Value:
    return b.op("Mod", *both(b, x, y, out[0][0]), fmod=1)


@row(aten.pow.Tensor_Scalar)
def _pow_scalar(b: Builder, out: list[Type], x: Value, exponent: Number) -> Value:
    x = b.cast(x, out[0][0])
    if exponent == 1:
        return x
    if exponent == 2:
        return b.op("Mul", x, x)
    if exponent == 3:
        return b.op("Mul", b.op("Mul", x, x), x)
    single = {0.5: "Sqrt", -0.5: "Rsqrt", -1: "Reciprocal"}.get(exponent)
    if single is not None and x.dtype in FLOATS:
        return b.op(single, x)
    return b.op("Pow", x, b.scalar(exponent, x.dtype))


@row(aten.pow.Tensor_Tensor, aten.pow.Scalar)
def _pow(b: Builder, out: list[Type], x: Value | Number, y: Value | Number) -> Value:
    return b.op("Pow", *both(b, x, y, out[0][0]))


def _binary(op: str) -> Row:
    def build(b: Builder, out: list[Type], x: Value, y: Value | Number) -> Value:
        return b.op(op, *both(b, x, y, out[0][0]))

    return build


row(aten.atan2.default)(_binary("Atan2"))


def _extremum(op: str, logical: str) -> Row:
    def build(b: Builder, out: list[Type], x: Value, y: Value) -> Value:
        x, y = both(b, x, y, out[0][0])
        return b.op(logical if x.dtype == "bool" else op, x, y)

    return build


row(aten.maximum.default)(_extremum("Max", "Or"))
row(aten.minimum.default)(_extremum("Min", "And"))


def _number_extremum(op: str) -> Row:
    """fmax, fmin: a number wins over NaN."""

    def build(b: Builder, out: list[Type], x: Value, y: Value) -> Value:
        x, y = both(b, x, y, out[0][0])
        result = b.op(op, x, y)
        if x.dtype not in FLOATS:
            return result
        return b.where(b.op("IsNaN", x), y, b.where(b.op("IsNaN", y), x, result))

    return build


row(aten.fmax.default)(_number_extremum("Max"))
row(aten.fmin.default)(_number_extremum("Min"))


def _comparison(op: str, negate: bool = False) -> Row:
    def build(b: Builder, out: list[Type], x: Value, y: Value | Number) -> Value:
        dtype = promoted(x, y)
        if dtype == "bool" and op != "Equal":
            dtype = "uint8"
        result = b.op(op, *both(b, x, y, dtype))
        return b.op("Not", result) if negate else result

    return build


for _packet, _op in (
    (aten.eq, "Equal"),
    (aten.lt, "Less"),
    (aten.le, "LessOrEqual"),
    (aten.gt, "Greater"),
    (aten.ge, "GreaterOrEqual"),
):
    row(_packet.Tensor, _packet.Scalar)(_comparison(_op))
row(aten.ne.Tensor, aten.ne.Scalar)(_comparison("Equal", negate=True))


def _logical(op: str) -> Row:
    def build(b: Builder, out: list[Type], x: Value, y: Value) -> Value:
        return b.op(op, truth(b, x), truth(b, y))

    return build


row(aten.logical_and.default)(_logical("And"))
row(aten.logical_or.default)(_logical("Or"))
row(aten.logical_xor.default)(_logical("Xor"))


def _bitwise(op: str) -> Row:
    def build(b: Builder, out: list[Type], x: Value | Number, y: Value | Number) -> Value:
        x, y = both(b, x, y, out[0][0])
        return b.op(op if x.dtype == "bool" else f"Bitwise{op}", x, y)

    return build


row(aten.bitwise_and.Tensor, aten.bitwise_and.Scalar, aten.bitwise_and.Scalar_Tensor)(_bitwise("And"))
row(aten.bitwise_or.Tensor, aten.bitwise_or.Scalar, aten.bitwise_or.Scalar_Tensor)(_bitwise("Or"))
row(aten.bitwise_xor.Tensor, aten.bitwise_xor.Scalar, aten.bitwise_xor.Scalar_Tensor)(_bitwise("Xor"))


def _shift(direction: str) -> Row:
    def build(b: Builder, out: list[Type], x: Value, y: Value | Number) -> Value:
        return b.op("BitShift", *both(b, x, y, out[0][0]), direction=direction)

    return build


row(aten.bitwise_left_shift.Tensor, aten.bitwise_left_shift.Tensor_Scalar, aten.__lshift__.Scalar)(_shift("LEFT"))
row(aten.bitwise_right_shift.Tensor, aten.bitwise_right_shift.Tensor_Scalar, aten.__rshift__.Scalar)(_shift("RIGHT"))


# --- limits and selection ---


@row(aten.clamp.default, aten.clamp.Tensor)
def _clamp(b: Builder, out: list[Type], x: Value, low: Any = None, high: Any = None) -> Value:
    dtype = out[0][0]
    x = b.cast(x, dtype)
    if isinstance(low, Value) or isinstance(high, Value):
        for op, bound in (("Max", low), ("Min", high)):
            x = x if bound is None else b.op(op, x, operand(b, bound, dtype))
        return x
    return b.op("Clip", x, *(None if bound is None else b.scalar(bound, dtype) for bound in (low, high)))


@row(aten.clamp_min.default, aten.clamp_min.Tensor)
def _clamp_min(b: Builder, out: list[Type], x: Value, low: Any) -> Value:
    return _clamp(b, out, x, low, None)


@row(aten.clamp_max.default, aten.clamp_max.Tensor)
def _clamp_max(b: Builder, out: list[Type], x: Value, high: Any) -> Value:
    return _clamp(b, out, x, None, high)


@row(aten.hardtanh.default)
def _hardtanh(b: Builder, out: list[Type], x: Value, low: Number = -1, high: Number = 1) -> Value:
    return _clamp(b, out, x, low, high)


@row(aten.where.self)
def _where(b: Builder, out: list[Type], condition: Value, x: Value, y: Value) -> Value:
    return b.where(truth(b, condition), *both(b, x, y, out[0][0]))


@row(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def _masked_fill(b: Builder, out: list[Type], x: Value, mask: Value, value: Value | Number) -> Value:
    return b.where(mask, operand(b, value, x.dtype), x)


# --- three operands ---


@row(aten.lerp.Scalar, aten.lerp.Tensor)
def _lerp(b: Builder, out: list[Type], start: Value, end: Value, weight: Value | Number) -> Value:
    difference = b.op("Sub", end, start)
    return b.op("Add", start, b.op("Mul", operand(b, weight, start.dtype), difference))


@row(aten.addcmul.default)
def _addcmul(b: Builder, out: list[Type], x: Value, y: Value, z: Value, *, value: Number = 1) -> Value:
    x, y, z = (b.cast(item, out[0][0]) for item in (x, y, z))
    return b.op("Add", x, scaled(b, b.op("Mul", y, z), value))


@row(aten.addcdiv.default)
def _addcdiv(b: Builder, out: list[Type], x: Value, y: Value, z: Value, *, value: Number = 1) -> Value:
    x, y, z = (b.cast(item, out[0][0]) for item in (x, y, z))
    return b.op("Add", x, scaled(b, b.op("Div", y, z), value))


# --- quantisation as if ---


def _fake_quantized(b: Builder, x: Value, scale: Value, zero: Value, low: int, high: int) -> list[Value]:
    """x as it is after a trip through the integers [low, high], and where it was within them."""
    whole = b.op("Round", b.op("Mul", x, b.op("Reciprocal", scale)))
    whole = b.op("Add", whole, zero)
    kept = b.op("Clip", whole, b.scalar(low, x.dtype), b.scalar(high, x.dtype))
    return [b.op("Mul", b.op("Sub", kept, zero), scale), b.op("Equal", kept, whole)]


@row(aten.fake_quantize_per_tensor_affine_cachemask.default)
def _fake_quantize(
    b: Builder, out: list[Type], x: Value, scale: float, zero_point: int, low: int, high: int
) -> list[Value]:
    return _fake_quantized(b, x, b.scalar(scale, x.dtype), b.scalar(zero_point, x.dtype), low, high)


@row(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default)
def _fake_quantize_by_tensors(
    b: Builder, out: list[Type], x: Value, scale: Value, zero_point: Value, enabled: Value, low: int, high: int
) -> list[Value]:
    y, inside = _fake_quantized(
        b, x, b.reshape(b.cast(scale, x.dtype), ()), b.reshape(b.cast(zero_point, x.dtype), ()), low, high
    )
    on = b.reshape(truth(b, enabled), ())
    return [b.where(on, y, x), b.op("Or", inside, b.op("Not", on))]


@row(aten.fake_quantize_per_channel_affine_cachemask.default)
def _fake_quantize_channels(
    b: Builder, out: list[Type], x: Value, scale: Value, zero_point: Value, axis: int, low: int, high: int
) -> list[Value]:
    along = [x.shape[axis] if a == axis % len(x.shape) else 1 for a in range(len(x.shape))]
    scale, zero_point = (b.reshape(b.cast(part, x.dtype), along) for part in (scale, zero_point))
    return _fake_quantized(b, x, scale, zero_point, low, high)
