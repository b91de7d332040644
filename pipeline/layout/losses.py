"""The planner's rules for what ONNX has as one operator and the tracer never writes: losses, Hardmax, LpNormalization."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.layout.normalizing import Steps

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner


def _loss(steps: Steps, scores: str, labels: str, weight: str) -> None:
    """The negative log likelihood of the labels, given log probabilities (N, C, ..), as result 0."""
    planner, shape = steps.planner, steps.shape(labels)
    ignored, counts = steps.attrs["ignore_index"], ""
    if ignored is not None:
        one = planner.new_constant(f"{steps.node.name}.ignored", np.array(ignored, planner.value(labels).dtype))
        counts = planner.apply(steps.node, "Equal", (labels, one), shape, dtype="bool")
        zero = planner.new_constant(f"{steps.node.name}.none", np.zeros((), planner.value(labels).dtype))
        labels = steps("Where", counts, zero, labels, dtype_of=labels)
    column = steps.seen(labels, (shape[0], 1, *shape[1:]))
    picked = steps("GatherElements", scores, column, shape=(shape[0], 1, *shape[1:]), axis=1)
    losses = steps("Neg", steps.seen(picked, shape))
    factor = steps("Gather", weight, labels, shape=shape, axis=0) if weight else ""
    if ignored is not None:
        nothing = steps.number(0.0, losses)
        losses = steps("Where", counts, nothing, losses, dtype_of=losses)
        factor = steps("Where", counts, nothing, factor or steps.number(1.0, losses), dtype_of=losses)
    losses = steps("Mul", losses, factor) if factor else losses
    if steps.attrs["reduction"] == "none":
        steps.result(0, losses)
        return
    axes = tuple(range(len(shape)))
    total = steps.reduced("ReduceSum", losses, axes)
    if steps.attrs["reduction"] == "mean":
        count = steps.reduced("ReduceSum", factor, axes) if factor else steps.number(float(prod(shape)), losses)
        total = steps("Div", total, count)
    steps.result(0, total)


def likelihood(planner: Planner, node: Node) -> None:
    steps = Steps(planner, node)
    x, labels, weight = (*node.inputs, "")[:3]
    _loss(steps, steps.wide(x), labels, weight)


def cross_entropy(planner: Planner, node: Node) -> None:
    steps = Steps(planner, node)
    x, labels, weight = (*node.inputs, "")[:3]
    log = steps("LogSoftmax", steps.wide(x), shape=steps.shape(x), axis=1)
    _loss(steps, log, labels, weight)
    steps.result(1, log)


def hardmax(planner: Planner, node: Node) -> None:
    """1 where the place along the axis is that of the first maximum."""
    steps = Steps(planner, node)
    x, shape = node.inputs[0], steps.shape(node.inputs[0])
    axis = int(steps.attrs["axis"]) % len(shape)
    kept = [1 if a == axis else n for a, n in enumerate(shape)]
    best = planner.apply(node, "ArgMax", (x,), kept, dtype="int64", axis=axis, keepdims=1, select_last_index=0)
    places = np.arange(shape[axis]).reshape([n if a == axis else 1 for a, n in enumerate(shape)])
    here = planner.new_constant(f"{node.name}.places", places)
    hit = planner.apply(node, "Equal", (here, best), shape, dtype="bool")
    steps.result(0, steps("Where", hit, steps.number(1.0, x), steps.number(0.0, x), dtype_of=x))


def lp_norm(planner: Planner, node: Node) -> None:
    """x over its norm along the axis; zero where that is zero."""
    steps = Steps(planner, node)
    x = steps.wide(node.inputs[0])
    shape = steps.shape(x)
    axis = int(steps.attrs["axis"]) % len(shape)
    kept = [1 if a == axis else n for a, n in enumerate(shape)]
    if int(steps.attrs["p"]) == 1:
        norm = steps.reduced("ReduceSum", steps("Abs", x), (axis,))
    else:
        norm = steps("Sqrt", steps.reduced("ReduceSum", steps("Mul", x, x), (axis,)))
    zero = planner.apply(node, "Equal", (norm, steps.number(0.0, x)), kept, dtype="bool")
    steps.result(0, steps("Div", x, steps("Where", zero, steps.number(1.0, x), norm, dtype_of=x)))


RULES: dict[str, Callable[[Planner, Node], None]] = {
    "NegativeLogLikelihoodLoss": likelihood,
    "SoftmaxCrossEntropyLoss": cross_entropy,
    "Hardmax": hardmax,
    "LpNormalization": lp_norm,
}
