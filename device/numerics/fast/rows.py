"""Moving rows of words: copies, fills, masked writes, zero flush, gathers through per-PE addresses, format changes."""

from __future__ import annotations

import numpy as np
from numba import uint32

from .bits import PES, kernel

ALWAYS = 255  # shift value of a word part that no mask bit guards


@kernel
def copy(sm, sr, dm, dr):
    """dm[dr] = sm[sr], in order."""
    for i in range(dr.size):
        s, d = sm[sr[i]], dm[dr[i]]
        for k in range(PES):
            d[k] = s[k]


@kernel
def fill(dm, dr, values):
    """dm[dr[i]] = values[i] in every PE; the values repeat when there are more rows."""
    for i in range(dr.size):
        d = dm[dr[i]]
        v = values[i % values.size]
        for k in range(PES):
            d[k] = v


@kernel
def _guard(nibble, high, low):
    """Write mask of a word: bit `high` (counted from the left) guards its upper half, `low` its lower half."""
    n = uint32(nibble)
    h = uint32(0xFFFF0000) if high == ALWAYS or (n >> uint32(3 - high)) & uint32(1) else uint32(0)
    m = uint32(0x0000FFFF) if low == ALWAYS or (n >> uint32(3 - low)) & uint32(1) else uint32(0)
    return uint32(h | m)


@kernel
def _guards(nibbles, high, low, out):
    """_guard for a row."""
    always = (uint32(0xFFFF0000) if high == ALWAYS else uint32(0)) | (uint32(0xFFFF) if low == ALWAYS else uint32(0))
    h, l = uint32(3 - high if high != ALWAYS else 0), uint32(3 - low if low != ALWAYS else 0)
    upper = uint32(0) if high == ALWAYS else uint32(0xFFFF0000)
    lower = uint32(0) if low == ALWAYS else uint32(0xFFFF)
    for k in range(PES):
        n = uint32(nibbles[k])
        a = upper if uint32(n >> h) & uint32(1) else uint32(0)
        b = lower if uint32(n >> l) & uint32(1) else uint32(0)
        out[k] = uint32(a | b | always)


@kernel
def copy_masked(sm, sr, dm, dr, nibbles, nr, high, low):
    """dm[dr] = sm[sr] where the mask entry allows; nr names the nibble row, high and low the guarding bits of each row."""
    guards = np.empty(PES, np.uint32)
    for i in range(dr.size):
        s, d = sm[sr[i]], dm[dr[i]]
        _guards(nibbles[nr[i]], high[i], low[i], guards)
        for k in range(PES):
            d[k] = uint32((d[k] & ~guards[k]) | (s[k] & guards[k]))


@kernel
def flush(dm, dr, nibbles, nr, high, low):
    """dm[dr] = 0 where the mask entry forbids."""
    guards = np.empty(PES, np.uint32)
    for i in range(dr.size):
        d = dm[dr[i]]
        _guards(nibbles[nr[i]], high[i], low[i], guards)
        for k in range(PES):
            d[k] &= guards[k]


@kernel
def lm_addresses(out, base, bar, tm, tr, use_t, j, width, size):
    """Word address of every cycle (rows of `out`) and PE: BAR + T + base + j, wrapped, cut to the access width."""
    for i in range(base.size):
        o = out[i]
        b = base[i]
        t = tm[tr[i]]
        for k in range(PES):
            a = np.int64(b) + np.int64(bar[k])
            if use_t:
                a += np.int64(t[k])
            if j >= 0 and (k & 3) <= j:
                a += width
            o[k] = np.int32((a & (size - 1)) & ~(width - 1))


@kernel
def _one_address(addresses):
    """Whether all PEs have one address: then an access is a row."""
    first, difference = addresses[0], np.int32(0)
    for k in range(PES):
        difference |= np.int32(addresses[k] ^ first)
    return difference == np.int32(0)


