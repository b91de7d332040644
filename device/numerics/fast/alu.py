"""ALU operations on elements of 64, 32 and 16 bits, which lie in pairs of rows, rows, and halves of rows.

The common operations on words share a kernel, in which the operation is a number that is looked at once a row.
Floating-point operations that need
no rounding (max, relu, floor, ...) live here too.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import int32, int64, uint32, uint64

from .bits import PES, kernel

#: operation -> number. `carry`, `borrow`, `chose_*` set the MSB for flags: 1 where the flag is 0.
OPS = {
    name: number
    for number, name in enumerate(
        [
            "inc",
            "dec",
            "not",
            "lnot",
            "and",
            "or",
            "xor",
            "add",
            "sub",
            "lsl",
            "ulsr",
            "lsr",
            "bsl",
            "bsr",
            "packbit",
            "umax",
            "umin",
            "max",
            "min",
            "fmax",
            "fmin",
            "relu0",
            "relu1",
            "relu2",
            "relu3",
            "lrelud",
            "lreluo",
            "ilrelud",
            "carry",
            "borrow",
            "zero_carry",
            "zero_borrow",
            "chose_umax",
            "chose_umin",
            "chose_max",
            "chose_min",
            "chose_fmax",
            "chose_fmin",
            "floor",
            "ftoi",
            "uftoi",
            "rsqrt",
        ]
    )
}
(
    INC,
    DEC,
    NOT,
    LNOT,
    AND,
    OR,
    XOR,
    ADD,
    SUB,
    LSL,
    ULSR,
    LSR,
    BSL,
    BSR,
    PACKBIT,
    UMAX,
    UMIN,
    MAX,
    MIN,
    FMAX,
    FMIN,
    RELU0,
    RELU1,
    RELU2,
    RELU3,
    LRELUD,
    LRELUO,
    ILRELUD,
    CARRY,
    BORROW,
    ZERO_CARRY,
    ZERO_BORROW,
    CHOSE_UMAX,
    CHOSE_UMIN,
    CHOSE_MAX,
    CHOSE_MIN,
    CHOSE_FMAX,
    CHOSE_FMIN,
    FLOOR,
    FTOI,
    UFTOI,
    RSQRT,
) = range(len(OPS))

# --- one element ---------------------------------------------------------------------------------------------------------
# u is the element in the low `bits` bits of a uint64, mbits the mantissa bits of the float format of that width.


@kernel
def _signed(u, bits):
    return int64(u << uint64(64 - bits)) >> int64(64 - bits)


@kernel
def _float_less(x, y, bits, mbits):
    """x < y as sign and magnitude, both zeros equal (SDM 3.6.12.13)."""
    magnitude = (uint64(1) << uint64(bits - 1)) - uint64(1)
    xm, ym = x & magnitude, y & magnitude
    if (xm >> uint64(mbits)) == uint64(0) and (ym >> uint64(mbits)) == uint64(0):
        return False
    xs, ys = x >> uint64(bits - 1), y >> uint64(bits - 1)
    if xs != ys:
        return xs == uint64(1)
    return ym < xm if xs else xm < ym


@kernel
def _scaled(y, down, bits, mbits):
    """y with its exponent lowered by `down`; an exponent that is or becomes 0 or less gives -0 (SDM 3.6.12.18).

    An infinite y is not specified: it stays infinite (a choice).
    """
    ones = (uint64(1) << uint64(bits - 1 - mbits)) - uint64(1)
    e = (y >> uint64(mbits)) & ones
    if e == ones:
        return y
    if int64(e) - down <= 0:
        return uint64(1) << uint64(bits - 1)
    return y - (uint64(down) << uint64(mbits))


@kernel
def _doubled(y, bits, mbits):
    """y with its exponent raised by 1, saturating at all ones with sign and mantissa of y."""
    ones = (uint64(1) << uint64(bits - 1 - mbits)) - uint64(1)
    e = (y >> uint64(mbits)) & ones
    return y if e == ones else y + (uint64(1) << uint64(mbits))


@kernel
def _floor(x, bits, mbits):
    """Largest integral value not above x. Infinity and zero pass; a zero result has its mantissa flushed."""
    sign = x >> uint64(bits - 1)
    ones = (uint64(1) << uint64(bits - 1 - mbits)) - uint64(1)
    e = (x >> uint64(mbits)) & ones
    bias = int64(ones >> uint64(1))
    shift = int64(e) - bias
    top = sign << uint64(bits - 1)
    if e == uint64(0):
        return top
    if e == ones or shift >= mbits:
        return x
    if shift < 0:
        return (top | (uint64(bias) << uint64(mbits))) if sign else top  # -1 or +0
    cut = (uint64(1) << uint64(mbits - shift)) - uint64(1)
    if sign and (x & cut):
        return (x | cut) + uint64(1)
    return x & ~cut


@kernel
def _ftoi(x, bits, mbits, unsigned):
    """Integer part, saturating; u converts the magnitude."""
    sign = x >> uint64(bits - 1)
    ones = (uint64(1) << uint64(bits - 1 - mbits)) - uint64(1)
    e = (x >> uint64(mbits)) & ones
    shift = int64(e) - int64(ones >> uint64(1))
    if e == uint64(0) or shift < 0:
        return uint64(0)
    every = ~uint64(0) >> uint64(64 - bits)
    limit = bits if unsigned else bits - 1
    if e == ones or shift >= limit:
        if unsigned:
            return every
        return (uint64(1) << uint64(bits - 1)) if sign else every >> uint64(1)
    significand = (uint64(1) << uint64(mbits)) | (x & ((uint64(1) << uint64(mbits)) - uint64(1)))
    value = significand >> uint64(mbits - shift) if shift <= mbits else significand << uint64(shift - mbits)
    return value if unsigned or not sign else (uint64(0) - value) & every


#: Seeds of 1/sqrt by parity of the exponent and 4 mantissa bits: k/64 (inferred, agrees with published results).
SEEDS = np.array(
    [63, 62, 60, 58, 57, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45]
    + [45, 43, 42, 41, 40, 39, 38, 37, 36, 36, 35, 34, 34, 33, 33, 32],
    np.int64,
)


@kernel
def _rsqrt(x, bits, mbits):
    """Seed of 1/sqrt|x|: 0 gives +inf, infinity gives +0 (a choice)."""
    ones = (uint64(1) << uint64(bits - 1 - mbits)) - uint64(1)
    e = (x >> uint64(mbits)) & ones
    if e == uint64(0):
        return ones << uint64(mbits)
    if e == ones:
        return uint64(0)
    bias = int64(ones >> uint64(1))
    unbiased = int64(e) - bias
    parity = unbiased & int64(1)
    index = int64((x >> uint64(mbits - 4)) & uint64(15))
    k = SEEDS[parity * 16 + index]
    exponent = -((unbiased - parity) // 2) - 1 + bias
    return (uint64(exponent) << uint64(mbits)) | (uint64(k - 32) << uint64(mbits - 5))


@kernel
def _shift(op, x, y, bits):
    s = y & uint64(2 * bits - 1)
    n = uint64(bits)
    out = s >= n
    s = s - n if out else s
    every = ~uint64(0) >> uint64(64 - bits)
    if op == LSL:
        return uint64(0) if out else (x << s) & every
    if op == ULSR:
        return uint64(0) if out else x >> s
    if op == LSR:
        return uint64(_signed(x, bits) >> int64(bits - 1 if out else s)) & every
    if s == uint64(0):
        return x
    if op == BSL:
        return ((x << s) | (x >> (n - s))) & every
    return ((x >> s) | (x << (n - s))) & every


@kernel
def _keeps_x(op, x, y, bits, mbits):
    """Whether max or min gives x; equal elements do."""
    if op in (UMAX, CHOSE_UMAX):
        return x >= y
    if op in (UMIN, CHOSE_UMIN):
        return x <= y
    if op in (MAX, CHOSE_MAX):
        return _signed(x, bits) >= _signed(y, bits)
    if op in (MIN, CHOSE_MIN):
        return _signed(x, bits) <= _signed(y, bits)
    if op in (FMAX, CHOSE_FMAX):
        return not _float_less(x, y, bits, mbits)
    return not _float_less(y, x, bits, mbits)


@kernel
def _relu(op, x, y, bits, mbits):
    msb = uint64(1) << uint64(bits - 1)
    if RELU0 <= op <= RELU3:
        return y if (x >> uint64(bits - 1 - (op - RELU0))) & uint64(1) == uint64(0) else msb
    if x & msb == uint64(0):
        return y
    if op == ILRELUD:
        return _doubled(y, bits, mbits)
    return _scaled(y, 1 if op == LRELUD else 3, bits, mbits)


@kernel
def _integer(op, x, y, bits):
    one = uint64(1)
    msb = one << uint64(bits - 1)
    every = ~uint64(0) >> uint64(64 - bits)
    if op == INC:
        return (x + one) & every
    if op == DEC:
        return (x - one) & every
    if op == NOT:
        return ~x & every
    if op == AND:
        return x & y
    if op == OR:
        return x | y
    if op == XOR:
        return x ^ y
    if op == ADD:
        return (x + y) & every
    if op == SUB:
        return (x - y) & every
    if op == PACKBIT:
        return ((x << one) | (y >> uint64(bits - 1))) & every
    if op == LNOT:
        return one if x == uint64(0) else uint64(0)
    if op == CARRY:
        return msb if ((x + y) & every) < x else uint64(0)
    if op == BORROW:
        return msb if x < y else uint64(0)
    if op == ZERO_CARRY:
        return msb if x == every else uint64(0)
    return msb if x == uint64(0) else uint64(0)


SHIFTS, COMPARISONS, CHOICES, RELUS, FLOORS, INTEGERS_OF, SEEDS_OF, PLAIN = range(8)


def _family(op: int) -> int:
    """Which of the functions above an operation belongs to; a kernel contains only its own."""
    if LSL <= op <= BSR:
        return SHIFTS
    if UMAX <= op <= FMIN:
        return COMPARISONS
    if CHOSE_UMAX <= op <= CHOSE_FMIN:
        return CHOICES
    if RELU0 <= op <= ILRELUD:
        return RELUS
    return {FLOOR: FLOORS, FTOI: INTEGERS_OF, UFTOI: INTEGERS_OF, RSQRT: SEEDS_OF}.get(op, PLAIN)


# --- rows ----------------------------------------------------------------------------------------------------------------
@kernel
def words(op, xm, xr, ym, yr, om, orow):
    """Elements of 32 bits, the common operations."""
    buffer = np.empty(PES, np.uint32)
    for i in range(orow.size):
        x, y, o = xm[xr[i]], ym[yr[i]], om[orow[i]]
        shared = x.ctypes.data == o.ctypes.data or y.ctypes.data == o.ctypes.data
        target = buffer if shared else o
        if op == AND:
            for k in range(PES):
                target[k] = x[k] & y[k]
        elif op == OR:
            for k in range(PES):
                target[k] = x[k] | y[k]
        elif op == XOR:
            for k in range(PES):
                target[k] = x[k] ^ y[k]
        elif op == ADD:
            for k in range(PES):
                target[k] = uint32(x[k] + y[k])
        elif op == SUB:
            for k in range(PES):
                target[k] = uint32(x[k] - y[k])
        elif op == NOT:
            for k in range(PES):
                target[k] = ~x[k]
        elif op == INC:
            for k in range(PES):
                target[k] = uint32(x[k] + uint32(1))
        elif op == DEC:
            for k in range(PES):
                target[k] = uint32(x[k] - uint32(1))
        elif op == LSL:
            for k in range(PES):
                s = uint32(y[k] & uint32(63))
                target[k] = uint32(0) if s >= uint32(32) else uint32(x[k] << (s & uint32(31)))
        elif op == ULSR:
            for k in range(PES):
                s = uint32(y[k] & uint32(63))
                target[k] = uint32(0) if s >= uint32(32) else uint32(x[k] >> (s & uint32(31)))
        elif op == LSR:
            for k in range(PES):
                s = uint32(y[k] & uint32(63))
                target[k] = uint32(int32(x[k]) >> int32(min(s, uint32(31))))
        elif op in (FMAX, FMIN):
            # A key that orders like the number: both zeros are 0.
            for k in range(PES):
                a, b = uint32(x[k]), uint32(y[k])
                ka = int32(a ^ uint32(0x7FFFFFFF)) + int32(1) if a >> uint32(31) else int32(a)
                kb = int32(b ^ uint32(0x7FFFFFFF)) + int32(1) if b >> uint32(31) else int32(b)
                ka = int32(0) if uint32(a & uint32(0x7F800000)) == uint32(0) else int32(ka)
                kb = int32(0) if uint32(b & uint32(0x7F800000)) == uint32(0) else int32(kb)
                keep = ka >= kb if op == FMAX else ka <= kb
                target[k] = a if keep else b
        elif op == RELU0:
            for k in range(PES):
                target[k] = uint32(0x80000000) if x[k] >> uint32(31) else y[k]
        if shared:
            for k in range(PES):
                o[k] = buffer[k]


# An operation that has no loop of its own above gets a kernel for itself: with the operation known, its loop vectorises.
@cache
def kernel_of(op: int, bits: int) -> Any:
    """kernel(op, xm, xr, ym, yr, om, orow) for elements of 64, 32 or 16 bits, in pairs of rows, rows, or halves of rows."""
    if bits == 64:
        return _long_words(op)
    if bits == 16:
        return _half_words(op)
    return words if op in COMMON else _words(op)


COMMON = frozenset({AND, OR, XOR, ADD, SUB, NOT, INC, DEC, LSL, ULSR, LSR, FMAX, FMIN, RELU0})


def _words(number: int) -> Any:
    family = _family(number)

    @kernel
    def one_word(op, xm, xr, ym, yr, om, orow):
        buffer = np.empty(PES, np.uint32)
        for i in range(orow.size):
            a, b, o = xm[xr[i]], ym[yr[i]], om[orow[i]]
            for k in range(PES):
                x, y = uint64(a[k]), uint64(b[k])
                if family == SHIFTS:
                    v = _shift(number, x, y, 32)
                elif family == COMPARISONS:
                    v = x if _keeps_x(number, x, y, 32, 23) else y
                elif family == CHOICES:
                    v = uint64(0) if _keeps_x(number, x, y, 32, 23) else uint64(0x80000000)
                elif family == RELUS:
                    v = _relu(number, x, y, 32, 23)
                elif family == FLOORS:
                    v = _floor(x, 32, 23)
                elif family == INTEGERS_OF:
                    v = _ftoi(x, 32, 23, number == UFTOI)
                elif family == SEEDS_OF:
                    v = _rsqrt(x, 32, 23)
                else:
                    v = _integer(number, x, y, 32)
                buffer[k] = uint32(v)
            for k in range(PES):
                o[k] = buffer[k]

    return one_word


def _long_words(number: int) -> Any:
    family = _family(number)

    @kernel
    def one_long_word(op, xm, xr, ym, yr, om, orow):
        upper, lower = np.empty(PES, np.uint32), np.empty(PES, np.uint32)
        for i in range(orow.size // 2):
            xh, xl, yh, yl = xm[xr[2 * i]], xm[xr[2 * i + 1]], ym[yr[2 * i]], ym[yr[2 * i + 1]]
            for k in range(PES):
                x = (uint64(xh[k]) << uint64(32)) | uint64(xl[k])
                y = (uint64(yh[k]) << uint64(32)) | uint64(yl[k])
                if family == SHIFTS:
                    v = _shift(number, x, y, 64)
                elif family == COMPARISONS:
                    v = x if _keeps_x(number, x, y, 64, 52) else y
                elif family == CHOICES:
                    v = uint64(0) if _keeps_x(number, x, y, 64, 52) else uint64(0x8000000000000000)
                elif family == RELUS:
                    v = _relu(number, x, y, 64, 52)
                elif family == FLOORS:
                    v = _floor(x, 64, 52)
                elif family == INTEGERS_OF:
                    v = _ftoi(x, 64, 52, number == UFTOI)
                elif family == SEEDS_OF:
                    v = _rsqrt(x, 64, 52)
                else:
                    v = _integer(number, x, y, 64)
                upper[k] = uint32(v >> uint64(32))
                lower[k] = uint32(v & uint64(0xFFFFFFFF))
            oh, ol = om[orow[2 * i]], om[orow[2 * i + 1]]
            for k in range(PES):
                oh[k] = upper[k]
                ol[k] = lower[k]

    return one_long_word


def _half_words(number: int) -> Any:
    family = _family(number)

    @kernel
    def one_half_word(op, xm, xr, ym, yr, om, orow):
        buffer = np.empty(PES, np.uint32)
        for i in range(orow.size):
            a, b, o = xm[xr[i]], ym[yr[i]], om[orow[i]]
            for shift in (16, 0):
                for k in range(PES):
                    x, y = (
                        uint64((a[k] >> uint32(shift)) & uint32(0xFFFF)),
                        uint64((b[k] >> uint32(shift)) & uint32(0xFFFF)),
                    )
                    if family == SHIFTS:
                        v = _shift(number, x, y, 16)
                    elif family == COMPARISONS:
                        v = x if _keeps_x(number, x, y, 16, 9) else y
                    elif family == CHOICES:
                        v = uint64(0) if _keeps_x(number, x, y, 16, 9) else uint64(0x8000)
                    elif family == RELUS:
                        v = _relu(number, x, y, 16, 9)
                    elif family == FLOORS:
                        v = _floor(x, 16, 9)
                    elif family == INTEGERS_OF:
                        v = _ftoi(x, 16, 9, number == UFTOI)
                    elif family == SEEDS_OF:
                        v = _rsqrt(x, 16, 9)
                    else:
                        v = _integer(number, x, y, 16)
                    buffer[k] = uint32(v << uint64(16)) if shift == 16 else uint32(buffer[k] | v)
            for k in range(PES):
                o[k] = buffer[k]

    return one_half_word
