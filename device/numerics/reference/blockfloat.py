"""Block-float conversion (SDM 4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ..formats import FORMATS, nearest_even


def convert(block: Sequence[int], precision: str, keep: int = 9, extended: bool = False) -> list[int]:
    """The block with one exponent. `keep`: mantissa bits of half blocks (6..9); `extended`: hbfe."""
    fmt = FORMATS[precision]
    b = 9 - keep if precision == "h" else 0
    hidden = 1 << fmt.mantissa_bits
    fields = [fmt.fields(bits) for bits in block]
    largest = max(e for _, e, _ in fields)
    if largest == 0:
        return [fmt.pack(sign, 0, 0) for sign, _, _ in fields]

    def carries(mantissa: int) -> bool:
        """Whether 1.m, shifted by one and rounded to the kept bits, needs one bit more."""
        kept = fmt.mantissa_bits - b
        return nearest_even(Fraction(hidden + mantissa, 2 << b)) >= 1 << kept

    common = largest + b
    if any(e == largest and carries(mantissa) for _, e, mantissa in fields):
        common += 1
    if common >= fmt.ones:
        return [fmt.infinity(sign) for sign, _, _ in fields]
    out = []
    for sign, e, mantissa in fields:
        if e == 0:
            out.append(fmt.pack(sign, 0 if extended else common, 0))
            continue
        difference, significand = common - e, hidden + mantissa
        all_ones = significand == 2 * hidden - 1
        if extended and (difference > 6 + b or (difference == 6 + b and not all_ones)):
            m = nearest_even(Fraction(significand, 1 << (1 + difference - 6)))
            out.append(fmt.pack(sign, 0, m))
        else:
            out.append(fmt.pack(sign, common, nearest_even(Fraction(significand, 1 << (1 + difference)))))
    return out
