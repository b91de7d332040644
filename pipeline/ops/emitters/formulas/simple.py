"""Operators of a few steps: rounding, signs, limits, comparisons, selection, piecewise linear functions."""

from __future__ import annotations

from fractions import Fraction

from mlsdk.pipeline.ops.emitters.formula import HALF, INT, Formula, Op, Operand, Value


def truth(f: Formula, flag: Op) -> Op:
    """The flag as an element of a bool tensor."""
    return f.keep(flag, _one(f))


def untruth(f: Formula, flag: Op) -> Op:
    """The opposite of the flag as an element of a bool tensor."""
    return f.ixor(truth(f, flag), _one(f))


def _one(f: Formula) -> int:
    """1 as an int lies in the upper word of a long word where doubles are computed with."""
    return 1 << 32 if f.double else 1


# ---- comparisons: max takes the first of equal operands, so that its flag says a >= b, and that of min a <= b -----


def _order(f: Formula, name: str, a: Value, b: Value) -> Op:
    return f.alu(f"{f.integer if f.compute == INT else f.float}{name}", a, b)


def greater_or_equal(f: Formula, a: Value, b: Value) -> Op:
    return truth(f, _order(f, "max", a, b))


def less_or_equal(f: Formula, a: Value, b: Value) -> Op:
    return truth(f, _order(f, "min", a, b))


def greater(f: Formula, a: Value, b: Value) -> Op:
    return untruth(f, _order(f, "min", a, b))


def less(f: Formula, a: Value, b: Value) -> Op:
    return untruth(f, _order(f, "max", a, b))


def equal(f: Formula, a: Value, b: Value) -> Op:
    if f.compute != INT:
        a, b = f.clean(a), f.clean(b)  # one form of 0 and of infinity
    return truth(f, f.ixor(a, b))


def is_infinite(f: Formula, x: Value, detect_negative: int, detect_positive: int) -> Op:
    if not detect_negative and not detect_positive:
        return f.copy(0)
    x = f.wide(x)
    if detect_negative and detect_positive:
        size: Value = f.abs(x)
    else:
        size = f.imax(f.ixor(x, f.sign) if detect_negative else x, 0)
    return truth(f, f.isub(size, f.infinity))


def is_nan(f: Formula, x: Value) -> Op:
    """There is none."""
    return f.copy(0)


# ---- selection ------------------------------------------------------------------------------------------------


def where(f: Formula, condition: Value, yes: Value, no: Value) -> Op:
    return f.where(f.copy(condition), no, yes)  # the flag of a copy: 1 where it is 0


def maximum(f: Formula, a: Operand, b: Operand) -> Op:
    return f.imax(a, b) if f.compute == INT else f.max(a, b)


def minimum(f: Formula, a: Operand, b: Operand) -> Op:
    return f.imin(a, b) if f.compute == INT else f.min(a, b)


def clip(f: Formula, x: Value, low: Operand | None = None, high: Operand | None = None) -> Op:
    value: Operand = x
    if low is not None:
        value = maximum(f, value, low)
    if high is not None:
        value = minimum(f, value, high)
    return value if isinstance(value, Op) else f.copy(f.wide(x))


def clip_below(f: Formula, x: Value, low: Value) -> Op:
    return clip(f, x, low)


def clip_above(f: Formula, x: Value, high: Value) -> Op:
    return clip(f, x, None, high)


def relu(f: Formula, x: Value) -> Op:
    return maximum(f, x, 0 if f.compute in (INT, HALF) else 0.0)


def leaky_relu(f: Formula, x: Value, alpha: float) -> Op:
    scaled = f.times(x, alpha)
    return f.max(scaled, x) if 0 <= alpha <= 1 else f.where(f.min(x, 0.0), scaled, x)


def prelu(f: Formula, x: Value, slope: Value) -> Op:
    if f.compute == INT:
        return f.where(f.imax(x, 0), x, multiply(f, x, slope))
    return f.where(f.min(x, 0.0), f.mul(x, slope), x)


def thresholded_relu(f: Formula, x: Value, alpha: float) -> Op:
    return f.where(f.max(alpha, x), 0.0, x)


def hard_sigmoid(f: Formula, x: Value, alpha: float, beta: float) -> Op:
    return clip(f, f.times(x, alpha, beta), 0.0, 1.0)


def hard_swish(f: Formula, x: Value) -> Op:
    """x clip((x + 3) / 6, 0, 1); 0 below -3, that of minus infinity too."""
    low = f.max(x, -3.0)
    return f.mul(low, f.times(f.min(f.add(low, 3.0), 6.0), Fraction(1, 6)))


# ---- rounding and signs ---------------------------------------------------------------------------------------


def ceil(f: Formula, x: Value) -> Op:
    return f.clean(-f.floor(f.clean(-x)))


def round_even(f: Formula, x: Value) -> Op:
    """The nearest whole number, the even one of two: what has no fraction already stays."""
    x = f.wide(x)
    large = 2.0**f.mantissa
    shift = f.ior(f.sign_of(x), f.number(large))
    return f.where(f.min(f.abs(x), large), f.sub(f.add(x, shift), shift), x)


def sign(f: Formula, x: Value) -> Op:
    if f.compute == INT:
        return f.imax(f.imin(x, 1), -1)
    return f.max(f.min(f.mul(x, 2.0**1023 if f.double else 2.0**127), 1.0), -1.0)


def absolute(f: Formula, x: Value) -> Op:
    return f.imax(x, f.isub(0, x)) if f.compute == INT else f.abs(x)


def negative(f: Formula, x: Value) -> Op:
    if f.compute == INT:
        return f.isub(0, x)
    return f.ixor(x, f.sign) if f.compute == HALF else f.clean(-x)


def identity(f: Formula, x: Value) -> Op:
    return f.copy(x) if f.compute in (INT, HALF) else f.clean(x)


# ---- sums and products ----------------------------------------------------------------------------------------


def add(f: Formula, a: Value, b: Value) -> Op:
    return f.iadd(a, b) if f.compute == INT else f.add(a, b)


def subtract(f: Formula, a: Value, b: Value) -> Op:
    return f.isub(a, b) if f.compute == INT else f.sub(a, b)


def multiply(f: Formula, a: Value, b: Value) -> Op:
    from mlsdk.pipeline.ops.emitters.formulas.integer import product

    return product(f, a, b) if f.compute == INT else f.mul(a, b)


def scale(f: Formula, x: Value, factor: float) -> Op:
    return f.times(x, factor)
