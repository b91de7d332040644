"""Matrix operations of the MAU: decoded matrix registers, and exact products of block floats.

A matrix register side is decoded once after it was written. Block floats have no hidden bit: the conversion shifts 1.m right
by one, so the first mantissa bit is worth 2^(exponent - bias) and the last one 2^(exponent - bias - 8) in a half. All elements of a row (and of a vector x) share one exponent, so the sum over j is an integer of few
bits times a power of two: 22 bits for half (computed as integers), 48 for g and f (in double, exact).

Decoded arrays are flat and ordered [L1B][row i][column j][MAB], so that the innermost loop runs over the 16 MABs of an L1B with
constant distances.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import float32, float64, int32, int64, types, uint32, uint64
from numba.extending import intrinsic

from .bits import PES, bits_of, double_of, kernel, single_of
from .mau_double import LOWER, UPPER, parts
from .mau_single import INF, MAGNITUDE, any_value
from .round import odd_sum, to_half, to_single
from .wide import add, multiply, rounded, subtract, sum_of

L1BS, MABS = 64, 16


# --- half: decoding ------------------------------------------------------------------------------------------------------
@kernel
def _packed(u):
    """The two halves of a word as two signed 16-bit mantissas."""
    high, low = int32(uint32(u >> uint32(16)) & uint32(511)), int32(u & uint32(511))
    high = -high if uint32(u >> uint32(31)) else high
    low = -low if uint32(u & uint32(0x8000)) else low
    return uint32(uint32(uint32(high) << uint32(16)) | uint32(uint32(low) & uint32(0xFFFF)))


@kernel
def _special(a, b):
    """Whether any block of 16 halves (rows a, b) has an infinity or exponents that differ (as extended blocks do)."""
    found = uint32(0)
    for j in range(PES // 4):
        first = uint32(a[4 * j] & uint32(0x7E007E00))
        first = uint32(uint32(first & uint32(0x7E000000)) | uint32(first >> uint32(16)))
        first = uint32(uint32(first & uint32(0x7E000000)) | uint32(first >> uint32(16) & uint32(0x7E00)))
        for p in range(4):
            found |= uint32(uint32(a[4 * j + p] & uint32(0x7E007E00)) ^ first)
            found |= uint32(uint32(b[4 * j + p] & uint32(0x7E007E00)) ^ first)
        found |= uint32(1) if first == uint32(0x7E007E00) else uint32(0)
    return found != uint32(0)


@kernel
def any_special(mem, rows):
    """Whether the vectors in these rows (2 for each) need the exact form."""
    for i in range(rows.size // 2):
        if _special(mem[rows[2 * i]], mem[rows[2 * i + 1]]):
            return True
    return False


@kernel
def _spread(row, out, first, step):
    """out[l * step + first + p * 32 + m] = row[64 l + 4 m + p]: from PE order to MAB order, two pairs of columns a PE."""
    for l in range(L1BS):
        o = first + l * step
        for m in range(MABS):
            k = 64 * l + 4 * m
            out[o + m] = row[k]
            out[o + 32 + m] = row[k + 1]
            out[o + 64 + m] = row[k + 2]
            out[o + 96 + m] = row[k + 3]


@kernel
def _block_scales(row, out, first, step):
    """out[l * step + first + m] = 2^(exponent - bias - 8) of the block of each MAB."""
    for l in range(L1BS):
        for m in range(MABS):
            e = uint32(uint32(row[64 * l + 4 * m] >> uint32(25)) & uint32(63))
            out[l * step + first + m] = single_of(uint32(uint32(e + uint32(127 - 31 - 8)) << uint32(23)))


@kernel
def decode_half(raw, packed, scales):
    """Matrix rows to packed[l, i, column pair, m] and scales[l, i, m] (flat); true if a block needs the exact form."""
    buffer = np.empty(PES, np.uint32)
    special = False
    for i in range(16):
        a, b = raw[2 * i], raw[2 * i + 1]
        if _special(a, b):
            special = True
        for w in range(2):
            r = raw[2 * i + w]
            for k in range(PES):
                buffer[k] = _packed(uint32(r[k]))
            _spread(buffer, packed, i * 128 + 16 * w, 2048)
        _block_scales(a, scales, i * 16, 256)
    return special


@kernel
def _half_double(h, common):
    """Double of a half block-float element: extended elements (exponent 0) count from common - 6, infinities are 2^128."""
    e = int64(uint32(h >> uint32(9)) & uint32(63))
    m = float64(uint32(h & uint32(511)))
    if e == 63:
        v = 2.0**128
    else:
        e = common - 6 if e == 0 else e
        v = m * double_of(uint64(e + 1023 - 31 - 8) << uint64(52)) if m != 0.0 else 0.0
    return -v if uint32(h & uint32(0x8000)) else v


@kernel
def _decode_block(a, b, k, out, first, step):
    """The 16 elements of the block that starts at PE k, at out[first + j * step]."""
    common = int64(0)
    for p in range(4):
        u, v = uint32(a[k + p]), uint32(b[k + p])
        common = max(common, int64(uint32(u >> uint32(25)) & uint32(63)), int64(uint32(u >> uint32(9)) & uint32(63)))
        common = max(common, int64(uint32(v >> uint32(25)) & uint32(63)), int64(uint32(v >> uint32(9)) & uint32(63)))
    for p in range(4):
        u, v = uint32(a[k + p]), uint32(b[k + p])
        out[first + 4 * p * step] = _half_double(uint32(u >> uint32(16)), common)
        out[first + (4 * p + 1) * step] = _half_double(uint32(u & uint32(0xFFFF)), common)
        out[first + (4 * p + 2) * step] = _half_double(uint32(v >> uint32(16)), common)
        out[first + (4 * p + 3) * step] = _half_double(uint32(v & uint32(0xFFFF)), common)


@kernel
def decode_half_exact(raw, wide):
    """Matrix rows to doubles wide[l, i, j, m] (flat)."""
    for i in range(16):
        for l in range(L1BS):
            for m in range(MABS):
                _decode_block(raw[2 * i], raw[2 * i + 1], 64 * l + 4 * m, wide, (l * 16 + i) * 256 + m, 16)


# --- half: product -------------------------------------------------------------------------------------------------------
@intrinsic
def _row_products(typingctx: Any, a: Any, ai: Any, x: Any, xi: Any, out: Any, oi: Any):
    """out[oi + 16 c + m] = sum over 16 columns of a[ai + .., m] * x[xi + .., c, m] as 32-bit integers.

    a holds 8 pairs of 16-bit columns for 16 MABs, x the same for each of 4 cycles. Written as vector code so that a pair of
    products and their sum become one machine instruction where there is one.
    """
    signature = types.void(a, ai, x, xi, out, oi)

    def codegen(context: Any, builder: Any, sig: Any, args: Any):
        i32 = ir.IntType(32)
        pairs, wide, sums = ir.VectorType(ir.IntType(16), 32), ir.VectorType(i32, 32), ir.VectorType(i32, 16)

        def pointer(position: int, vector: Any):
            array = context.make_array(sig.args[position])(context, builder, args[position])
            return builder.bitcast(builder.gep(array.data, [args[position + 1]]), vector.as_pointer())

        def load(base: Any, number: int):
            value = builder.load(builder.gep(base, [i32(number)]))
            value.align = 4
            return builder.sext(value, wide)

        pa, px, po = pointer(0, pairs), pointer(2, pairs), pointer(4, sums)
        even = ir.Constant(sums, [2 * i for i in range(16)])
        odd = ir.Constant(sums, [2 * i + 1 for i in range(16)])
        nothing = ir.Constant(wide, ir.Undefined)
        totals: list = [None] * 4
        for j in range(8):
            row = load(pa, j)
            for c in range(4):
                product = builder.mul(row, load(px, 4 * j + c))
                term = builder.add(builder.shuffle_vector(product, nothing, even), builder.shuffle_vector(product, nothing, odd))
                totals[c] = term if totals[c] is None else builder.add(totals[c], term)
        for c in range(4):
            builder.store(totals[c], builder.gep(po, [i32(c)])).align = 4
        return context.get_dummy_value()

    return signature, codegen


@kernel
def _spread_x(row, out, first):
    """out[l * 512 + first + p * 128 + m] = packed mantissas of row[64 l + 4 m + p]: x[l][column pair][cycle][m]."""
    for l in range(L1BS):
        o = first + l * 512
        for m in range(MABS):
            k = 64 * l + 4 * m
            out[o + m] = row[k]
            out[o + 128 + m] = row[k + 1]
            out[o + 256 + m] = row[k + 2]
            out[o + 384 + m] = row[k + 3]


@kernel
def half(packed, scales, xm, xr, zm, zr, om, orow, sx, sz, with_sum, short):
    """h: A x + z for uniform blocks. xr 2 rows a cycle, zr 4 rows, orow 4 rows (2 with a result of halves)."""
    x = np.empty(L1BS * 512, np.uint32)
    xs = np.empty(4 * 1024, np.float32)
    row = np.empty(PES, np.uint32)
    sums = np.empty(16 * 64, np.int32)
    buffer = np.empty((16, PES), np.float32)
    for base in range(0, xr.size // 2, 4):
        for c in range(4):
            for w in range(2):
                r = xm[xr[2 * (base + c) + w]]
                for k in range(PES):
                    row[k] = _packed(uint32(r[k] ^ sx))
                _spread_x(row, x, 256 // 4 * w + 16 * c)
            _block_scales(xm[xr[2 * (base + c)]], xs, 1024 * c, 16)
        for l in range(L1BS):
            for i in range(16):
                _row_products(packed, (l * 16 + i) * 128, x, l * 512, sums, i * 64)
            for c in range(4):
                for w in range(4):
                    b = buffer[4 * c + w]
                    s = w * 64 + 16 * c
                    f = l * 256 + w * 16
                    t = 1024 * c + l * 16
                    for m in range(MABS):
                        k = 64 * l + 4 * m
                        y = xs[t + m]
                        b[k] = float32(sums[s + m]) * (scales[f + m] * y)
                        b[k + 1] = float32(sums[s + 256 + m]) * (scales[f + 64 + m] * y)
                        b[k + 2] = float32(sums[s + 512 + m]) * (scales[f + 128 + m] * y)
                        b[k + 3] = float32(sums[s + 768 + m]) * (scales[f + 192 + m] * y)
        for c in range(4):
            if short:
                for h in range(2):
                    b0, b1 = buffer[4 * c + 2 * h], buffer[4 * c + 2 * h + 1]
                    z0, z1 = zm[zr[4 * (base + c) + 2 * h]], zm[zr[4 * (base + c) + 2 * h + 1]]
                    for k in range(PES):
                        u = float64(b0[k])
                        v = float64(b1[k])
                        u = odd_sum(u, any_value(uint32(z0[k] ^ sz))) if with_sum else u
                        v = odd_sum(v, any_value(uint32(z1[k] ^ sz))) if with_sum else v
                        row[k] = uint32(uint32(to_half(u) << uint32(16)) | to_half(v))
                    o = om[orow[2 * (base + c) + h]]
                    for k in range(PES):
                        o[k] = row[k]
            else:
                for w in range(4):
                    _half_finish(buffer[4 * c + w], zm[zr[4 * (base + c) + w]], sz, with_sum, row)
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


@kernel
def half_exact(wide, xm, xr, zm, zr, om, orow, sx, sz, with_sum, short):
    """h with infinities, extended blocks or mixed exponents: sums in double."""
    x = np.empty(16, np.float64)
    buffer = np.empty((4, PES), np.uint32)
    for c in range(xr.size // 2):
        for l in range(L1BS):
            for m in range(MABS):
                k = 64 * l + 4 * m
                _decode_block(xm[xr[2 * c]], xm[xr[2 * c + 1]], k, x, 0, 1)
                for i in range(16):
                    s = 0.0
                    for j in range(16):
                        s += wide[((l * 16 + i) * 16 + j) * 16 + m] * x[j]
                    s = -s if sx != uint32(0) else s
                    q, w = k + (i >> 2), i & 3
                    s = odd_sum(s, any_value(uint32(zm[zr[4 * c + w], q] ^ sz))) if with_sum else s
                    buffer[w, q] = to_half(s) if short else to_single(s)
        if short:
            for h in range(2):
                o = om[orow[2 * c + h]]
                for k in range(PES):
                    o[k] = uint32(uint32(buffer[2 * h, k] << uint32(16)) | buffer[2 * h + 1, k])
        else:
            for w in range(4):
                o = om[orow[4 * c + w]]
                for k in range(PES):
                    o[k] = buffer[w, k]


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
                        t = 0.0
                        for j in range(0, 128, 32):
                            omitted = lows[ai + j + m] * x_low[xi + j + m]
                            correction = 256.0 - omitted if omitted != 0.0 else 0.0
                            t += values[ai + j + m] * x[xi + j + m] + correction * (scales[ai + j + m] * x_scale[xi + j + m])
                        sums[o + m] = t
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
