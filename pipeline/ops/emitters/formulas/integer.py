"""Integers of 32 bits. Products are put together from 11-bit digits, whose products are exact in single; quotients are computed
in double, which holds every integer, one long word for each."""

from __future__ import annotations

from mlsdk.pipeline.ops.emitters.formula import Formula, Op, Value
from mlsdk.pipeline.ops.emitters.formulas.division import plain_reciprocal
from mlsdk.pipeline.ops.emitters.formulas.exponential import MAGIC
from mlsdk.pipeline.ops.random import PARITY, ROTATIONS, ROUNDS

_TWO_23 = 0x4B000000  # 2^23 as a single: with a number below 2^23 in its mantissa it is that number more
_DIGIT = 0x7FF


def _digits(f: Formula, x: Value) -> tuple[Op, Op, Op]:
    """x as an unsigned number in digits of 11 bits, lowest first, as singles."""
    parts = (f.iand(x, _DIGIT), f.iand(f.right_zero(x, 11), _DIGIT), f.right_zero(x, 22))
    return tuple(f.sub(f.ior(part, _TWO_23), f.word(_TWO_23)) for part in parts)  # type: ignore[return-value]


def product(f: Formula, x: Value, y: Value) -> Op:
    """The low 32 bits of x y."""
    (a0, a1, a2), (b0, b1, b2) = _digits(f, x), _digits(f, y)
    low = f.iand(f.add(f.mul(a0, b0), f.word(_TWO_23)), 0x7FFFFF)
    middle = f.to_int(f.fma(a1, b0, f.mul(a0, b1)))
    high = f.to_int(f.fma(a2, b0, f.fma(a1, b1, f.mul(a0, b2))))
    return f.iadd(f.iadd(f.left(high, 22), f.left(middle, 11)), low)


# ---- in double: an integer lies in the upper word of its long word ---------------------------------------------


def to_double(f: Formula, x: Value) -> Op:
    magic = MAGIC["double"]
    return f.sub(f.iadd(f.right(x, 32), f.number(magic)), magic)


def from_double(f: Formula, x: Value) -> Op:
    """Cut towards 0."""
    return f.left(f.to_int(x), 32)


def _signed(f: Formula, number: Op, like: Value) -> Op:
    """An integer, negated where `like` is negative."""
    mask = f.right(like, 63)
    return f.isub(f.ixor(number, mask), mask)


def _kept(f: Formula, number: Op, size: Op) -> Op:
    """The integer in its place; 0 where the divisor's size is 0."""
    return f.keep(f.isub(size, 1), f.left(number, 32))


def quotient(f: Formula, n: Value, d: Value) -> Op:
    """n / d cut towards 0; 0 where d is 0."""
    a, b = f.abs(to_double(f, n)), f.abs(to_double(f, d))
    # (a + 1/2) / b has the same whole part, and no rounding error reaches the next
    whole = f.to_int(f.mul(f.add(a, 0.5), plain_reciprocal(f, b)))
    return _kept(f, _signed(f, whole, f.ixor(n, d)), b)


def remainder(f: Formula, n: Value, d: Value, fmod: int) -> Op:
    """With the sign of d, or of n for fmod; 0 where d is 0."""
    like = n if fmod else d
    divisor = to_double(f, d)
    a, b = f.ixor(to_double(f, n), f.sign_of(like)), f.abs(divisor)
    whole = f.floor(f.mul(f.add(a, 0.5), plain_reciprocal(f, b)))
    return _kept(f, _signed(f, f.to_int(f.fma(-whole, b, a)), like), b)


def power(f: Formula, x: Value, y: Value) -> Op:
    """x^y, right where it fits 32 bits; for negative y its whole part: 1, -1 or 0."""
    base, exponent = to_double(f, x), f.right(y, 32)
    negative = f.imax(exponent, 0)  # its flag: y >= 0
    exponent = f.where(negative, exponent, f.iand(exponent, 1))
    # beyond 62 only the parity matters: to 0, 1 and -1
    exponent = f.imin(exponent, f.ior(f.iand(exponent, 1), 62))
    value, square = f.number(1.0), base
    for bit in range(6):
        clear = f.iand(exponent, 1 << bit)  # its flag: the bit is 0
        value = f.where(clear, value, f.mul(value, square) if bit else base)  # type: ignore[assignment]
        if bit < 5:
            square = f.mul(square, square)
    unit = f.ixor(f.abs(base), f.number(1.0))  # its flag: |x| = 1
    whole = f.keep(unit, value)
    return from_double(f, f.where(negative, value, whole))


def constant_power(f: Formula, x: Value, exponent: int) -> Op:
    """The low 32 bits of x^exponent, which is not negative."""
    if exponent == 0:
        return f.copy(1)
    result = x
    for bit in bin(exponent)[3:]:
        result = product(f, result, result)
        if bit == "1":
            result = product(f, result, x)
    return result if isinstance(result, Op) else f.copy(result)


# ---- bits -----------------------------------------------------------------------------------------------------


def shift(f: Formula, x: Value, by: Value, direction: str) -> Op:
    """Nothing is left of x (but its sign) beyond 31 bits; negative amounts count as large ones."""
    by = f.alu("uimin", by, 63)  # the machine takes amounts modulo 64
    return f.left(x, by) if direction == "LEFT" else f.right(x, by)


def to_single(f: Formula, x: Value) -> Op:
    """The nearest single of an integer."""
    high = f.iadd(f.right(x, 16), 0x4B400000)  # 1.5 2^23 + upper half
    scaled = f.fma(high, 65536.0, f.word(0xD3400080))  # upper half 2^16 - 2^23, exact
    low = f.ior(f.iand(x, 0xFFFF), _TWO_23)  # 2^23 + lower half
    return f.add(low, scaled)


def rotated(f: Formula, x: Value, by: int) -> Op:
    """x, turned left by `by` bits of its 32."""
    return f.ior(f.left(x, by), f.right_zero(x, 32 - by))


def threefry(f: Formula, index: Value, key0: Value, key1: Value, stream: int) -> Op:
    """The first word of Threefry-2x32 for the counter (index, stream), as `ops/random.py` computes it."""
    keys = [key0, key1, f.ixor(f.ixor(key0, key1), PARITY)]
    x0, x1 = f.iadd(index, keys[0]), f.iadd(keys[1], stream)
    for turn in range(ROUNDS):
        x0 = f.iadd(x0, x1)
        x1 = f.ixor(rotated(f, x1, ROTATIONS[turn % len(ROTATIONS)]), x0)
        if turn % 4 == 3:
            count = turn // 4 + 1
            x0 = f.iadd(x0, keys[count % 3])
            x1 = f.iadd(x1, f.iadd(keys[(count + 1) % 3], count))
    return x0
