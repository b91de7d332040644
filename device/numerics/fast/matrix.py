"""Matrix operations of the MAU: decoded matrix registers, and exact products of block floats.

A matrix register side is decoded to floating-point arrays once after it was written. Block floats have no hidden bit: the
value of an element is 0.mantissa * 2^(exponent - bias). All elements of a row (and of a vector x) share one exponent, so the
sum over j is an integer of few bits times a power of two, exact in single for half and in double for g and f.

The arrays are laid out [L1B][row i][column j][MAB], so that the innermost loop runs over the 16 MABs of an L1B.
"""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int32, int64, uint32, uint64

from .bits import PES, bits_of, double_of, kernel, single_of
from .mau_double import LOWER, UPPER
from .mau_half import half_value
from .mau_single import INF, MAGNITUDE, any_value
from .round import odd_sum, to_half, to_single
from .wide import add, multiply, rounded, shift_left, subtract, sum_of

L1BS, MABS = 64, 16
UNIFORM, MIXED = 0, 1


# --- half ----------------------------------------------------------------------------------------------------------------
@kernel
def _half_float(h):
    """Single of a half block-float element without extension."""
    e = uint32(uint32(h >> uint32(9)) & uint32(63))
    scale = single_of(uint32(uint32(e + uint32(127 - 31 - 9)) << uint32(23)))
    scale = -scale if uint32(h & uint32(0x8000)) else scale
    return float32(uint32(h & uint32(511))) * scale


@kernel
def _half_double(h, common):
    """Double of a half block-float element: extended elements (exponent 0) count from common - 6, infinities are 2^128."""
    e = int64(uint32(h >> uint32(9)) & uint32(63))
    m = float64(uint32(h & uint32(511)))
    if e == 63:
        v = 2.0**128
    else:
        e = common - 6 if e == 0 else e
        v = m * double_of(uint64(e + 1023 - 31 - 9) << uint64(52)) if m != 0.0 else 0.0
    return -v if uint32(h & uint32(0x8000)) else v


