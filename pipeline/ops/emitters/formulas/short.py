"""Rounding to floats that are shorter than any of the board's, which hold them exactly: IEEE half, bfloat16."""

from __future__ import annotations

from mlsdk.pipeline.ops.emitters.formula import Formula, Op, Value

# Smallest and largest exponent of the compute dtypes.
_SINGLE, _DOUBLE = (-126, 127), (-1022, 1023)


def float16(f: Formula, x: Value) -> Op:
    """x rounded to 1-5-10, to nearest even; multiples of 2^-24 below 2^-14, infinite from 65520 on."""
    return _rounded(f, x, 10, -14, 15)


def bfloat16(f: Formula, x: Value) -> Op:
    """x rounded to 1-8-7, to nearest even; a double has multiples of 2^-133 below 2^-126."""
    return _rounded(f, x, 7, -126, 127)


def _rounded(f: Formula, x: Value, mantissa: int, least: int, most: int) -> Op:
    """x rounded to a float of `mantissa` bits with exponents from `least` to `most`."""
    low, high = _DOUBLE if f.double else _SINGLE
    x = f.wide(x)
    size = f.abs(x)
    cut = f.mantissa - mantissa
    # half of the last bit that stays, less 1 where that bit is 0; a carry goes into the exponent, as it has to
    even = f.iand(f.right_zero(size, cut), 1)
    value = f.iand(f.iadd(size, f.iadd(even, (1 << (cut - 1)) - 1)), -(1 << cut))
    if most < high:
        value = f.where(f.isub(value, f.number(2.0 ** (most + 1))), f.word(f.infinity), value)
    if least > low:
        # a sum of this size has the last bit where the format has its last one
        step = 2.0 ** (least - mantissa + f.mantissa)
        value = f.where(f.isub(size, f.number(2.0**least)), value, f.sub(f.add(size, step), step))
    return f.ior(value, f.sign_of(x))
