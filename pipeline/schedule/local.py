"""LM addresses: values as rectangles of time and grains, beside what each turn writes for itself.

`first_fit` is quick and good enough for most; `search` finds room where it does not: it places the rectangles from the bottom
up, the lowest place first, and comes back to what it placed when one of the others has no place left.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rect:
    """A value in an LM from turn `first` to turn `last`, `size` grains."""

    first: int
    last: int
    size: int


def first_fit(rects: Sequence[Rect], height: int, taken: Sequence[int]) -> list[int | None]:
    """The address of each rectangle, or None where there is no room left. `taken[t]`: grains in use at turn t, a bit each.
    Those that take most come first, each as high as it can: nodes write to the lower end."""
    order = sorted(range(len(rects)), key=lambda i: (-rects[i].size * (rects[i].last - rects[i].first + 1), i))
    return place_in_order(rects, height, taken, order)


def place_in_order(rects: Sequence[Rect], height: int, taken: Sequence[int], order: Sequence[int]) -> list[int | None]:
    """Each rectangle in turn to the highest place that is free for all its time."""
    busy = list(taken)
    found: list[int | None] = [None] * len(rects)
    for i in order:
        r = rects[i]
        used = 0
        for t in range(r.first, r.last + 1):
            used |= busy[t]
        address = _highest(used, height, r.size)
        if address is None:
            continue
        found[i] = address
        bits = ((1 << r.size) - 1) << address
        for t in range(r.first, r.last + 1):
            busy[t] |= bits
    return found


def _highest(used: int, height: int, size: int) -> int | None:
    """The highest address of `size` free grains."""
    if size > height:
        return None
    free = ~used & ((1 << height) - 1)
    have = 1
    while have < size and free:  # bit a stays while a .. a + have - 1 are free
        step = min(have, size - have)
        free &= free >> step
        have += step
    return free.bit_length() - 1 if free else None


#: orders that `search` tries, and places that it gives in the search of each
ATTEMPTS, PLACES = 24, 4000


def search(rects: Sequence[Rect], height: int, taken: Sequence[int]) -> list[int | None]:
    """As `first_fit`, but it looks on where that finds no room; the attempt that leaves the fewest grains without a place.

    Rectangles that found no room come earlier in the next attempt, so that those that are hard to place are placed first."""
    best = first_fit(rects, height, taken)
    weight = [r.size * (r.last - r.first + 1.0) for r in rects]
    rng = random.Random(0)
    for _ in range(ATTEMPTS):
        lost = [i for i, address in enumerate(best) if address is None]
        if not lost:
            return best
        order = sorted(range(len(rects)), key=lambda i: (-weight[i] * rng.uniform(0.8, 1.25), i))
        found = place_in_order(rects, height, taken, order)
        for i, address in enumerate(found):
            if address is None:
                weight[i] *= 2
        if _left(rects, found) < _left(rects, best):
            best = found
    return best


def _left(rects: Sequence[Rect], found: Sequence[int | None]) -> int:
    return sum(r.size for r, address in zip(rects, found) if address is None)
