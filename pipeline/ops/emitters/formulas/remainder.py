"""Remainders of floats: n - q d is exact as long as q has few bits, so that q is taken off in pieces."""

from __future__ import annotations

from mlsdk.pipeline.ops.emitters.formula import Formula, Op, Value
from mlsdk.pipeline.ops.emitters.formulas.division import half_scale, plain_reciprocal

#: low mantissa bits that a product leaves out, and how many pieces of q are taken off
_SHORT = {False: (5, 4), True: (16, 2)}
#: exponents that the quotient's may reach
_LIMIT = {False: 70, True: 68}


def fmod(f: Formula, n: Value, d: Value) -> Op:
    """The remainder with the sign of n, exact; 0 where it is not known: d is 0, n infinite, or |n / d| beyond `_LIMIT`."""
    n, d = f.wide(n), f.wide(d)
    size, step = f.abs(n), f.abs(d)
    scale = half_scale(f, step)
    rest, divisor = f.mul(size, scale), f.mul(step, scale)
    y = plain_reciprocal(f, divisor) if f.level != "half" else _reciprocal(f, divisor)
    bits, pieces = _SHORT[f.double]
    for _ in range(pieces):
        # to the nearest number of so few bits: what is left has half their last unit, else it might need a bit more than there is
        whole = f.iand(f.iadd(f.floor(f.mul(rest, y)), 1 << bits - 1), -(1 << bits))
        rest = f.fma(-whole, divisor, rest)
    rest = f.where(rest, rest, f.add(rest, divisor))
    less = f.sub(rest, divisor)
    rest = f.where(less, less, rest)
    value = f.mul(rest, f.isub(2 * f.one, scale))
    usable = f.ior(f.isub(step, 1 << f.mantissa), f.isub(f.infinity - 1, size))
    usable = f.ior(usable, f.isub(_LIMIT[f.double] << f.mantissa, f.isub(size, step)))
    value = f.keep(f.iadd(usable, 0), value)
    return f.where(f.min(step, size), f.ior(value, f.sign_of(n)), n)


def _reciprocal(f: Formula, x: Value) -> Op:
    """To the last bits although the result is only a half: quotients are large."""
    y = plain_reciprocal(f, x)
    return f.fma(y, f.fma(-x, y, 1.0), y)


def modulo(f: Formula, n: Value, d: Value, fmod: int) -> Op:
    rest = _fmod(f, n, d)
    if fmod:
        return rest
    opposed = f.sign_of(f.ixor(rest, f.wide(d)))  # its flag: equal signs
    lifted = f.where(opposed, rest, f.add(rest, d))
    return f.where(f.copy(f.abs(f.clean(rest))), rest, lifted)


_fmod = fmod
