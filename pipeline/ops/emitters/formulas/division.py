"""Reciprocals, quotients and roots.

All start from a seed (an integer subtraction, or the machine's 6-bit rsqrt), are refined by products, and end in a correction
y + y e, which rounds once. Arguments are scaled by powers of two first, so that nothing over- or underflows on the way, and
what is special (0, infinity, negative arguments of roots) is put in by a guarded write at the end.
"""

from __future__ import annotations

from mlsdk.pipeline.ops.emitters.formula import HALF, Formula, Op, Operand, Value

_SEED = {32: 0x7EF33400, 64: 0x7FDE660000000000}


def within(f: Formula, low: int, high: int, bits: Operand) -> Op:
    """A flag: low <= bits <= high, both as unsigned integers."""
    return f.alu(f"u{f.integer}sub", high - low, f.isub(bits, low) if low else bits)


def normal(f: Formula, x: Operand) -> Op:
    """A flag: x is positive, neither 0 nor infinite."""
    return within(f, 1 << f.mantissa, f.infinity - 1, x)


def near_reciprocal(f: Formula, x: Value) -> Op:
    """1 / x to 2^-14.9."""
    y = f.isub(_SEED[f.bits], x)
    r = f.fma(-x, y, 1.50096)
    return f.mul(y, f.fma(r, r, 0.749038))


def plain_reciprocal(f: Formula, x: Value, lost: Value | None = None) -> Op:
    """1 / x where x is finite, not 0, and 1 / x is well inside the range of numbers; `lost`: what x lacks of its true value."""
    y = near_reciprocal(f, x)
    if f.level == HALF:
        return y
    if f.double:
        y = f.fma(y, f.fma(-x, y, 1.0), y)
    e = f.fma(-x, y, 1.0)
    if lost is not None:
        e = f.fma(-lost, y, e)
    return f.fma(y, e, y)


def quotient(f: Formula, n: Value, d: Value, lost: Value | None = None, lost_n: Value | None = None) -> Op:
    """n / d where d is finite, not 0, and 1 / d is well inside the range of numbers; `lost`, `lost_n`: what d and n lack of
    their true values."""
    y = plain_reciprocal(f, d)
    q = f.mul(n, y)
    if f.level == HALF:
        return q
    rest = f.fma(-d, q, n)
    if lost is not None:
        rest = f.fma(-lost, q, rest)
    if lost_n is not None:
        rest = f.add(rest, lost_n)
    return f.fma(y, rest, q)


def reciprocal(f: Formula, x: Value) -> Op:
    """1 / x; 1 / 0 is infinity with the sign of the zero."""
    x = f.wide(x)
    if f.level == HALF:
        return plain_reciprocal(f, clamp(f, x, -_TOP, _TOP))
    exponent = f.iand(x, f.infinity)  # its flag: x is 0
    fraction = f.ior(f.iand(x, f.infinity ^ (1 << f.bits) - 1), f.one)  # +-[1, 2)
    # 2^-e; 0 for infinities
    scale = f.imax(f.isub(2 * f.one, exponent), 0)
    y = plain_reciprocal(f, fraction)
    return f.where(exponent, f.ior(x, f.infinity), f.mul(y, scale))


def half_scale(f: Formula, d: Value) -> Op:
    """2^-(e / 2) with e the exponent of d: with it as a factor of both, n / d over- and underflows on the way only where the
    quotient does."""
    half = f.iand(f.right_zero(d, 1), f.infinity >> 1 & f.infinity)
    return f.isub(f.one + (f.one >> 1 & f.infinity), half)


def divide(f: Formula, n: Value, d: Value) -> Op:
    """n / d. x / 0 and inf / x are infinite, x / inf is 0."""
    n, d = f.wide(n), f.wide(d)
    if f.level == HALF:
        return f.mul(n, plain_reciprocal(f, clamp(f, d, -_TOP, _TOP)))
    scale = half_scale(f, d)
    divisor, dividend = f.mul(d, scale), f.mul(n, scale)
    size = f.abs(d)
    y = plain_reciprocal(f, divisor)
    y = f.keep(f.isub(f.infinity - 1, size), y)  # 0 for infinities
    q = f.mul(dividend, y)
    q = f.fma(y, f.fma(-divisor, q, dividend), q)
    plain = f.ior(
        f.isub(size, 1 << f.mantissa), f.isub(f.infinity - 1, f.abs(n))
    )  # negative where d is 0 or n infinite
    limit = f.ior(f.sign_of(f.ixor(n, d)), f.infinity)
    return f.where(f.iadd(plain, 0), q, limit)


