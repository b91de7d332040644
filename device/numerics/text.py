"""Numbers from the text of an immediate, as C's strtof reads them, rounded once to single and then to half."""

from __future__ import annotations

import re
import struct
from fractions import Fraction

_NUMBER = re.compile(
    r"\s*([+-]?)(?:(inf(?:inity)?)|0[xX]([0-9a-fA-F]*)(?:\.([0-9a-fA-F]*))?(?:[pP]([+-]?\d+))?|(\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d+))?)[fF]?\Z",
    re.IGNORECASE,
)


def single_from_text(text: str) -> int:
    """Bits of the single nearest to the number (ties to even); denormal results become signed zero."""
    found = _NUMBER.match(text)
    if not found:
        raise ValueError(text)
    sign, infinite, hex_int, hex_frac, hex_exp, dec, dec_exp = found.groups()
    s = 0x80000000 if sign == "-" else 0
    if infinite:
        return s | 0x7F800000
    if dec is not None:
        exponent = int(dec_exp or 0)
        if exponent > 400:
            return s | (0x7F800000 if Fraction(dec) else 0)
        value = Fraction(dec) * Fraction(10) ** max(exponent, -400)
    else:
        if not (hex_int or hex_frac):
            raise ValueError(text)
        digits = (hex_int or "") + (hex_frac or "")
        value = int(digits, 16) * Fraction(2) ** (max(-2000, min(2000, int(hex_exp or 0))) - 4 * len(hex_frac or ""))
    return s | _round_to_single(value)


def _round_to_single(value: Fraction) -> int:
    if value == 0:
        return 0
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if Fraction(2) ** exponent > value:
        exponent -= 1
    scaled = value / Fraction(2) ** (exponent - 23)
    quotient, rest = divmod(scaled.numerator, scaled.denominator)
    double = 2 * rest
    if double > scaled.denominator or (double == scaled.denominator and quotient & 1):
        quotient += 1
    if quotient == 1 << 24:
        quotient, exponent = 1 << 23, exponent + 1
    if exponent > 127:
        return 0x7F800000
    if exponent < -126:
        return 0
    return (exponent + 127) << 23 | (quotient & 0x7FFFFF)


def half_from_text(text: str) -> int:
    """Bits of the half: the text as a single, rounded to nearest even."""
    from .formats import HALF, SINGLE, convert

    return convert(single_from_text(text), SINGLE, HALF)


def single_value(bits: int) -> float:
    return float(struct.unpack(">f", struct.pack(">I", bits))[0])
