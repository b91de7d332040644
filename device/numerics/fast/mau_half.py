"""Half-precision vector operations of the MAU: four halves of an LW times four halves, plus four singles of a 2LW.

The product of two halves is exact (20 bits). An infinite half counts as 2^128, like an infinite single (a choice).
"""

from __future__ import annotations

import numpy as np
from numba import float32, uint32, uint64

from .bits import PES, bits_of, double_of, kernel, single_of
from .mau_single import _ordinary, any_value
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
def _plain_half(h):
    """Single of a half that is not infinite; exponent 0 is 0."""
    e = uint32(h & uint32(0x7E00))
    body = uint32(uint32(uint32(h & uint32(0x7FFF)) << uint32(14)) + uint32(96 << 23))
    body = uint32(0) if e == uint32(0) else body
    return single_of(uint32(body | uint32(uint32(h & uint32(0x8000)) << uint32(16))))


@kernel
def _no_infinity(row):
    high = uint32(0)
    for k in range(PES):
        u = uint32(row[k])
        high = max(high, max(uint32(u & uint32(0x7E00)), uint32(uint32(u >> uint32(16)) & uint32(0x7E00))))
    return high < uint32(0x7E00)


@kernel
def _row(x, y, z, shift, sx, sy, sz, with_product, with_sum, short, out):
    """One word of the result for every PE. Products of finite halves are exact singles, and a hardware addition rounds once."""
    if not short and _no_infinity(x) and _no_infinity(y) and _ordinary(z):
        for k in range(PES):
            p = _plain_half(uint32(uint32(x[k] ^ sx) >> shift))
            p = p * _plain_half(uint32(uint32(y[k] ^ sy) >> shift)) if with_product else p
            s = p + single_of(uint32(z[k] ^ sz)) if with_sum else p
            r = bits_of(float32(s))
            out[k] = r if uint32(r & uint32(0x7FFFFFFF)) != uint32(0) else uint32(0)
        return
    for k in range(PES):
        v = half_value(uint32(uint32(uint32(x[k] ^ sx) >> shift) & uint32(0xFFFF)))
        if with_product:
            v *= half_value(uint32(uint32(uint32(y[k] ^ sy) >> shift) & uint32(0xFFFF)))
        t = odd_sum(v, any_value(uint32(z[k] ^ sz))) if with_sum else v
        out[k] = to_half(t) if short else to_single(t)


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
            _row(x, y, z, shift, sx, sy, sz, with_product, with_sum, short, buffer[w])
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
