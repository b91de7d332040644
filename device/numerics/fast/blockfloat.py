"""Block-float conversion (SDM 4.4): elements of a block share the exponent of the largest, without a hidden bit.

Blocks span the 4 PEs of a MAB, which are neighbours in a row: d 4 elements, f 4 (MSB words) + 4 (LSB words), g 8, h 16 in
the MSB LWs and 16 in the LSB LWs.
"""

from __future__ import annotations

import numpy as np
from numba import int32, int64, uint32, uint64

from .bits import PES, kernel
from .vectors import block_half


@kernel
def _shifted(significand, shift):
    """significand / 2^shift, nearest even; 0 for large shifts."""
    if shift > 60:
        return int64(0)
    half = int64(1) << (shift - 1)
    odd = (significand >> shift) & int64(1)
    return (significand + half - int64(1) + odd) >> shift


@kernel
def _single_row(a, out, common):
    """Elements of one row of singles under the exponents `common`."""
    for k in range(PES):
        u = uint32(a[k])
        e = int32(uint32(u >> uint32(23)) & uint32(255))
        sign = uint32(u & uint32(0x80000000))
        c = common[k]
        shift = int32(1) + c - e
        shift = min(shift, int32(31))
        s = uint32(uint32(u & uint32(0x7FFFFF)) | uint32(0x800000))
        half = uint32(uint32(1) << uint32(shift - 1))
        m = uint32(uint32(s + half - uint32(1) + (uint32(s >> uint32(shift)) & uint32(1))) >> uint32(shift))
        m = uint32(0) if e == int32(0) or shift >= int32(26) else m
        r = uint32(sign | uint32(uint32(c) << uint32(23)) | m)
        out[k] = uint32(sign | uint32(0x7F800000)) if c >= int32(255) else r


