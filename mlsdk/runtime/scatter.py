"""The inner loops of packing: they run without the interpreter's lock, beside an execution."""

from __future__ import annotations

import numpy as np
from numba import njit

_kernel = njit(cache=True, nogil=True, boundscheck=False)


@_kernel
def scatter(source: np.ndarray, copies: np.ndarray, rows: np.ndarray, columns: np.ndarray, flat: np.ndarray) -> None:
    """flat[copy + row + column] = source[row, column], for all copies."""
    for copy in copies:
        for r in range(rows.size):
            base = copy + rows[r]
            for c in range(columns.size):
                flat[base + columns[c]] = source[r, c]


@_kernel
def gather(flat: np.ndarray, rows: np.ndarray, columns: np.ndarray, result: np.ndarray) -> None:
    """result[row, column] = flat[row + column]"""
    for r in range(rows.size):
        base = rows[r]
        for c in range(columns.size):
            result[r, c] = flat[base + columns[c]]


@_kernel
def halves(single: np.ndarray, half: np.ndarray) -> None:
    """uint32 bits of singles -> uint16 bits of 1-6-9, as pipeline/ir/bits says it."""
    for i in range(single.size):
        bits = np.int64(single[i])
        sign, exponent, mantissa = bits >> 31 << 15, bits >> 23 & 0xFF, bits & 0x7FFFFF
        kept, rest = mantissa >> 14, mantissa & 0x3FFF
        up = 1 if rest > 0x2000 or (rest == 0x2000 and kept & 1) else 0
        value = 63 * 512 if exponent == 255 else (exponent - 127 + 31) * 512 + kept + up
        if value >= 63 * 512:
            half[i] = sign | 63 * 512
        elif value < 512 or exponent == 0:
            half[i] = 0
        else:
            half[i] = sign | value


@_kernel
def singles(half: np.ndarray, single: np.ndarray) -> None:
    """uint16 bits of 1-6-9 -> uint32 bits of singles, exact."""
    for i in range(half.size):
        bits = np.int64(half[i])
        sign, exponent, mantissa = bits >> 15 << 31, bits >> 9 & 0x3F, bits & 0x1FF
        if exponent == 63:
            single[i] = sign | 0x7F800000
        elif exponent == 0:
            single[i] = sign
        else:
            single[i] = sign | (exponent + (127 - 31)) << 23 | mantissa << 14


@_kernel
def cleaned(single: np.ndarray) -> None:
    """uint32 bits of singles: denormals become zero, NaN infinity, in place."""
    for i in range(single.size):
        exponent = single[i] & 0x7F800000
        if exponent == 0:
            single[i] &= 0x80000000
        elif exponent == 0x7F800000:
            single[i] &= 0xFF800000
