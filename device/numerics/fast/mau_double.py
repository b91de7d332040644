"""Double-precision vector operations of the MAU.

The product leaves out the partial products of the low 16 mantissa bits and adds 2^-74 when any of them is not zero. With `u`
the product is formed on PE 0 and 1 of a MAB, with `d` on PE 2 and 3; it is 0 on the others.
"""

from __future__ import annotations

import numpy as np
from numba import int64, uint32, uint64

from .bits import PES, bits64_of, double_of, kernel
from .wide import add, multiply, rounded, subtract, sum_of

HIDDEN = np.uint64(1 << 52)
FRACTION = np.uint64((1 << 52) - 1)
MAGNITUDE = np.uint64(0x7FFFFFFFFFFFFFFF)
INFINITY = np.uint64(0x7FF0000000000000)
ALL, UPPER, LOWER = 0, 1, 2  # which PEs form products


@kernel
def parts(u):
    """(sign, significand, exponent of its last bit); zero has significand 0, infinity is 2^1024."""
    e = int64((u >> uint64(52)) & uint64(2047))
    m = u & FRACTION
    if e == 0:
        return u >> uint64(63), uint64(0), int64(0)
    return u >> uint64(63), (uint64(0) if e == 2047 else m) | HIDDEN, e - 1075


@kernel
def product(mx, my):
    """128-bit significand product with the omitted part."""
    h, l = multiply(mx, my)
    omitted = (mx & uint64(0xFFFF)) * (my & uint64(0xFFFF))
    if omitted:
        h, l = subtract(h, l, uint64(0), omitted)
        h, l = add(h, l, uint64(0), uint64(1 << 30))
    return h, l


@kernel
def _add_row(xh, xl, zh, zl, sx, sz, upper, lower):
    """x + z by the host's own addition; 1 if some element needs more: infinities, zeros with mantissas, results at
    the borders."""
    limit = uint64(0x000FFFFFFFFFFFFF)
    low, high = ~uint64(0), uint64(0)
    for k in range(PES):
        x = ((uint64(xh[k]) << uint64(32)) | uint64(xl[k])) ^ sx
        z = ((uint64(zh[k]) << uint64(32)) | uint64(zl[k])) ^ sz
        r = bits64_of(double_of(x) + double_of(z))
        mx, mz, mr = x & MAGNITUDE, z & MAGNITUDE, r & MAGNITUDE
        low = min(low, min(mx - uint64(1), min(mz - uint64(1), mr - uint64(1))))
        high = max(high, max(mx, max(mz, mr)))
        r = r if mr else uint64(0)
        upper[k] = uint32(r >> uint64(32))
        lower[k] = uint32(r & uint64(0xFFFFFFFF))
    return low < limit or high >= INFINITY


@kernel
def add_rows(xm, xr, zm, zr, om, orow, sx, sz):
    """x + z, two rows (upper, lower) per LW; sx, sz: 1 << 63 flips a sign."""
    upper, lower = np.empty(PES, np.uint32), np.empty(PES, np.uint32)
    for i in range(xr.size // 2):
        xh, xl, zh, zl = xm[xr[2 * i]], xm[xr[2 * i + 1]], zm[zr[2 * i]], zm[zr[2 * i + 1]]
        if _add_row(xh, xl, zh, zl, sx, sz, upper, lower):
            for k in range(PES):
                xs, mx, ex = parts(((uint64(xh[k]) << uint64(32)) | uint64(xl[k])) ^ sx)
                zs, mz, ez = parts(((uint64(zh[k]) << uint64(32)) | uint64(zl[k])) ^ sz)
                v = rounded(*sum_of(xs, uint64(0), mx, ex, zs, uint64(0), mz, ez), 52, 11)
                upper[k] = uint32(v >> uint64(32))
                lower[k] = uint32(v & uint64(0xFFFFFFFF))
        oh, ol = om[orow[2 * i]], om[orow[2 * i + 1]]
        for k in range(PES):
            oh[k] = upper[k]
            ol[k] = lower[k]


@kernel
def calculate(xm, xr, ym, yr, zm, zr, om, orow, nx, ny, nz, with_product, with_sum, pes, short):
    """Two rows (upper, lower) per LW; nx, ny, nz: 1 flips a sign; `short`: orow has one row per LW, a single."""
    step = 1 if short else 2
    for i in range(xr.size // 2):
        xh, xl, yh, yl = xm[xr[2 * i]], xm[xr[2 * i + 1]], ym[yr[2 * i]], ym[yr[2 * i + 1]]
        zh, zl = zm[zr[2 * i]], zm[zr[2 * i + 1]]
        for k in range(PES):
            xs, mx, ex = parts((uint64(xh[k]) << uint64(32)) | uint64(xl[k]))
            xs ^= nx
            if with_product:
                ys, my, ey = parts((uint64(yh[k]) << uint64(32)) | uint64(yl[k]))
                half = (k & 3) >> 1
                if (pes == UPPER and half == 1) or (pes == LOWER and half == 0):
                    ph, pl = uint64(0), uint64(0)
                else:
                    ph, pl = product(mx, my)
                ps, pe = xs ^ ys ^ ny, ex + ey
            else:
                ps, ph, pl, pe = xs, uint64(0), mx, ex
            if with_sum:
                zs, mz, ez = parts((uint64(zh[k]) << uint64(32)) | uint64(zl[k]))
                ps, ph, pl, pe = sum_of(ps, ph, pl, pe, zs ^ nz, uint64(0), mz, ez)
            if short:
                om[orow[i], k] = uint32(rounded(ps, ph, pl, pe, 23, 8))
            else:
                v = rounded(ps, ph, pl, pe, 52, 11)
                om[orow[step * i], k] = uint32(v >> uint64(32))
                om[orow[step * i + 1], k] = uint32(v & uint64(0xFFFFFFFF))
