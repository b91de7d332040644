"""The random generator: known answers, independence of order, uniformity."""

from __future__ import annotations

import numpy as np
import pytest

from mlsdk.errors import GraphError
from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ops import infer, run
from mlsdk.pipeline.ops.random import threefry
from mlsdk.pipeline.ops.table import Operand

# rounds, counter, key -> result: the known answers of the generator's authors
KNOWN = [
    (13, (0, 0), (0, 0), (0x9D1C5EC6, 0x8BD50731)),
    (13, (0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0xFD36D048, 0x2D17272C)),
    (13, (0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xBA3E4725, 0xF27D669E)),
    (20, (0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    (20, (0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
    (20, (0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize("rounds, counter, key, wanted", KNOWN)
def test_known_answers(rounds, counter, key, wanted):
    low, high = (np.array([word], np.uint32) for word in counter)
    first, second = threefry(key, low, high, rounds)
    assert (int(first[0]), int(second[0])) == wanted


def bits(shape, seed=1, call=0, stream=0):
    node = Node("n", "RandomBits", ("s",), ("y",), {"shape": shape, "stream": stream})
    return run(node, [np.array([seed, call], np.int32)])[0]


def test_an_element_depends_on_its_index_only():
    assert np.array_equal(bits((60,)), bits((3, 4, 5)).ravel())
    assert np.array_equal(bits((1000,))[:60], bits((60,)))


def test_seeds_calls_and_streams_are_apart():
    draws = [bits((1000,)), bits((1000,), seed=2), bits((1000,), call=1), bits((1000,), stream=1)]
    for index, one in enumerate(draws):
        assert all(np.mean(one == other) < 0.01 for other in draws[:index])


def test_every_bit_is_fair():
    words = bits((20000,)).view(np.uint32)
    for bit in range(32):
        assert abs(np.mean(words >> np.uint32(bit) & np.uint32(1)) - 0.5) < 0.02


def test_the_state_has_its_type():
    node = Node("n", "RandomBits", ("s",), ("y",), {"shape": (2,)})
    with pytest.raises(GraphError, match="the state is int32"):
        infer(node, [Operand("s", "int64", (2,))])
