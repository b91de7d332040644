"""An image in DRAM seen as if it were spread over all L1Bs and MABs, so that all PEs share in moving it.

What DRAM holds for an L2B is a row of LW, whatever the layout. A layout in which L1Bs or MABs have copies stores few LW for
an LM address; the same row is also that of a layout with 512 LW for each (`pipeline/ir/image.py`):

    k = 512 a + 64 (m >> 1) + 8 b + 4 (m & 1) + p

So a PE has other elements of halves than of singles. Where both meet, the L1Bs take turns at 16 units (a unit is four elements of
each PE of a MAB: a long word of halves, two of singles), and the quarters of an L1B at those:

    u = 128 (n >> 2) + 16 b + 4 (n & 3) + (m >> 2)                     unit n of a PE
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import PER_LW
from mlsdk.pipeline.ir.scheme import LOCAL, Digit, Scheme
from mlsdk.pipeline.ops.emitters.transfer import Tensor

ADDRESS = 512  # LW of an L2B for one LM address


@dataclass(frozen=True)
class Other(Image):
    """A layout seen otherwise: `group_size`, `l2b_size` and the L2Bs are its own; addresses, L1Bs and MABs are not."""

    @cached_property
    def own(self) -> Image:
        return Image(self.layout, self.dtype, self.shape)

    @cached_property
    def l2b_size(self) -> int:
        return self.own.l2b_size


@dataclass(frozen=True)
class Seen(Other):
    """By all PEs, 512 LW for an address."""

    mab_spread = True
    l1b_spread = True
    lw_per_address = ADDRESS
    granule = 1

    @cached_property
    def addresses(self) -> int:
        """The last one may be there in part."""
        return -(-self.own.l2b_size // ADDRESS)

    @cached_property
    def factor(self) -> int:
        """LM addresses of the layout for one of these."""
        return ADDRESS // self.own.lw_per_address

    def to_own(self, l1b: np.ndarray, mab: np.ndarray, address: np.ndarray) -> tuple[np.ndarray, ...]:
        """L1B, MAB and LM address in the layout; arrays that broadcast."""
        zero = np.zeros((1,) * 6, np.int64)
        if self.own.l1b_spread:
            return l1b, zero, address * 16 + mab
        if self.own.mab_spread:
            return zero, 2 * l1b + (mab & 1), address * 8 + (mab >> 1)
        return zero, zero, address * 128 + (mab >> 1) * 16 + l1b * 2 + (mab & 1)

    def from_own(self, l1b: np.ndarray, mab: np.ndarray, address: np.ndarray) -> tuple[np.ndarray, ...]:
        """And back."""
        if self.own.l1b_spread:
            return l1b, address & 15, address >> 4
        if self.own.mab_spread:
            return mab >> 1, (address & 7) << 1 | mab & 1, address >> 3
        return address >> 1 & 7, (address >> 4 & 7) << 1 | address & 1, address >> 7


@dataclass(frozen=True)
class Quartered(Other):
    """By L1Bs in turn and their quarters: a layout of halves or singles of which all L1Bs and MABs have copies."""

    quartered = True
    mab_spread = False
    l1b_spread = False
    lb_per_address = 16
    lw_per_address = 128

    @property
    def unit_lw(self) -> int:
        return 4 // PER_LW[self.dtype]

    @property
    def granule(self) -> int:
        return 4 * self.unit_lw

    @property
    def addresses(self) -> int:
        """Whole granules, of which DRAM may hold the last in part."""
        return -(-self.l2b_size // (self.granule * self.lw_per_address)) * self.granule

    def to_own(self, l1b: np.ndarray, mab: np.ndarray, address: np.ndarray) -> tuple[np.ndarray, ...]:
        """L1B, MAB and LM address in the layout; arrays that broadcast."""
        zero = np.zeros((1,) * 6, np.int64)
        n = address // self.unit_lw
        unit = 128 * (n >> 2) + 16 * l1b + 4 * (n & 3) + (mab >> 2)
        return zero, zero, unit * self.unit_lw + address % self.unit_lw


def seen(image: Image) -> Image:
    """The image as all PEs see it, if it has enough for them."""
    if (image.mab_spread and image.l1b_spread) or image.l2b_size < ADDRESS:
        return image
    return Seen(image.layout, image.dtype, image.shape)


def factor(image: Image) -> int:
    """LM addresses of the layout for one of the image."""
    return image.factor if isinstance(image, Seen) else 1


#: LM addresses of a tensor from which on it pays to bring its broadcast operands to where each PE wants them
LEAST = 256
#: LW of a PE that such an operand may have, and that may be brought before they repeat
MOST_VALUES, MOST_TURNS = 128, 32


@dataclass(frozen=True, eq=False)
class Turns:
    """An operand that is broadcast, as each PE meets its values: after `units` units of the others the same come again.
    `index[l1b, mab, i]`: which LW of the operand the i-th of these is; `index[l2b, l1b, mab, i]` where L2Bs differ."""

    tensor: Tensor
    units: int
    index: np.ndarray


def shared_out(tensors: Sequence[Tensor]) -> tuple[list[Tensor], dict[int, Turns]]:
    """Operands and, last, result of a formula for each element, seen so that no two PEs do the same; as they are where that is
    not less work.

    It does not matter which element an LW holds, as long as it is the same one in all that are not single numbers. Operands that
    are broadcast along other axes than the lanes are given as `Turns`, too, by their number.
    """
    as_they_are: tuple[list[Tensor], dict[int, Turns]] = (list(tensors), {})
    out = tensors[-1]
    if _is_number(out) or any(t.home is not None for t in tensors):
        return as_they_are
    first, main = out.image, out.scheme
    wide = {i: t for i, t in enumerate(tensors) if not _is_number(t) and t.scheme != main}
    kinds = {PER_LW[t.dtype] for i, t in enumerate(tensors) if not _is_number(t) and i not in wide}
    form = Seen if len(kinds) == 1 else Quartered
    if (first.mab_spread and first.l1b_spread) or not kinds <= {PER_LW["half"], PER_LW["single"]} and len(kinds) > 1:
        return as_they_are
    if form is Quartered and (first.mab_spread or first.l1b_spread or main is None or main.lane is None):
        return as_they_are  # without lanes a unit is one element, a long word of halves and of singles
    image = form(first.layout, first.dtype, first.shape)
    lw = Scheme((), 0).unit_lw(first.dtype)
    units = -(-image.addresses // lw)
    if units * lw >= first.addresses or (wide and first.addresses < LEAST):
        return as_they_are
    turns = {i: turns_of(image, out, t, units) for i, t in wide.items()}
    if any(found is None for found in turns.values()):
        return as_they_are

    def flat(count: int) -> Scheme:
        return Scheme(((Digit(count, LOCAL, 1),),), 0)

    found = [
        t if _is_number(t) else replace(t, image=form(t.image.layout, t.dtype, t.shape), scheme=flat(units))
        for t in tensors
    ]
    for i, each in turns.items():
        assert each is not None
        found[i] = replace(tensors[i], scheme=flat(each.units))
    return found, {i: each for i, each in turns.items() if each is not None}


def turns_of(
    image: Seen | Quartered, out: Tensor, operand: Tensor, units: int, outside: np.ndarray | None = None
) -> Turns | None:
    """How an operand is met; None where it is not one LW of the same lanes for each LW of the result, or too much.
    `outside[l2b, unit]`: units of the result that hold no element: they meet what is behind the operand's LW."""
    main, own = out.scheme, operand.scheme
    assert main is not None and own is not None
    lw, mine = main.unit_lw(out.dtype), own.unit_lw(operand.dtype)
    source = operand.image
    if own.lane is None or main.lane != own.lane + main.rank - own.rank or mine not in (lw, 2 * lw):
        return None
    if lw != mine and lw != 1:
        return None
    if source.l1b_spread or source.mab_spread or source.addresses > MOST_VALUES:
        return None
    l1b, mab = np.arange(8)[:, None, None], np.arange(16)[None, :, None]
    address = np.arange(units * lw)[None, None, :]
    place = np.broadcast_to(image.to_own(l1b, mab, address)[2], (8, 16, units * lw))
    valid = place < image.own.addresses
    place = np.minimum(place, image.own.addresses - 1)
    index = unit_map(main, own)[np.minimum(place // lw, main.units - 1)] * mine
    if outside is not None:
        nothing = outside[:, np.minimum(place // lw, main.units - 1)]
        index = np.where(nothing, own.units * mine, index)
        index = index[0] if (nothing == nothing[0]).all() else index
    if lw == mine:
        index = index + place % lw
    else:  # halves that meet singles: two LW of these for each
        index = np.stack([index, index + 1], -1).reshape(*index.shape[:-1], -1)
        valid = np.repeat(valid, 2, -1)
    for count in range(1, MOST_TURNS // mine + 1):
        turn = count * mine
        if turn >= index.shape[-1]:
            break
        same = (index[..., turn:] == index[..., :-turn]) | ~valid[..., turn:]
        if same.all():
            return Turns(operand, count, index[..., :turn])
    return None


def unit_map(out: Scheme, operand: Scheme) -> np.ndarray:
    """For each unit of a tensor in scheme `out`, the unit of an operand in the restricted scheme `operand`."""
    skip = out.rank - operand.rank
    mine, theirs = out.unit_strides(), operand.unit_strides()
    unit = np.arange(out.units)
    total = np.zeros(out.units, np.int64)
    for axis, digit in out.local:
        stride = theirs.get((axis - skip, digit.stride), 0) if axis >= skip else 0
        total += unit // mine[axis, digit.stride] % digit.n * stride
    return total


def _is_number(tensor: Tensor) -> bool:
    """One element, in all places."""
    image, scheme = tensor.image, tensor.scheme
    assert scheme is not None
    return scheme.units == 1 and scheme.lane is None and not (image.l2b_spread or image.l1b_spread or image.mab_spread)
