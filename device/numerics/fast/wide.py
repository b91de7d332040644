"""Exact sums for double precision: 128-bit integers with a sticky bit, one rounding.

A value is (sign, hi, lo, exponent): (hi:lo) * 2^exponent. The product of two doubles has 106 bits. When the operands of a sum are
too far apart for 128 bits, the lost bits of the smaller are kept as a 1 in its last place, which is far below any rounding
position.
"""

from __future__ import annotations

from numba import int64, uint64

from .bits import kernel

MASK32 = 0xFFFFFFFF


@kernel
def multiply(a, b):
    """64 x 64 -> 128 bits (hi, lo)."""
    al, ah, bl, bh = a & uint64(MASK32), a >> uint64(32), b & uint64(MASK32), b >> uint64(32)
    ll, lh, hl, hh = al * bl, al * bh, ah * bl, ah * bh
    middle = (ll >> uint64(32)) + (lh & uint64(MASK32)) + (hl & uint64(MASK32))
    lo = (ll & uint64(MASK32)) | (middle << uint64(32))
    hi = hh + (lh >> uint64(32)) + (hl >> uint64(32)) + (middle >> uint64(32))
    return hi, lo


@kernel
def subtract(ah, al, bh, bl):
    lo = al - bl
    return ah - bh - (uint64(1) if al < bl else uint64(0)), lo


@kernel
def add(ah, al, bh, bl):
    lo = al + bl
    return ah + bh + (uint64(1) if lo < al else uint64(0)), lo


@kernel
def shift_left(h, l, n):
    if n <= 0:
        return h, l
    if n >= 64:
        return l << uint64(n - 64), uint64(0)
    return (h << uint64(n)) | (l >> uint64(64 - n)), l << uint64(n)


@kernel
def shift_right_sticky(h, l, n):
    """(h:l) >> n with the lost bits or-ed into the last place."""
    if n <= 0:
        return h, l
    if n >= 128:
        return uint64(0), uint64(1) if h | l else uint64(0)
    if n >= 64:
        lost = l if n == 64 else l | (h << uint64(128 - n))
        low = h >> uint64(n - 64)
        return uint64(0), low | (uint64(1) if lost else uint64(0))
    lost = l << uint64(64 - n)
    low = (l >> uint64(n)) | (h << uint64(64 - n))
    return h >> uint64(n), low | (uint64(1) if lost else uint64(0))


@kernel
def length(h, l):
    """Number of bits."""
    v, n = (h, 64) if h else (l, 0)
    while v:
        step = 32 if v >> uint64(32) else 0
        if step:
            v >>= uint64(32)
            n += 32
            continue
        if v >> uint64(16):
            v >>= uint64(16)
            n += 16
        if v >> uint64(8):
            v >>= uint64(8)
            n += 8
        if v >> uint64(4):
            v >>= uint64(4)
            n += 4
        if v >> uint64(2):
            v >>= uint64(2)
            n += 2
        return n + (2 if v >> uint64(1) else 1)
    return n


@kernel
def sum_of(ps, ph, pl, pe, zs, zh, zl, ze):
    """Exact sum of two values with at most 112 bits each (sticky when far apart): (sign, hi, lo, exponent)."""
    if not (ph | pl):
        return zs, zh, zl, ze
    if not (zh | zl):
        return ps, ph, pl, pe
    if length(ph, pl) + pe < length(zh, zl) + ze:
        ps, zs, ph, zh, pl, zl, pe, ze = zs, ps, zh, ph, zl, pl, ze, pe
    # the larger one goes up to bit 125
    up = 126 - length(ph, pl)
    ph, pl = shift_left(ph, pl, up)
    pe -= up
    if ze >= pe:
        zh, zl = shift_left(zh, zl, ze - pe)
    else:
        zh, zl = shift_right_sticky(zh, zl, pe - ze)
    if ps == zs:
        h, l = add(ph, pl, zh, zl)
        return ps, h, l, pe
    if ph > zh or (ph == zh and pl >= zl):
        h, l = subtract(ph, pl, zh, zl)
        return ps, h, l, pe
    h, l = subtract(zh, zl, ph, pl)
    return zs, h, l, pe


@kernel
def rounded(sign, h, l, e, mbits, ebits):
    """Bits of the nearest number with these field widths, normalised."""
    if not (h | l):
        return uint64(0)
    n = length(h, l)
    drop = n - (mbits + 1)
    if drop > 0:
        # sl = kept bits, round bit, and one bit for everything below
        sh, sl = shift_right_sticky(h, l, drop - 2) if drop >= 2 else shift_left(h, l, 2 - drop)
        kept = sl >> uint64(2)
        rest = sl & uint64(3)
        if rest > uint64(2) or (rest == uint64(2) and kept & uint64(1)):
            kept += uint64(1)
    else:
        sh, sl = shift_left(h, l, -drop)
        kept = sl
    exponent = e + drop + mbits
    if kept >> uint64(mbits + 1):
        kept >>= uint64(1)
        exponent += 1
    ones = (int64(1) << int64(ebits)) - 1
    field = exponent + (ones >> 1)
    top = uint64(sign) << uint64(mbits + ebits)
    if field >= ones:
        return top | (uint64(ones) << uint64(mbits))
    if field <= 0:
        return uint64(0)
    return top | (uint64(field) << uint64(mbits)) | (kept & ((uint64(1) << uint64(mbits)) - uint64(1)))
