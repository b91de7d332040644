"""Where elements lie, as arrays: which element each place of an image holds, and which place of a source it takes.

A place is a number whose bits name the levels, so that the place of an element is the sum of what its index on each axis adds:

    element of the long word 2 | PE 2 | MAB 4 | L1B 3 | LM address 24 | L2B 3 | source 8

Most moves choose along (groups of) axes on their own. They are kept as `Link`s: a table for each group, and nothing as large
as a tensor unless all axes are one group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import ADDR, EXTENT, L1B, L2B, MAB, PE, PER_LW, Sub, W
from mlsdk.pipeline.ops.emitters.seen import Seen, seen

#: the dimensions of arrays over places
ORDER = (L2B, L1B, MAB, PE, ADDR, W)
#: the lowest bit of each level in a place, and of the source's number
BIT = {W: 0, PE: 2, MAB: 4, L1B: 8, ADDR: 11, L2B: 35}
SOURCE = 38
LARGEST = 1 << 23  # entries of a table

#: flat elements of the result -> (source number, flat element of that source; -1: the fill)
SourceOf = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Take:
    """The result seen in the shape `seen`, the input in `shape`: index i of the result on axis a is index tables[a][i] of the
    input on axis axes[a] (-1: none of it). Axes of the input that are left out have size 1."""

    seen: tuple[int, ...]
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    tables: tuple[np.ndarray, ...]

    @classmethod
    def along(cls, shape: Sequence[int], tables: Sequence[np.ndarray]) -> Take:
        """Axis by axis; an input of fewer axes has axes of size 1 in front."""
        front = len(tables) - len(shape)
        full = (1,) * front + tuple(shape)
        return cls(tuple(map(len, tables)), full, tuple(range(len(tables))), tuple(tables))

    @classmethod
    def same(cls, shape: Sequence[int]) -> Take:
        """Flat element i of the result is flat element i of the input."""
        return cls.along(tuple(shape), [np.arange(n) for n in shape])

    @classmethod
    def permuted(cls, split: Sequence[int], perm: Sequence[int]) -> Take:
        """The input in the shape `split`, transposed, and flattened."""
        return cls(tuple(split[a] for a in perm), tuple(split), tuple(perm), tuple(np.arange(split[a]) for a in perm))

    def __call__(self, element: np.ndarray) -> np.ndarray:
        """Flat elements of the input; -1 where there is none."""
        flat, rest = np.zeros_like(element), element
        outside = np.zeros(element.shape, bool)
        for n, axis, table in zip(reversed(self.seen), reversed(self.axes), reversed(self.tables)):
            rest, index = np.divmod(rest, n)
            found = table[index]
            outside |= found < 0
            flat += found * prod(self.shape[axis + 1 :])
        flat[outside] = -1
        return flat


#: a Take for each source, where the first that has an element gives it; or any map
Map = Sequence[Take] | SourceOf


def runs_of(a: Sequence[int], b: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Axes of two shapes of one size, in the smallest runs that have equal products."""
    i = j = 0
    while i < len(a) or j < len(b):
        left: list[int] = []
        right: list[int] = []
        x = y = 1
        while not (left and right and x == y):
            if i < len(a) and (x <= y or j == len(b)):
                x *= a[i]
                left.append(i)
                i += 1
            elif j < len(b):
                y *= b[j]
                right.append(j)
                j += 1
            else:
                break
        yield left, right