@kernel
def group_maximum(v):
    """The largest of each 4 neighbours, in all four."""
    for j in range(PES // 4):
        k = 4 * j
        m = max(max(v[k], v[k + 1]), max(v[k + 2], v[k + 3]))
        v[k] = m
        v[k + 1] = m
        v[k + 2] = m
        v[k + 3] = m


@kernel
def _single_exponents(a, v, first):
    """v = max(v, what the element asks for): its exponent, one more when its mantissa is all ones."""
    for k in range(PES):
        u = uint32(a[k])
        e = int32(uint32(u >> uint32(23)) & uint32(255))
        carry = int32(1) if uint32(u & uint32(0x7FFFFF)) == uint32(0x7FFFFF) and e > 0 else int32(0)
        w = int32(e + carry)
        v[k] = w if first else max(v[k], w)


@kernel
def singles(sm, sr, om, orow, joined):
    """fbfn (each word row a block) or gbfn (`joined`: both word rows of an LW are one block of 8)."""
    common = np.empty(PES, np.int32)
    first, second = np.empty(PES, np.uint32), np.empty(PES, np.uint32)
    for i in range(orow.size // 2):
        a, b = sm[sr[2 * i]], sm[sr[2 * i + 1]]
        _single_exponents(a, common, True)
        if joined:
            _single_exponents(b, common, False)
        group_maximum(common)
        _single_row(a, first, common)
        if not joined:
            _single_exponents(b, common, True)
            group_maximum(common)
        _single_row(b, second, common)
        oa, ob = om[orow[2 * i]], om[orow[2 * i + 1]]
        for k in range(PES):
            oa[k] = first[k]
            ob[k] = second[k]


@kernel
def doubles(sm, sr, om, orow):
    """dbfn: one block of the 4 PEs' LWs."""
    common = np.empty(PES, np.int32)
    for i in range(orow.size // 2):
        a, b = sm[sr[2 * i]], sm[sr[2 * i + 1]]
        for k in range(PES):
            e = int32(uint32(a[k] >> uint32(20)) & uint32(2047))
            ones = uint32(a[k] & uint32(0xFFFFF)) == uint32(0xFFFFF) and b[k] == uint32(0xFFFFFFFF)
            common[k] = e + 1 if ones and e > 0 else e
        group_maximum(common)
        oa, ob = om[orow[2 * i]], om[orow[2 * i + 1]]
        for k in range(PES):
            u = (uint64(a[k]) << uint64(32)) | uint64(b[k])
            e = int64((u >> uint64(52)) & uint64(2047))
            c = int64(common[k])
            sign = u & (uint64(1) << uint64(63))
            if c >= 2047:
                v = sign | (uint64(2047) << uint64(52))
            else:
                s = int64((u & ((uint64(1) << uint64(52)) - uint64(1))) | (uint64(1) << uint64(52)))
                m = uint64(_shifted(s, 1 + c - e)) if e > 0 else uint64(0)
                v = sign | (uint64(c) << uint64(52)) | m
            oa[k] = uint32(v >> uint64(32))
            ob[k] = uint32(v & uint64(0xFFFFFFFF))


@kernel
def _half_wish(h, b):
    """The exponent that a half asks for, before b is added: one more when it would carry out of its kept bits."""
    e = int32(uint32(h >> uint32(9)) & uint32(63))
    m = int32(h & uint32(511)) + int32(512)
    half = int32(1) << b
    kept = (m + half - int32(1) + ((m >> (b + int32(1))) & int32(1))) >> (b + int32(1))
    carry = int32(1) if kept >= (int32(1) << (int32(9) - b)) and e > int32(0) else int32(0)
    return int32(e + carry)


@kernel
def _half_element(h, c, b, extended):
    """One half under the common exponent c."""
    sign = uint32(h & uint32(0x8000))
    e = int32(uint32(h >> uint32(9)) & uint32(63))
    m = uint32(uint32(h & uint32(511)) | uint32(512))
    difference = int32(c - e)
    shift = int32(1) + difference
    apart = extended and (difference > int32(6) + b or (difference == int32(6) + b and m != uint32(1023)))
    shift = int32(shift - 6) if apart else shift
    shift = min(shift, int32(15))
    half = uint32(uint32(1) << uint32(shift - 1))
    r = uint32(uint32(m + half - uint32(1) + (uint32(m >> uint32(shift)) & uint32(1))) >> uint32(shift))
    r = uint32(0) if e == int32(0) else r
    field = uint32(0) if apart else uint32(uint32(c) << uint32(9))
    v = uint32(sign | field | r)
    v = uint32(sign | field) if r == uint32(0) else v
    return uint32(sign | uint32(63 << 9)) if c >= int32(63) else v


@kernel
def halves(sm, sr, om, orow, b, extended):
    """hbfn/(9-b) or hbfe/(9-b): each pair of rows (an LW) is a block of 16 with the 4 PEs."""
    if b == 0 and not extended:
        for i in range(orow.size // 2):
            x, y, first, second = sm[sr[2 * i]], sm[sr[2 * i + 1]], om[orow[2 * i]], om[orow[2 * i + 1]]
            for k in range(0, PES, 16):
                block_half(x, k, y, k, first, k, second, k)
        return
    common = np.empty(PES, np.int32)
    first, second = np.empty(PES, np.uint32), np.empty(PES, np.uint32)
    for i in range(orow.size // 2):
        x, y = sm[sr[2 * i]], sm[sr[2 * i + 1]]
        for k in range(PES):
            u, v = uint32(x[k]), uint32(y[k])
            w = max(_half_wish(uint32(u >> uint32(16)), b), _half_wish(uint32(u & uint32(0xFFFF)), b))
            common[k] = max(w, max(_half_wish(uint32(v >> uint32(16)), b), _half_wish(uint32(v & uint32(0xFFFF)), b)))
        group_maximum(common)
        for k in range(PES):
            c = common[k]
            c = int32(c + b) if c > int32(0) else c
            u, v = uint32(x[k]), uint32(y[k])
            first[k] = uint32(
                (_half_element(uint32(u >> uint32(16)), c, b, extended) << uint32(16))
                | _half_element(uint32(u & uint32(0xFFFF)), c, b, extended)
            )
            second[k] = uint32(
                (_half_element(uint32(v >> uint32(16)), c, b, extended) << uint32(16))
                | _half_element(uint32(v & uint32(0xFFFF)), c, b, extended)
            )
        oa, ob = om[orow[2 * i]], om[orow[2 * i + 1]]
        for k in range(PES):
            oa[k] = first[k]
            ob[k] = second[k]
