"""An image in DRAM seen as if it were spread over all L1Bs and MABs, so that all PEs share in moving it.

What DRAM holds for an L2B is a row of LW, whatever the layout. A layout in which L1Bs or MABs have copies stores few LW for
an LM address; the same row is also that of a layout with 512 LW for each (`pipeline/ir/image.py`):

    k = 512 a + 64 (m >> 1) + 8 b + 4 (m & 1) + p
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import PER_LW
from mlsdk.pipeline.ir.scheme import LOCAL, Digit, Scheme
from mlsdk.pipeline.ops.emitters.transfer import Tensor

ADDRESS = 512  # LW of an L2B for one LM address


@dataclass(frozen=True)
class Seen(Image):
    """`group_size`, `l2b_size` and the L2Bs are those of the layout; addresses, L1Bs and MABs are not."""

    mab_spread = True
    l1b_spread = True
    lw_per_address = ADDRESS
    granule = 1

    @property
    def own(self) -> Image:
        return Image(self.layout, self.dtype, self.shape)

    @property
    def l2b_size(self) -> int:
        return self.own.l2b_size

    @property
    def addresses(self) -> int:
        """The last one may be there in part."""
        return -(-self.own.l2b_size // ADDRESS)

    @property
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


def seen(image: Image) -> Image:
    """The image as all PEs see it, if it has enough for them."""
    if (image.mab_spread and image.l1b_spread) or image.l2b_size < ADDRESS:
        return image
    return Seen(image.layout, image.dtype, image.shape)


def factor(image: Image) -> int:
    """LM addresses of the layout for one of the image."""
    return image.factor if isinstance(image, Seen) else 1


def shared_out(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Operands and result of a formula for each element, seen so that no two PEs do the same; as they are where that is not
    less work.

    It does not matter which element an LW holds, as long as it is the same one in all that are not single numbers.
    """
    many = [t for t in tensors if not _is_number(t)]
    if not many or any(t.home is not None for t in tensors):
        return list(tensors)
    first = many[0].image
    alike = all(t.scheme == many[0].scheme and PER_LW[t.dtype] == PER_LW[first.dtype] for t in many)
    if not alike or (first.mab_spread and first.l1b_spread):
        return list(tensors)
    image = Seen(first.layout, first.dtype, first.shape)
    lw = Scheme((), 0).unit_lw(first.dtype)
    units = -(-image.addresses // lw)
    if units * lw >= first.addresses:
        return list(tensors)
    scheme = Scheme(((Digit(units, LOCAL, 1),),), 0)
    return [
        t if _is_number(t) else replace(t, image=Seen(t.image.layout, t.dtype, t.shape), scheme=scheme) for t in tensors
    ]


def _is_number(tensor: Tensor) -> bool:
    """One element, in all places."""
    image, scheme = tensor.image, tensor.scheme
    assert scheme is not None
    return scheme.units == 1 and scheme.lane is None and not (image.l2b_spread or image.l1b_spread or image.mab_spread)
