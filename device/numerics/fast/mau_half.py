"""Half-precision vector operations of the MAU: four halves of an LW times four halves, plus four singles of a 2LW.

The product of two halves is exact (20 bits). An infinite half counts as 2^128, like an infinite single (a choice).
"""

from __future__ import annotations

import numpy as np
from numba import uint32, uint64

from .bits import PES, double_of, kernel
from .mau_single import any_value
from .round import odd_sum, to_half, to_single


@kernel
def half_value(h):
    """Double of a half's bits; exponent 0 is 0, infinity is 2^128."""
    e = uint32(uint32(h >> uint32(9)) & uint32(63))
    body = uint64(uint64(h & uint32(0x7FFF)) << uint64(43)) + (uint64(1023 - 31) << uint64(52))
    body = uint64(0) if e == uint32(0) else body
    body = uint64(1023 + 128) << uint64(52) if e == uint32(63) else body
    return double_of(body | (uint64(h & uint32(0x8000)) << uint64(48)))


@kernel
def calculate(xm, xr, ym, yr, zm, zr, om, orow, sx, sy, sz, with_product, with_sum, short):
    """xr, yr: 2 rows per cycle; zr: 4 rows per cycle; orow: 4 rows per cycle, or 2 with a result of halves.

    sx, sy: sign masks for both halves of a word; sz: sign mask of a single.
    """
    buffer = np.empty((4, PES), np.uint32)
    for i in range(xr.size // 2):
        for w in range(4):
            x, y, z = xm[xr[2 * i + w // 2]], ym[yr[2 * i + w // 2]], zm[zr[4 * i + w]]
            shift = uint32(16 if w % 2 == 0 else 0)
            for k in range(PES):
                p = half_value(uint32(uint32(uint32(x[k] ^ sx) >> shift) & uint32(0xFFFF)))
                if with_product:
                    p *= half_value(uint32(uint32(uint32(y[k] ^ sy) >> shift) & uint32(0xFFFF)))
                s = odd_sum(p, any_value(uint32(z[k] ^ sz))) if with_sum else p
                buffer[w, k] = to_half(s) if short else to_single(s)
        if short:
            for h in range(2):
                o = om[orow[2 * i + h]]
                for k in range(PES):
                    o[k] = uint32(uint32(buffer[2 * h, k] << uint32(16)) | buffer[2 * h + 1, k])
        else:
            for w in range(4):
                o = om[orow[4 * i + w]]
                for k in range(PES):
                    o[k] = buffer[w, k]
