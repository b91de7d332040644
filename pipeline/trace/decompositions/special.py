"""Special functions: of the gamma function, of the normal distribution, and of integers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mlsdk.pipeline.trace.decompositions.table import aten, decomposes


def _horner(x: Tensor, *coefficients: float) -> Tensor:
    """A polynomial, its lowest coefficient first."""
    total = torch.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


def _as_float(x: Tensor) -> Tensor:
    return x if x.is_floating_point() else x.float()


def _first(x: Tensor, coefficients: Sequence[float], singles: int) -> Sequence[float]:
    """As many coefficients as a single needs, or all."""
    return coefficients if x.dtype == torch.float64 else coefficients[:singles]


#: log gamma(1 + z) / (z (z - 1)) for z from 0 to 1, in powers of 2 z - 1 (a fit at Chebyshev's places)
BETWEEN_ROOTS = (
    0.4831289505409808, -0.07297994795715301, 0.015727850268627823, -0.003913560937648393, 0.0010498186647584634,
    -0.00029455070095172107, 8.510090065233289e-05, -2.5094334037224866e-05, 7.511409386937394e-06, -2.2742211504465664e-06,
    6.947820589922106e-07, -2.139381890828673e-07, 6.637128894802593e-08, -2.0490213626077953e-08, 6.248061652888726e-09,
    -2.1570322598874506e-09, 8.094810439183807e-10, -1.2027105302376683e-10, -2.1038437598717943e-11,
    -4.488618901103856e-11, 2.5741039368043197e-11,
)  # fmt: skip
#: log gamma(x) - ((x - 1/2) log x - x + log(2 pi) / 2), in odd powers of 1 / x (Stirling)
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
#: from here on the series of Stirling is used
FAR = 8


@decomposes(aten.lgamma.default)
def _lgamma(x: Tensor) -> Tensor:
    x = _as_float(x)
    y = x.abs()
    near, product = y, torch.ones_like(y)
    for _ in range(FAR - 2):  # gamma(y) = (y - 1) .. near gamma(near), near from 1 to 2
        large = near >= 2
        near = torch.where(large, near - 1, near)
        product = torch.where(large, product * near, product)
    z = torch.where(y < 1, y, near - 1)
    shift = torch.where(y < 1, -1.0, 1.0) * torch.where(y < 1, y, product).log()
    close = z * (z - 1) * _horner(2 * z - 1, *_first(y, BETWEEN_ROOTS, 14)) + shift
    far = y.clamp(min=FAR)
    inverse = 1 / far
    series = inverse * _horner(inverse * inverse, *_first(y, STIRLING, 4))
    found = torch.where(y < FAR, close, (far - 0.5) * far.log() - far + 0.5 * math.log(2 * math.pi) + series)
    part = y - y.floor()
    sine = (math.pi * torch.minimum(part, 1 - part)).sin()
    return torch.where(x < 0, math.log(math.pi) - (y * sine).log() - found, found)


#: log x - 1 / (2 x) - digamma(x), in powers of 1 / x^2 from the first on
DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)


@decomposes(aten.digamma.default)
def _digamma(x: Tensor) -> Tensor:
    x = _as_float(x)
    y = torch.where(x < 0, 1 - x, x)
    total = torch.zeros_like(y)
    for _ in range(FAR):
        small = y < FAR
        total = torch.where(small, total - 1 / y, total)
        y = torch.where(small, y + 1, y)
    inverse = 1 / y
    square = inverse * inverse
    found = total + y.log() - 0.5 * inverse - square * _horner(square, *_first(y, DIGAMMA, 4))
    part = x - x.floor()
    turned = math.pi / (math.pi * torch.where(part > 0.5, part - 1, part)).tan()
    return torch.where(x < 0, found - turned, found)


#: Bernoulli's numbers of even index from 2 on
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


@decomposes(aten.polygamma.default)
def _polygamma(n: int, x: Tensor) -> Tensor:
    """The n-th derivative of digamma; below 0 only the first."""
    if n == 0:
        return _digamma(x)
    x = _as_float(x)
    y = torch.where(x < 0, 1 - x, x) if n == 1 else x
    total = torch.zeros_like(y)
    for _ in range(FAR):
        small = y < FAR
        total = torch.where(small, total + math.factorial(n) / y ** (n + 1), total)
        y = torch.where(small, y + 1, y)
    inverse = 1 / y
    terms = [b * math.factorial(2 * k + n - 1) / math.factorial(2 * k) for k, b in enumerate(BERNOULLI, 1)]
    series = inverse * (math.factorial(n) / 2 + inverse * _horner(inverse * inverse, *_first(y, terms, 4)))
    total = total + inverse**n * (math.factorial(n - 1) + series)
    if n > 1:
        return total if n % 2 else -total
    part = x - x.floor()
    turned = math.pi / (math.pi * torch.minimum(part, 1 - part)).sin()
    return torch.where(x < 0, turned * turned - total, total)


#: erfinv(x) / x where w = -log(1 - x^2) is below 5, in powers of w - 2.5, and beyond, in powers of sqrt(w) - 3 (M. Giles)
CENTRAL = (
    1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-06, -3.5233877e-06,
    3.43273939e-07, 2.81022636e-08,
)  # fmt: skip
TAIL = (
    2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844, 0.00134934322, 0.000100950558,
    -0.000200214257,
)  # fmt: skip


@decomposes(aten.erfinv.default)
def _erfinv(x: Tensor) -> Tensor:
    x = _as_float(x)
    w = -((1 - x) * (1 + x)).clamp(min=1e-37).log()
    y = x * torch.where(w < 5, _horner(w - 2.5, *CENTRAL), _horner(w.clamp(min=5).sqrt() - 3, *TAIL))
    if x.dtype == torch.float64:
        for _ in range(2):  # Newton's
            y = y - (y.erf() - x) * (math.sqrt(math.pi) / 2) * (y * y).exp()
    return torch.where(x.abs() < 1, y, torch.where(x.abs() > 1, math.nan, x * math.inf))


@decomposes(aten.angle.default)
def _angle(x: Tensor) -> Tensor:
    half = torch.full_like(_as_float(x), math.pi)
    return torch.where(x < 0, half, 0)


@decomposes(aten.histc.default)
def _histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements are in each of the bins; without limits, from the least to the largest."""
    flat = x.flatten()
    low, high = (torch.tensor(float(end), dtype=x.dtype) for end in (min, max))
    if min == max and flat.numel():
        same = flat.amin() == flat.amax()
        low, high = (torch.where(same, end + by, end) for end, by in ((flat.amin(), -1), (flat.amax(), 1)))
    inside = (flat >= low) & (flat <= high)
    place = ((flat - low) / (high - low) * bins).clamp(0, bins - 1).long()
    return ((place[:, None] == torch.arange(bins)) & inside[:, None]).sum(0).to(x.dtype)


# --- of integers ---


@decomposes(aten.gcd.default)
def _gcd(a: Tensor, b: Tensor) -> Tensor:
    """Euclid's rounds, of which consecutive numbers of Fibonacci need the most: 45 for 32 bits, which integers have."""
    a, b = torch.broadcast_tensors(a, b)
    for _ in range(45):
        a, b = torch.where(b == 0, a, b), torch.where(b == 0, b, torch.remainder(a, torch.where(b == 0, 1, b)))
    return a.abs()


@decomposes(aten.lcm.default)
def _lcm(a: Tensor, b: Tensor) -> Tensor:
    divisor = torch.gcd(a, b)
    return (a * torch.div(b, torch.where(divisor == 0, 1, divisor), rounding_mode="trunc")).abs()
