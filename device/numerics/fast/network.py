"""Transfers between L1BM and the PEs, and the reductions of the on-chip network (SDM 4.2).

L1BM is uint64 [L1B][LW]. A transfer is a table of LW addresses for each (cycle, LW of the access) and each of the 64 PEs of
an L1B; the same table serves all L1Bs.
"""

from __future__ import annotations

import numpy as np
from numba import int64, uint32, uint64

from .bits import PES, kernel

L1BS, L1B_PES = 64, 64


@kernel
def to_pes(memory, table, om, orow):
    """om[orow[2n], orow[2n+1]] = upper and lower word of memory[b, table[n, q]] in PE q of L1B b."""
    for n in range(table.shape[0]):
        upper, lower = om[orow[2 * n]], om[orow[2 * n + 1]]
        t = table[n]
        for b in range(L1BS):
            row = memory[b]
            for q in range(L1B_PES):
                v = row[t[q]]
                upper[b * L1B_PES + q] = uint32(v >> uint64(32))
                lower[b * L1B_PES + q] = uint32(v & uint64(0xFFFFFFFF))


@kernel
def from_pes(sm, sr, table, pes, memory):
    """memory[b, table[n, i]] = LW n of PE pes[i] of L1B b, for every L1B."""
    for n in range(table.shape[0]):
        upper, lower = sm[sr[2 * n]], sm[sr[2 * n + 1]]
        t = table[n]
        for b in range(L1BS):
            row = memory[b]
            for i in range(pes.size):
                k = b * L1B_PES + pes[i]
                row[t[i]] = (uint64(upper[k]) << uint64(32)) | uint64(lower[k])


@kernel
def long_words(sm, sr, out):
    """out[n, k] = LW n of PE k."""
    for n in range(out.shape[0]):
        upper, lower, o = sm[sr[2 * n]], sm[sr[2 * n + 1]], out[n]
        for k in range(PES):
            o[k] = (uint64(upper[k]) << uint64(32)) | uint64(lower[k])


@kernel
def to_mabs(memory, table, om, orow):
    """to_pes for transfers that give all MABs the same: only the first 4 columns of the table count."""
    for n in range(table.shape[0]):
        upper, lower = om[orow[2 * n]], om[orow[2 * n + 1]]
        t = table[n]
        for b in range(L1BS):
            row = memory[b]
            v0, v1, v2, v3 = row[t[0]], row[t[1]], row[t[2]], row[t[3]]
            h0, h1, h2, h3 = (
                uint32(v0 >> uint64(32)),
                uint32(v1 >> uint64(32)),
                uint32(v2 >> uint64(32)),
                uint32(v3 >> uint64(32)),
            )
            l0, l1, l2, l3 = uint32(v0), uint32(v1), uint32(v2), uint32(v3)
            for m in range(16):
                k = b * L1B_PES + 4 * m
                upper[k] = h0
                upper[k + 1] = h1
                upper[k + 2] = h2
                upper[k + 3] = h3
                lower[k] = l0
                lower[k + 1] = l1
                lower[k + 2] = l2
                lower[k + 3] = l3


# --- float sums ----------------------------------------------------------------------------------------------------------
@kernel
def _sum(values, count, mbits, ebits, target_mbits, target_ebits):
    """One adder stage: bits of the sum of values[:count], rounded to the target format and normalised.

    Significands have 3 extra low bits and are aligned to the largest exponent, each rounded to nearest even when bits fall
    off; then exact addition and one rounding. Infinity counts as 2^(all ones - bias), as in the MAU.
    """
    ones = (int64(1) << int64(ebits)) - 1
    top = int64(0)
    for i in range(count):
        e = int64(values[i] >> uint64(mbits)) & ones
        top = max(top, e)
    total = int64(0)
    for i in range(count):
        v = values[i]
        e = int64(v >> uint64(mbits)) & ones
        if e == 0:
            continue
        m = (int64(1) << int64(mbits)) | (
            int64(0) if e == ones else int64(v & ((uint64(1) << uint64(mbits)) - uint64(1)))
        )
        m <<= 3
        shift = top - e
        if shift > 60:
            m = int64(0)
        elif shift > 0:
            m = (m + (int64(1) << (shift - 1)) - 1 + ((m >> shift) & 1)) >> shift
        total += -m if (v >> uint64(mbits + ebits)) & uint64(1) else m
    if total == 0:
        return uint64(0)
    sign = uint64(1) if total < 0 else uint64(0)
    m = abs(total)
    length = 0
    t = m
    while t:
        t >>= 1
        length += 1
    drop = length - (target_mbits + 1)
    if drop > 0:
        m = (m + (int64(1) << (drop - 1)) - 1 + ((m >> drop) & 1)) >> drop
    else:
        m <<= -drop
    exponent = top - (ones >> 1) - mbits - 3 + drop + target_mbits
    if m >> (target_mbits + 1):
        m >>= 1
        exponent += 1
    target_ones = (int64(1) << int64(target_ebits)) - 1
    field = exponent + (target_ones >> 1)
    s = sign << uint64(target_mbits + target_ebits)
    if field >= target_ones:
        return s | (uint64(target_ones) << uint64(target_mbits))
    if field <= 0:
        return uint64(0)
    return s | (uint64(field) << uint64(target_mbits)) | (uint64(m) & ((uint64(1) << uint64(target_mbits)) - uint64(1)))


@kernel
def add_elements(values, stages, mbits, ebits, target_mbits, target_ebits, out):
    """out[n] = sum of the elements values[n, :]; two `stages` of 4-input adders for 16 values, else one adder.

    Only the last stage rounds to the target format.
    """
    count = values.shape[1]
    partial = np.empty(4, np.uint64)
    for n in range(values.shape[0]):
        if stages == 2:
            for q in range(4):
                partial[q] = _sum(values[n, 4 * q : 4 * q + 4], 4, mbits, ebits, mbits, ebits)
            out[n] = _sum(partial, 4, mbits, ebits, target_mbits, target_ebits)
        else:
            out[n] = _sum(values[n], count, mbits, ebits, target_mbits, target_ebits)
