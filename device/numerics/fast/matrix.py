"""Matrix operations of the MAU: decoded matrix registers, and exact products of block floats.

A matrix register side is decoded once after it was written. Block floats have no hidden bit: the conversion shifts 1.m right
by one, so the first mantissa bit is worth 2^(exponent - bias) and the last one 2^(exponent - bias - 8) in a half.
All elements of a row (and of a vector x) share one exponent, so the sum over j is an integer of few
bits times a power of two: 22 bits for half (computed as integers), 48 for g and f (in double, exact).

Decoded arrays are flat and ordered [L1B][row i][column j][MAB], so that the innermost loop runs over the 16 MABs of an L1B with
constant distances.
"""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int32, int64, uint32, uint64

from .bits import PES, bits_of, double_of, kernel, single_of
from .blockfloat import group_maximum
from .mau_double import LOWER, UPPER, parts
from .mau_single import INF, MAGNITUDE, any_value
from .round import odd_sum, to_half, to_single
from .vectors import block_scales, row_products, scaled_interleave, spread, spread_mantissas
from .wide import add, multiply, rounded, subtract, sum_of

L1BS, MABS = 64, 16
# Words from one L1B to the next. Not a power of two, so that the same place of all L1Bs does not fall into one set of the cache.
PACKED_STEP, X_STEP = 2048 + 16, 512 + 16


# --- half: decoding ------------------------------------------------------------------------------------------------------
# A block has the largest exponent field of its elements. An element with exponent field 0 belongs to the extended
# representation and
# counts from 6 below; its mantissa is kept apart, so that both parts are small integers.
EXTENDED, INFINITE = 1, 2


