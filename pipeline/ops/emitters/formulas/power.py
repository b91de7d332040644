"""Powers: x^y = exp(y log x), with the logarithm and its product with y in two words each.

log m = 2 s + s z p(z) with s = (m - 1) / (m + 1), z = s^2 <= 0.03: what is rounded in the second term is a hundred times smaller
than the first, and the first is kept in two words.
"""

from __future__ import annotations

from mlsdk.pipeline.ops.emitters.formula import DOUBLE, HALF, SINGLE, Formula, Op, Operand, Value
from mlsdk.pipeline.ops.emitters.formulas import words
from mlsdk.pipeline.ops.emitters.formulas.division import (
    clamp,
    near_reciprocal,
    normal,
    plain_reciprocal,
    reciprocal,
    rsqrt,
    sqrt,
)
from mlsdk.pipeline.ops.emitters.formulas.exponential import LN2, LOG2_E, MAGIC, RANGE, Reduced, reduce
from mlsdk.pipeline.ops.emitters.formulas.logarithm import exponent_number, split

_CURVE = {
    HALF: (0.66666776, 0.39977553, 0.29872137),
    SINGLE: (0.6666666, 0.40000972, 0.28498793, 0.24278818),
    DOUBLE: (
        0.6666666666666666, 0.40000000000004954, 0.2857142856939586, 0.22222222609824088, 0.18181778095482115,
        0.15387001231713004, 0.13251851297161962, 0.13237603258096692,
    ),
}  # fmt: skip
#: ln 2 in two words; the first times an exponent is exact
_LN2 = {SINGLE: (0.693145751953125, 1.4286068203094172e-06), DOUBLE: LN2[DOUBLE]}
LOG_2 = 0.6931471805599453
#: stands for the logarithms of 0 and infinity: its product with any exponent but 0 leaves the range of exp
_VAST = {SINGLE: 2.0**127, DOUBLE: 2.0**1023}
#: smaller exponents give 1, but for `_VAST`
_SMALL = {SINGLE: 2.0**-100, DOUBLE: 2.0**-1000}


def _log(f: Formula, a: Value) -> tuple[Op, Op]:
    """log a in two words; a is not negative."""
    m, exponent = split(f, a)
    x = f.add(m, -1.0)
    d = f.add(x, 2.0)
    y = plain_reciprocal(f, d)
    s = f.mul(x, y)
    lost = f.sub(x, f.add(d, -2.0))
    s_low = f.mul(f.fma(-s, lost, f.fma(-s, d, x)), y)
    twice = f.add(s, s)
    # s z p(z), each product and sum with what it loses
    z = f.mul(s, s)
    z_low = f.fma(twice, s_low, f.fma(s, s, -z))
    first, rest = _CURVE[f.level][0], f.horner(z, _CURVE[f.level][1:])
    p = f.fma(z, rest, first)
    p_low = f.fma(z, rest, f.sub(first, p))
    cube = f.mul(s, z)
    cube_low = f.fma(z, s_low, f.fma(s, z_low, f.fma(s, z, -cube)))
    curve = f.mul(cube, p)
    curve_low = f.fma(cube_low, p, f.fma(cube, p_low, f.fma(cube, p, -curve)))
    e = exponent_number(f, exponent)
    whole = f.mul(e, _LN2[f.compute][0])
    sum1 = f.add(whole, twice)
    sum2 = f.add(sum1, curve)
    low = f.add(f.sub(twice, f.sub(sum1, whole)), f.sub(curve, f.sub(sum2, sum1)))
    low = f.add(low, f.fma(e, _LN2[f.compute][1], f.fma(s_low, 2.0, curve_low)))
    plain = normal(f, a)
    vast = f.ior(f.sign_of(f.isub(a, f.infinity)), f.number(_VAST[f.compute]))
    return f.where(plain, sum2, vast), f.keep(plain, low)


def _near_log(f: Formula, a: Value) -> Op:
    """log a to 2^-17; vast at 0 and infinity."""
    m, exponent = split(f, a)
    x = f.add(m, -1.0)
    s = f.mul(x, near_reciprocal(f, f.add(x, 2.0)))
    s = f.fma(f.fma(-s, f.add(x, 2.0), x), 0.5, s)
    z = f.mul(s, s)
    value = f.fma(exponent_number(f, exponent), LOG_2, f.fma(f.mul(s, z), f.horner(z, _CURVE[HALF]), f.add(s, s)))
    vast = f.ior(f.sign_of(f.isub(a, f.infinity)), f.number(_VAST[f.compute]))
    return f.where(normal(f, a), value, vast)


def _power(f: Formula, a: Value, y: Operand) -> Op:
    """a^y for a >= 0; a^0 is 1."""
    if f.level == HALF:
        return reduce(f, clamp(f, f.mul(_near_log(f, a), y), *RANGE[SINGLE])).value(f)
    high, low = _log(f, a)
    if isinstance(y, Value):  # smallest exponents of 0 and of infinity
        size = f.abs(y)
        y = f.keep(f.isub(size, 1 << f.mantissa), f.ior(f.max(size, _SMALL[f.compute]), f.sign_of(y)))
    t = f.mul(high, y)
    rest = f.fma(low, y, f.fma(high, y, -t))
    rest = f.keep(f.min(f.abs(t), 1024.0), rest)
    t = clamp(f, t, *RANGE[f.compute])
    magic = MAGIC[f.compute]
    moved = f.fma(t, LOG2_E, magic)
    k, shift = f.sub(moved, magic), f.left(moved, f.mantissa)
    first, second = LN2[f.compute]
    r = f.fma(-k, second, f.add(f.fma(-k, first, t), rest))
    parts = Reduced(r, shift)
    return f.iadd(f.add(parts.minus_one(f), 1.0), shift)


def power(f: Formula, x: Value, y: Value) -> Op:
    """x^y. Of negative x it is signed where y is whole, else that of 0 (of infinity for that of minus infinity)."""
    x, y = f.wide(x), f.wide(y)
    whole = f.sub(y, f.floor(y))  # as a flag of bits: y is whole
    half = f.mul(y, 0.5)
    odd = f.ior(f.ixor(f.sub(half, f.floor(half)), f.number(0.5)), whole)
    size = f.abs(x)
    a = f.where(f.copy(whole), size, f.where(f.isub(size, f.infinity), size, f.imax(x, 0)))
    return f.ixor(_power(f, a, y), f.iand(f.keep(odd, f.sign), x))


def constant_power(f: Formula, x: Value, exponent: float) -> Op:
    """x^y for an exponent that is known: by products where it is a small whole number, by roots where it is a half."""
    known = {0.5: sqrt, -0.5: rsqrt, -1.0: reciprocal}
    if exponent in known:
        return known[exponent](f, x)
    if exponent in range(5):
        return f.copy(1.0) if exponent == 0 else _product(f, f.wide(x), int(exponent))
    x = f.wide(x)
    if exponent == int(exponent):
        value = _power(f, f.abs(x), exponent)
        return f.ixor(value, f.sign_of(x)) if exponent % 2 else value
    size = f.abs(x)
    return _power(f, f.where(f.isub(size, f.infinity), size, f.imax(x, 0)), exponent)


def _product(f: Formula, x: Value, n: int) -> Op:
    """x^n, rounded once: the powers on the way are kept in two words."""
    if n == 1:
        return f.copy(x)
    power: words.Pair = f.copy(x), None
    for bit in bin(n)[3:]:
        power = words.times(f, power, power)
        if bit == "1":
            power = words.times(f, power, (x, None))
    high, low = power
    return f.clean(high) if low is None else f.add(high, low)
