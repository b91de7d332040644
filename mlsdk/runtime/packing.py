"""Between arrays and the images of their layouts.

Small tensors take a table of places, which is kept; large ones the sum of a place for each row and one for each column.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from mlsdk.device import spec
from mlsdk.pipeline.ir.bits import from_bits, to_bits
from mlsdk.pipeline.ir.image import BITS, Image
from mlsdk.pipeline.ir.layout import PER_LW

# Tables of at most this many places, copies included, are kept: 8 bytes each.
KEPT_PLACES = 1 << 16


def pack(image: Image, array: np.ndarray, name: str, into: np.ndarray | None = None) -> np.ndarray:
    """uint64[4][group_size]: `array` as it lies in DRAM. InputMismatch when an integer does not fit; `name` is for it.

    `into` is an array that held another tensor of the same image: memory that is there already, its padding zero.
    """
    if not array.size:
        return np.zeros((spec.GROUPS, image.group_size), np.uint64)
    bits = _bits(array, image.dtype, name)
    if into is not None:
        flat = into.reshape(-1).view(BITS[image.dtype])
    else:
        flat = np.zeros(spec.GROUPS * image.group_size * PER_LW[image.dtype], BITS[image.dtype])
    if prod(image.shape) * _copies(image) <= KEPT_PLACES:
        places = _places(image)
        flat[places] = bits.reshape(bits.shape + (1,) * (places.ndim - bits.ndim))
    else:
        sums = _sums(image)
        if sums is None:
            return image.pack(bits)
        from mlsdk.runtime.scatter import scatter

        copies, rows, columns = sums
        scatter(np.ascontiguousarray(bits).reshape(rows.size, columns.size), copies, rows, columns, flat)
    packed = flat.view(np.uint64).reshape(spec.GROUPS, image.group_size)
    if not image.l2b_spread:
        packed[1:] = packed[0]
    return packed


def unpack(image: Image, packed: np.ndarray, dtype: str) -> np.ndarray:
    """The array of `dtype` that lies in uint64[4][group_size]."""
    if 0 in image.shape:
        return np.zeros(image.shape, dtype)
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large for a float16 becomes infinity
        return _unpack(image, packed, dtype)


def _unpack(image: Image, packed: np.ndarray, dtype: str) -> np.ndarray:
    flat = np.ascontiguousarray(packed).reshape(-1).view(BITS[image.dtype])
    if prod(image.shape) <= KEPT_PLACES:
        return from_bits(flat[_first_places(image)], image.dtype, dtype)
    sums = _sums(image)
    if sums is None:
        return from_bits(image.unpack(packed), image.dtype, dtype)
    from mlsdk.runtime.scatter import gather

    _, rows, columns = sums
    bits = np.empty((rows.size, columns.size), flat.dtype)
    gather(flat, rows, columns, bits)
    return _array(bits.reshape(-1), image.dtype, dtype).reshape(image.shape)


def _bits(array: np.ndarray, device_dtype: str, name: str) -> np.ndarray:
    """`to_bits`, quicker for large arrays."""
    if device_dtype != "half" or array.size <= KEPT_PLACES:
        return to_bits(array, device_dtype, name)
    from mlsdk.runtime.scatter import halves

    single = to_bits(array, "single", name).reshape(-1)
    half = np.empty(single.size, np.uint16)
    halves(single, half)
    return half.reshape(array.shape)


def _array(bits: np.ndarray, device_dtype: str, dtype: str) -> np.ndarray:
    """`from_bits`, quicker for large arrays; may change `bits`."""
    from mlsdk.runtime.scatter import cleaned, singles

    if device_dtype == "half":
        single = np.empty(bits.size, np.uint32)
        singles(bits, single)
    elif device_dtype == "single":
        single = bits
        cleaned(single)
    else:
        return from_bits(bits, device_dtype, dtype)
    return single.view(np.float32).astype(dtype, copy=False)


def _copies(image: Image) -> int:
    return prod(term.n for term in image.copy_terms())


@lru_cache(maxsize=128)
def _places(image: Image) -> np.ndarray:
    """For each element and copy its index in the flat image."""
    index: np.ndarray = image._offsets(image._levels(True)) + (PER_LW[image.dtype] - 1)
    return index


@lru_cache(maxsize=128)
def _first_places(image: Image) -> np.ndarray:
    return image.element_index()


@lru_cache(maxsize=32)
def _sums(image: Image) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Index of each copy, of each row (all axes but the last) and of each column, whose sum is the index of an element;
    None when they do not add up."""
    levels = image._levels(True)
    if not image.shape or not image._additive(levels):
        return None
    parts = [image._offsets([axis]) for axis in levels]
    rank = len(image.shape)
    rows, copies = np.zeros(1, np.int64), np.full(1, PER_LW[image.dtype] - 1)
    for part in parts[: rank - 1]:
        rows = np.add.outer(rows, part).reshape(-1)
    for part in parts[rank:]:
        copies = np.add.outer(copies, part).reshape(-1)
    return copies - copies[0], rows + copies[0], parts[rank - 1]
