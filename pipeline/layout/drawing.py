"""The planner's rule for random bits: Threefry of each element's index, as `ops/random.py` computes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from mlsdk.pipeline.ir.graph import Node

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner

Rule = Callable[["Planner", Node], None]


def random_bits(planner: Planner, node: Node) -> None:
    """The first word of each element's block; key: the state, counter: the element's index and the stream."""
    from mlsdk.pipeline.layout.rules import elementwise

    shape = planner.shape(node.outputs[0])
    index = np.arange(prod(shape), dtype=np.uint32).view(np.int32).reshape(shape)
    counter = planner.new_constant(f"{node.name}.index", index)
    inputs = (counter, *(_word(planner, node, place) for place in (0, 1)))
    elementwise(planner, replace(node, inputs=inputs), "Threefry")


def _word(planner: Planner, node: Node, place: int) -> str:
    """A word of the state, as a number of rank 0."""
    bounds = [planner.new_constant(f"{node.name}.word", np.array([v])) for v in (place, place + 1)]
    word = planner.apply(node, "Slice", (node.inputs[0], *bounds), (1,))
    return planner.apply(node, "Reshape", (word,), ())


RULES: dict[str, Rule] = {"RandomBits": random_bits}
