"""Gathers and scatters through per-PE addresses equal numpy's indexing: the same address everywhere, nearly, or nowhere."""

from __future__ import annotations

import numpy as np
import pytest

from mlsdk.device.numerics.fast import rows as kernels

PES, SIZE, CYCLES = 4096, 64, 4
PE = np.arange(PES)


def addresses_of(kind: str, width: int) -> np.ndarray:
    """int32 [cycle][PE], multiples of the width."""
    rng = np.random.default_rng(width)
    table = np.repeat(rng.integers(0, SIZE // width, (CYCLES, 1)), PES, axis=1)
    if kind == "nearly":
        table[1, PES - 1] ^= 1
        table[2, 0] ^= 1
    elif kind == "different":
        table = rng.integers(0, SIZE // width, (CYCLES, PES))
    return (table * width).astype(np.int32)


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("kind", ["same", "nearly", "different"])
def test_gather(kind, width):
    memory = np.random.default_rng(0).integers(0, 2**32, (SIZE, PES), dtype=np.uint32)
    table = addresses_of(kind, width)
    count = CYCLES * width
    out = np.zeros((count, PES), np.uint32)
    kernels.gather(memory, table, width, out, np.arange(count)[::-1].copy())
    for i in range(count):
        np.testing.assert_array_equal(out[count - 1 - i], memory[table[i // width] + i % width, PE])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("kind", ["same", "nearly", "different"])
def test_scatter(kind, width, masked):
    rng = np.random.default_rng(1)
    memory = rng.integers(0, 2**32, (SIZE, PES), dtype=np.uint32)
    count = CYCLES * width
    values = rng.integers(0, 2**32, (count, PES), dtype=np.uint32)
    nibbles = rng.integers(0, 16, (CYCLES, PES)).astype(np.uint8)
    table = addresses_of(kind, width)
    expected = memory.copy()
    for i in range(count):
        bits = nibbles[i // width].astype(np.uint32)
        guard = np.where(bits & 8, 0xFFFF0000, 0) | np.where(bits & 4, 0xFFFF, 0)  # bits 0 and 1 from the left
        guard = guard.astype(np.uint32) if masked else np.full(PES, 0xFFFFFFFF, np.uint32)
        where = table[i // width] + i % width, PE
        expected[where] = (expected[where] & ~guard) | (values[i] & guard)
    numbers = np.arange(count)
    high, low = np.zeros(count, np.int64), np.ones(count, np.int64)
    kernels.scatter(values, numbers, memory, table, width, nibbles, numbers // width, high, low, masked)
    np.testing.assert_array_equal(memory, expected)
