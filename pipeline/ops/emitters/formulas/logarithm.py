"""log and what is made of it.

x = 2^e m with sqrt(1/2) <= m < sqrt 2: the bits of x less those of sqrt(1/2) have e in the place of the exponent. The
logarithm of m = 1 + f is a polynomial in single; in double f - f^2/2 + s (f^2/2 + z p(z)) with s = f / (2 + f), z = s^2, where
only small terms carry rounding errors.
"""

from __future__ import annotations

from mlsdk.pipeline.ops.emitters.formula import DOUBLE, HALF, SINGLE, Formula, Op, Value
from mlsdk.pipeline.ops.emitters.formulas.division import normal, plain_reciprocal, plain_sqrt
from mlsdk.pipeline.ops.emitters.formulas.exponential import LN2, MAGIC

SQRT_HALF = {32: 0x3F3504F3, 64: 0x3FE6A09E667F3BCD}

#: log(1 + f) = f + f^2 p(f)
_LOG = {
    HALF: (-0.500092, 0.3333903, -0.24548213, 0.19616285, -0.21833523, 0.19499679),
    SINGLE: (
        -0.49999988, 0.33333325, -0.25001562, 0.20001611, -0.16609256, 0.14192107, -0.13255441, 0.12833893, -0.07491131,
    ),
}  # fmt: skip
_LOG_DOUBLE = (
    0.6666666666666735, 0.3999999999940858, 0.2857142874397125, 0.2222219839090231, 0.18183574713344683, 0.15313763425510818,
    0.1479902154710454,
)  # fmt: skip


def split(f: Formula, u: Value) -> tuple[Op, Op]:
    """(m, the bits of e in the place of the exponent) of a positive u = 2^e m."""
    exponent = f.iand(f.isub(u, SQRT_HALF[f.bits]), -(1 << f.mantissa))
    return f.isub(u, exponent), exponent


def exponent_number(f: Formula, exponent: Value, more: Value | None = None) -> Op:
    """e as a float; `more`: an integer to add to it."""
    e = f.right(exponent, f.mantissa)
    if more is not None:
        e = f.iadd(e, more)
    magic = MAGIC[f.compute]
    return f.sub(f.iadd(e, f.number(magic)), magic)


def _log(f: Formula, u: Value, lost: Value | None = None, more: Value | None = None) -> Op:
    """log(u + lost) + more ln 2; -infinity where u is not positive."""
    m, exponent = split(f, u)
    x = f.add(m, -1.0)
    if lost is not None:
        x = f.fma(lost, f.isub(f.one, exponent), x)
    e = exponent_number(f, exponent, more)
    high, low = LN2[f.compute]
    if f.double:
        s = f.mul(x, plain_reciprocal(f, f.add(x, 2.0)))
        half, z = f.mul(f.mul(x, 0.5), x), f.mul(s, s)
        curve = f.fma(z, f.horner(z, _LOG_DOUBLE), half)
        value = f.fma(e, high, f.add(f.sub(f.fma(s, curve, f.mul(e, low)), half), x))
    else:
        value = f.fma(e, high, f.fma(f.horner(x, _LOG[f.level]), f.mul(x, x), x))
    # +infinity of infinity, else -infinity
    edge = f.ior(f.sign_of(f.isub(f.imax(u, 0), f.infinity)), f.infinity)
    return f.where(normal(f, u), value, edge)


def log(f: Formula, x: Value) -> Op:
    return _log(f, f.wide(x))


def _log_one_plus(f: Formula, t: Value, more: Value | None = None) -> Op:
    """log(1 + t): with what the sum loses."""
    u = f.add(t, 1.0)
    return _log(f, u, f.sub(t, f.sub(u, 1.0)), more)


def log1p(f: Formula, x: Value) -> Op:
    return _log_one_plus(f, f.wide(x))


#: from here on sqrt(x^2 + 1) is x
_LARGE = {SINGLE: 2.0**13, DOUBLE: 2.0**28}


def _doubled(f: Formula, size: Value, t: Value) -> Op:
    """log(1 + t), and where size is large the logarithm of 2 size."""
    small = f.min(size, _LARGE[f.compute])
    more = f.ixor(f.keep(small, 1), 1)
    return _log_one_plus(f, f.where(small, t, f.add(size, -1.0)), more)


def asinh(f: Formula, x: Value) -> Op:
    x = f.wide(x)
    size = f.abs(x)
    a = f.min(size, _LARGE[f.compute])
    square = f.mul(a, a)
    t = f.fma(square, plain_reciprocal(f, f.add(plain_sqrt(f, f.add(square, 1.0)), 1.0)), a)
    return f.ior(_doubled(f, size, t), f.sign_of(x))


def acosh(f: Formula, x: Value) -> Op:
    """0 below 1."""
    size = f.max(x, 1.0)
    v = f.add(f.min(size, _LARGE[f.compute]), -1.0)
    t = f.add(plain_sqrt(f, f.fma(v, v, f.add(v, v))), v)
    return _doubled(f, size, t)


def atanh(f: Formula, x: Value) -> Op:
    """Infinite from 1 on."""
    x = f.wide(x)
    a = f.min(f.abs(x), 1.0)
    y = plain_reciprocal(f, f.sub(1.0, a))
    twice = f.add(a, a)
    value = f.mul(_log_one_plus(f, f.fma(f.mul(twice, a), y, twice)), 0.5)
    return f.ior(f.where(f.isub(f.one - 1, a), value, f.infinity), f.sign_of(x))
