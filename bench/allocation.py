"""Addresses: eleven hard cases of 154 to 454 values in 1 MiB, of the shape that is usual for comparing address planners.

A rectangle of time and memory is cut at random until there are enough pieces, and three in ten are left out. So there is a
packing, while the usual orders of first fit need up to 1.4 times the memory.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from mlsdk.pipeline.schedule.local import Rect, search

COUNTS = (154, 170, 203, 230, 250, 280, 307, 350, 398, 430, 454)
UNIT = 64  # bytes
HEIGHT = (1 << 20) // UNIT
LEFT_OUT = 0.3


def measure(note: Callable[..., None]) -> None:
    search([Rect(0, 1, 2), Rect(1, 2, 2), Rect(0, 0, 1)], 3, [0] * 3)  # compiled before the clock runs
    for number, count in enumerate(COUNTS):
        rects, turns = pieces(number, count)
        started = time.process_time()
        left = search(rects, HEIGHT, [0] * turns).count(None)
        seconds = time.process_time() - started
        note(f"{count} values in 1 MiB: without a place", left, "values", "0")
        note("  time to find it", seconds, "s", "10")
        note("  the best of four orders of first fit needs", greedy(rects), "of it")


def pieces(seed: int, count: int, left_out: float = LEFT_OUT) -> tuple[list[Rect], int]:
    """Values that fit into HEIGHT, and the number of turns."""
    rng, turns = random.Random(seed), 2 * count
    found = [(0, turns, 0, HEIGHT)]  # first and last turn, first and last address
    while len(found) < int(count / (1 - left_out)):
        found.sort(key=lambda p: (-(p[1] - p[0]) * (p[3] - p[2]), p))
        t, u, a, b = found.pop(rng.randrange(min(len(found), max(1, len(found) // 3))))
        across = rng.random() < (0.5 if u - t > 3 and b - a > 3 else u - t <= 3)
        part = rng.uniform(0.2, 0.8)
        if across and b - a > 1:
            cut = a + max(1, min(b - a - 1, round((b - a) * part)))
            found += [(t, u, a, cut), (t, u, cut, b)]
        elif u - t > 1:
            cut = t + max(1, min(u - t - 1, round((u - t) * part)))
            found += [(t, cut, a, b), (cut, u, a, b)]
        else:
            found.append((t, u, a, b))
    rng.shuffle(found)
    return [Rect(t, u - 1, b - a) for t, u, a, b in found[:count]], turns


def greedy(rects: Sequence[Rect]) -> float:
    """Of four orders (by size, time, both, beginning) the least memory, as a part of what is there."""
    orders: tuple[Callable[[Rect], int], ...] = (
        lambda r: -r.size,
        lambda r: r.first - r.last,
        lambda r: -r.size * (r.last - r.first + 1),
        lambda r: r.first,
    )
    return min(_needed(sorted(rects, key=order)) for order in orders) / HEIGHT


def _needed(rects: Sequence[Rect]) -> int:
    placed: list[tuple[Rect, int]] = []
    for r in rects:
        address = 0
        for other, there in sorted(
            ((o, a) for o, a in placed if o.first <= r.last and r.first <= o.last), key=lambda p: p[1]
        ):
            if address + r.size <= there:
                break
            address = max(address, there + other.size)
        placed.append((r, address))
    return max(address + r.size for r, address in placed)
