"""Max pooling that also says where each maximum lies: the maxima once more, tap by tap, with the number of each place."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mlsdk.errors import NotOnBoard
from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.layout.moving import window_slice
from mlsdk.pipeline.ops.convolution import Window

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner


def pool_with_places(planner: Planner, node: Node, window: Window, bordered: str) -> None:
    """Both results of MaxPool. `bordered`: x with its borders of -inf."""
    values, places = node.outputs
    if node.attrs.get("storage_order"):
        raise NotOnBoard("the indices of maxima by columns (storage_order 1) are not computed")
    shape, out = planner.shape(node.inputs[0]), planner.shape(values)
    attrs: dict[str, Any] = dict(node.attrs)
    planner.apply(replace(node, outputs=(values,)), "MaxPool", node.inputs, out, out=values, **attrs)
    found = ""
    for tap in reversed(list(itertools.product(*(range(size) for size in window.kernel)))):  # the first one wins
        starts = [at * apart for at, apart in zip(tap, window.dilations)]
        x = window_slice(planner, node, bordered, starts, out[2:], window.strides)
        here = planner.new_constant(f"{node.name}.places", _numbers(shape, out, window, tap))
        hit = planner.apply(node, "Equal", (x, values), out, dtype="bool")
        found = planner.apply(node, "Where", (hit, here, found or here), out, dtype="int64")
    planner.apply(node, "Identity", (found,), out, out=places)


def _numbers(shape: tuple[int, ...], out: tuple[int, ...], window: Window, tap: tuple[int, ...]) -> np.ndarray:
    """The flat index in x that a tap meets at each place of the result (of no meaning outside x)."""
    numbers = np.zeros((), np.int64)
    for n, count, step, at, apart, before in zip(
        shape[2:], out[2:], window.strides, tap, window.dilations, window.before
    ):
        numbers = np.add.outer(numbers * n, np.arange(count) * step + at * apart - before)
    batch = np.arange(shape[0] * shape[1]).reshape(shape[0], shape[1], *(1,) * (len(shape) - 2))
    return batch * int(np.prod(shape[2:])) + numbers
