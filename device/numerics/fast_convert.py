"""Format conversions of whole numpy arrays, for reductions, dumps and the host side."""

from __future__ import annotations

import numpy as np


def halves_to_singles(h: np.ndarray) -> np.ndarray:
    """uint16 bits of 1/6/9 halves -> uint32 bits of singles; zeros keep their sign, infinities stay."""
    h = h.astype(np.uint32)
    e = (h >> 9) & 63
    body = ((h & 0x7FFF) << 14) + (96 << 23)
    body = np.where(e == 0, 0, np.where(e == 63, 0x7F800000, body)).astype(np.uint32)
    return ((h & 0x8000) << 16) | body


def singles_to_halves(u: np.ndarray) -> np.ndarray:
    """uint32 bits of singles -> uint16 bits of halves, nearest even; zeros keep their sign, underflow gives +0."""
    u = u.astype(np.int64)
    sign = (u >> 16) & 0x8000
    e = (u >> 23) & 255
    magnitude = u & 0x7FFFFFFF
    rounded = (magnitude + 0x1FFF + ((magnitude >> 14) & 1)) >> 14
    field = (rounded >> 9) - 96
    value = sign | (field << 9) | (rounded & 511)
    value = np.where(field >= 63, sign | (63 << 9), value)
    value = np.where(field <= 0, 0, value)
    value = np.where(e == 0, sign, np.where(e == 255, sign | (63 << 9), value))
    return value.astype(np.uint16)
