"""sin, cos, tan and their inverses.

x = k pi/2 + r with |r| <= pi/4; the two low bits of k say which of sin r and cos r it is and with which sign. pi/2 stands in four
words, of which the first two are short enough for their products with k to be exact, and r keeps what its rounding loses.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlsdk.pipeline.ops.emitters.formula import DOUBLE, HALF, SINGLE, Formula, Op, Value
from mlsdk.pipeline.ops.emitters.formulas import words
from mlsdk.pipeline.ops.emitters.formulas.division import half_scale, plain_reciprocal, plain_sqrt, quotient
from mlsdk.pipeline.ops.emitters.formulas.exponential import MAGIC

_HALF_PI = {
    SINGLE: (1.5707969665527344, -6.397585821105167e-07, 7.443547731314504e-13, -2.5082788353727258e-20),
    DOUBLE: (1.5707963267923333, 2.5633441515839558e-12, 1.0562999066987428e-23, -5.278473996974669e-40),
}
#: a sum with it keeps what the last place of the first word keeps
_GRID = {SINGLE: 48.0, DOUBLE: 98304.0}
#: beyond these sin, cos and tan are those of 0: k does not fit (and infinity has none)
LIMIT = {SINGLE: 6.5e6, DOUBLE: 2.0**46}

#: sin r = r + r z p(z), z = r^2; |r| may be a little larger than pi/4 where k is large
_SIN = {
    HALF: (-0.16663446, 0.008164268),
    SINGLE: (-0.16666667, 0.008333356, -0.00019842952, 2.7303151e-06),
    DOUBLE: (
        -0.16666666666666632, 0.008333333333322455, -0.0001984126982981351, 2.755731368762918e-06, -2.505075672532325e-08,
        1.5896682558682286e-10,
    ),
}  # fmt: skip
#: cos r = 1 + z (-1/2 + z p(z))
_COS = {
    HALF: (0.04166126, -0.001365201),
    SINGLE: (0.041666586, -0.0013885011, 2.4222636e-05),
    DOUBLE: (
        0.0416666666666666, -0.0013888888888874441, 2.4801587289636307e-05, -2.7557314387465336e-07, 2.087572705800643e-09,
        -1.1359802404796747e-11,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class _Turn:
    """`moved`: an integer whose low bits are those of k. sin r and cos r are the sums of two parts."""

    moved: Op
    sin: tuple[Value, Value]
    cos: tuple[Value, Value]


def _reduced(f: Formula, x: Value) -> _Turn:
    x = f.wide(x)
    x = f.keep(f.min(f.abs(x), LIMIT[f.compute]), x)
    magic = MAGIC[f.compute]
    moved = f.fma(x, 0.6366197723675814, magic)
    k = f.sub(moved, magic)
    first, second, third, fourth = _HALF_PI[f.compute]
    near = f.fma(-k, first, x)
    if f.level == HALF:
        r = f.fma(-k, third, f.fma(-k, second, near))
        z = f.mul(r, r)
        return _Turn(
            moved,
            (r, f.mul(f.mul(r, z), f.horner(z, _SIN[HALF]))),
            (f.number(1.0), f.mul(z, f.horner(z, _COS[HALF], -0.5))),
        )
    # k second = high + low, high on the grid of `near`, so that near - high is exact
    grid = _GRID[f.compute]
    high = f.sub(f.fma(k, second, grid), grid)
    low = f.fma(k, second, -high)
    coarse = f.sub(near, high)
    fine = f.sub(coarse, low)
    rest = f.fma(-k, fourth, f.sub(f.sub(coarse, fine), low))
    part = f.mul(-k, third)
    r, lost = words.plus(f, (fine, rest), (part, f.fma(-k, third, -part)))
    assert lost is not None
    z = f.mul(r, r)
    sin = f.fma(f.mul(r, z), f.horner(z, _SIN[f.level]), lost)
    cos = f.fma(z, f.horner(z, _COS[f.level], -0.5), f.mul(-r, lost))
    return _Turn(moved, (r, sin), (f.number(1.0), cos))


def _quarter(f: Formula, moved: Value, turn: _Turn) -> Op:
    """sin or cos of r as the integer asks for."""
    even = f.iand(moved, 1)
    value = f.where(even, f.add(*turn.sin), f.add(*turn.cos))
    return f.ixor(value, f.sign_of(f.left(moved, f.bits - 2)))


def sin(f: Formula, x: Value) -> Op:
    turn = _reduced(f, x)
    return _quarter(f, turn.moved, turn)


def cos(f: Formula, x: Value) -> Op:
    turn = _reduced(f, x)
    return _quarter(f, f.iadd(turn.moved, 1), turn)


def tan(f: Formula, x: Value) -> Op:
    """sin / cos, or -cos / sin where k is odd."""
    turn = _reduced(f, x)
    even = f.iand(turn.moved, 1)
    odd_sign = f.left(turn.moved, f.bits - 1)
    s, c = f.add(*turn.sin), f.add(*turn.cos)
    n, d = f.where(even, s, c), f.where(even, c, s)
    if f.level == HALF:
        return f.ixor(quotient(f, n, d), odd_sign)
    s_lost, c_lost = (f.sub(low, f.sub(whole, high)) for whole, (high, low) in ((s, turn.sin), (c, turn.cos)))
    y = plain_reciprocal(f, d)
    q = f.mul(n, y)
    rest = f.add(f.fma(-d, q, n), f.where(even, s_lost, c_lost))
    rest = f.fma(-f.where(even, c_lost, s_lost), q, rest)
    return f.ixor(f.fma(y, rest, q), odd_sign)


# ---- inverses -------------------------------------------------------------------------------------------------

#: atan t = t + t z p(z), z = t^2, |t| <= tan(pi / 8)
_ATAN = {
    HALF: (-0.3318454, 0.17041418),
    SINGLE: (-0.33333316, 0.1999853, -0.14244422, 0.10599357, -0.060903553),
    DOUBLE: (
        -0.333333333333332, 0.19999999999953716, -0.14285714280203937, 0.11111110783617385, -0.09090897738674937,
        0.0769205914949347, -0.06663081428758487, 0.05847640895003915, -0.050378055235336026, 0.038017287052452,
        -0.01784624013993942,
    ),
}  # fmt: skip
#: asin t = t + t z p(z), z = t^2, |t| <= 1/2
_ASIN = {
    HALF: (0.16504002, 0.09438638),
    SINGLE: (0.16666754, 0.07495249, 0.04547666, 0.024148123, 0.04221982),
    DOUBLE: (
        0.16666666666665375, 0.07500000000344977, 0.04464285682178914, 0.030381959404698334, 0.02237175168641443,
        0.017359799821102695, 0.013884305815465599, 0.012175255214865954, 0.006502089357988791, 0.019598450064174447,
        -0.01633341749036718, 0.03198647393087377,
    ),
}  # fmt: skip
#: pi / 2 in two words
_RIGHT_ANGLE = {
    SINGLE: (1.5707963705062866, -4.3711390001862426e-08),
    DOUBLE: (1.5707963267948966, 6.123233995736766e-17),
}
_STEEP, _FLAT = 2.414213562373095, 0.41421356237309503


def _small_atan(f: Formula, t: Op, low: Value, high: Value) -> Op:
    """atan t + low + high, |t| <= tan(pi / 8)"""
    z = f.mul(t, t)
    return f.add(f.add(f.fma(f.mul(t, z), f.horner(z, _ATAN[f.level]), low), t), high)


def atan(f: Formula, x: Value) -> Op:
    x = f.wide(x)
    size = f.min(f.abs(x), 2.0**100)
    flat, middle = f.min(size, _FLAT), f.min(size, _STEEP)
    high, low = _RIGHT_ANGLE[f.compute]
    n = f.where(flat, size, f.where(middle, f.add(size, -1.0), -1.0))
    d = f.where(flat, 1.0, f.where(middle, f.add(size, 1.0), size))
    angle = f.where(flat, 0.0, f.where(middle, high / 2, high))
    rest = f.where(flat, 0.0, f.where(middle, low / 2, low))
    return f.ior(_small_atan(f, quotient(f, n, d), rest, angle), f.sign_of(x))


def atan2(f: Formula, y: Value, x: Value) -> Op:
    """The angle of (x, y), pi / 4 and its like where both are infinite."""
    y, x = f.wide(y), f.wide(x)
    a, b = f.abs(y), f.abs(x)
    small, large = f.min(a, b), f.max(a, b)
    even = f.iand(
        f.isub(f.infinity - 1, large), f.isub(small, f.infinity)
    )  # not negative: none is infinite or both are
    small, large = (f.imin(v, f.infinity - 1) for v in (f.keep(f.iadd(even, 0), small), large))
    scale = half_scale(f, large)
    n, d = f.mul(small, scale), f.mul(large, scale)
    flat = f.min(n, f.mul(d, _FLAT))
    high, low = _RIGHT_ANGLE[f.compute]
    t = quotient(f, f.where(flat, n, f.sub(n, d)), f.where(flat, d, f.add(n, d)))
    t = f.keep(f.isub(large, 1 << f.mantissa), t)
    z = f.mul(t, t)
    rest = f.where(flat, 0.0, low / 2)
    value = f.add(f.fma(f.mul(t, z), f.horner(z, _ATAN[f.level]), rest), t)  # + pi / 4 where it is not flat
    value = f.add(value, f.where(flat, 0.0, high / 2))
    value = f.where(f.max(b, a), value, f.add(f.add(low, -value), high))
    turned = f.add(f.add(2 * low, -value), 2 * high)
    value = f.where(f.sign_of(x), value, turned)
    return f.ixor(value, f.sign_of(y))


def _arc(f: Formula, x: Value) -> tuple[Op, Op, Op]:
    """(flag |x| <= 1/2, t, what asin t adds to t) with t = |x|, or sqrt((1 - |x|) / 2) above 1/2"""
    size = f.min(f.abs(x), 1.0)
    inner = f.min(size, 0.5)
    other = f.fma(size, -0.5, 0.5)
    t = f.where(inner, size, plain_sqrt(f, other))
    z = f.where(inner, f.mul(size, size), other)
    return inner, t, f.mul(f.mul(t, z), f.horner(z, _ASIN[f.level]))


def asin(f: Formula, x: Value) -> Op:
    """That of 1 above 1."""
    x = f.wide(x)
    inner, t, more = _arc(f, x)
    high, low = _RIGHT_ANGLE[f.compute]
    value = f.add(t, more)
    outer = f.add(f.fma(f.add(t, f.fma(low, -0.5, more)), -2.0, 0.0), high)
    return f.ior(f.where(inner, value, outer), f.sign_of(x))


def acos(f: Formula, x: Value) -> Op:
    """0 above 1, pi below -1."""
    x = f.wide(x)
    inner, t, more = _arc(f, x)
    high, low = _RIGHT_ANGLE[f.compute]
    sign = f.sign_of(x)
    middle = f.sub(high, f.ixor(f.add(t, f.fma(f.ixor(f.number(low), sign), -1.0, more)), sign))
    half = f.add(t, more)
    right = f.add(half, half)
    left = f.add(f.fma(f.add(t, f.fma(low, -1.0, more)), -2.0, 0.0), 2 * high)
    outer = f.where(sign, right, left)
    return f.where(inner, middle, outer)
