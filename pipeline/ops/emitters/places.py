"""Where elements lie, as arrays: which element each place of an image holds, and where each element of an image lies.

Both are sums of small tables. The index on an axis is a sum of what each level's position adds to it, and the place of an
element a sum of what its index on each axis adds, so that nothing as large as a tensor has to be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import ADDR, EXTENT, L1B, L2B, MAB, PE, PER_LW, Sub, W

#: the dimensions of arrays over places
ORDER = (L2B, L1B, MAB, PE, ADDR, W)

#: flat elements of the result -> (source number, flat element of that source; -1: the fill)
SourceOf = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Take:
    """A SourceOf: the input seen in `shape`; index i of the result on axis a is index tables[a][i] of it (-1: the fill)."""

    shape: tuple[int, ...]
    tables: tuple[np.ndarray, ...]

    def __call__(self, element: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        flat, rest, step = np.zeros_like(element), element, 1
        outside = np.zeros(element.shape, bool)
        for axis in range(len(self.tables) - 1, -1, -1):
            table = self.tables[axis]
            rest, index = np.divmod(rest, len(table))
            found = table[index]
            if (table < 0).any():
                outside |= found < 0
            flat += found * step
            step *= self.shape[axis]
        flat[outside] = -1
        return np.zeros_like(element), flat


class Holder:
    """The elements that an image's places hold. Where a layout holds copies, those that an upload takes are filled."""

    def __init__(self, image: Image):
        self.image = image
        self.per = PER_LW[image.dtype]
        extent = {**EXTENT, W: self.per}
        terms: dict[str, list[tuple[int, int, Sub]]] = {level: [] for level in ORDER}
        for axis, subs in enumerate(image.layout.axes):
            weight = 1
            for sub in reversed(subs):
                if sub.n > 1:
                    terms[sub.level].append((axis, weight, sub))
                weight *= sub.n
        for copy in [*image.copy_terms(), *([] if image.l2b_spread else [Sub(4, L2B, 2)])]:
            terms[copy.level].append((-1, 0, copy))
        self._terms = {level: sorted(found, key=lambda t: -t[2].stride) for level, found in terms.items()}
        self._levels = {level: self._decode(level, np.arange(extent[level])) for level in ORDER if level != ADDR}

    def _decode(self, level: str, position: np.ndarray) -> tuple[dict[int, np.ndarray], np.ndarray]:
        """What each position adds to the index on each axis, and whether it holds anything."""
        rest = position.copy()
        adds: dict[int, np.ndarray] = {}
        for axis, weight, sub in self._terms[level]:
            digit = np.minimum(rest // sub.stride, sub.n - 1)
            rest -= digit * sub.stride
            if axis >= 0:
                adds[axis] = adds.get(axis, 0) + digit * weight
        return adds, rest == 0

    def indices(self, lo: int, hi: int) -> tuple[list[np.ndarray], np.ndarray]:
        """For the LM addresses [lo, hi): the index on each axis, and which places hold an element; arrays that broadcast to
        [L2B, L1B, MAB, PE, address, element of the long word]."""
        levels = {**self._levels, ADDR: self._decode(ADDR, np.arange(lo, hi))}
        axes = [np.zeros((1,) * 6, np.int64) for _ in self.image.shape]
        good = np.ones((1,) * 6, bool)
        for dim, level in enumerate(ORDER):
            adds, valid = levels[level]
            shape = [1] * 6
            shape[dim] = len(valid)
            good = good & valid.reshape(shape)
            for axis, part in adds.items():
                axes[axis] = axes[axis] + part.reshape(shape)
        for index, size in zip(axes, self.image.shape):
            if index.size and index.max() >= size:
                good = good & (index < size)
        return axes, good

    def elements(self, lo: int, hi: int) -> np.ndarray:
        """The flat element of each place of an address range, or -1."""
        axes, good = self.indices(lo, hi)
        flat = np.zeros((1,) * 6, np.int64)
        step = 1
        for index, size in zip(reversed(axes), reversed(self.image.shape)):
            flat = flat + index * step
            step *= size
        return np.where(good, flat, -1)


class Finder:
    """The place of each element of an image, as (group * LW of a group + LW) * elements of a LW + position in memory."""

    def __init__(self, image: Image):
        self.image = image
        self.per = PER_LW[image.dtype]

    @cached_property
    def tables(self) -> list[np.ndarray] | None:
        """What an index on each axis adds, if sums of it are right."""
        image = self.image
        levels = image._levels(False)
        if not image._additive(levels):
            return None
        tables = [
            np.asarray(image.locate(*(axis[level] for level in (L2B, L1B, MAB, PE, ADDR, W))), np.int64)
            for axis in levels
        ]
        if tables:
            tables[0] = tables[0] + (self.per - 1)
        return tables

    @cached_property
    def whole(self) -> np.ndarray:
        """The place of every element."""
        return self.image.element_index().reshape(-1)

    def places(self, flat: np.ndarray) -> np.ndarray:
        """Of flat elements."""
        tables = self.tables
        if tables is None:
            return self.whole[flat]
        if not tables:
            return np.full(flat.shape, self.per - 1, np.int64)
        found, rest = np.zeros(flat.shape, np.int64), flat
        for table in reversed(tables[1:]):
            rest, index = np.divmod(rest, len(table))
            found += table[index]
        return found + tables[0][rest]


@dataclass(frozen=True)
class Wanted:
    """What the places [L2B, L1B, MAB, PE, address, element] of a tile take: `source` (-1: none), `place` in that source (as
    `Finder` counts), `filled` (what no source gives) and `empty` (what holds no element)."""

    source: np.ndarray
    place: np.ndarray
    filled: np.ndarray
    empty: np.ndarray


def wanted(holder: Holder, finders: Sequence[Finder], source_of: SourceOf, lo: int, hi: int) -> Wanted:
    axes, good = holder.indices(lo, hi)
    shape = (8, 8, 16, 4, hi - lo, holder.per)
    if isinstance(source_of, Take) and len(source_of.tables) == len(axes) and _one_sum(finders):
        return _by_axis(axes, good, finders[0], source_of, shape)
    flat = np.zeros((1,) * 6, np.int64)
    step = 1
    for index, size in zip(reversed(axes), reversed(holder.image.shape)):
        flat = flat + index * step
        step *= size
    good = np.broadcast_to(good, shape)
    flat = np.broadcast_to(flat, shape)[good]
    number, found = source_of(flat)
    place = np.full(found.shape, -1, np.int64)
    for i, finder in enumerate(finders):
        mine = (number == i) & (found >= 0)
        if mine.all():
            place = finder.places(found)
        elif mine.any():
            place[mine] = finder.places(found[mine])
    source = np.full(shape, -1, np.int8)
    source[good] = np.where(found >= 0, number, -1)
    places = np.zeros(shape, np.int64)
    places[good] = place
    return Wanted(source, places, good & (source < 0), ~good)


def _one_sum(finders: Sequence[Finder]) -> bool:
    return len(finders) == 1 and finders[0].tables is not None


def _by_axis(axes: list[np.ndarray], good: np.ndarray, finder: Finder, take: Take, shape: tuple[int, ...]) -> Wanted:
    """Places by tables of the result's own axes, composed with those of the source (seen in `take.shape`)."""
    adds = _seen(finder, take.shape)
    place, inside = np.zeros((1,) * 6, np.int64), np.ones((1,) * 6, bool)
    for index, table, add in zip(axes, take.tables, adds):
        capped = np.minimum(index, max(len(table) - 1, 0))
        found = table[capped]
        if len(table) and table.min() < 0:
            inside = inside & (found >= 0)
        place = place + add[found]
    if not axes:
        place = place + (finder.per - 1)
    good = np.broadcast_to(good, shape)
    inside = np.broadcast_to(inside, shape)
    here = good & inside
    return Wanted(np.where(here, 0, -1).astype(np.int8), np.broadcast_to(place, shape), good & ~inside, ~good)


def _seen(finder: Finder, shape: Sequence[int]) -> list[np.ndarray]:
    """The tables of an image seen with more axes of size 1 in front."""
    tables = list(finder.tables or [])
    missing = len(shape) - len(tables)
    if not tables:
        return [np.full(1, finder.per - 1 if not a else 0, np.int64) for a in range(missing)]
    return [np.zeros(1, np.int64) for _ in range(missing)] + tables
