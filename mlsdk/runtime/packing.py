"""Between arrays and the images of their layouts. The way from element to place is kept for layouts that are used often."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mlsdk.device import spec
from mlsdk.pipeline.ir.bits import from_bits, to_bits
from mlsdk.pipeline.ir.image import BITS, Image
from mlsdk.pipeline.ir.layout import PER_LW

# Ways of at most this many elements, copies included, are kept: 8 bytes each.
KEPT_ELEMENTS = 1 << 18


def pack(image: Image, array: np.ndarray, name: str) -> np.ndarray:
    """uint64[4][group_size]: `array` as it lies in DRAM. InputMismatch when an integer does not fit; `name` is for it."""
    bits = to_bits(array, image.dtype, name)
    ways = _ways_in(image) if array.size <= KEPT_ELEMENTS else None
    if ways is None:
        return image.pack(bits)
    flat = np.zeros(spec.GROUPS * image.group_size * PER_LW[image.dtype], BITS[image.dtype])
    flat[ways] = bits.reshape(bits.shape + (1,) * (ways.ndim - bits.ndim))
    packed = flat.view(np.uint64).reshape(spec.GROUPS, image.group_size)
    if not image.l2b_spread:
        packed[1:] = packed[0]
    return packed


def unpack(image: Image, packed: np.ndarray, dtype: str) -> np.ndarray:
    """The array of `dtype` that lies in uint64[4][group_size]."""
    if packed.shape[1] * packed.shape[0] > KEPT_ELEMENTS:
        return from_bits(image.unpack(packed), image.dtype, dtype)
    flat = np.ascontiguousarray(packed).reshape(-1).view(BITS[image.dtype])
    return from_bits(flat[_ways_out(image)], image.dtype, dtype)


@lru_cache(maxsize=128)
def _ways_in(image: Image) -> np.ndarray | None:
    """For each element and copy its index in the flat image; None when there are too many."""
    copies = int(np.prod([term.n for term in image.copy_terms()], dtype=np.int64))
    if copies * int(np.prod(image.shape, dtype=np.int64)) > KEPT_ELEMENTS:
        return None
    index: np.ndarray = image._offsets(image._levels(True)) + (PER_LW[image.dtype] - 1)
    return index


@lru_cache(maxsize=128)
def _ways_out(image: Image) -> np.ndarray:
    return image.element_index()
