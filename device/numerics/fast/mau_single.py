"""Single-precision vector operations of the MAU: two singles per LW, one word at a time.

The product leaves out the partial products of the low 5 mantissa bits of both factors and adds 2^-38 when any of them is
not zero (SDM 4.3): in units of the last product bit, P = Mx My - lx ly + (256 if lx ly else 0). All of that is exact in double.

Each row is computed in blocks by a short loop that is right for ordinary values: finite inputs, a normal or zero result,
and a sum whose double is not just on the midpoint between two singles (only then can rounding twice differ from rounding
once). The loop notices anything else, and the block is done again by the long loop, which is right for everything.
Infinities act as 2^128 (a choice, see docs/isa.md).
"""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int32, uint32, uint64

from .bits import PES, bits64_of, bits_of, kernel, multiply_add, single_of
from .round import odd_sum, to_half, to_single

INF = np.uint32(0x7F800000)
SIGN = np.uint32(0x80000000)
MAGNITUDE = np.uint32(0x7FFFFFFF)
DENORMAL = np.uint32(0x007FFFFF)
POWER = np.uint32(0xFF800000)  # sign and exponent
PRODUCT_UNIT = np.float64(2.0**-46)
TOP = np.uint32(0x7F000000)  # 2^127
BELOW_SINGLE = np.uint64(0x1FFFFFFF)  # bits of a double that a single does not have
MIDPOINT = np.uint64(0x10000000)
POSITIVE_ZERO = np.float32(0.0)  # added to a result, makes +0 of -0
BLOCK = 1024  # PEs that are done again together


# --- right for everything ------------------------------------------------------------------------------------------------
@kernel
def any_value(u):
    """Double of a single's bits; exponent 0 is 0, infinity is 2^128."""
    e = uint32(u & INF)
    if e == INF:
        return 2.0 * float64(single_of((u & SIGN) | TOP))
    return float64(single_of(u)) if e != uint32(0) else 0.0


@kernel
def any_product(xu, yu):
    """Product of two singles with the omitted part. Infinities and zeros have no low bits."""
    x, y = any_value(xu), any_value(yu)
    ex, ey = uint32(xu & INF), uint32(yu & INF)
    if ex == INF or ey == INF or ex == uint32(0) or ey == uint32(0):
        return x * y
    omitted = int32(xu & uint32(31)) * int32(yu & uint32(31))
    if omitted == 0:
        return x * y
    scale = float64(single_of(xu & uint32(0xFF800000))) * float64(single_of(yu & uint32(0xFF800000))) * 2.0**-46
    return x * y + float64(256 - omitted) * scale


# --- right for ordinary values -------------------------------------------------------------------------------------------
@kernel
def correction_of(xu, yu):
    """What takes the place of the omitted part, in units of the last product bit."""
    omitted = int32(int32(xu & uint32(31)) * int32(yu & uint32(31)))
    return int32(int32(256) - omitted) if omitted != int32(0) else int32(0)


@kernel
def finite_product(xu, yu):
    """Right for normal numbers and zeros."""
    px, py = float64(single_of(uint32(xu & POWER))), float64(single_of(uint32(yu & POWER)))
    return float64(single_of(xu)) * float64(single_of(yu)) + float64(correction_of(xu, yu)) * px * py * PRODUCT_UNIT


@kernel
def ordinary_product(xu, yu):
    """The same for short loops, and 0 if a factor has exponent 0; not a number or infinite if the unit of the correction
    overflows a single.

    That unit is the product of the factors' powers of two. Below 2^-149 it becomes 0, where the correction is too small to
    change the rounding of any ordinary sum.
    """
    unit = single_of(uint32(xu & POWER)) * single_of(uint32(yu & POWER))
    both = (uint32(xu & INF) != uint32(0)) & (uint32(yu & INF) != uint32(0))
    product = float64(single_of(xu)) * float64(single_of(yu)) if both else 0.0
    return multiply_add(float64(float32(correction_of(xu, yu)) * unit), PRODUCT_UNIT, product)


