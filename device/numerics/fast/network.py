"""Transfers between L1BM and the PEs, and the reductions of the on-chip network (SDM 4.2).

L1BM is uint64 [L1B][LW]. A transfer is a table of LW addresses for each (cycle, LW of the access) and each of the 64 PEs of
an L1B; the same table serves all L1Bs.
"""

from __future__ import annotations

import numpy as np
from numba import float64, int64, uint32, uint64

from .bits import PES, double_of, kernel
from .round import to_half, to_single
from .wide import length

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


# --- reductions ----------------------------------------------------------------------------------------------------------
#: operations of `reduce`
FADD, MAX, MIN, IADD, BAND, BOR, AND, OR = range(8)


@kernel
def gather_mabs(sm, sr, quarters, out):
    """out[value, source MAB] for every (LW access, L1B, (quarter,) PE): all 16 MABs, or the 4 of a quarter."""
    accesses = sr.size // 2
    n = 0
    for i in range(accesses):
        upper, lower = sm[sr[2 * i]], sm[sr[2 * i + 1]]
        for b in range(L1BS):
            for q in range(4 if quarters else 1):
                for p in range(4):
                    for s in range(4 if quarters else 16):
                        k = b * L1B_PES + 4 * (4 * q + s if quarters else s) + p
                        out[n, s] = (uint64(upper[k]) << uint64(32)) | uint64(lower[k])
                    n += 1


@kernel
def _add_singles(values, first, count, shift):
    """The exact result of one adder stage of singles, as a double: 3 extra bits, aligned to the largest exponent."""
    top = int64(0)
    for i in range(first, first + count):
        top = max(top, int64(values[i] >> uint64(shift + 23)) & int64(255))
    total = int64(0)
    for i in range(first, first + count):
        v = values[i] >> uint64(shift)
        e = int64(v >> uint64(23)) & int64(255)
        m = (int64(1) << int64(26)) | (int64(0) if e == 255 else int64(v & uint64(0x7FFFFF)) << int64(3))
        down = top - e
        if down > 0:
            down = min(down, int64(40))
            m = (m + (int64(1) << (down - 1)) - int64(1) + ((m >> down) & int64(1))) >> down
        m = int64(0) if e == 0 else m
        total += -m if (v >> uint64(31)) & uint64(1) else m
    return float64(total) * double_of(uint64(top + 1023 - 127 - 26) << uint64(52))


@kernel
def _sum(values, count, mbits, ebits, target_mbits, target_ebits):
    """One adder stage of any precision: bits of the sum of values[:count], rounded to the target format and normalised.

    Significands have 3 extra low bits and are aligned to the largest exponent, each rounded to nearest even when bits fall
    off; then exact addition and one rounding. Infinity counts as 2^(all ones - bias), as in the MAU.
    """
    ones = (int64(1) << int64(ebits)) - 1
    top = int64(0)
    for i in range(count):
        top = max(top, int64(values[i] >> uint64(mbits)) & ones)
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
    drop = length(uint64(0), uint64(m)) - (target_mbits + 1)
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
def add_singles(values, stages, short, out):
    """Sums of the two singles of an LW over values[n, :]; out[n, 0..1] are singles, or halves with `short`.

    Two `stages` of 4-input adders for 16 values, a single between them; else one adder. The sum of a stage has few
    bits, so that it is
    exact as a double and the conversion is the one rounding.
    """
    count = values.shape[1]
    partial = np.empty(4, np.uint64)
    for n in range(values.shape[0]):
        for half in range(2):
            shift = 32 if half == 0 else 0
            row = values[n]
            if stages == 2:
                for q in range(4):
                    partial[q] = uint64(to_single(_add_singles(row, 4 * q, 4, shift)))
                s = _add_singles(partial, 0, 4, 0)
            else:
                s = _add_singles(row, 0, count, shift)
            out[n, half] = uint64(to_half(s)) if short else uint64(to_single(s))


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


@kernel
def reduce(op, bits, values, out):
    """out[n] = reduction of the elements of LWs values[n, :], without rounding."""
    every = ~uint64(0) >> uint64(64 - bits)
    msb = uint64(1) << uint64(bits - 1)
    for n in range(values.shape[0]):
        result = uint64(0)
        for shift in range(0, 64, bits):
            t = (values[n, 0] >> uint64(shift)) & every
            if op in (AND, OR):
                t = uint64(1) if t else uint64(0)
            for i in range(1, values.shape[1]):
                v = (values[n, i] >> uint64(shift)) & every
                if op == IADD:
                    t = (t + v) & every
                elif op == BAND:
                    t &= v
                elif op == BOR:
                    t |= v
                elif op == AND:
                    t = t if v else uint64(0)
                elif op == OR:
                    t = uint64(1) if v else t
                else:
                    # sign and magnitude as an ordered key, +0 above -0
                    kt = int64(t) if not t & msb else -int64(t & ~msb) - int64(1)
                    kv = int64(v) if not v & msb else -int64(v & ~msb) - int64(1)
                    if (op == MAX and kv > kt) or (op == MIN and kv < kt):
                        t = v
            result |= t << uint64(shift)
        out[n] = result
