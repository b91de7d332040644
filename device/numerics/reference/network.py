"""Reductions of the on-chip network (SDM 3.3, 4.2) on lists of elements."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ..formats import FORMATS, HALF, SINGLE, Format, convert, nearest_even, round_to

EXTRA_BITS = 3


def add_stage(values: Sequence[int], fmt: Format, target: Format | None = None) -> int:
    """One adder: significands with 3 extra low bits, aligned to the largest exponent with rounding to nearest even where bits
    fall off, added exactly, rounded once and normalised. Infinity counts as its hidden bit at the top exponent."""
    fields = [fmt.fields(v) for v in values]
    top = max(e for _, e, _ in fields)
    total = 0
    for sign, e, mantissa in fields:
        if e == 0:
            continue
        if e == fmt.ones:
            mantissa = 0
        significand = ((1 << fmt.mantissa_bits) + mantissa) << EXTRA_BITS
        aligned = nearest_even(Fraction(significand, 1 << (top - e)))
        total += -aligned if sign else aligned
    unit = Fraction(2) ** (top - fmt.bias - fmt.mantissa_bits - EXTRA_BITS)
    return round_to(total * unit, target or fmt)


def add(values: Sequence[int], precision: str, stages: int = 1, target: Format | None = None) -> int:
    """One stage over all values, or two stages of 4-input adders over 16; only the last rounds to the target."""
    fmt = FORMATS[precision]
    if stages == 2:
        partial = [add_stage(values[i : i + 4], fmt) for i in range(0, 16, 4)]
        return add_stage(partial, fmt, target)
    return add_stage(values, fmt, target)


def add_halves_on_single(values: Sequence[int], stages: int) -> int:
    """Half sums of L1BM run on the single circuit and round to half at the end."""
    return add([convert(v, HALF, SINGLE) for v in values], "f", stages, HALF)


def reduce(op: str, values: Sequence[int], bits: int) -> int:
    """max, min (sign and magnitude, +0 above -0), iadd, band, bor, and, or."""
    if op in ("max", "min"):

        def key(v: int) -> int:
            magnitude = v & ((1 << (bits - 1)) - 1)
            return -1 - magnitude if v >> (bits - 1) else magnitude

        return max(values, key=key) if op == "max" else min(values, key=key)
    if op == "iadd":
        return sum(values) % (1 << bits)
    if op in ("band", "bor"):
        out = values[0]
        for v in values[1:]:
            out = out & v if op == "band" else out | v
        return out
    return int(all(values)) if op == "and" else int(any(values))
