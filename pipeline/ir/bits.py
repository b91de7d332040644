"""Device number formats on the host: from numpy arrays to the bits that lie in DRAM, and back.

half is 1-6-9 (bias 31), single and double are IEEE without denormals and NaN, int is 32 bit two's complement.
Rounding is to nearest even; what is too large becomes infinity, what is too small becomes +0.
"""

from __future__ import annotations

import numpy as np

from mlsdk.errors import InputMismatch

INT_MIN, INT_MAX = -(2**31), 2**31 - 1


def to_bits(array: np.ndarray, device_dtype: str, name: str = "tensor") -> np.ndarray:
    """The bits of `array` in a device dtype: uint16 (half), uint32 (single, int) or uint64 (double), same shape.

    Raises InputMismatch when an integer does not fit 32 bits."""
    array = np.asarray(array)
    if device_dtype == "int":
        if array.dtype == np.bool_ or array.dtype.itemsize < 4:
            return array.astype(np.int32).view(np.uint32)
        if array.size and array.dtype != np.int32:
            low, high = int(array.min()), int(array.max())
            if low < INT_MIN or high > INT_MAX:
                value = low if low < INT_MIN else high
                raise InputMismatch(f"{name} holds {value}; integers on the board have 32 bits, {INT_MIN} to {INT_MAX}")
        return np.ascontiguousarray(array.astype(np.int32)).view(np.uint32)
    if device_dtype == "double":
        return np.ascontiguousarray(array.astype(np.float64)).view(np.uint64)
    single = np.ascontiguousarray(_to_single(array)).view(np.uint32)
    return single if device_dtype == "single" else half_from_single(single)


def _to_single(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return array.astype(np.float32)


def half_from_single(bits: np.ndarray) -> np.ndarray:
    """uint32 single bits -> uint16 bits of 1-6-9, rounded to nearest even."""
    bits = bits.astype(np.uint32)
    sign = bits >> 31 << 15
    exponent = (bits >> 23 & 0xFF).astype(np.int32)
    mantissa = bits & 0x7FFFFF
    kept = mantissa >> 14
    rest = mantissa & 0x3FFF
    up = (rest > 0x2000) | ((rest == 0x2000) & (kept & 1 == 1))
    value = (exponent - 127 + 31) * 512 + kept.astype(np.int32) + up.astype(np.int32)
    value = np.where(exponent == 255, 63 * 512, value)
    infinite = value >= 63 * 512
    zero = (value < 512) | (exponent == 0)
    result = np.where(
        infinite, sign | 63 * 512, np.where(zero, 0, sign | np.clip(value, 0, 63 * 512).astype(np.uint32))
    )
    return result.astype(np.uint16)


def single_from_half(bits: np.ndarray) -> np.ndarray:
    """uint16 bits of 1-6-9 -> float32, exact."""
    bits = bits.astype(np.uint32)
    sign, exponent, mantissa = bits >> 15 << 31, bits >> 9 & 0x3F, bits & 0x1FF
    plain = sign | (exponent + (127 - 31)) << 23 | mantissa << 14
    value = np.where(exponent == 63, sign | 0x7F800000, np.where(exponent == 0, sign, plain))
    return value.astype(np.uint32).view(np.float32)


def from_bits(bits: np.ndarray, device_dtype: str, dtype: str) -> np.ndarray:
    """The numpy array of `dtype` that the bits stand for; exponents of 0 read as zero, all ones as infinity."""
    if device_dtype == "int":
        return bits.view(np.int32).astype(dtype)
    if device_dtype == "half":
        return single_from_half(bits).astype(dtype)
    if device_dtype == "single":
        exponent = bits & 0x7F800000
        clean = np.where(exponent == 0, bits & 0x80000000, np.where(exponent == 0x7F800000, bits & 0xFF800000, bits))
        return clean.astype(np.uint32).view(np.float32).astype(dtype)
    wide = bits & np.uint64(0x7FF << 52)
    doubles = np.where(wide == 0, bits & np.uint64(1 << 63), bits)
    doubles = np.where(wide == np.uint64(0x7FF << 52), bits & np.uint64(0xFFF << 52), doubles)
    with np.errstate(over="ignore", under="ignore"):
        return doubles.view(np.float64).astype(dtype)
