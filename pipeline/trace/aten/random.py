"""Random aten operators, on top of counter-based random bits."""

from __future__ import annotations

import math
from typing import Any

from mlsdk.pipeline.ir.graph import Value
from mlsdk.pipeline.trace.aten.table import Row, Type, Unsupported, aten, row, scaled
from mlsdk.pipeline.trace.builder import Builder

# A uniform number has this many random bits: what a single holds exactly.
BITS = 24


def whole(b: Builder, shape: tuple[int, ...]) -> Value:
    """Whole random numbers from 0 to 2^24 - 1 (int32)."""
    return b.op("BitwiseAnd", b.random_bits(shape), b.scalar(2**BITS - 1, "int32"))


def uniform(b: Builder, shape: tuple[int, ...], dtype: str) -> Value:
    """Uniform numbers in [0, 1)."""
    # in single, since 2^24 overflows a half
    wide = "float64" if dtype == "float64" else "float32"
    return b.cast(scaled(b, b.cast(whole(b, shape), wide), 2.0**-BITS), dtype)


def normal(b: Builder, shape: tuple[int, ...], dtype: str) -> Value:
    """Standard normal numbers, by Box and Muller."""
    wide = "float64" if dtype == "float64" else "float32"
    # 1 - u lies in (0, 1], so that its logarithm is finite
    radius = b.op("Sub", b.scalar(1, wide), uniform(b, shape, wide))
    radius = b.op("Sqrt", scaled(b, b.op("Log", radius), -2.0))
    angle = scaled(b, uniform(b, shape, wide), 2 * math.pi)
    return b.cast(b.op("Mul", radius, b.op("Cos", angle)), dtype)


def flips(b: Builder, shape: tuple[int, ...], probability: float) -> Value:
    """True with a probability."""
    return b.op("Less", whole(b, shape), b.scalar(round(probability * 2**BITS), "int32"))


@row(aten.bernoulli.p)
def _bernoulli_p(b: Builder, out: list[Type], x: Value, p: float, **ignored: Any) -> Value:
    return b.cast(flips(b, out[0][1], p), out[0][0])


@row(aten.bernoulli.default)
def _bernoulli(b: Builder, out: list[Type], x: Value, **ignored: Any) -> Value:
    return b.cast(b.op("Less", uniform(b, x.shape, x.dtype), x), out[0][0])


@row(aten.native_dropout.default)
def _native_dropout(b: Builder, out: list[Type], x: Value, p: float, train: bool | None) -> list[Value]:
    if not train or p == 0:
        return [x, b.full(x.shape, True, "bool")]
    keep = flips(b, x.shape, 1 - p)
    factor = 0.0 if p == 1 else 1 / (1 - p)
    return [b.op("Mul", x, scaled(b, b.cast(keep, x.dtype), factor)), keep]


@row(aten.native_dropout_backward.default)
def _native_dropout_backward(b: Builder, out: list[Type], grad: Value, mask: Value, scale: float) -> Value:
    return b.op("Mul", grad, scaled(b, b.cast(mask, grad.dtype), scale))


def _made(draw: Any) -> Row:
    """rand, randn: only the result's dtype and shape matter."""

    def build(b: Builder, out: list[Type], *ignored: Any, **also: Any) -> Value:
        return draw(b, out[0][1], out[0][0])

    return build


_rand = (aten.rand.default, aten.rand.generator, aten.rand_like.default, aten.rand_like.generator)
_randn = (aten.randn.default, aten.randn.generator, aten.randn_like.default, aten.randn_like.generator)
row(*_rand)(_made(uniform))
row(*_randn)(_made(normal))


@row(aten.uniform.default)
def _uniform(b: Builder, out: list[Type], x: Value, low: float = 0, high: float = 1, **ignored: Any) -> Value:
    u = scaled(b, uniform(b, x.shape, x.dtype), high - low)
    return u if low == 0 else b.op("Add", u, b.scalar(low, x.dtype))


@row(aten.normal_functional.default)
def _normal(b: Builder, out: list[Type], x: Value, mean: float = 0, std: float = 1, **ignored: Any) -> Value:
    z = scaled(b, normal(b, x.shape, x.dtype), std)
    return z if mean == 0 else b.op("Add", z, b.scalar(mean, x.dtype))


def integers(b: Builder, out: Type, low: int, high: int) -> Value:
    """Whole numbers from low to high - 1."""
    if not 0 < high - low <= 2**BITS:
        raise Unsupported(f"random integers from {low} to {high}: more than 2^{BITS} values")
    # by multiplication rather than remainder, in double, so that all values come alike
    u = scaled(b, b.cast(whole(b, out[1]), "float64"), (high - low) / 2**BITS)
    return b.cast(b.op("Add", b.op("Floor", u), b.scalar(low, "float64")), out[0])


@row(aten.randint.default, aten.randint.generator)
def _randint(b: Builder, out: list[Type], high: int, *ignored: Any, **also: Any) -> Value:
    return integers(b, out[0], 0, high)


@row(aten.randint.low, aten.randint.low_generator)
def _randint_low(b: Builder, out: list[Type], low: int, high: int, *ignored: Any, **also: Any) -> Value:
    return integers(b, out[0], low, high)


@row(aten.randint_like.default, aten.randint_like.generator)
def _randint_like(b: Builder, out: list[Type], x: Value, high: int, **ignored: Any) -> Value:
    return integers(b, out[0], 0, high)


@row(aten.randint_like.low_dtype, aten.randint_like.low_generator_dtype)
def _randint_like_low(b: Builder, out: list[Type], x: Value, low: int, high: int, **ignored: Any) -> Value:
    return integers(b, out[0], low, high)
