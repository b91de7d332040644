"""Work along axes of one tensor: which units of it belong to which unit of the reduced result, and which lanes are padding.

A *row* is what reduces to one unit of the result. Units are numbered as in `Scheme`; an *item* is one long word of a unit
(a quad of singles has two).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import ADDR, EXTENT, L1B, L2B, MAB, PE, Layout, Sub, W
from mlsdk.pipeline.ir.scheme import BLOCK, LOCAL, Scheme
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.seen import unit_map
from mlsdk.pipeline.ops.emitters.transfer import Range, Tensor, bulk_download

PES = 4096
FULL = -1  # the pattern of a unit without padding


@dataclass(frozen=True)
class Rows:
    """`tensor` along `axes`; `reduced` is the scheme of the result with those axes of size 1."""

    tensor: Tensor
    axes: tuple[int, ...]

    @property
    def scheme(self) -> Scheme:
        assert self.tensor.scheme is not None
        return self.tensor.scheme

    @cached_property
    def reduced(self) -> Scheme:
        return self.scheme.restrict(
            [1 if a in self.axes else n for a, n in enumerate(self.tensor.shape)], self.tensor.shape
        )

    @property
    def over_lanes(self) -> bool:
        """The lanes themselves are reduced."""
        return self.scheme.lane in self.axes and self.scheme.lane is not None

    @cached_property
    def members(self) -> np.ndarray:
        """[row][position] -> unit; positions in the order of addresses."""
        row = unit_map(self.scheme, self.reduced)
        order = np.argsort(row, kind="stable")
        return order.reshape(self.reduced.units, -1)

    def levels(self) -> set[str]:
        """The spatial levels that the reduced axes use."""
        return {d.level for a in self.axes for d in self.scheme.axes[a] if d.level != LOCAL and d.n > 1}

    # ---- padding ----------------------------------------------------------------------------------------------

    def _leaves_gaps(self, axis: int) -> bool:
        """Whether an axis uses a level without filling it: the other places hold nothing that may be reduced."""
        for level in {d.level for d in self.scheme.axes[axis] if d.level != LOCAL and d.n > 1}:
            if _outside(self.scheme, level, np.arange(EXTENT[level])).any():
                return True
        return False

    @cached_property
    def patterns(self) -> tuple[np.ndarray, np.ndarray]:
        """(pattern of each unit or FULL, patterns[number][PE of the chip][element of the quad] True where it is padding)."""
        shape = self.tensor.shape
        padded = [a for a in self.axes if self.scheme.extents[a] > shape[a] or self._leaves_gaps(a)]
        units = self.scheme.units
        if not padded:
            return np.full(units, FULL), np.zeros((0, PES, 4), bool)
        pe = np.arange(PES)
        place = {L2B: pe >> 9, L1B: pe >> 6 & 7, MAB: pe >> 2 & 15, PE: pe & 3}
        found: dict[bytes, int] = {}
        patterns: list[np.ndarray] = []
        offsets = np.stack([local_index(self.scheme, a) for a in padded], axis=1)
        spatial = [_spatial_index(self.scheme, a, place) for a in padded]
        number = np.full(units, FULL)
        combos, inverse = np.unique(offsets, axis=0, return_inverse=True)
        for index, combo in enumerate(combos):
            invalid = np.zeros((PES, 4), bool)
            for a, start, mine in zip(padded, combo, spatial):
                lanes = np.arange(4) if a == self.scheme.lane else np.zeros(4, np.int64)
                invalid |= start + mine[:, None] + lanes[None, :] >= shape[a]
            if invalid.any():
                key = invalid.tobytes()
                if key not in found:
                    found[key] = len(patterns)
                    patterns.append(invalid)
                number[inverse.reshape(-1) == index] = found[key]
        return number, np.array(patterns).reshape(-1, PES, 4)


def local_index(scheme: Scheme, axis: int) -> np.ndarray:
    """What each unit's address adds to the index on an axis."""
    strides, unit = scheme.unit_strides(), np.arange(scheme.units)
    total = np.zeros(scheme.units, np.int64)
    weight = BLOCK if axis == scheme.lane else 1
    for digit in reversed(scheme.axes[axis]):
        if digit.level == LOCAL and digit.n > 1:
            total += unit // strides[axis, digit.stride] % digit.n * weight
        weight *= digit.n
    return total


def _spatial_index(scheme: Scheme, axis: int, place: dict[str, np.ndarray]) -> np.ndarray:
    """What each PE's place adds to the index on an axis; places that the scheme does not use count as far outside."""
    total = np.zeros(PES, np.int64)
    weight = BLOCK if axis == scheme.lane else 1
    for digit in reversed(scheme.axes[axis]):
        if digit.level != LOCAL and digit.n > 1:
            total += place[digit.level] // digit.stride % digit.n * weight
            total[_outside(scheme, digit.level, place[digit.level])] = 1 << 40
        weight *= digit.n
    if axis == scheme.lane:
        total += 4 * place[PE]
    return total


