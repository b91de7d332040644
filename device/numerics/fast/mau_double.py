"""Double-precision vector operations of the MAU.

The product leaves out the partial products of the low 16 mantissa bits and adds 2^-74 when any of them is not zero. With `u`
the product is formed on PE 0 and 1 of a MAB, with `d` on PE 2 and 3; it is 0 on the others.
"""

from __future__ import annotations

import numpy as np
from numba import int64, uint32, uint64

from .bits import PES, kernel
from .wide import add, multiply, rounded, subtract, sum_of

HIDDEN = np.uint64(1 << 52)
FRACTION = np.uint64((1 << 52) - 1)
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
