"""Along which LM addresses of the result a move repeats itself, with everything shifted in DRAM.

A digit of the address, or a part of one, is such a repetition when from each of its values to the next all places of a source
move by the same number of LM addresses inside their group's DRAM. The move is then emitted for its first value, in a loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import ADDR, L2B
from mlsdk.pipeline.ops.emitters.places import BIT, Link, Move
from mlsdk.pipeline.ops.emitters.seen import ADDRESS, factor

LEAST = 64  # LM addresses that one turn of all loops has at least
SAMPLE = 64  # entries of a table that are looked at first
MOST = 3  # loops
PADDING = -2


@dataclass(frozen=True)
class Repeat:
    """`addresses`: LM addresses of the result from one turn to the next; `shifts`: LW of DRAM of each source."""

    count: int
    addresses: int
    shifts: tuple[int, ...]


@dataclass(frozen=True)
class _Digit:
    """Part of the address: `n` values `stride` apart, each worth `weight` of the index on an axis."""

    axis: int
    weight: int
    n: int
    stride: int


def repeats(move: Move, clean: bool) -> tuple[np.ndarray, list[Repeat]]:
    """The LM addresses to emit, and the loops around them, outermost first. `clean`: padding of the result matters."""
    each = factor(move.result)
    span, grain = move.result.layout.addresses, move.result.granule * each
    digits = [_Digit(axis, weight, sub.n, sub.stride) for axis, weight, sub in move.holder.terms[ADDR]]
    found: list[Repeat] = []
    sizes = int(np.prod([d.n for d in digits]))
    if move.links is not None and sizes == span and all(d.axis >= 0 for d in digits):
        while len(found) < MOST and sizes > LEAST * each:
            best = max(_candidates(move, digits, sizes // each, grain, clean), key=lambda c: c[2].count, default=None)
            if best is None:
                break
            digit, parts, repeat = best
            digits = [p for d in digits for p in (parts if d is digit else (d,))]
            sizes //= repeat.count
            found.append(repeat)
    if not found:
        return np.arange(move.result.addresses), []
    addresses = np.zeros(1, np.int64)
    for d in digits:
        addresses = np.add.outer(addresses, np.arange(d.n) * d.stride).reshape(-1)
    return np.unique(addresses // each), sorted(found, key=lambda r: r.count)


def _candidates(
    move: Move, digits: Sequence[_Digit], sizes: int, grain: int, clean: bool
) -> Iterator[tuple[_Digit, list[_Digit], Repeat]]:
    """Parts of digits that repeat, what is left of the digit, and the repetition."""
    for digit in digits:
        for low in _divisors(digit.n):
            if low * digit.stride % grain:
                continue
            for count in reversed(_divisors(digit.n // low)):
                if count == 1 or sizes // count < LEAST:
                    continue
                shifts = _shifts(move, digit, low, count, clean)
                if shifts is not None:
                    high = digit.n // low // count
                    parts = [
                        replace(digit, n=high, weight=digit.weight * low * count, stride=digit.stride * low * count),
                        replace(digit, n=low),
                    ]
                    yield (
                        digit,
                        [p for p in parts if p.n > 1],
                        Repeat(count, low * digit.stride // factor(move.result), shifts),
                    )
                    break


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _shifts(move: Move, digit: _Digit, low: int, count: int, clean: bool) -> tuple[int, ...] | None:
    """LW of each source between neighbouring values of a part of a digit; None unless it repeats."""
    assert move.links is not None
    result = []
    for image, links in zip(move.sources, move.links):
        mine = next((link for link in links if digit.axis in link.axes), None)
        if mine is None:
            return None
        shown = _shown(move, mine, digit, low, count)
        step = _step(shown, clean)
        shift = None if step is None else _lines(image, step)
        if shift is None and step == 1 << BIT[L2B] and count == 2 and image.l2bs_used == 2:
            first = [shown[:, 0], *(other.table for other in links if other is not mine)]
            if all((t[t >= 0] >> BIT[L2B] & 1 == 0).all() for t in first):
                shift = image.l2b_size
        if shift is None:
            return None
        result.append(shift)
    return tuple(result) if any(result) else None


def _shown(move: Move, link: Link, digit: _Digit, low: int, count: int) -> np.ndarray:
    """A link's table as [places, part of the digit, places]."""
    sizes = [move.result.shape[a] for a in link.axes]
    extent = move.result.layout.extents[digit.axis]
    position = link.axes.index(digit.axis)
    before, own = int(np.prod(sizes[:position])), sizes[position]
    table = link.table.reshape(before, own, -1)
    if extent > own:
        table = np.concatenate([table, np.full((before, extent - own, table.shape[2]), PADDING, np.int64)], axis=1)
    return table.reshape(-1, count, low * digit.weight * table.shape[2])


def _step(table: np.ndarray, clean: bool) -> int | None:
    """What each value along the middle adds, if it is the same everywhere; places that hold nothing may be anything."""
    for part in (table[:SAMPLE, :, :SAMPLE], table):
        first, rest = part[:, :1], part[:, 1:]
        here = rest >= 0
        same = (here == (first >= 0)) | ((rest == PADDING) & (not clean))
        if not same.all():
            return None
        steps = (rest - part[:, :-1])[here]
        if len(steps) and (steps != steps[0]).any():
            return None
    return int(steps[0]) if len(steps) else 0


def _lines(image: Image, step: int) -> int | None:
    """A step of places as a shift in DRAM; None unless it is one of whole LM addresses at one L2B."""
    if step % (1 << BIT[ADDR]) == 0 and abs(step) < 1 << BIT[L2B] - 1:
        lw = (step >> BIT[ADDR]) * image.lw_per_address // factor(image)
        return None if lw % ADDRESS else lw
    return None
