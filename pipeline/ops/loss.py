"""Losses that ONNX defines as operators. Traced programs do not hold them: the tracer writes losses with smaller ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlsdk.pipeline.ir.graph import FLOATS, Node
from mlsdk.pipeline.ops.table import (
    Operator,
    Type,
    accumulating,
    attributes,
    register,
    require,
    require_dtype,
)

Array = np.ndarray
REDUCTIONS = ("none", "mean", "sum")


def _infer(node: Node, inputs: Sequence[Any]) -> Type:
    """The loss's type; scores are [N, C, ...], labels [N, ...], weights [C]."""
    x, labels, weight = inputs
    require_dtype(x, FLOATS)
    require_dtype(labels, ("int32", "int64"))
    require(len(x.shape) >= 2, f"takes scores of at least two axes, got {list(x.shape)}")
    wanted = (x.shape[0], *x.shape[2:])
    require(labels.shape == wanted, f"labels {list(labels.shape)}, the scores need {list(wanted)}")
    require(weight is None or weight.shape == (x.shape[1],), f"the weight is not a vector of {x.shape[1]}")
    reduction = attributes(node)["reduction"]
    require(reduction in REDUCTIONS, f"reduction is {reduction!r}; allowed are {', '.join(REDUCTIONS)}")
    return x.dtype, wanted if reduction == "none" else ()


def _loss(node: Node, scores: Array, labels: Array, weight: Array | None) -> Array:
    """The negative log likelihood of the labels, given log probabilities."""
    attrs = attributes(node)
    wide = accumulating(scores)
    counts = np.ones(labels.shape, bool) if attrs["ignore_index"] is None else labels != attrs["ignore_index"]
    chosen = np.where(counts, labels, 0)
    factor = np.ones(labels.shape, wide.dtype) if weight is None else accumulating(weight)[chosen]
    factor = np.where(counts, factor, 0).astype(wide.dtype)
    picked = np.take_along_axis(wide, np.expand_dims(chosen, 1), 1).squeeze(1)
    losses = np.where(counts, -picked * factor, 0).astype(wide.dtype)
    if attrs["reduction"] == "none":
        return losses
    total = np.sum(losses, dtype=wide.dtype)
    return np.asarray(total / np.sum(factor, dtype=wide.dtype) if attrs["reduction"] == "mean" else total)


def _nll(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, labels, weight = inputs
    return [_loss(node, x, labels, weight).astype(x.dtype)]


def _log_probabilities(x: Array) -> Array:
    wide = accumulating(x)
    low = wide - np.max(wide, axis=1, keepdims=True)
    return low - np.log(np.sum(np.exp(low), axis=1, keepdims=True))


def _cross_entropy_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    return [_infer(node, inputs), (inputs[0].dtype, inputs[0].shape)][: max(len(node.outputs), 1)]


def _cross_entropy(node: Node, inputs: Sequence[Any]) -> list[Array]:
    x, labels, weight = inputs
    log = _log_probabilities(x)
    return [_loss(node, log, labels, weight).astype(x.dtype), log.astype(x.dtype)][: max(len(node.outputs), 1)]


register(
    Operator(
        "NegativeLogLikelihoodLoss",
        lambda node, inputs: [_infer(node, inputs)],
        _nll,
        "Minus the log probability of each label, weighted and reduced.",
        (2, 3),
        {"ignore_index": None, "reduction": "mean"},
        "loss",
    )
)
register(
    Operator(
        "SoftmaxCrossEntropyLoss",
        _cross_entropy_infer,
        _cross_entropy,
        "NegativeLogLikelihoodLoss of LogSoftmax over axis 1; also the log probabilities.",
        (2, 3),
        {"ignore_index": None, "reduction": "mean"},
        "loss",
    )
)
