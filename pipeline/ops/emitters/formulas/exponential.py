"""exp and what is made of it.

x = k ln 2 + r with |r| <= ln 2 / 2. k comes from adding 1.5 2^mantissa, whose low bits then hold k as an integer; shifted to the
place of the exponent it multiplies by 2^k in one integer addition.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from mlsdk.pipeline.ops.emitters.formula import DOUBLE, HALF, SINGLE, Formula, Op, Value
from mlsdk.pipeline.ops.emitters.formulas.division import clamp, near_reciprocal, plain_reciprocal, quotient

LOG2_E = 1.4426950408889634
#: ln 2 in words of the compute dtype: products of the first with a whole number are exact
LN2 = {SINGLE: (0.693147182464599609, -1.90465421e-9), DOUBLE: (0.6931471803691238, 1.9082149292705877e-10)}
MAGIC = {SINGLE: 12582912.0, DOUBLE: 6755399441055744.0}

#: exp r = 1 + r + r^2 q(r)
_EXP = {
    HALF: (0.50005126, 0.167536, 0.04127736),
    SINGLE: (0.49999994, 0.16666517, 0.041668102, 0.0083691655, 0.0013838006),
    DOUBLE: (
        0.5, 0.16666666666666688, 0.041666666666666824, 0.008333333333313894, 0.001388888888877795, 0.0001984126990337144,
        2.4801587559052256e-05, 2.755722867051883e-06, 2.7557068029439816e-07, 2.511394317122355e-08, 2.097766361591154e-09,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Reduced:
    """exp of x = 2^k (1 + r + r^2 q(r)); `shift`: k at the place of the exponent."""

    r: Op
    shift: Op

    def power(self, f: Formula, less: int = 0) -> Op:
        """2^(k - less)"""
        return f.iadd(self.shift, f.one - (less << f.mantissa))

    def minus_one(self, f: Formula) -> Op:
        """exp(r) - 1"""
        if f.level == HALF:
            return f.mul(f.horner(self.r, _EXP[HALF], 1.0), self.r)
        return f.fma(f.mul(self.r, self.r), f.horner(self.r, _EXP[f.level]), self.r)

    def fraction(self, f: Formula) -> Op:
        """exp(r)"""
        return f.fma(f.horner(self.r, _EXP[f.level], 1.0), self.r, 1.0)

    def value(self, f: Formula, less: int = 0) -> Op:
        """exp(x) 2^-less"""
        shift = f.isub(self.shift, less << f.mantissa) if less else self.shift
        return f.iadd(self.fraction(f), shift)


def reduce(f: Formula, x: Value, sign: float = 1.0) -> Reduced:
    """x (a number of moderate size) or, with `sign` -1, its negative."""
    magic = MAGIC[f.compute]
    moved = f.fma(x, sign * LOG2_E, magic)
    k, shift = f.sub(moved, magic), f.left(moved, f.mantissa)
    high, low = LN2[f.compute]
    r = f.fma(-k, high, x if sign > 0 else -x)
    if f.level != HALF:
        r = f.fma(-k, low, r)
    return Reduced(r, shift)


#: where exp ends: below the first it is 0 (its exponent comes out as 0), above the second infinite
RANGE = {SINGLE: (-88.02, 88.73), DOUBLE: (-709.05, 709.79)}


def exp(f: Formula, x: Value) -> Op:
    return reduce(f, clamp(f, x, *RANGE[f.compute])).value(f)


def expm1(f: Formula, x: Value) -> Op:
    """exp(x) - 1, exact near 0."""
    low = {SINGLE: -20.0, DOUBLE: -40.0}[f.compute]
    return _expm1(f, clamp(f, x, low, RANGE[f.compute][1]))


def _expm1(f: Formula, x: Op) -> Op:
    """Computed as half of it and doubled, for 2^k would overflow before the result does."""
    parts = reduce(f, x)
    half = parts.power(f, 1)
    y = f.fma(half, parts.minus_one(f), f.add(half, -0.5))
    return f.where(f.min(f.abs(x), 2.0**-60), x, f.add(y, y))  # half of what is smallest would be 0


#: the logistic function is computed as 2^16 / (2^16 + 2^16 exp(-x)) with all numbers 2^16 times smaller
_LESS = 16
LOGISTIC = {SINGLE: (-94.0, 30.0), DOUBLE: (-717.0, 60.0)}


def logistic(f: Formula, x: Value, low: Value | None = None) -> Op:
    """2^16 / (1 + exp(-x - low)), right down to where x sigmoid(x) ends."""
    parts = reduce(f, clamp(f, x, *LOGISTIC[f.compute]), -1.0)
    if low is not None:
        parts = Reduced(f.sub(parts.r, low), parts.shift)
    return _over_one_plus(f, parts, _LESS)


def _over_one_plus(f: Formula, parts: Reduced, less: int = 0) -> Op:
    """2^less / (1 + exp x), with what the sum 1 + exp x loses made good."""
    power, one = parts.power(f, less), 2.0**-less
    rest = parts.minus_one(f)
    base = f.add(power, one)
    d = f.fma(power, rest, base)
    if f.level == HALF:
        return plain_reciprocal(f, d)
    lost = f.add(f.add(f.add(one, -base), power), f.fma(power, rest, f.add(base, -d)))
    return plain_reciprocal(f, d, lost)


def sigmoid(f: Formula, x: Value) -> Op:
    return f.mul(logistic(f, x), 2.0**-_LESS)


def silu(f: Formula, x: Value) -> Op:
    """x sigmoid(x)"""
    x = f.max(x, LOGISTIC[f.compute][0])
    return times_logistic(f, x, logistic(f, x))


def times_logistic(f: Formula, x: Value, y: Value) -> Op:
    """x y 2^-16; the power of two goes to the factor that has room for it."""
    less = 2.0**-_LESS
    return f.where(f.min(x, -1.0), f.mul(f.mul(x, less), y), f.mul(x, f.mul(y, less)))


#: log(1 + e) = e (1 + e p(e)) for 0 <= e <= 1 (half: e p(e))
_SOFTPLUS = {
    HALF: (0.9999916, -0.49936128, 0.32520607, -0.21004719, 0.10122075, -0.023868598),
    SINGLE: (
        -0.4999993, 0.33330464, -0.24958019, 0.19692102, -0.15344852, 0.10660977, -0.05745425, 0.02008367, -0.0032896467,
    ),
}  # fmt: skip
#: log(1 + e) = e - e^2 / 2 + s (e^2 / 2 + z p(z)) with s = e / (2 + e), z = s^2, up to z = 1/9
_LOG_WIDE = (
    0.6666666666666631, 0.40000000000156183, 0.28571428547961997, 0.22222223964048332, 0.18181744099506567, 0.15386556609614632,
    0.13301012969319934, 0.12105800714219923, 0.08341256305991677, 0.1701657833715705,
)  # fmt: skip


def softplus(f: Formula, x: Value) -> Op:
    """log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|))"""
    x = f.wide(x)
    e = reduce(f, f.max(f.ior(x, f.sign), RANGE[f.compute][0])).value(f)
    high = f.max(x, 0.0)
    if f.level == HALF:
        return f.fma(e, f.horner(e, _SOFTPLUS[HALF]), high)
    if not f.double:
        return f.fma(e, f.horner(e, _SOFTPLUS[SINGLE], 1.0), high)
    s = f.mul(e, plain_reciprocal(f, f.add(e, 2.0)))
    half = f.mul(f.mul(e, 0.5), e)
    z = f.mul(s, s)
    curve = f.fma(z, f.horner(z, _LOG_WIDE), half)
    return f.add(high, f.add(e, f.fma(s, curve, -half)))


# ---- hyperbolic functions -------------------------------------------------------------------------------------

#: tanh x = x (1 + z p(z)), z = x^2, |x| <= 0.55
_TANH_LOW = {
    SINGLE: (-0.33333316, 0.13332544, -0.053847548, 0.021050714, -0.0062428494),
    DOUBLE: (
        -0.3333333333333223, 0.13333333333157046, -0.05396825387034043, 0.02186948583718077, -0.008863192646738197,
        0.0035917046258725316, -0.001453141712570285, 0.0005789126649312792, -0.00020993295571513864, 5.0763999805779855e-05,
    ),
}  # fmt: skip
#: sinh x = x (1 + z p(z)), |x| <= 1
_SINH_LOW = {
    HALF: (0.16666718, 0.008330223, 0.00020376634),
    SINGLE: (0.16666667, 0.008333311, 0.00019842635, 2.7839258e-06),
    DOUBLE: (
        0.16666666666666669, 0.008333333333332915, 0.00019841269841589253, 2.7557319108480516e-06, 2.5052130676488194e-08,
        1.6056687032511508e-10, 7.775693039654346e-13,
    ),
}  # fmt: skip
_TANH_ONE = {SINGLE: 9.2, DOUBLE: 19.2}  # from here on tanh is 1
_COSH_END = {SINGLE: 89.42, DOUBLE: 710.48}


def tanh(f: Formula, x: Value) -> Op:
    x = f.wide(x)
    if f.level == HALF:
        t = clamp(f, x, -5.0, 5.0)
        z = f.mul(t, t)
        p = f.horner(z, (0.9999480247497559, 0.10241769999265671, 0.0006705652922391891))
        q = f.horner(z, (1.0, 0.435432493686676, 0.012819888070225716))
        return f.mul(f.mul(p, near_reciprocal(f, q)), t)
    size = f.abs(x)
    bound = f.min(size, _TANH_ONE[f.compute])
    y = _over_one_plus(f, reduce(f, f.add(bound, bound)))
    high = f.ior(f.fma(y, -2.0, 1.0), f.sign_of(x))
    z = f.mul(x, x)
    low = f.fma(f.mul(x, z), f.horner(z, _TANH_LOW[f.level]), x)
    return f.where(f.min(size, 0.55), low, high)


def _half_exp(f: Formula, x: Value) -> tuple[Op, Op]:
    """exp|x| / 2 and exp(-|x|) / 2"""
    half = reduce(f, f.min(f.abs(x), _COSH_END[f.compute])).value(f, 1)
    return half, f.mul(plain_reciprocal(f, f.min(half, 2.0**100)), 0.25)


def sinh(f: Formula, x: Value) -> Op:
    x = f.wide(x)
    up, down = _half_exp(f, x)
    high = f.ior(f.sub(up, down), f.sign_of(x))
    z = f.mul(x, x)
    low = f.fma(f.mul(x, z), f.horner(z, _SINH_LOW[f.level]), x)
    return f.where(f.min(f.abs(x), 1.0), low, high)


def cosh(f: Formula, x: Value) -> Op:
    return f.add(*_half_exp(f, f.wide(x)))


# ---- activations ----------------------------------------------------------------------------------------------


def mish(f: Formula, x: Value) -> Op:
    """x tanh(softplus(x)) = x n / (n + 2) with n = exp(x) (exp(x) + 2); n is computed 2^40 times larger."""
    x = f.max(x, RANGE[f.compute][0] - 9.0)
    high = {SINGLE: 20.0, DOUBLE: 40.0}[f.compute]
    bound = f.min(x, high)
    parts = reduce(f, bound)
    twice, e = parts.power(f, -41), parts.value(f, -20)
    n = f.add(f.fma(twice, parts.minus_one(f), f.mul(e, e)), twice)
    d = f.add(n, 2.0**41)
    product = f.mul(bound, n)
    if f.level == HALF:
        return f.where(f.max(x, high), x, quotient(f, product, d))
    lost, lost_n = f.sub(n, f.sub(d, 2.0**41)), f.fma(bound, n, -product)
    return f.where(f.max(x, high), x, quotient(f, product, d, lost, lost_n))


def _expm1_below(f: Formula, x: Value) -> Op:
    """exp(x) - 1 of the negative part of x."""
    parts = reduce(f, clamp(f, x, {SINGLE: -20.0, DOUBLE: -40.0}[f.compute], 0.0))
    power = parts.power(f)
    return f.fma(power, parts.minus_one(f), f.add(power, -1.0))


def elu(f: Formula, x: Value, alpha: float) -> Op:
    below = _expm1_below(f, x)
    if alpha != 1.0:
        below = f.times(below, alpha)
    return f.where(f.max(x, 0.0), x, below)


def celu(f: Formula, x: Value, alpha: float) -> Op:
    return f.where(f.max(x, 0.0), x, f.times(_expm1_below(f, f.times(x, 1 / Fraction(alpha))), alpha))


def selu(f: Formula, x: Value, alpha: float, gamma: float) -> Op:
    return f.where(f.max(x, 0.0), f.times(x, gamma), f.times(_expm1_below(f, x), Fraction(gamma) * Fraction(alpha)))


def softsign(f: Formula, x: Value) -> Op:
    """x / (1 + |x|)"""
    x = clamp(f, x, -(2.0**100), 2.0**100)
    return quotient(f, x, f.add(f.abs(x), 1.0))