class Holder:
    """The elements that an image's places hold. Where a layout holds copies, those that an upload takes are filled, or those in
    all L2Bs (`everywhere`)."""

    def __init__(self, image: Image, everywhere: bool = False):
        self.image = image
        self.per = PER_LW[image.dtype]
        extent = {**EXTENT, W: self.per}
        #: (axis, weight of the digit in the axis' index, subaxis); axis -1: copies
        self.terms: dict[str, list[tuple[int, int, Sub]]] = {level: [] for level in ORDER}
        for axis, subs in enumerate(image.layout.axes):
            weight = 1
            for sub in reversed(subs):
                if sub.n > 1:
                    self.terms[sub.level].append((axis, weight, sub))
                weight *= sub.n
        l2bs = [] if image.l2b_spread else [Sub(8, L2B, 1) if everywhere else Sub(4, L2B, 2)]
        if everywhere and image.paired:
            l2bs = [Sub(2, L2B, 1)]
        for copy in [*image.copy_terms(), *l2bs]:
            self.terms[copy.level].append((-1, 0, copy))
        for found in self.terms.values():
            found.sort(key=lambda t: -t[2].stride)
        at = [np.flatnonzero(self._decode(level, np.arange(extent[level]))[1]) for level in ORDER[:4]]
        if isinstance(image, Seen):
            at[1:3] = np.arange(8), np.arange(16)
        #: of each spatial level, the positions that hold anything
        self.held = tuple(at)

    def _decode(self, level: str, position: np.ndarray) -> tuple[dict[int, np.ndarray], np.ndarray]:
        """What each position adds to the index on each axis, and whether it holds anything."""
        rest = position.copy()
        adds: dict[int, np.ndarray] = {}
        for axis, weight, sub in self.terms[level]:
            digit = np.minimum(rest // sub.stride, sub.n - 1)
            rest -= digit * sub.stride
            if axis >= 0:
                adds[axis] = adds.get(axis, 0) + digit * weight
        return adds, rest == 0

    def indices(self, addresses: np.ndarray, at: Sequence[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
        """For LM addresses at some positions of each spatial level: the index on each axis, and which places hold an element;
        arrays that broadcast to [L2B, L1B, MAB, PE, address, element of the long word]."""
        parts = (*at, addresses, np.arange(self.per))
        places = [part.reshape([-1 if d == dim else 1 for d in range(6)]) for dim, part in enumerate(parts)]
        if isinstance(self.image, Seen):
            places[1], places[2], places[4] = self.image.to_own(places[1], places[2], places[4])
        axes = [np.zeros((1,) * 6, np.int64) for _ in self.image.shape]
        good = np.ones((1,) * 6, bool)
        for level, position in zip(ORDER, places):
            adds, valid = self._decode(level, position)
            good = good & valid
            for axis, part in adds.items():
                axes[axis] = axes[axis] + part
        for axis, (index, size) in enumerate(zip(axes, self.image.shape)):
            if index.size and index.max() >= size:
                good = good & (index < size)
                axes[axis] = np.minimum(index, size - 1)
        return axes, good


@dataclass(frozen=True)
class Link:
    """What the index on some axes of the result, counted through, adds to the place in a source (-1: not there)."""

    axes: tuple[int, ...]
    table: np.ndarray
    partial: bool  # whether some are not there


def axis_places(image: Image) -> list[np.ndarray]:
    """What each index on each axis adds to the place of an element."""
    return [
        np.sum([image.layout.digits(axis, level)[:size] << bit for level, bit in BIT.items()], axis=0)
        for axis, size in enumerate(image.shape)
    ]


def _table(parts: Sequence[np.ndarray]) -> np.ndarray:
    total = np.zeros(1, np.int64)
    for part in parts:
        total = np.add.outer(total, part).reshape(-1)
    return total


def _identical(table: np.ndarray, size: int) -> bool:
    return len(table) == size and bool((table == np.arange(size)).all())


def links_of(take: Take, result: Sequence[int], image: Image) -> list[Link] | None:
    """A Take by groups of the result's axes; None where a group is too large for a table."""
    places = axis_places(image)
    above = list(runs_of(result, take.seen))
    below = list(runs_of(take.shape, image.shape))
    whole: list[set[int]] = [{a} for a in range(len(take.seen))]  # seen axes that belong together
    of_source = ([i for i, a in enumerate(take.axes) if a in shown] for shown, _ in below)
    for linked in (*(shown for _, shown in above), *of_source):
        merged = set().union(*(s for s in whole if s & set(linked)))
        whole = [s for s in whole if not s & set(linked)] + ([merged] if merged else [])
    links = []
    for group in whole:
        shown_axes = sorted(group)
        axes = [a for own, shown in above if group & set(shown) for a in own]
        if prod(take.seen[a] for a in shown_axes) > LARGEST:
            return None
        mine = [run for run in below if {take.axes[a] for a in shown_axes} & set(run[0])]
        source = _table([places[a] for _, own in mine for a in own])
        order = [a for shown, _ in mine for a in shown]
        if [take.axes[a] for a in shown_axes] == order and all(
            _identical(take.tables[a], take.shape[b]) for a, b in zip(shown_axes, order)
        ):
            links.append(Link(tuple(axes), source, False))
            continue
        flat, lost = np.zeros((), np.int64), np.zeros((), bool)
        for a in shown_axes:
            step = prod(take.shape[b] for b in order[order.index(take.axes[a]) + 1 :])
            flat = np.add.outer(flat, take.tables[a] * step)
            lost = np.logical_or.outer(lost, take.tables[a] < 0)
        table = np.where(lost, -1, source[np.where(lost, 0, flat)]).reshape(-1)
        links.append(Link(tuple(axes), table, bool(lost.any())))
    return links


class Move:
    """Which place of which source each place of a result takes; images as all PEs see them. `everywhere`: copies in all L2Bs
    are made."""

    def __init__(self, sources: Sequence[Image], result: Image, where: Map, everywhere: bool = False):
        sources, result = [seen(image) for image in sources], seen(result)
        self.holder = Holder(result, everywhere)
        self.sources, self.result, self.where = sources, result, where
        self.links: list[list[Link]] | None = None
        if not callable(where):
            found = [links_of(take, result.shape, image) for take, image in zip(where, sources)]
            if all(links is not None for links in found):
                self.links = found  # type: ignore[assignment]
        self._places = [axis_places(image) for image in sources]
        #: L2B, L1B, MAB and PE of each PE that holds anything
        self.pes = np.stack([a.reshape(-1) for a in np.meshgrid(*self.holder.held, indexing="ij")]).astype(np.int8)

    def at(self, addresses: np.ndarray, at: Sequence[np.ndarray] = ()) -> tuple[np.ndarray, np.ndarray]:
        """For LM addresses of the result, where it holds anything or at some positions of each level: the place that each of
        its places takes (-1: of no source), and which hold an element; [L2B, L1B, MAB, PE, address, element of the LW]."""
        at = at or self.holder.held
        axes, good = self.holder.indices(addresses, at)
        shape = (*map(len, at), len(addresses), self.holder.per)
        if self.links is not None:
            return self._by_links(axes, shape), np.broadcast_to(good, shape)
        flat = np.zeros((1,) * 6, np.int64)
        for index, size in zip(axes, self.result.shape):
            flat = flat * size + index
        flat, good = np.broadcast_to(flat, shape), np.broadcast_to(good, shape)
        found = np.full(shape, -1, np.int64)
        found[good] = self._of_elements(flat[good])
        return found, good

    def _by_links(self, axes: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
        found: np.ndarray | None = None
        assert self.links is not None
        for number, links in enumerate(self.links):
            place = np.full((1,) * 6, number << SOURCE, np.int64)
            lost = np.zeros((1,) * 6, bool)
            for link in links:
                flat = np.zeros((1,) * 6, np.int64)
                for a in link.axes:
                    flat = flat * self.result.shape[a] + axes[a]
                part = link.table[flat]
                if link.partial:
                    lost = lost | (part < 0)
                place = place + part
            place = _seen_place(self.sources[number], place)
            place = np.where(lost, -1, place) if lost.any() else place
            found = place if found is None else np.where(found < 0, place, found)
        return np.broadcast_to(found if found is not None else np.full((1,) * 6, -1), shape)

    def _of_elements(self, flat: np.ndarray) -> np.ndarray:
        """Places that flat elements of the result take."""
        if callable(self.where):
            number, element = self.where(flat)
        else:
            number, element = np.zeros_like(flat), np.full_like(flat, -1)
            for i, take in enumerate(self.where):
                mine = take(flat)
                number = np.where((element < 0) & (mine >= 0), i, number)
                element = np.where(element < 0, mine, element)
        place = np.full(flat.shape, -1, np.int64)
        for i, (image, tables) in enumerate(zip(self.sources, self._places)):
            mine = np.flatnonzero((number == i) & (element >= 0))
            rest, total = element[mine], np.full(len(mine), i << SOURCE, np.int64)
            for n, table in zip(reversed(image.shape), reversed(tables)):
                rest, index = np.divmod(rest, n)
                total += table[index]
            place[mine] = _seen_place(image, total)
        return place


def _seen_place(image: Image, place: np.ndarray) -> np.ndarray:
    """A place of the layout as one of the image."""
    if not isinstance(image, Seen):
        return place
    l1b, mab, address = place >> BIT[L1B] & 7, place >> BIT[MAB] & 15, place >> BIT[ADDR] & 0xFFFFFF
    l1b, mab, address = image.from_own(l1b, mab, address)
    rest = place >> BIT[L2B] << BIT[L2B] | place & (1 << BIT[MAB]) - 1
    return rest | address << BIT[ADDR] | l1b << BIT[L1B] | mab << BIT[MAB]
