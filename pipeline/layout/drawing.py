"""The planner's rule for random bits: Threefry in adds, shifts and exclusive ors, as `ops/random.py` computes it."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ops.random import PARITY, ROTATIONS, ROUNDS
from mlsdk.pipeline.ops.table import attributes

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner

Rule = Callable[["Planner", Node], None]


def random_bits(planner: Planner, node: Node) -> None:
    """The first word of each element's block; key: the state, counter: the element's index and the stream."""
    attrs, shape = attributes(node), planner.shape(node.outputs[0])

    def number(value: int) -> str:
        return planner.new_constant(f"{node.name}.number", np.array(value & 0xFFFFFFFF, np.uint32).view(np.int32))

    def apply(op: str, x: str, y: str, out: str = "", **more: str) -> str:
        full = np.broadcast_shapes(planner.shape(x), planner.shape(y))
        return planner.apply(node, op, (x, y), full, dtype="int32", out=out, **more)

    def turned(x: str, by: int) -> str:
        left = apply("BitShift", x, number(by), direction="LEFT")
        right = apply("BitShift", x, number(32 - by), direction="RIGHT")
        return apply("BitwiseOr", left, apply("BitwiseAnd", right, number((1 << by) - 1)))

    keys = [_word(planner, node, place) for place in (0, 1)]
    keys.append(apply("BitwiseXor", apply("BitwiseXor", keys[0], keys[1]), number(PARITY)))
    index = np.arange(prod(shape), dtype=np.uint32).view(np.int32).reshape(shape)
    x0 = apply("Add", planner.new_constant(f"{node.name}.index", index), keys[0])
    x1 = apply("Add", keys[1], number(int(attrs["stream"])))
    for turn in range(ROUNDS):
        x0 = apply("Add", x0, x1)
        x1 = apply("BitwiseXor", turned(x1, ROTATIONS[turn % 8]), x0)
        if turn % 4 == 3:
            count = turn // 4 + 1
            x0 = apply("Add", x0, keys[count % 3])
            x1 = apply("Add", x1, apply("Add", keys[(count + 1) % 3], number(count)))
    planner.apply(node, "Identity", (x0,), shape, out=node.outputs[0])


def _word(planner: Planner, node: Node, place: int) -> str:
    """A word of the state, as a number of rank 0."""
    bounds = [planner.new_constant(f"{node.name}.word", np.array([v])) for v in (place, place + 1)]
    word = planner.apply(node, "Slice", (node.inputs[0], *bounds), (1,))
    return planner.apply(node, "Reshape", (word,), ())


RULES: dict[str, Rule] = {"RandomBits": random_bits}