@kernel
def _flushed(u, sign):
    """A single's bits with its sign changed; +0 if its exponent is 0."""
    return uint32(u ^ sign) if uint32(u & INF) != uint32(0) else uint32(0)


@kernel
def _unusual(low, high):
    """Whether results were infinite, or not zero and at most 2^-126 (which may have been rounded up to that).

    low, high   the least magnitude - 1, where zero is the largest number, and the largest magnitude
    """
    return low <= DENORMAL or high >= INF


@kernel
def _fma_block(x, y, z, sp, sz, out):
    """Whether some element was not ordinary; sp is the sign mask of the product."""
    low, high, middle = uint32(0xFFFFFFFF), uint32(0), uint64(1 << 40)
    for k in range(BLOCK):
        s = ordinary_product(uint32(x[k] ^ sp), uint32(y[k])) + float64(single_of(_flushed(uint32(z[k]), sz)))
        r = bits_of(float32(s) + POSITIVE_ZERO)
        out[k] = r
        magnitude = uint32(r & MAGNITUDE)
        low, high = min(low, uint32(magnitude - uint32(1))), max(high, magnitude)
        middle = min(middle, uint64((bits64_of(s) & BELOW_SINGLE) ^ MIDPOINT))
    return _unusual(low, high) or middle == uint64(0)


@kernel
def _mul_block(x, y, sp, out):
    low, high = uint32(0xFFFFFFFF), uint32(0)
    for k in range(BLOCK):
        r = bits_of(float32(ordinary_product(uint32(x[k] ^ sp), uint32(y[k]))) + POSITIVE_ZERO)
        out[k] = r
        magnitude = uint32(r & MAGNITUDE)
        low, high = min(low, uint32(magnitude - uint32(1))), max(high, magnitude)
    return _unusual(low, high)


@kernel
def _add_block(x, z, sx, sz, out):
    low, high = uint32(0xFFFFFFFF), uint32(0)
    for k in range(BLOCK):
        r = bits_of(single_of(_flushed(uint32(x[k]), sx)) + single_of(_flushed(uint32(z[k]), sz)))
        out[k] = r
        magnitude = uint32(r & MAGNITUDE)
        low, high = min(low, uint32(magnitude - uint32(1))), max(high, magnitude)
    return _unusual(low, high)


@kernel
def _copy(source, target):
    for k in range(target.size):
        target[k] = source[k]


# --- kernels -------------------------------------------------------------------------------------------------------------
@kernel
def _same(a, b):
    """Whether two rows are one: then the result needs a buffer, so that the row can be done again."""
    return a.ctypes.data == b.ctypes.data


@kernel
def fma(xm, xr, ym, yr, zm, zr, om, orow, sx, sy, sz):
    """om[orow] = (+-x) * (+-y) + (+-z) per word; sx, sy, sz are sign masks (0 or 0x80000000)."""
    buffer, sp = np.empty(BLOCK, np.uint32), uint32(sx ^ sy)
    for i in range(xr.size):
        xs, ys, zs, outs = xm[xr[i]], ym[yr[i]], zm[zr[i]], om[orow[i]]
        shared = _same(xs, outs) or _same(ys, outs) or _same(zs, outs)
        for b in range(0, PES, BLOCK):
            x, y, z, out = xs[b : b + BLOCK], ys[b : b + BLOCK], zs[b : b + BLOCK], outs[b : b + BLOCK]
            target = buffer if shared else out
            if _fma_block(x, y, z, sp, sz, target):
                for k in range(BLOCK):
                    target[k] = to_single(odd_sum(any_product(uint32(x[k] ^ sp), y[k]), any_value(uint32(z[k] ^ sz))))
            if shared:
                _copy(buffer, out)


@kernel
def mul(xm, xr, ym, yr, om, orow, sx, sy):
    """om[orow] = (+-x) * (+-y)."""
    buffer, sp = np.empty(BLOCK, np.uint32), uint32(sx ^ sy)
    for i in range(xr.size):
        xs, ys, outs = xm[xr[i]], ym[yr[i]], om[orow[i]]
        shared = _same(xs, outs) or _same(ys, outs)
        for b in range(0, PES, BLOCK):
            x, y, out = xs[b : b + BLOCK], ys[b : b + BLOCK], outs[b : b + BLOCK]
            target = buffer if shared else out
            if _mul_block(x, y, sp, target):
                for k in range(BLOCK):
                    target[k] = to_single(any_product(uint32(x[k] ^ sp), y[k]))
            if shared:
                _copy(buffer, out)


