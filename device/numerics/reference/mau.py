"""MAU arithmetic (SDM 4.3, 4.5): products with omitted parts, exact sums, one rounding, normalised output.

All functions take and give bit patterns. Infinities count as 2^128 in half and single operations and 2^1024 in double ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ..formats import DOUBLE, FORMATS, HALF, SINGLE, Format, round_to, value

#: mantissa bits whose partial products are left out, by precision of the factors
OMITTED_BITS = {"h": 0, "f": 5, "g": 0, "d": 16}
INFINITY_EXPONENT = {"h": 128, "f": 128, "g": 128, "d": 1024}


def number(bits: int, fmt: Format, precision: str) -> Fraction:
    return value(bits, fmt, INFINITY_EXPONENT[precision])


def product(x: int, y: int, precision: str) -> Fraction:
    """x * y without the partial products of the low bits of both; if any of them is 1, a constant is added instead.

    In units of the last product bit: P = Mx My - lx ly + (2^(omitted bits + 3 or + 14) if lx ly else 0), that is 2^-38 (single)
    or 2^-74 (double) relative to the product of the hidden bits.
    """
    fmt = FORMATS[precision]
    exact = number(x, fmt, precision) * number(y, fmt, precision)
    omitted = OMITTED_BITS[precision]
    (sx, ex, mx), (sy, ey, my) = fmt.fields(x), fmt.fields(y)
    if not omitted or ex in (0, fmt.ones) or ey in (0, fmt.ones):
        return exact
    low = (mx % (1 << omitted)) * (my % (1 << omitted))
    if low == 0:
        return exact
    constant = {5: 1 << 8, 16: 1 << 30}[omitted]
    unit = Fraction(2) ** (ex + ey - 2 * (fmt.bias + fmt.mantissa_bits))
    correction = (constant - low) * unit
    return exact - correction if sx != sy else exact + correction


def vector_fma(x: int, y: int | None, z: int | None, precision: str, target: Format | None = None) -> int:
    """x*y + z with one rounding. y None: the factor 1; z None: nothing added. z and the result of h are singles."""
    accumulator = SINGLE if precision == "h" else FORMATS[precision]
    p = product(x, y, precision) if y is not None else number(x, FORMATS[precision], precision)
    if z is not None:
        p += number(z, accumulator, precision)
    return round_to(p, target or accumulator)


# --- block floats --------------------------------------------------------------------------------------------------------
def block_elements(block: Sequence[int], precision: str) -> list[tuple[int, int, int]]:
    """(sign, mantissa, exponent of its last bit) of each element: no hidden bit.

    The conversion shifts 1.m right by one, so the first mantissa bit is worth 2^(exponent - bias). g ignores the low
    5 mantissa bits.
    A half block has the largest exponent field of its elements, and an element with exponent field 0 counts from 6
    below (extended
    representation). An infinite half block has the mantissas of 1.0 at the top exponent; so has an infinite element
    of the others.
    """
    fmt = FORMATS[precision]
    fields = [fmt.fields(bits) for bits in block]
    common = max(e for _, e, _ in fields)
    top = INFINITY_EXPONENT[precision]
    out = []
    for sign, e, mantissa in fields:
        if precision == "h":
            infinite = common == fmt.ones
            e = common - 6 if e == 0 else common
            mantissa = 0 if common == 0 else mantissa
        else:
            infinite = e == fmt.ones
            mantissa = 0 if e == 0 else mantissa
        if infinite:
            out.append((sign, 1 << (fmt.mantissa_bits - 1), top - (fmt.mantissa_bits - 1)))
            continue
        if precision == "g":
            mantissa &= ~31
        out.append((sign, mantissa, e - fmt.bias - (fmt.mantissa_bits - 1)))
    return out


def block_product(a: Sequence[int], x: Sequence[int], precision: str, columns: Sequence[int] | None = None) -> Fraction:
    """Sum over j of a[j] x[j], exact; f and d leave out partial products of the fields, per product."""
    left, right = block_elements(a, precision), block_elements(x, precision)
    omitted = OMITTED_BITS[precision]
    fmt = FORMATS[precision]
    total = Fraction(0)
    for j in columns if columns is not None else range(len(a)):
        (sa, ma, ea), (sx, mx, ex) = left[j], right[j]
        p = ma * mx
        low = (ma % (1 << omitted)) * (mx % (1 << omitted)) if omitted else 0
        if low and fmt.ones not in (fmt.fields(a[j])[1], fmt.fields(x[j])[1]):
            p += {5: 1 << 8, 16: 1 << 30}[omitted] - low
        term = p * Fraction(2) ** (ea + ex)
        total += -term if sa != sx else term
    return total


def matrix_row(a: Sequence[int], x: Sequence[int], z: int | None, precision: str, target: Format | None = None) -> int:
    """One element of A x + z: f uses the even columns only; z and the result of h are singles."""
    accumulator = SINGLE if precision == "h" else FORMATS[precision]
    columns = range(0, 8, 2) if precision == "f" else None
    total = block_product(a, x, precision, columns)
    if z is not None:
        total += number(z, accumulator, precision)
    return round_to(total, target or accumulator)


__all__ = ["DOUBLE", "HALF", "SINGLE", "block_product", "matrix_row", "product", "vector_fma"]
