"""Numbers as sums of two words of the compute dtype, the second as large as what the first rounds off. At the level of halves
one word is enough: there the second is None."""

from __future__ import annotations

import numpy as np

from mlsdk.pipeline.ops.emitters.formula import HALF, Formula, Op, Value

Pair = tuple[Value, Value | None]


def constant(f: Formula, number: float, rest: float) -> Pair:
    """The number and what a double rounds off it."""
    high = number if f.double else float(np.float32(number))
    return f.number(high), None if f.level == HALF else f.number(number - high + rest)


def times(f: Formula, a: Pair, b: Pair) -> tuple[Op, Op | None]:
    """The product; the product of the second words is left out."""
    high = f.mul(a[0], b[0])
    if f.level == HALF:
        return high, None
    low = f.fma(a[0], b[0], -high)
    if a[1] is not None:
        low = f.fma(a[1], b[0], low)
    if b[1] is not None:
        low = f.fma(a[0], b[1], low)
    return high, low


def plus(f: Formula, a: Pair, b: Pair) -> tuple[Op, Op | None]:
    """The sum of two numbers of any sizes."""
    high = f.add(a[0], b[0])
    if f.level == HALF:
        return high, None
    mine = f.sub(high, b[0])
    low = f.add(f.sub(a[0], mine), f.sub(b[0], f.sub(high, mine)))
    for word in (a[1], b[1]):
        if word is not None:
            low = f.add(low, word)
    return high, low