def clamp(f: Formula, x: Operand, low: Operand, high: Operand) -> Op:
    """x limited to [low, high]."""
    return f.min(f.max(x, low), high)


def _even(f: Formula, x: Value) -> tuple[Op, Op]:
    """x times an even power of two in [1, 4), and the bits of that power's exponent."""
    shift = f.iand(f.isub(x, f.one), -(2 << f.mantissa))
    return f.isub(x, shift), shift


def plain_sqrt(f: Formula, x: Value) -> Op:
    """The square root where x is 0 or well inside the range of numbers."""
    y = f.rsqrt_seed(x)
    if f.level == HALF:
        g = f.mul(x, y)
        r = f.fma(-g, f.mul(y, 0.5), 0.5)
        return f.fma(g, f.mul(r, f.fma(r, 1.5, 1.0)), g)
    g, h = f.mul(x, y), f.isub(y, 1 << f.mantissa)  # sqrt x, half of 1 / sqrt x
    r = f.fma(-g, h, 0.5)
    t = f.mul(r, f.horner(r, _SQRT[f.double]))
    h, g = f.fma(h, t, h), f.fma(g, t, g)
    for _ in range(2 if f.double else 1):
        g = f.fma(f.fma(-g, g, x), h, g)
    return g


def sqrt(f: Formula, x: Value) -> Op:
    """The square root; 0 below 0."""
    x = f.wide(x)
    if f.level == HALF:
        return plain_sqrt(f, clamp(f, x, 0.0, _TOP))
    scaled, shift = _even(f, x)
    root = f.iadd(plain_sqrt(f, scaled), f.right(shift, 1))
    return f.where(normal(f, x), root, f.imax(x, 0))


def rsqrt(f: Formula, x: Value) -> Op:
    """1 / sqrt x; infinity at 0 (with the sign of the zero) and below."""
    x = f.wide(x)
    if f.level == HALF:
        x = clamp(f, x, 0.0, _TOP)
        y = f.rsqrt_seed(x)
        r = f.fma(-x, f.mul(y, y), 1.0)
        return f.fma(f.mul(r, f.fma(r, 0.3738957345485687, 0.5006530284881592)), y, y)
    scaled, shift = _even(f, x)
    y = f.rsqrt_seed(scaled)
    r = f.fma(-scaled, f.mul(y, y), 1.0)
    y = f.fma(y, f.mul(f.horner(r, _RSQRT[f.double]), r), y)
    if f.double:  # e = (1 - x y^2) / 2
        half = f.isub(y, 1 << f.mantissa)
        y = f.fma(y, f.fma(f.mul(-scaled, y), half, 0.5), y)
    root = f.isub(y, f.right(shift, 1))
    edge = f.isub(f.infinity, f.iand(f.imax(x, 0), f.infinity))
    zero = f.iand(x, f.infinity)  # its flag: x is 0
    return f.where(normal(f, x), root, f.ior(edge, f.keep(zero, f.sign_of(x))))


_TOP = 2.0**125  # halves end far below; what is made of it rounds to 0 or infinity
#: 1 / sqrt(1 - 2 r) = 1 + r q(r) with r = 1/2 - g h
_SQRT = {
    False: (1.0013029575347900, 1.4958578348159790),
    True: (0.9999985547185425, 1.4999994685333518, 2.5075490666006566, 4.383304930770233),
}
#: 1 / sqrt(1 - r) = 1 + r q(r)
_RSQRT = {
    False: (0.49999943375587463, 0.37500429153442383, 0.31334564089775085, 0.2715485990047455),
    True: (0.49999987484603736, 0.3749998874699988, 0.3126773667306016, 0.2739160529877192, 0.1958889592913039),
}
