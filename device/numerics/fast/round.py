"""Rounding of exact sums.

A sum a + b of two doubles is kept as one double rounded to odd (SDM asks for one rounding of the exact sum): if the addition
was inexact and the last bit even, the double next to it in the direction of the error is taken. A double rounded to
odd has 53 bits,
at least two more than the target, so rounding it again to single (24) or half (10) gives the correctly rounded result.
"""

from __future__ import annotations

import numpy as np
from numba import float64, uint32

from .bits import bits64_of, bits_of, double_of, kernel

# Results below this round to an exponent field <= 0 and become +0: the midpoint below the smallest normal number, which is a
# tie and goes up to it (even).
SINGLE_UNDERFLOW = 2.0**-126 - 2.0**-151
HALF_UNDERFLOW = 2.0**-30 - 2.0**-41


@kernel
def odd_sum(a, b):
    """a + b rounded to odd."""
    s = a + b
    t = s - a
    error = (a - (s - t)) + (b - t)
    bits = bits64_of(s)
    inexact = (error != 0.0) and (bits & np.uint64(1)) == np.uint64(0)
    away = (error > 0.0) == (s > 0.0)
    moved = bits + np.uint64(1) if away else bits - np.uint64(1)
    return double_of(moved if inexact else bits)


@kernel
def to_single(s):
    """Bits of the single nearest to a double (rounded to odd before), normalised."""
    r = np.float32(s)
    return bits_of(r) if abs(s) >= SINGLE_UNDERFLOW else uint32(0)


@kernel
def to_half(s):
    """Bits of the half 1/6/9 nearest to a double (rounded to odd before), normalised."""
    bits = bits64_of(float64(s))
    sign = uint32(bits >> np.uint64(48)) & uint32(0x8000)
    magnitude = bits & np.uint64(0x7FFFFFFFFFFFFFFF)
    # 52 - 9 = 43 bits go; add half a unit, minus one when the kept part is even (ties to even).
    rounded = (magnitude + np.uint64(0x3FFFFFFFFFF) + ((magnitude >> np.uint64(43)) & np.uint64(1))) >> np.uint64(43)
    field = np.int64(rounded >> np.uint64(9)) - np.int64(1023 - 31)
    value = uint32((np.int64(rounded) & np.int64(0x1FF)) | (field << np.int64(9)))
    value = uint32(63 << 9) if field >= 63 else value
    return uint32(0) if field <= 0 else (sign | value)
