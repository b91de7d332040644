"""How a tensor of a given layout lies in DRAM, and packing it there and back.

The DRAM form of a layout is the order in which the transfer instructions carry it, so that a download or an upload is a
plain copy (`docs/architecture.md`, "Transfers"):

    MAB spread      LB offset o = 64 a + 4 m + p      (l1bmd, 4 addresses a step)
    MAB broadcast   LB offset o =  4 a + p            (l1bmm, 8 addresses a step; upload from MAB 0)
    L1B spread      LC offset k = 64 (o >> 3) + 8 b + (o & 7)      (l2bmd, 32 LW of each L1B a step)
    L1B broadcast   LC offset k = o                   (l2bmb, 64 LW a step; upload from L1B 0)
    L2B spread      DRAM of group g: first L2B 2g, then L2B 2g + 1    (mvp, all groups in parallel)
    L2B paired      the two L2Bs of a group have the same: it stands in DRAM of g once    (mvb2; upload by mvp from L2B 2g)
    L2B broadcast   the same in each of the four groups                                   (mvb2; upload by mvp from L2B 2g)

a = LM address in LW, p = PE, m = MAB, b = L1B. Copies on PE, on W, or on a part of a level are stored as often as they
are held. Addresses are the most significant part, so a range of LM addresses is a range of DRAM.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from mlsdk.device import spec
from mlsdk.pipeline.ir.layout import ADDR, EXTENT, L1B, L2B, MAB, PE, PER_LW, Layout, Sub, W

#: numpy type that holds one element's bits
BITS = {"half": np.uint16, "single": np.uint32, "int": np.uint32, "double": np.uint64}


def _round_up(n: int, unit: int) -> int:
    return -(-n // unit) * unit


@dataclass(frozen=True)
class Image:
    """The DRAM form of a tensor of `shape` with `layout` and device dtype `dtype`."""

    layout: Layout
    dtype: str
    shape: tuple[int, ...]

    #: whether L1Bs take turns at whole lines, and the quarters of an L1B at their units (`emitters/seen.py`)
    quartered = False

    @cached_property
    def mab_spread(self) -> bool:
        return self._spread(MAB)

    @cached_property
    def l1b_spread(self) -> bool:
        return self._spread(L1B)

    @cached_property
    def l2b_spread(self) -> bool:
        return self._spread(L2B)

    def _spread(self, level: str) -> bool:
        if any(s.n > 1 for s in self.layout.subs(level)):
            return True
        return any(s.n not in (0, 1, EXTENT[level]) for s in self.layout.broadcast if s.level == level)

    @cached_property
    def spread(self) -> bool:
        """Every PE holds data of its own."""
        return self.mab_spread and self.l1b_spread and self.l2b_spread

    @cached_property
    def addresses(self) -> int:
        return self.layout.addresses

    @property
    def slices(self) -> int:
        """Time slices: how many times an LM it takes; an operator brings a larger value through it in as many tiles, or more."""
        return -(-self.addresses // (spec.LM_WORDS // 2))

    @cached_property
    def lw_per_address(self) -> int:
        """LW of one L2BM that one LM address takes."""
        return self.lb_per_address * (8 if self.l1b_spread else 1)

    @cached_property
    def lb_per_address(self) -> int:
        """LW of one L1BM that one LM address takes."""
        return 64 if self.mab_spread else 4

    @cached_property
    def granule(self) -> int:
        """LM addresses that one L2BM instruction carries at least; ranges of addresses start and end on it."""
        return max(1, (256 if self.l1b_spread else 64) // self.lw_per_address)

    @cached_property
    def l2b_size(self) -> int:
        """LW of one L2BM for all addresses."""
        return _round_up(self.addresses, self.granule) * self.lw_per_address

    @cached_property
    def paired(self) -> bool:
        """Whether the two L2Bs of each group have the same, but not all groups."""
        return self.l2b_spread and any(s.stride == 1 and s.n % 2 == 0 for s in self.layout.copies(L2B))

    @cached_property
    def l2bs_used(self) -> int:
        """How many of a group's two L2Bs have a part of their own in DRAM."""
        if not self.l2b_spread or self.paired:
            return 1
        odd = any((s.stride % 2 and s.n > 1) for s in self.layout.subs(L2B) + self.layout.copies(L2B))
        return 2 if odd else 1

    @cached_property
    def group_size(self) -> int:
        """LW in each group's DRAM."""
        return self.l2b_size * self.l2bs_used

    @cached_property
    def full(self) -> bool:
        """Whether every place of every LM address holds an element: there is no padding but what ends a granule."""
        held = prod(self.shape) * prod(term.n for term in self.copy_terms())
        places = self.addresses * self.lw_per_address * self.l2bs_used * PER_LW[self.dtype]
        return held == places * (spec.GROUPS if self.l2b_spread else 1)

    # ---- packing ----------------------------------------------------------------------------------------------

    def copy_terms(self) -> list[Sub]:
        """Broadcast terms that are stored as often as they are held."""
        terms = []
        full = {L2B: not self.l2b_spread, L1B: not self.l1b_spread, MAB: not self.mab_spread}
        for level in (L2B, L1B, MAB):
            if not full[level]:
                terms += self.layout.copies(level)
        if self.paired:
            terms = [Sub(t.n // 2, L2B, 2) if (t.level, t.stride) == (L2B, 1) else t for t in terms]
        if not self.layout.subs(PE):
            terms.append(Sub(EXTENT[PE], PE, 1))
        else:
            terms += [s for s in self.layout.copies(PE) if s.n > 1]
        if not self.layout.subs(W):
            terms.append(Sub(PER_LW[self.dtype], W, 1))
        else:
            terms += [s for s in self.layout.copies(W) if s.n > 1]
        return [t for t in terms if t.n > 1]

    def _offsets(self, levels: list[dict[str, np.ndarray]]) -> np.ndarray:
        """Element index in the flat image (group, LW, element) for the outer sum of axes; `levels[i][level]` is a vector."""

        def part(axis: dict[str, np.ndarray]) -> np.ndarray:
            return self.locate(axis[L2B], axis[L1B], axis[MAB], axis[PE], axis[ADDR], axis[W])

        if self._additive(levels):
            total = np.zeros((), np.int64)
            for axis in levels:
                total = np.add.outer(total, part(axis))
            return total
        sums = {}
        for level in (L2B, L1B, MAB, PE, ADDR, W):
            total = np.zeros((), np.int64)
            for axis in levels:
                total = np.add.outer(total, axis[level])
            sums[level] = total
        return part(sums)

    def _additive(self, levels: list[dict[str, np.ndarray]]) -> bool:
        """Whether locate() of a sum is the sum of locate(): no carries between the bits that it takes apart."""

        def odd(level: str) -> int:
            return sum(bool(np.any(axis[level] & 1)) for axis in levels)

        low = odd(MAB) if self.mab_spread else odd(ADDR)
        return low <= 1 and odd(L2B) <= 1

    def locate(self, l2b, l1b, mab, pe, addr, w) -> np.ndarray:
        """Element index in the flat image [group][LW][element of the LW, most significant last in memory]."""
        group, offset = self.locate_lw(l2b, l1b, mab, pe, addr)
        per = PER_LW[self.dtype]
        return (group * self.group_size + offset) * per - np.asarray(w)

    def locate_lw(self, l2b, l1b, mab, pe, addr) -> tuple[np.ndarray, np.ndarray]:
        """(group, LW offset in the group's part) of a long word; group 0 stands for all when L2B is broadcast."""
        o = np.asarray(addr) * 64 + np.asarray(mab) * 4 if self.mab_spread else np.asarray(addr) * 4
        o = o + pe
        k = (o >> 3) * 64 + np.asarray(l1b) * 8 + (o & 7) if self.l1b_spread else o
        if not self.l2b_spread:
            return np.zeros_like(k), k
        l2b = np.asarray(l2b)
        return l2b >> 1, k + (l2b & 1) * self.l2b_size if self.l2bs_used == 2 else k

    def _levels(self, with_copies: bool) -> list[dict[str, np.ndarray]]:
        levels = []
        for axis, size in enumerate(self.shape):
            levels.append({lv: self.layout.digits(axis, lv)[:size] for lv in (L2B, L1B, MAB, PE, ADDR, W)})
        for term in self.copy_terms() if with_copies else []:
            steps = np.arange(term.n) * term.stride
            levels.append(
                {lv: steps if lv == term.level else np.zeros(term.n, np.int64) for lv in (L2B, L1B, MAB, PE, ADDR, W)}
            )
        return levels

    def element_index(self) -> np.ndarray:
        """For each element, its index in the flat image (one of its copies); shape = the tensor's."""
        if 0 in self.shape:
            return np.zeros(self.shape, np.int64)
        per = PER_LW[self.dtype]
        return (self._offsets(self._levels(False)) + (per - 1)).reshape(self.shape)

    def pack(self, bits: np.ndarray) -> np.ndarray:
        """The image as uint64[4][group_size] of a tensor given as bits (BITS[dtype]); padding is zero."""
        per = PER_LW[self.dtype]
        flat = np.zeros(spec.GROUPS * self.group_size * per, BITS[self.dtype])
        if bits.size:
            index = self._offsets(self._levels(True)) + (per - 1)
            flat[index] = bits.reshape(bits.shape + (1,) * (index.ndim - len(self.shape)))
        image = flat.view(np.uint64).reshape(spec.GROUPS, self.group_size)
        if not self.l2b_spread:
            image[1:] = image[0]
        return image

    def unpack(self, image: np.ndarray) -> np.ndarray:
        """The tensor's bits from uint64[4][group_size]."""
        flat = np.ascontiguousarray(image).reshape(-1).view(BITS[self.dtype])
        return flat[self.element_index()]
