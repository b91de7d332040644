"""Bit patterns that make arithmetic fail: every exponent, ties, all-ones mantissas, zeros with mantissas,
infinities, near cancellation."""

from __future__ import annotations

import numpy as np

from mlsdk.device.numerics.formats import DOUBLE, HALF, SINGLE, Format

FORMATS = {16: HALF, 32: SINGLE, 64: DOUBLE}
LANES = 4096


def corners(fmt: Format) -> np.ndarray:
    """Every exponent with mantissas around 0, half and all ones, both signs."""
    m = fmt.mantissa_bits
    mantissas = np.array(
        [0, 1, 2, 3, 31, 32, (1 << m) - 1, (1 << m) - 2, 1 << (m - 1), (1 << (m - 1)) - 1, (1 << (m - 1)) + 1],
        np.uint64,
    )
    exponents = np.arange(1 << fmt.exponent_bits, dtype=np.uint64)
    body = (exponents[:, None] << np.uint64(m) | mantissas[None, :] & np.uint64((1 << m) - 1)).reshape(-1)
    return np.concatenate([body, body | np.uint64(fmt.sign_bit)])


def elements(rng: np.random.Generator, fmt: Format, count: int = LANES, kind: int = 0) -> np.ndarray:
    """kind 0: any bits; 1: corners; 2: numbers near 1; 3: small integers and halves; 4: all of these mixed."""
    top = (1 << fmt.bits) - 1
    if kind == 0:
        return rng.integers(0, top, count, dtype=np.uint64, endpoint=True)
    if kind == 1:
        return rng.choice(corners(fmt), count)
    if kind == 2:
        e = rng.integers(fmt.bias - 3, fmt.bias + 4, count, dtype=np.uint64)
        f = rng.integers(0, 1 << fmt.mantissa_bits, count, dtype=np.uint64)
        few = rng.random(count) < 0.5
        f = np.where(few, f & ~np.uint64((1 << (fmt.mantissa_bits // 2)) - 1), f)
        s = rng.integers(0, 2, count, dtype=np.uint64)
        return s << np.uint64(fmt.bits - 1) | e << np.uint64(fmt.mantissa_bits) | f
    if kind == 3:
        x = (rng.integers(-64, 65, count) / 2.0).astype(np.float64)
        return np.array([_bits(float(v), fmt) for v in x], np.uint64)
    parts = [elements(rng, fmt, count, k) for k in range(4)]
    return np.choose(rng.integers(0, 4, count), parts)


def _bits(x: float, fmt: Format) -> int:
    from fractions import Fraction

    from mlsdk.device.numerics.formats import round_to

    return round_to(Fraction(x), fmt)


def words_of(lw: np.ndarray) -> np.ndarray:
    """uint64 LWs [n][lanes] -> uint32 rows [2n][lanes]."""
    return np.stack([(lw >> np.uint64(32)).astype(np.uint32), lw.astype(np.uint32)], 1).reshape(-1, lw.shape[-1])


def lws_of(rows: np.ndarray) -> np.ndarray:
    return rows[0::2].astype(np.uint64) << np.uint64(32) | rows[1::2].astype(np.uint64)
