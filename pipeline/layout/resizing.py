"""The planner's rule for Resize: along each axis, elements chosen by a constant table, weighted and added."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.layout.normalizing import Steps
from mlsdk.pipeline.ops.resize import geometry, weights

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner


def resize(planner: Planner, node: Node) -> None:
    _, scales, sizes = (planner.data(name) if name else None for name in (*node.inputs[1:], "", "", "")[:3])
    steps, nearest = Steps(planner, node), node.attrs.get("mode", "nearest") == "nearest"
    x = node.inputs[0] if nearest else steps.wide(node.inputs[0])
    for axis, extent, scale in geometry(node, planner.shape(node.inputs[0]), scales, sizes):
        places, factors = taps(weights(node, planner.shape(x)[axis], extent, scale))
        shape = [extent if a == axis else n for a, n in enumerate(planner.shape(x))]
        along = [extent if a == axis else 1 for a in range(len(shape))]
        total = ""
        for index, weight in zip(places, factors):
            chosen = planner.new_constant(f"{node.name}.places", index)
            part = steps("Gather", x, chosen, shape=shape, axis=axis)
            if not (weight == 1).all():
                values = weight.reshape(along).astype(planner.value(x).dtype)
                part = steps("Mul", part, planner.new_constant(f"{node.name}.weights", values))
            total = steps("Add", total, part) if total else part
        x = total
    steps.result(0, x)


def taps(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A matrix [out, in] of few non-zero weights a row as places [tap, out] and weights [tap, out]."""
    count = max(1, int((matrix != 0).sum(1).max()))
    order = np.argsort(matrix == 0, axis=1, kind="stable")[:, :count]  # the places of weights, in order, come first
    return order.T.copy(), np.take_along_axis(matrix, order, 1).T.copy()


RULES = {"Resize": resize}