@kernel
def _special(a, b):
    """Whether any block of 16 halves (rows a, b) has an infinity or exponents that differ."""
    found = uint32(0)
    for j in range(PES // 4):
        first = uint32(a[4 * j] & uint32(0x7E007E00))
        first = uint32(uint32(first & uint32(0x7E000000)) | uint32(first >> uint32(16)))
        for p in range(4):
            found |= uint32(uint32(a[4 * j + p] & uint32(0x7E007E00)) ^ first)
            found |= uint32(uint32(b[4 * j + p] & uint32(0x7E007E00)) ^ first)
        found |= uint32(1) if first == uint32(0x7E007E00) else uint32(0)
    return found != uint32(0)


@kernel
def decode_half(raw, values, wide):
    """Matrix rows (2 words each) to values[b, i, j, m]; if any block needs it also to wide, and MIXED is returned."""
    state = UNIFORM
    for i in range(16):
        a, b = raw[2 * i], raw[2 * i + 1]
        if _special(a, b):
            state = MIXED
    for i in range(16):
        a, b = raw[2 * i], raw[2 * i + 1]
        for l in range(L1BS):
            for p in range(4):
                for m in range(MABS):
                    k = 64 * l + 4 * m + p
                    u, v = uint32(a[k]), uint32(b[k])
                    values[l, i, 4 * p, m] = _half_float(uint32(u >> uint32(16)))
                    values[l, i, 4 * p + 1, m] = _half_float(uint32(u & uint32(0xFFFF)))
                    values[l, i, 4 * p + 2, m] = _half_float(uint32(v >> uint32(16)))
                    values[l, i, 4 * p + 3, m] = _half_float(uint32(v & uint32(0xFFFF)))
    if state == MIXED:
        for i in range(16):
            a, b = raw[2 * i], raw[2 * i + 1]
            for l in range(L1BS):
                for m in range(MABS):
                    _decode_block(a, b, 64 * l + 4 * m, wide[l, i, :, m])
    return state


@kernel
def _decode_block(a, b, k, out):
    common = int64(0)
    for p in range(4):
        u, v = uint32(a[k + p]), uint32(b[k + p])
        common = max(common, int64(uint32(u >> uint32(25)) & uint32(63)), int64(uint32(u >> uint32(9)) & uint32(63)))
        common = max(common, int64(uint32(v >> uint32(25)) & uint32(63)), int64(uint32(v >> uint32(9)) & uint32(63)))
    for p in range(4):
        u, v = uint32(a[k + p]), uint32(b[k + p])
        out[4 * p] = _half_double(uint32(u >> uint32(16)), common)
        out[4 * p + 1] = _half_double(uint32(u & uint32(0xFFFF)), common)
        out[4 * p + 2] = _half_double(uint32(v >> uint32(16)), common)
        out[4 * p + 3] = _half_double(uint32(v & uint32(0xFFFF)), common)


@kernel
def _half_sums(a, x, out, i):
    """out[c, i, m] = sum over j of a[j, m] * x[j, c, m], written out so that it vectorises over m."""
    for m in range(MABS):
        out[0, i, m] = (
            a[0, m] * x[0, 0, m] + a[1, m] * x[1, 0, m] + a[2, m] * x[2, 0, m] + a[3, m] * x[3, 0, m] + a[4, m] * x[4, 0, m] + a[5, m] * x[5, 0, m] + a[6, m] * x[6, 0, m] + a[7, m] * x[7, 0, m]
            + a[8, m] * x[8, 0, m] + a[9, m] * x[9, 0, m] + a[10, m] * x[10, 0, m] + a[11, m] * x[11, 0, m] + a[12, m] * x[12, 0, m] + a[13, m] * x[13, 0, m] + a[14, m] * x[14, 0, m] + a[15, m] * x[15, 0, m]
        )
        out[1, i, m] = (
            a[0, m] * x[0, 1, m] + a[1, m] * x[1, 1, m] + a[2, m] * x[2, 1, m] + a[3, m] * x[3, 1, m] + a[4, m] * x[4, 1, m] + a[5, m] * x[5, 1, m] + a[6, m] * x[6, 1, m] + a[7, m] * x[7, 1, m]
            + a[8, m] * x[8, 1, m] + a[9, m] * x[9, 1, m] + a[10, m] * x[10, 1, m] + a[11, m] * x[11, 1, m] + a[12, m] * x[12, 1, m] + a[13, m] * x[13, 1, m] + a[14, m] * x[14, 1, m] + a[15, m] * x[15, 1, m]
        )
        out[2, i, m] = (
            a[0, m] * x[0, 2, m] + a[1, m] * x[1, 2, m] + a[2, m] * x[2, 2, m] + a[3, m] * x[3, 2, m] + a[4, m] * x[4, 2, m] + a[5, m] * x[5, 2, m] + a[6, m] * x[6, 2, m] + a[7, m] * x[7, 2, m]
            + a[8, m] * x[8, 2, m] + a[9, m] * x[9, 2, m] + a[10, m] * x[10, 2, m] + a[11, m] * x[11, 2, m] + a[12, m] * x[12, 2, m] + a[13, m] * x[13, 2, m] + a[14, m] * x[14, 2, m] + a[15, m] * x[15, 2, m]
        )
        out[3, i, m] = (
            a[0, m] * x[0, 3, m] + a[1, m] * x[1, 3, m] + a[2, m] * x[2, 3, m] + a[3, m] * x[3, 3, m] + a[4, m] * x[4, 3, m] + a[5, m] * x[5, 3, m] + a[6, m] * x[6, 3, m] + a[7, m] * x[7, 3, m]
            + a[8, m] * x[8, 3, m] + a[9, m] * x[9, 3, m] + a[10, m] * x[10, 3, m] + a[11, m] * x[11, 3, m] + a[12, m] * x[12, 3, m] + a[13, m] * x[13, 3, m] + a[14, m] * x[14, 3, m] + a[15, m] * x[15, 3, m]
        )


@kernel
def half(values, wide, state, xm, xr, zm, zr, om, orow, sx, sz, with_sum, short):
    """h: A x + z. xr 2 rows a cycle, zr 4 rows, orow 4 rows (2 with a result of halves)."""
    x = np.empty((16, 4, MABS), np.float32)
    sums = np.empty((4, 16, MABS), np.float32)
    exact = np.empty((4, 4, PES), np.float64)
    buffer = np.empty((4, 4, PES), np.uint32)
    for base in range(0, xr.size // 2, 4):
        mixed = state == MIXED
        for c in range(4):
            mixed |= _special(xm[xr[2 * (base + c)]], xm[xr[2 * (base + c) + 1]])
        if mixed:
            if state == UNIFORM:
                _half_exact_values(values, xm, xr, base, sx, exact)
            else:
                _half_exact_wide(wide, xm, xr, base, sx, exact)
            for c in range(4):
                for w in range(4):
                    z = zm[zr[4 * (base + c) + w]]
                    for k in range(PES):
                        s = exact[c, w, k]
                        s = odd_sum(s, any_value(uint32(z[k] ^ sz))) if with_sum else s
                        buffer[c, w, k] = to_half(s) if short else to_single(s)
        else:
            for l in range(L1BS):
                for c in range(4):
                    u, v = xm[xr[2 * (base + c)]], xm[xr[2 * (base + c) + 1]]
                    for p in range(4):
                        for m in range(MABS):
                            k = 64 * l + 4 * m + p
                            a, b = uint32(u[k] ^ sx), uint32(v[k] ^ sx)
                            x[4 * p, c, m] = _half_float(uint32(a >> uint32(16)))
                            x[4 * p + 1, c, m] = _half_float(uint32(a & uint32(0xFFFF)))
                            x[4 * p + 2, c, m] = _half_float(uint32(b >> uint32(16)))
                            x[4 * p + 3, c, m] = _half_float(uint32(b & uint32(0xFFFF)))
                for i in range(16):
                    _half_sums(values[l, i], x, sums, i)
                for c in range(4):
                    for w in range(4):
                        for m in range(MABS):
                            for p in range(4):
                                buffer[c, w, 64 * l + 4 * m + p] = bits_of(sums[c, 4 * p + w, m])
            for c in range(4):
                for w in range(4):
                    z = zm[zr[4 * (base + c) + w]]
                    _half_finish(buffer[c, w], z, sz, with_sum, short)
        for c in range(4):
            if short:
                for h in range(2):
                    o = om[orow[2 * (base + c) + h]]
                    for k in range(PES):
                        o[k] = uint32(uint32(buffer[c, 2 * h, k] << uint32(16)) | buffer[c, 2 * h + 1, k])
            else:
                for w in range(4):
                    o = om[orow[4 * (base + c) + w]]
                    for k in range(PES):
                        o[k] = buffer[c, w, k]


@kernel
def _half_finish(s, z, sz, with_sum, short):
    """s (bits of exact singles, 0 or at least 2^-80) + z, rounded once, in place."""
    if not short:
        high, low = uint32(0), uint32(0xFFFFFFFF)
        if with_sum:
            for k in range(PES):
                zu = uint32(z[k] ^ sz)
                magnitude = uint32(zu & MAGNITUDE)
                high = max(high, magnitude)
                low = min(low, uint32(magnitude - uint32(1)))
        if high < INF and low >= uint32(0x007FFFFF):
            for k in range(PES):
                zu = uint32(z[k] ^ sz) if with_sum else uint32(0)
                r = bits_of(float32(single_of(s[k]) + single_of(zu)))
                s[k] = r if uint32(r & MAGNITUDE) != uint32(0) else uint32(0)
            return
    for k in range(PES):
        v = float64(single_of(s[k]))
        v = odd_sum(v, any_value(uint32(z[k] ^ sz))) if with_sum else v
        s[k] = to_half(v) if short else to_single(v)


@kernel
def _half_x_block(xm, xr, base, c, k, sx, out):
    """The 16 elements of vector x of cycle c for the MAB that starts at PE k."""
    u, v = xm[xr[2 * (base + c)]], xm[xr[2 * (base + c) + 1]]
    _decode_block(u, v, k, out)
    if sx != uint32(0):
        for j in range(16):
            out[j] = -out[j]


@kernel
def _half_exact_values(values, xm, xr, base, sx, exact):
    x = np.empty(16, np.float64)
    for l in range(L1BS):
        for m in range(MABS):
            k = 64 * l + 4 * m
            for c in range(4):
                _half_x_block(xm, xr, base, c, k, sx, x)
                for i in range(16):
                    s = 0.0
                    for j in range(16):
                        s += float64(values[l, i, j, m]) * x[j]
                    exact[c, i & 3, k + (i >> 2)] = s


@kernel
def _half_exact_wide(wide, xm, xr, base, sx, exact):
    x = np.empty(16, np.float64)
    for l in range(L1BS):
        for m in range(MABS):
            k = 64 * l + 4 * m
            for c in range(4):
                _half_x_block(xm, xr, base, c, k, sx, x)
                for i in range(16):
                    s = 0.0
                    for j in range(16):
                        s += wide[l, i, j, m] * x[j]
                    exact[c, i & 3, k + (i >> 2)] = s


# --- single and pseudo-single --------------------------------------------------------------------------------------------
@kernel
def _block_value(u, keep):
    """Double of a single block-float element with only the mantissa bits of `keep`; infinity is 2^128."""
    e = int64(uint32(uint32(u >> uint32(23)) & uint32(255)))
    m = float64(uint32(u & keep)) if e != 255 else 8388608.0
    v = m * double_of(uint64(e + 1023 - 127 - 23) << uint64(52))
    v = 0.0 if e == 0 else v
    return -v if uint32(u & uint32(0x80000000)) else v


@kernel
def _block_scale(u):
    """+-2^(exponent - bias - 23) of an element: the weight of its last mantissa bit."""
    e = uint64(uint32(uint32(u >> uint32(23)) & uint32(255)))
    v = double_of((e + uint64(1023 - 127 - 23)) << uint64(52))
    return -v if uint32(u & uint32(0x80000000)) else v


@kernel
def decode_single(raw, values, lows, scales, omits):
    """Matrix rows to values[b, i, j, m]; for f (`omits`) also the low 5 bits and the weight of each element."""
    keep = uint32(0x7FFFFF) if omits else uint32(0x7FFFE0)
    for i in range(8):
        for w in range(2):
            a = raw[2 * i + w]
            for l in range(L1BS):
                for p in range(4):
                    for m in range(MABS):
                        u = uint32(a[64 * l + 4 * m + p])
                        values[l, i, 2 * p + w, m] = _block_value(u, keep)
                        if omits:
                            e = uint32(uint32(u >> uint32(23)) & uint32(255))
                            low = uint32(u & uint32(31)) if e != uint32(0) and e != uint32(255) else uint32(0)
                            lows[l, i, 2 * p + w, m] = float64(low)
                            scales[l, i, 2 * p + w, m] = _block_scale(u)


@kernel
def single(values, lows, scales, omits, xm, xr, zm, zr, om, orow, sx, sz, with_sum, short):
    """g: 8x8 A x + z; f (`omits`): even columns only, partial products left out. Two rows a cycle (one row of halves)."""
    keep = uint32(0x7FFFFF) if omits else uint32(0x7FFFE0)
    x = np.empty((8, MABS), np.float64)
    x_low = np.empty((8, MABS), np.float64)
    x_scale = np.empty((8, MABS), np.float64)
    sums = np.empty((8, MABS), np.float64)
    exact = np.empty((2, PES), np.float64)
    buffer = np.empty((2, PES), np.uint32)
    for c in range(xr.size // 2):
        for l in range(L1BS):
            for w in range(2):
                if omits and w == 1:
                    continue
                u = xm[xr[2 * c + w]]
                for p in range(4):
                    for m in range(MABS):
                        a = uint32(u[64 * l + 4 * m + p] ^ sx)
                        x[2 * p + w, m] = _block_value(a, keep)
                        if omits:
                            e = uint32(uint32(a >> uint32(23)) & uint32(255))
                            x_low[2 * p + w, m] = float64(uint32(a & uint32(31)) if e != uint32(0) and e != uint32(255) else uint32(0))
                            x_scale[2 * p + w, m] = _block_scale(a)
            for i in range(8):
                for m in range(MABS):
                    sums[i, m] = 0.0
                if omits:
                    for j in range(0, 8, 2):
                        for m in range(MABS):
                            omitted = lows[l, i, j, m] * x_low[j, m]
                            correction = 256.0 - omitted if omitted != 0.0 else 0.0
                            sums[i, m] += values[l, i, j, m] * x[j, m] + correction * (scales[l, i, j, m] * x_scale[j, m])
                else:
                    for j in range(8):
                        for m in range(MABS):
                            sums[i, m] += values[l, i, j, m] * x[j, m]
            for w in range(2):
                for m in range(MABS):
                    for p in range(4):
                        exact[w, 64 * l + 4 * m + p] = sums[2 * p + w, m]
        for w in range(2):
            z = zm[zr[2 * c + w]]
            for k in range(PES):
                s = exact[w, k]
                s = odd_sum(s, any_value(uint32(z[k] ^ sz))) if with_sum else s
                buffer[w, k] = to_half(s) if short else to_single(s)
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
    return u >> uint64(63), (uint64(1 << 52) if e == 2047 else m), e - 1075


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
                zs, mz, ez = _z_parts((uint64(zh[k]) << uint64(32)) | uint64(zl[k]))
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


@kernel
def _z_parts(u):
    e = int64((u >> uint64(52)) & uint64(2047))
    m = u & uint64((1 << 52) - 1)
    if e == 0:
        return u >> uint64(63), uint64(0), int64(0)
    return u >> uint64(63), (uint64(0) if e == 2047 else m) | uint64(1 << 52), e - 1075


# --- transposed read -----------------------------------------------------------------------------------------------------
@kernel
def read_columns(raw, columns, size, om, orow):
    """Column `columns[i]` of a register with `size` rows: two rows of om (an LW) each; element n of the LW of PE p is row
    (size // 4) * p + n of the column. A bit copy; size 4, 8 or 16 gives elements of 64, 32 or 16 bits.
    """
    buffer = np.empty((2, PES), np.uint32)
    for i in range(columns.size):
        column = columns[i]
        for k in range(PES):
            first, p = k & ~3, k & 3
            if size == 4:
                buffer[0, k] = raw[2 * p, first | column]
                buffer[1, k] = raw[2 * p + 1, first | column]
            elif size == 8:
                for n in range(2):
                    buffer[n, k] = raw[2 * (2 * p + n) + (column & 1), first | (column >> 1)]
            else:
                q, w, up = first | (column >> 2), (column >> 1) & 1, (column & 1) == 0
                for n in range(2):
                    a, b = uint32(raw[2 * (4 * p + 2 * n) + w, q]), uint32(raw[2 * (4 * p + 2 * n + 1) + w, q])
                    a = uint32(a >> uint32(16)) if up else uint32(a & uint32(0xFFFF))
                    b = uint32(b >> uint32(16)) if up else uint32(b & uint32(0xFFFF))
                    buffer[n, k] = uint32(uint32(a << uint32(16)) | b)
        for n in range(2):
            o = om[orow[2 * i + n]]
            for k in range(PES):
                o[k] = buffer[n, k]