@kernel
def gather(mem, addresses, width, om, orow):
    """om[orow] = mem[address + word] for each cycle (row of addresses) and word of the access."""
    row = False
    for i in range(orow.size):
        a, w, o = addresses[i // width], i % width, om[orow[i]]
        row = _one_address(a) if w == 0 else row
        if row:
            s = mem[a[0] + w]
            for k in range(PES):
                o[k] = s[k]
        else:
            for k in range(PES):
                o[k] = mem[a[k] + w, k]


@kernel
def scatter(sm, sr, mem, addresses, width, nibbles, nr, high, low, masked):
    """The write counterpart of gather, with an optional mask."""
    row = False
    for i in range(sr.size):
        s, a, w, n = sm[sr[i]], addresses[i // width], i % width, nibbles[nr[i]]
        h, l = high[i], low[i]
        row = _one_address(a) if w == 0 else row
        if row and not masked:
            d = mem[a[0] + w]
            for k in range(PES):
                d[k] = s[k]
        else:
            for k in range(PES):
                m = _guard(n[k], h, l) if masked else uint32(0xFFFFFFFF)
                old = mem[a[k] + w, k]
                mem[a[k] + w, k] = uint32((old & ~m) | (s[k] & m))


@kernel
def rotate_mab(sm, sr, om, orow, distance):
    """PE p receives from PE (p - distance) mod 4 of its MAB."""
    buffer = np.empty(PES, np.uint32)
    for i in range(orow.size):
        s, o = sm[sr[i]], om[orow[i]]
        for k in range(PES):
            buffer[k] = s[(k & ~3) | ((k - distance) & 3)]
        for k in range(PES):
            o[k] = buffer[k]


# --- format changes ------------------------------------------------------------------------------------------------------
@kernel
def half_to_single_bits(h):
    """Bits of a half (0..0xFFFF) as a single: exponent 0 is a signed zero, all ones a signed infinity."""
    sign = uint32(uint32(h & uint32(0x8000)) << uint32(16))
    e = uint32(uint32(h >> uint32(9)) & uint32(63))
    body = uint32(uint32(h & uint32(0x7FFF)) << uint32(14)) + uint32(96 << 23)
    r = uint32(0) if e == uint32(0) else uint32(body)
    r = uint32(0x7F800000) if e == uint32(63) else r
    return uint32(sign | r)


@kernel
def extend_half(sm, sr, om, orow, sign):
    """Suffix e for single inputs: each word of two halves becomes two words of singles."""
    for i in range(sr.size):
        s, a, b = sm[sr[i]], om[orow[2 * i]], om[orow[2 * i + 1]]
        for k in range(PES):
            u = s[k]
            a[k] = half_to_single_bits(uint32(u >> uint32(16))) ^ sign
            b[k] = half_to_single_bits(uint32(u & uint32(0xFFFF))) ^ sign


@kernel
def extend_single(sm, sr, om, orow, sign):
    """Suffix e for double inputs: each word becomes the two words of a double."""
    for i in range(sr.size):
        s, a, b = sm[sr[i]], om[orow[2 * i]], om[orow[2 * i + 1]]
        for k in range(PES):
            u = uint32(s[k])
            e = uint32(uint32(u >> uint32(23)) & uint32(255))
            upper = uint32(uint32(uint32(u & uint32(0x7FFFFFFF)) >> uint32(3)) + uint32(896 << 20))
            upper = uint32(0x7FF00000) if e == uint32(255) else upper
            upper = uint32(0) if e == uint32(0) else upper
            lower = uint32(u << uint32(29))
            lower = uint32(0) if e == uint32(0) or e == uint32(255) else lower
            a[k] = uint32(upper | uint32(u & uint32(0x80000000))) ^ sign
            b[k] = lower


@kernel
def single_to_half_bits(u):
    """Bits of a single as a half: infinity stays, a zero keeps its sign, else one rounding."""
    magnitude = uint32(u & uint32(0x7FFFFFFF))
    sign = uint32(uint32(u >> uint32(16)) & uint32(0x8000))
    rounded = uint32(
        uint32(magnitude + uint32(0x1FFF) + uint32(uint32(magnitude >> uint32(14)) & uint32(1))) >> uint32(14)
    )
    r = uint32(sign | uint32(rounded - uint32(96 << 9)))
    r = uint32(sign | uint32(63 << 9)) if rounded >= uint32((96 + 63) << 9) else r
    r = uint32(0) if rounded < uint32(97 << 9) else r
    return sign if magnitude < uint32(0x00800000) else r


@kernel
def reduce_single(sm, sr, om, orow, sign):
    """Suffix r: two words of singles become one word of two halves."""
    buffer = np.empty(PES, np.uint32)
    for i in range(orow.size):
        a, b, o = sm[sr[2 * i]], sm[sr[2 * i + 1]], om[orow[i]]
        for k in range(PES):
            buffer[k] = uint32((single_to_half_bits(a[k]) << uint32(16)) | single_to_half_bits(b[k])) ^ sign
        for k in range(PES):
            o[k] = buffer[k]


# --- flags ---------------------------------------------------------------------------------------------------------------
ZERO, BIT = 0, 1


@kernel
def flags(mode, bits, position, sm, sr, out, words):
    """Mask nibbles of a result: 1 where an element is zero (ZERO) or where its bit `position` from the top is 0 (BIT).

    bits    64: one element in two words, copied four times; 32: two elements, two bits each; 16: four elements;
            128: four words, one bit each (half operations with single results); 31: two halves of one word, two bits each
    words   rows of sm for each row of `out`
    """
    for i in range(out.shape[0]):
        o = out[i]
        a = sm[sr[i * words]]
        b = sm[sr[i * words + (1 if words > 1 else 0)]]
        c = sm[sr[i * words + (2 if words > 2 else 0)]]
        d = sm[sr[i * words + (3 if words > 3 else 0)]]
        for k in range(PES):
            if bits == 64:
                if mode == ZERO:
                    f = 15 if (a[k] | b[k]) == 0 else 0
                else:
                    f = 0 if (a[k] >> uint32(31 - position)) & uint32(1) else 15
            elif bits == 32:
                if mode == ZERO:
                    f = (12 if a[k] == 0 else 0) | (3 if b[k] == 0 else 0)
                else:
                    f = (0 if (a[k] >> uint32(31 - position)) & uint32(1) else 12) | (
                        0 if (b[k] >> uint32(31 - position)) & uint32(1) else 3
                    )
            elif bits == 16:
                if mode == ZERO:
                    f = (8 if (a[k] >> uint32(16)) == 0 else 0) | (4 if (a[k] & uint32(0xFFFF)) == 0 else 0)
                    f |= (2 if (b[k] >> uint32(16)) == 0 else 0) | (1 if (b[k] & uint32(0xFFFF)) == 0 else 0)
                else:
                    f = (0 if (a[k] >> uint32(31 - position)) & uint32(1) else 8) | (
                        0 if (a[k] >> uint32(15 - position)) & uint32(1) else 4
                    )
                    f |= (0 if (b[k] >> uint32(31 - position)) & uint32(1) else 2) | (
                        0 if (b[k] >> uint32(15 - position)) & uint32(1) else 1
                    )
            elif bits == 128:
                f = (0 if a[k] >> uint32(31) else 8) | (0 if b[k] >> uint32(31) else 4)
                f |= (0 if c[k] >> uint32(31) else 2) | (0 if d[k] >> uint32(31) else 1)
            else:
                f = (0 if a[k] >> uint32(31) else 12) | (0 if (a[k] >> uint32(15)) & uint32(1) else 3)
            o[k] = f


@kernel
def copy_nibbles(sm, sr, dm, dr, guards, gr, masked):
    """Writes a mask register: rows of nibbles, under a mask of its own (bit by bit)."""
    for i in range(dr.size):
        s, d, g = sm[sr[i]], dm[dr[i]], guards[gr[i]]
        for k in range(PES):
            d[k] = (d[k] & ~g[k]) | (s[k] & g[k]) if masked else s[k]