def _outside(scheme: Scheme, level: str, index: np.ndarray) -> np.ndarray:
    """Where no combination of the level's digits leads."""
    reach = np.zeros(1, np.int64)
    for axis in scheme.axes:
        for d in axis:
            if d.level == level and d.n > 1:
                reach = np.add.outer(reach, np.arange(d.n) * d.stride).reshape(-1)
    for d in scheme.copies:
        if d.level == level and d.n > 1:
            reach = np.add.outer(reach, np.arange(d.n) * d.stride).reshape(-1)
    return ~np.isin(index, reach)


@dataclass(frozen=True)
class Masks:
    """Padding patterns in GRF1 from word `word` on: for pattern n and item a, a long word that is 1 where the lane is
    padding and 0 where it is data."""

    word: int
    items: int
    symbol: str = ""

    def operand(self, patterns: Sequence[int], items: Sequence[int], count: int) -> str:
        """Of four cycles, with the item of each; FULL stands behind the last pattern, nothing (all padding) behind that."""
        words = []
        for p, item in zip(patterns, items):
            number = count if p == FULL else count + 1 if p == NOTHING else p
            words.append(self.word + 2 * (number * self.items + item))
        return vec(m.GRF1, words, 2)


NOTHING = -2  # the pattern of a place that holds no data at all


def mask_table(patterns: np.ndarray, items: int) -> tuple[Image, np.ndarray]:
    """The image and the data of a table of patterns, then one of all data and one of all padding."""
    extra = np.zeros((2, PES, 4), bool)
    extra[1] = True
    every = np.concatenate([patterns, extra]) if len(patterns) else extra
    quads = every.astype(np.uint32)  # [pattern][PE][4]
    if items == 4:
        words = np.repeat(quads[..., None], 2, axis=-1)  # double: one element a long word
    elif items == 2:
        words = quads.reshape(*quads.shape[:2], 2, 2)
    else:
        words = quads[..., :1, None].repeat(2, axis=-1)
    data = words.transpose(1, 0, 2, 3).reshape(PES, -1)  # [PE][pattern, item, word]
    lw = data.shape[1] // 2
    data = data.reshape(*(EXTENT[level] for level in (L2B, L1B, MAB)), EXTENT[PE], -1)
    spatial, copies = [], []
    for axis, level in enumerate((L2B, L1B, MAB)):
        first = data.take([0], axis)
        if (data == first).all():  # one for all of the level
            data = first
            copies.append(Sub(0, level))
        else:
            spatial.append(Sub(EXTENT[level], level))
    layout = Layout(((*spatial, Sub(4, PE), Sub(lw, ADDR), Sub(2, W)),), tuple(copies))
    image = Image(layout, "int", (data.size,))
    return image, image.pack(data.reshape(-1))


def load_masks(
    asm: Asm, patterns: np.ndarray, items: int, symbol: str, word: int, lc: int, lb: int
) -> tuple[Masks, np.ndarray]:
    """Bring a table of patterns to GRF1; gives its data for the constant `symbol`."""
    image, data = mask_table(patterns, items)
    part = Range.of(Tensor(image, symbol), 0, image.addresses)
    bulk_download(asm, part, m.GRF1, word, lc, 8192, lb, 2048)
    return Masks(word, items, symbol), data


def download_units(
    asm: Asm, tensor: Tensor, units: np.ndarray, space: str, word: int, lc: int, lb: int
) -> dict[int, int]:
    """Bring these units (sorted) to `space` from `word` on; gives the word of each."""
    assert tensor.scheme is not None
    lw = tensor.scheme.unit_lw(tensor.dtype)
    cuts = np.flatnonzero(np.diff(units) > max(1, tensor.image.granule // lw)) + 1
    places: dict[int, int] = {}
    at = word
    for run in np.split(units, cuts):
        part = Range.of(tensor, int(run[0]) * lw, (int(run[-1]) + 1) * lw)
        bulk_download(asm, part, space, at, lc, 16384, lb, 4096)
        for unit in run.tolist():
            places[unit] = at + 2 * (unit * lw - part.lo)
        at += 2 * (-(-part.addresses // 8) * 8)
    return places


def units_room(tensor: Tensor, units: np.ndarray) -> int:
    """LW that `download_units` takes."""
    assert tensor.scheme is not None
    lw = tensor.scheme.unit_lw(tensor.dtype)
    cuts = np.flatnonzero(np.diff(units) > max(1, tensor.image.granule // lw)) + 1
    total = 0
    for run in np.split(units, cuts):
        part = Range.of(tensor, int(run[0]) * lw, (int(run[-1]) + 1) * lw)
        total += -(-part.addresses // 8) * 8
    return total
