"""The number formats, in plain form: bit fields, exact values as fractions, and the one rounding.

SDM 4: half 1/6/9, single 1/8/23, double 1/11/52. No denormals and no NaN: exponent 0 is a signed zero whatever the mantissa,
exponent all ones a signed infinity whatever the mantissa. Rounding is to nearest even with unbounded exponent, then overflow
to infinity and underflow (exponent <= 0) to +0.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Format:
    name: str
    bits: int
    exponent_bits: int
    mantissa_bits: int

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def ones(self) -> int:
        """The exponent field of infinity."""
        return (1 << self.exponent_bits) - 1

    @property
    def sign_bit(self) -> int:
        return 1 << (self.bits - 1)

    def fields(self, bits: int) -> tuple[int, int, int]:
        """(sign, exponent field, mantissa field)"""
        return (
            bits >> (self.bits - 1) & 1,
            bits >> self.mantissa_bits & self.ones,
            bits & ((1 << self.mantissa_bits) - 1),
        )

    def pack(self, sign: int, exponent: int, mantissa: int) -> int:
        return sign << (self.bits - 1) | exponent << self.mantissa_bits | mantissa

    def infinity(self, sign: int) -> int:
        return self.pack(sign, self.ones, 0)


HALF = Format("half", 16, 6, 9)
SINGLE = Format("single", 32, 8, 23)
DOUBLE = Format("double", 64, 11, 52)
FORMATS = {"h": HALF, "f": SINGLE, "g": SINGLE, "d": DOUBLE}


def value(bits: int, fmt: Format, infinity_exponent: int | None = None) -> Fraction:
    """The exact value. An infinity counts as 2^infinity_exponent, by default 2^(ones - bias) of its own format.

    SDM does not say how the MAU treats infinities; this reading agrees with every published result.
    """
    sign, exponent, mantissa = fmt.fields(bits)
    if exponent == 0:
        return Fraction(0)
    if exponent == fmt.ones:
        magnitude = Fraction(2) ** (fmt.ones - fmt.bias if infinity_exponent is None else infinity_exponent)
    else:
        magnitude = Fraction((1 << fmt.mantissa_bits) + mantissa) * Fraction(2) ** (
            exponent - fmt.bias - fmt.mantissa_bits
        )
    return -magnitude if sign else magnitude


def nearest_even(x: Fraction) -> int:
    """The integer nearest to x, ties to even (Python's round does just that)."""
    return round(x)


def round_to(x: Fraction, fmt: Format) -> int:
    """One rounding of an exact value, normalised: overflow gives infinity, underflow and zero give +0."""
    if x == 0:
        return 0
    sign, magnitude = (1, -x) if x < 0 else (0, x)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    significand = nearest_even(magnitude * Fraction(2) ** (fmt.mantissa_bits - exponent))
    if significand == 1 << (fmt.mantissa_bits + 1):
        significand, exponent = significand >> 1, exponent + 1
    field = exponent + fmt.bias
    if field >= fmt.ones:
        return fmt.infinity(sign)
    if field <= 0:
        return 0
    return fmt.pack(sign, field, significand - (1 << fmt.mantissa_bits))


def convert(bits: int, source: Format, target: Format) -> int:
    """A number in another format: infinity stays infinity, a zero keeps its sign, else one rounding.

    Used for operand suffixes `e` (exact) and `r`, and for half immediates.
    """
    sign, exponent, _ = source.fields(bits)
    if exponent == 0:
        return target.pack(sign, 0, 0)
    if exponent == source.ones:
        return target.infinity(sign)
    return round_to(value(bits, source), target)


def normalise(bits: int, fmt: Format) -> int:
    """Output normalisation of MAU and fadd: mantissa of infinity 0, every zero +0."""
    sign, exponent, _ = fmt.fields(bits)
    if exponent == 0:
        return 0
    return fmt.infinity(sign) if exponent == fmt.ones else bits
