"""LM addresses: values as rectangles of time and grains, beside what each turn writes for itself.

`first_fit` is quick and good enough for most; `search` finds room where it does not.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from mlsdk.pipeline.schedule.canonical import packed


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


#: orders that `search` tries, and after how many it starts from new weights
ATTEMPTS, AFRESH = 60, 30


def search(rects: Sequence[Rect], height: int, taken: Sequence[int], attempts: int = ATTEMPTS) -> list[int | None]:
    """As `first_fit`, but it looks on where that finds no room: for a place for all (`canonical.py`), and else for the attempt
    that leaves the fewest grains without one. Where the values of a turn exceed its free grains, there is nothing to look for.
    """
    best = first_fit(rects, height, taken)
    if None not in best or crowded(rects, height, taken) is not None:
        return best
    room = [height - bits.bit_length() for bits in taken]  # above all that a turn writes for itself
    found = packed([(r.first, r.last) for r in rects], [r.size for r in rects], room)
    if found is not None:
        return [height - address - r.size for address, r in zip(found, rects)]
    return _reordered(rects, height, taken, attempts, best)


def _reordered(
    rects: Sequence[Rect], height: int, taken: Sequence[int], attempts: int, best: list[int | None]
) -> list[int | None]:
    """What found no room is placed earlier in the next attempt, so that those that are hard to place come to stand in front; ties
    are drawn."""
    rng = random.Random(0)
    weight = _weights(rects, rng)
    for attempt in range(1, attempts + 1):
        if None not in best:
            return best
        order = sorted(range(len(rects)), key=lambda i: (-weight[i] * rng.uniform(0.9, 1.1), i))
        found = place_in_order(rects, height, taken, order)
        for i, address in enumerate(found):
            if address is None:
                weight[i] *= 1.5
        if attempt % AFRESH == 0:
            weight = _weights(rects, rng)
        if _left(rects, found) < _left(rects, best):
            best = found
    return best


def crowded(rects: Sequence[Rect], height: int, taken: Sequence[int]) -> int | None:
    """The first turn at which the values need more than there is; None where they might all have a place."""
    used = [bits.bit_count() for bits in taken]
    for r in rects:
        for t in range(r.first, r.last + 1):
            used[t] += r.size
    return next((t for t, grains in enumerate(used) if grains > height), None)


def _weights(rects: Sequence[Rect], rng: random.Random) -> list[float]:
    """By size and time, neither in a fixed proportion."""
    by_size, by_time = rng.uniform(0.8, 1.2), rng.uniform(0.2, 1.2)
    return [r.size**by_size * (r.last - r.first + 1.0) ** by_time for r in rects]


def _left(rects: Sequence[Rect], found: Sequence[int | None]) -> int:
    return sum(r.size for r, address in zip(rects, found) if address is None)