@kernel
def add(xm, xr, zm, zr, om, orow, sx, sz):
    """om[orow] = (+-x) + (+-z): the second factor is 1, so nothing is left out."""
    buffer = np.empty(BLOCK, np.uint32)
    for i in range(xr.size):
        xs, zs, outs = xm[xr[i]], zm[zr[i]], om[orow[i]]
        shared = _same(xs, outs) or _same(zs, outs)
        for b in range(0, PES, BLOCK):
            x, z, out = xs[b : b + BLOCK], zs[b : b + BLOCK], outs[b : b + BLOCK]
            target = buffer if shared else out
            if _add_block(x, z, sx, sz, target):
                for k in range(BLOCK):
                    target[k] = to_single(odd_sum(any_value(uint32(x[k] ^ sx)), any_value(uint32(z[k] ^ sz))))
            if shared:
                _copy(buffer, out)


@kernel
def passa(xm, xr, om, orow, sx):
    """om[orow] = +-x, normalised."""
    buffer = np.empty(PES, np.uint32)
    for i in range(xr.size):
        x = xm[xr[i]]
        for k in range(PES):
            u = uint32(x[k] ^ sx)
            e = uint32(u & INF)
            u = uint32(u & uint32(0xFF800000)) if e == INF else u
            buffer[k] = uint32(0) if e == uint32(0) else u
        _copy(buffer, om[orow[i]])


@kernel
def _ordinary(row):
    """Whether a row holds neither infinities nor zeros with a mantissa."""
    low, high = uint32(0xFFFFFFFF), uint32(0)
    for k in range(PES):
        magnitude = uint32(row[k] & MAGNITUDE)
        high = max(high, magnitude)
        low = min(low, uint32(magnitude - uint32(1)))
    return high < INF and low >= DENORMAL


@kernel
def short_result(xm, xr, ym, yr, zm, zr, om, orow, sx, sy, sz, with_product, with_sum):
    """Result suffix r: pairs of words (MSB, LSB) become two halves in one word; one rounding of the exact sum.

    xr, yr, zr hold two rows for each row of orow. Without product: x + z; without sum: x * y.
    """
    buffer, sums = np.empty(PES, np.uint32), np.empty(PES, np.float64)
    for i in range(orow.size):
        for w in range(2):
            x, y, z = xm[xr[2 * i + w]], ym[yr[2 * i + w]], zm[zr[2 * i + w]]
            if _ordinary(x) and _ordinary(y) and _ordinary(z):
                if with_product and with_sum:
                    for k in range(PES):
                        p = finite_product(uint32(x[k] ^ sx), uint32(y[k] ^ sy))
                        sums[k] = odd_sum(p, float64(single_of(z[k] ^ sz)))
                elif with_product:
                    for k in range(PES):
                        sums[k] = finite_product(uint32(x[k] ^ sx), uint32(y[k] ^ sy))
                elif with_sum:
                    for k in range(PES):
                        sums[k] = odd_sum(float64(single_of(x[k] ^ sx)), float64(single_of(z[k] ^ sz)))
                else:
                    for k in range(PES):
                        sums[k] = float64(single_of(x[k] ^ sx))
            else:
                for k in range(PES):
                    xu = uint32(x[k] ^ sx)
                    p = any_product(xu, uint32(y[k] ^ sy)) if with_product else any_value(xu)
                    sums[k] = odd_sum(p, any_value(uint32(z[k] ^ sz))) if with_sum else p
            if w == 0:
                for k in range(PES):
                    buffer[k] = uint32(to_half(sums[k]) << uint32(16))
            else:
                for k in range(PES):
                    buffer[k] = uint32(buffer[k] | to_half(sums[k]))
        _copy(buffer, om[orow[i]])
