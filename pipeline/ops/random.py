"""Random bits from a counter: the same state gives the same bits on every machine, in any order of computing them.

The generator is Threefry-2x32 with 13 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011):
adds, rotations and exclusive ors of 32-bit words only. The key is the state (seed, number of the call), the counter is
(flat index of the element, stream); the result is the first word. Streams keep the draws of one program apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ops.table import REQUIRED, Operator, Type, attributes, register, require

Array = np.ndarray

ROUNDS = 13
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = 0x1BD11BDA


def threefry(key: Sequence[int], low: Array, high: Array, rounds: int = ROUNDS) -> tuple[Array, Array]:
    """Both result words (uint32) for the counter (low, high), two uint32 arrays of one shape."""
    k0, k1 = (np.uint32(int(word) & 0xFFFFFFFF) for word in key)
    keys = (k0, k1, np.uint32(PARITY) ^ k0 ^ k1)
    with np.errstate(over="ignore"):
        x0, x1 = low + keys[0], high + keys[1]
        for index in range(rounds):
            x0 = x0 + x1
            turn = ROTATIONS[index % 8]
            x1 = (x1 << np.uint32(turn)) | (x1 >> np.uint32(32 - turn))
            x1 = x1 ^ x0
            if index % 4 == 3:
                count = index // 4 + 1
                x0 = x0 + keys[count % 3]
                x1 = x1 + keys[(count + 1) % 3] + np.uint32(count)
    return x0, x1


def _infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    (state,) = inputs
    require(state.dtype == "int32" and state.shape == (2,), "the state is int32[2]: seed, number of the call")
    shape = attributes(node)["shape"]
    require(min(shape, default=0) >= 0, f"shape {list(shape)} has an extent below 0")
    return [("int32", tuple(shape))]


def _reference(node: Node, inputs: Sequence[Any]) -> list[Array]:
    attrs = attributes(node)
    index = np.arange(int(np.prod(attrs["shape"], dtype=np.int64)), dtype=np.uint32).reshape(attrs["shape"])
    word, _ = threefry(inputs[0].tolist(), index, np.full_like(index, attrs["stream"]))
    return [np.asarray(word).view(np.int32)]


register(
    Operator(
        "RandomBits",
        _infer,
        _reference,
        "32 random bits for each element, from the state int32[2] and the element's index.",
        (1, 1),
        {"shape": REQUIRED, "stream": 0},
        "random",
    )
)