@kernel
def _uniform(a, b, common):
    """Whether all elements of each block of 16 halves (rows a, b) have one exponent field that is not infinity's; if
    so, it is stored."""
    found = uint32(0)
    for j in range(PES // 4):
        first = uint32(uint32(a[4 * j] >> uint32(25)) & uint32(63))
        pair = uint32(uint32(first << uint32(25)) | uint32(first << uint32(9)))
        for p in range(4):
            found |= uint32(uint32(a[4 * j + p] & uint32(0x7E007E00)) ^ pair)
            found |= uint32(uint32(b[4 * j + p] & uint32(0x7E007E00)) ^ pair)
            common[4 * j + p] = int32(first)
        found |= uint32(1) if first == uint32(63) else uint32(0)
    return found == uint32(0)


@kernel
def _exponents(a, b, common):
    """The exponent of each block, in all four PEs; EXTENDED, INFINITE, both or 0."""
    return 0 if _uniform(a, b, common) else _block_exponents(a, b, common)


@kernel
def _block_exponents(a, b, common):
    """The largest exponent field of each block of 16 halves (rows a, b), in all four PEs; 1 (EXTENDED), 2 (INFINITE) or both."""
    zero_with_mantissa = uint32(0)
    for k in range(PES):
        u, v = uint32(a[k]), uint32(b[k])
        e0, e1 = uint32(uint32(u >> uint32(25)) & uint32(63)), uint32(uint32(u >> uint32(9)) & uint32(63))
        e2, e3 = uint32(uint32(v >> uint32(25)) & uint32(63)), uint32(uint32(v >> uint32(9)) & uint32(63))
        common[k] = int32(max(max(e0, e1), max(e2, e3)))
        # e - 1 wraps for e = 0: an element with exponent 0 and a mantissa
        found = uint32(1) if e0 == uint32(0) and uint32(u & uint32(0x01FF0000)) != uint32(0) else uint32(0)
        found |= uint32(1) if e1 == uint32(0) and uint32(u & uint32(0x1FF)) != uint32(0) else uint32(0)
        found |= uint32(1) if e2 == uint32(0) and uint32(v & uint32(0x01FF0000)) != uint32(0) else uint32(0)
        found |= uint32(1) if e3 == uint32(0) and uint32(v & uint32(0x1FF)) != uint32(0) else uint32(0)
        zero_with_mantissa |= found
    group_maximum(common)
    top = int32(0)
    for k in range(PES):
        top = max(top, common[k])
    return (EXTENDED if zero_with_mantissa else 0) | (INFINITE if top == int32(63) else 0)


@kernel
def _mantissa(h, keep_zero_exponent):
    """Signed mantissa of a half; 0 for those with exponent field 0 (or for all others)."""
    m = int32(h & uint32(511))
    zero = uint32(h & uint32(0x7E00)) == uint32(0)
    m = m if zero == keep_zero_exponent else int32(0)
    return -m if uint32(h & uint32(0x8000)) else m


@kernel
def _pack_special_row(row, common, out, extended, sx):
    """Two signed 16-bit mantissas a word, of rows with special blocks: the extended elements only, or the others with
    infinities as 256 (1.0)."""
    for k in range(PES):
        u = uint32(row[k] ^ sx)
        high, low = _mantissa(uint32(u >> uint32(16)), extended), _mantissa(uint32(u & uint32(0xFFFF)), extended)
        if common[k] == 63:
            one = int32(0) if extended else int32(256)
            high = -one if uint32(u >> uint32(31)) else one
            low = -one if uint32(u & uint32(0x8000)) else one
        if common[k] == 0:
            high = low = int32(0)
        out[k] = uint32(uint32(uint32(high) << uint32(16)) | uint32(uint32(low) & uint32(0xFFFF)))


@kernel
def _spread(row, out, first, step, distance):
    """out[l * step + first + p * distance + m] = row[64 l + 4 m + p]: from PE order to MAB order, two columns a word."""
    for l in range(L1BS):
        spread(row, 64 * l, out, first + l * step, distance)


@kernel
def _spread_packed(row, out, first, step, distance, negate):
    """The same of two signed 16-bit mantissas a word, of rows without special blocks."""
    for l in range(L1BS):
        spread_mantissas(row, 64 * l, out, first + l * step, distance, negate)


@kernel
def _block_scales(common, out, first, step):
    """out[l * step + first + m] = 2^(exponent - bias - 8) of the block of each MAB; infinite blocks count from 2^128."""
    for l in range(L1BS):
        block_scales(common, 64 * l, out, l * step + first)


@kernel
def decode_half(raw, packed, packed_extended, scales):
    """Matrix rows to packed[l, i, column pair, m] and scales[l, i, m] (flat); returns which special blocks there are."""
    row, common = np.empty(PES, np.uint32), np.empty((16, PES), np.int32)
    special = 0
    for i in range(16):
        special |= _exponents(raw[2 * i], raw[2 * i + 1], common[i])
    for i in range(16):
        for w in range(2):
            if special:
                _pack_special_row(raw[2 * i + w], common[i], row, False, uint32(0))
                _spread(row, packed, i * 128 + 16 * w, PACKED_STEP, 32)
            else:
                _spread_packed(raw[2 * i + w], packed, i * 128 + 16 * w, PACKED_STEP, 32, False)
            if special & EXTENDED:
                _pack_special_row(raw[2 * i + w], common[i], row, True, uint32(0))
                _spread(row, packed_extended, i * 128 + 16 * w, PACKED_STEP, 32)
        _block_scales(common[i], scales, i * 16, 256)
    return special


# --- half: product -------------------------------------------------------------------------------------------------------
@kernel
def half(packed, packed_extended, scales, special, xm, xr, zm, zr, om, orow, sx, sz, with_sum, short):
    """h: A x + z. xr 2 rows a cycle, zr 4 rows, orow 4 rows (2 with a result of halves); `special` as decode_half says."""
    x, xe = np.empty(L1BS * X_STEP, np.uint32), np.empty(L1BS * X_STEP, np.uint32)
    xs = np.empty(4 * 1024, np.float32)
    row, common = np.empty(PES, np.uint32), np.empty((4, PES), np.int32)
    sums, mixed, last = np.empty(16 * 64, np.int32), np.empty(16 * 64, np.int32), np.empty(16 * 64, np.int32)
    buffer = np.empty((16, PES), np.float32)
    exact = np.empty((16, PES), np.float64)
    for base in range(0, xr.size // 2, 4):
        x_special = 0
        for c in range(4):
            x_special |= _exponents(xm[xr[2 * (base + c)]], xm[xr[2 * (base + c) + 1]], common[c])
        for c in range(4):
            for w in range(2):
                r = xm[xr[2 * (base + c) + w]]
                if x_special:
                    _pack_special_row(r, common[c], row, False, sx)
                    _spread(row, x, 64 * w + 16 * c, X_STEP, 128)
                else:
                    _spread_packed(r, x, 64 * w + 16 * c, X_STEP, 128, sx != uint32(0))
                if x_special & EXTENDED:
                    _pack_special_row(r, common[c], row, True, sx)
                    _spread(row, xe, 64 * w + 16 * c, X_STEP, 128)
            _block_scales(common[c], xs, 1024 * c, 16)
        if special | x_special:
            for l in range(L1BS):
                for i in range(16):
                    row_products(packed, l * PACKED_STEP + i * 128, x, l * X_STEP, sums, i * 64)
                _combine(sums, 4096.0, True, scales, xs, l, exact)
                if x_special & EXTENDED:
                    for i in range(16):
                        row_products(packed, l * PACKED_STEP + i * 128, xe, l * X_STEP, mixed, i * 64)
                    _combine(mixed, 64.0, False, scales, xs, l, exact)
                if special & EXTENDED:
                    for i in range(16):
                        row_products(packed_extended, l * PACKED_STEP + i * 128, x, l * X_STEP, mixed, i * 64)
                    _combine(mixed, 64.0, False, scales, xs, l, exact)
                    if x_special & EXTENDED:
                        for i in range(16):
                            row_products(packed_extended, l * PACKED_STEP + i * 128, xe, l * X_STEP, last, i * 64)
                        _combine(last, 1.0, False, scales, xs, l, exact)
            _finish_exact(exact, zm, zr, om, orow, base, sz, with_sum, short, row)
            continue
        for l in range(L1BS):
            for i in range(16):
                row_products(packed, l * PACKED_STEP + i * 128, x, l * X_STEP, sums, i * 64)
            for c in range(4):
                for w in range(4):
                    scaled_interleave(
                        sums,
                        w * 64 + 16 * c,
                        scales,
                        l * 256 + w * 16,
                        xs,
                        1024 * c + l * 16,
                        buffer[4 * c + w],
                        64 * l,
                    )
        if short:
            for n in range(16):
                e, b = exact[n], buffer[n]
                for k in range(PES):
                    e[k] = float64(b[k])
            _finish_exact(exact, zm, zr, om, orow, base, sz, with_sum, short, row)
        else:
            for c in range(4):
                for w in range(4):
                    _half_finish(buffer[4 * c + w], zm[zr[4 * (base + c) + w]], sz, with_sum, row)
                    o = om[orow[4 * (base + c) + w]]
                    for k in range(PES):
                        o[k] = row[k]


@kernel
def _combine(sums, weight, first, scales, xs, l, exact):
    """exact[4c + w, k] (+)= sums * weight / 4096 * scales, all exact in double."""
    weight /= 4096.0
    for c in range(4):
        t = 1024 * c + l * 16
        for w in range(4):
            e = exact[4 * c + w]
            s, f = w * 64 + 16 * c, l * 256 + w * 16
            for m in range(MABS):
                y, k = float64(xs[t + m]) * weight, 64 * l + 4 * m
                v0 = float64(sums[s + m]) * (float64(scales[f + m]) * y)
                v1 = float64(sums[s + 256 + m]) * (float64(scales[f + 64 + m]) * y)
                v2 = float64(sums[s + 512 + m]) * (float64(scales[f + 128 + m]) * y)
                v3 = float64(sums[s + 768 + m]) * (float64(scales[f + 192 + m]) * y)
                e[k] = v0 if first else e[k] + v0
                e[k + 1] = v1 if first else e[k + 1] + v1
                e[k + 2] = v2 if first else e[k + 2] + v2
                e[k + 3] = v3 if first else e[k + 3] + v3


@kernel
def _finish_exact(exact, zm, zr, om, orow, base, sz, with_sum, short, row):
    """exact + z, rounded once; 4 rows a cycle, or 2 of halves."""
    for c in range(4):
        for w in range(4):
            e, z = exact[4 * c + w], zm[zr[4 * (base + c) + w]]
            if short:
                for k in range(PES):
                    s = odd_sum(e[k], any_value(uint32(z[k] ^ sz))) if with_sum else e[k]
                    h = to_half(s)
                    row[k] = uint32(h << uint32(16)) if w % 2 == 0 else uint32(row[k] | h)
                if w % 2 == 1:
                    o = om[orow[2 * (base + c) + w // 2]]
                    for k in range(PES):
                        o[k] = row[k]
            else:
                for k in range(PES):
                    s = odd_sum(e[k], any_value(uint32(z[k] ^ sz))) if with_sum else e[k]
                    row[k] = to_single(s)
                o = om[orow[4 * (base + c) + w]]
                for k in range(PES):
                    o[k] = row[k]


@kernel
def _half_finish(s, z, sz, with_sum, out):
    """s (exact singles, 0 or at least 2^-80) + z, rounded once. The hardware's own addition does it unless z is special."""
    if not with_sum:
        for k in range(PES):
            r = bits_of(s[k])
            out[k] = r if uint32(r & MAGNITUDE) != uint32(0) else uint32(0)
        return
    high, low = uint32(0), uint32(0xFFFFFFFF)
    for k in range(PES):
        zu = uint32(z[k] ^ sz)
        magnitude = uint32(zu & MAGNITUDE)
        high = max(high, magnitude)
        low = min(low, uint32(magnitude - uint32(1)))
        r = bits_of(float32(s[k] + single_of(zu)))
        out[k] = r if uint32(r & MAGNITUDE) != uint32(0) else uint32(0)
    if high >= INF or low < uint32(0x007FFFFF):
        for k in range(PES):
            out[k] = to_single(odd_sum(float64(s[k]), any_value(uint32(z[k] ^ sz))))


# --- single and pseudo-single --------------------------------------------------------------------------------------------
@kernel
def _block_element(u, keep):
    """(value, weight of the last bit, low 5 bits) of a single block-float element; infinity is 2^128."""
    e = uint32(uint32(u >> uint32(23)) & uint32(255))
    m = float64(int32(u & keep)) if e != uint32(255) else 4194304.0
    exponent = uint32(uint32(e + uint32(1023 - 127 - 22)) << uint32(20))
    scale = double_of(uint64(uint32(exponent | uint32(u & uint32(0x80000000)))) << uint64(32))
    scale = 0.0 if e == uint32(0) else scale
    low = float64(int32(u & uint32(31))) if e != uint32(255) else 0.0
    return m * scale, scale, low


@kernel
def decode_single(raw, values, lows, scales, omits):
    """Matrix rows to values[l, i, j, m] (flat); for f (`omits`) also the low 5 bits and the weight of each element."""
    keep = uint32(0x7FFFFF) if omits else uint32(0x7FFFE0)
    v, s, b = np.empty(PES, np.float64), np.empty(PES, np.float64), np.empty(PES, np.float64)
    for i in range(8):
        for w in range(2):
            if omits and w == 1:
                continue
            row = raw[2 * i + w]
            for k in range(PES):
                v[k], s[k], b[k] = _block_element(uint32(row[k]), keep)
            _spread_doubles(v, values, i * 128 + w * 16, 1024)
            if omits:
                _spread_doubles(b, lows, i * 128 + w * 16, 1024)
                _spread_doubles(s, scales, i * 128 + w * 16, 1024)


@kernel
def _spread_doubles(row, out, first, step):
    """out[l * step + first + 32 p + m] = row[64 l + 4 m + p]."""
    for l in range(L1BS):
        o = first + l * step
        for m in range(MABS):
            k = 64 * l + 4 * m
            out[o + m] = row[k]
            out[o + 32 + m] = row[k + 1]
            out[o + 64 + m] = row[k + 2]
            out[o + 96 + m] = row[k + 3]


@kernel
def single(values, lows, scales, omits, xm, xr, zm, zr, om, orow, sx, sz, with_sum, short):
    """g: 8x8 A x + z; f (`omits`): even columns only, partial products left out. Two rows a cycle (one row of halves)."""
    keep = uint32(0x7FFFFF) if omits else uint32(0x7FFFE0)
    x, x_low, x_scale = np.empty(L1BS * 128), np.empty(L1BS * 128), np.empty(L1BS * 128)
    v, s, b = np.empty(PES, np.float64), np.empty(PES, np.float64), np.empty(PES, np.float64)
    sums = np.empty(128, np.float64)
    exact = np.empty((2, PES), np.float64)
    buffer = np.empty((2, PES), np.uint32)
    for c in range(xr.size // 2):
        for w in range(1 if omits else 2):
            row = xm[xr[2 * c + w]]
            for k in range(PES):
                v[k], s[k], b[k] = _block_element(uint32(row[k] ^ sx), keep)
            _spread_doubles(v, x, w * 16, 128)
            if omits:
                _spread_doubles(b, x_low, w * 16, 128)
                _spread_doubles(s, x_scale, w * 16, 128)
        for l in range(L1BS):
            xi = l * 128
            for i in range(8):
                ai, o = (l * 8 + i) * 128, i * 16
                if omits:
                    for m in range(MABS):
                        sums[o + m] = 0.0
                    for j in range(0, 128, 32):
                        for m in range(MABS):
                            omitted = lows[ai + j + m] * x_low[xi + j + m]
                            correction = 256.0 - omitted if omitted != 0.0 else 0.0
                            scale = scales[ai + j + m] * x_scale[xi + j + m]
                            sums[o + m] += values[ai + j + m] * x[xi + j + m] + correction * scale
                else:
                    for m in range(MABS):
                        sums[o + m] = (
                            values[ai + m] * x[xi + m] + values[ai + 16 + m] * x[xi + 16 + m]
                            + values[ai + 32 + m] * x[xi + 32 + m] + values[ai + 48 + m] * x[xi + 48 + m]
                            + values[ai + 64 + m] * x[xi + 64 + m] + values[ai + 80 + m] * x[xi + 80 + m]
                            + values[ai + 96 + m] * x[xi + 96 + m] + values[ai + 112 + m] * x[xi + 112 + m]
                        )  # fmt: skip
            for w in range(2):
                e = exact[w]
                for m in range(MABS):
                    k = 64 * l + 4 * m
                    e[k] = sums[16 * w + m]
                    e[k + 1] = sums[16 * w + 32 + m]
                    e[k + 2] = sums[16 * w + 64 + m]
                    e[k + 3] = sums[16 * w + 96 + m]
        for w in range(2):
            z = zm[zr[2 * c + w]]
            e, out = exact[w], buffer[w]
            if short:
                for k in range(PES):
                    t = e[k]
                    t = odd_sum(t, any_value(uint32(z[k] ^ sz))) if with_sum else t
                    out[k] = to_half(t)
            else:
                for k in range(PES):
                    t = e[k]
                    t = odd_sum(t, any_value(uint32(z[k] ^ sz))) if with_sum else t
                    out[k] = to_single(t)
        if short:
            o = om[orow[c]]
            for k in range(PES):
                o[k] = uint32(uint32(buffer[0, k] << uint32(16)) | buffer[1, k])
        else:
            for w in range(2):
                o = om[orow[2 * c + w]]
                for k in range(PES):
                    o[k] = buffer[w, k]


# --- double --------------------------------------------------------------------------------------------------------------
@kernel
def _double_parts(u):
    """(sign, mantissa without hidden bit, exponent of its last bit) of a double block-float element; infinity is 2^1024."""
    e = int64((u >> uint64(52)) & uint64(2047))
    m = u & uint64((1 << 52) - 1)
    if e == 0:
        return u >> uint64(63), uint64(0), int64(0)
    return u >> uint64(63), (uint64(1 << 51) if e == 2047 else m), e - 1074


@kernel
def double(raw, xm, xr, zm, zr, om, orow, nx, nz, with_sum, half, short):
    """d: rows 0, 1 (u) or 2, 3 (d) of the 4x4 A times x, plus z; the other rows get z. Two rows (upper, lower) a cycle."""
    out = np.empty((2, PES), np.uint32)
    for c in range(xr.size // 2):
        xh, xl, zh, zl = xm[xr[2 * c]], xm[xr[2 * c + 1]], zm[zr[2 * c]], zm[zr[2 * c + 1]]
        for k in range(PES):
            i = k & 3
            s, h, l, e = uint64(0), uint64(0), uint64(0), int64(0)
            if (half == UPPER and i < 2) or (half == LOWER and i >= 2):
                for j in range(4):
                    q = (k & ~3) | j
                    ss, ms, es = _double_parts((uint64(raw[2 * i, q]) << uint64(32)) | uint64(raw[2 * i + 1, q]))
                    ts, mt, et = _double_parts((uint64(xh[q]) << uint64(32)) | uint64(xl[q]))
                    ph, pl = multiply(ms, mt)
                    omitted = (ms & uint64(0xFFFF)) * (mt & uint64(0xFFFF))
                    if omitted:
                        ph, pl = subtract(ph, pl, uint64(0), omitted)
                        ph, pl = add(ph, pl, uint64(0), uint64(1 << 30))
                    s, h, l, e = sum_of(s, h, l, e, ss ^ ts ^ nx, ph, pl, es + et)
                    # sum_of leaves the larger one at bit 125; shared exponents keep the lowest bits zero, so go back down
                    while (h | l) and not (l & uint64(0xFF)):
                        l = (l >> uint64(8)) | (h << uint64(56))
                        h >>= uint64(8)
                        e += 8
            if with_sum:
                zs, mz, ez = parts((uint64(zh[k]) << uint64(32)) | uint64(zl[k]))
                s, h, l, e = sum_of(s, h, l, e, zs ^ nz, uint64(0), mz, ez)
            if short:
                out[0, k] = uint32(rounded(s, h, l, e, 23, 8))
            else:
                v = rounded(s, h, l, e, 52, 11)
                out[0, k] = uint32(v >> uint64(32))
                out[1, k] = uint32(v & uint64(0xFFFFFFFF))
        for w in range(1 if short else 2):
            o = om[orow[(1 if short else 2) * c + w]]
            for k in range(PES):
                o[k] = out[w, k]


# --- transposed read -----------------------------------------------------------------------------------------------------
@kernel
def read_columns(raw, columns, size, om, orow):
    """Column `columns[i]` of a register with `size` rows: two rows of om (an LW) each; element n of the LW of PE p is row
    (size // 4) * p + n of the column. A bit copy; size 4, 8 or 16 gives elements of 64, 32 or 16 bits.
    """
    for i in range(columns.size):
        column = columns[i]
        for n in range(2):
            o = om[orow[2 * i + n]]
            if size == 4:
                _pick(raw[n], raw[2 + n], raw[4 + n], raw[6 + n], column, o)
            elif size == 8:
                w = 2 * n + (column & 1)
                _pick(raw[w], raw[4 + w], raw[8 + w], raw[12 + w], column >> 1, o)
            else:
                q, w = column >> 2, (column >> 1) & 1
                up = uint32(0) if column & 1 else uint32(16)
                for p in range(4):
                    a, b = raw[2 * (4 * p + 2 * n) + w], raw[2 * (4 * p + 2 * n + 1) + w]
                    for j in range(PES // 4):
                        high = uint32(uint32(a[4 * j + q] >> up) & uint32(0xFFFF))
                        low = uint32(uint32(b[4 * j + q] >> up) & uint32(0xFFFF))
                        o[4 * j + p] = uint32(uint32(high << uint32(16)) | low)


@kernel
def _pick(a, b, c, d, q, out):
    """PE p of each MAB gets what PE q has in the p-th row."""
    for j in range(PES // 4):
        k = 4 * j
        out[k] = a[k + q]
        out[k + 1] = b[k + q]
        out[k + 2] = c[k + q]
        out[k + 3] = d[k + q]
