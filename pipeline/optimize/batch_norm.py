"""Batch normalisation by constants folds into the convolution before it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mlsdk.pipeline.ir.graph import Graph, Node
from mlsdk.pipeline.ops.table import attributes
from mlsdk.pipeline.optimize.rewrite import View, apply


def into_convolution(view: View, node: Node) -> Node | None:
    """before: BatchNormalization(Conv(x, w, b), s, t, m, v)    after: Conv(x, w * f, (b - m) * f + t).

    f = s / sqrt(v + epsilon). Where all but x are constants, and nobody else reads the convolution.
    """
    if node.op != "BatchNormalization" or attributes(node)["training_mode"]:
        return None
    conv = view.made_by(node.inputs[0], "Conv")
    if conv is None or not view.read_once(node.inputs[0]):
        return None
    weight = view.data(conv.inputs[1])
    vectors = [view.data(name) for name in node.inputs[1:]]
    has_bias = len(conv.inputs) > 2 and bool(conv.inputs[2])
    bias = view.data(conv.inputs[2]) if has_bias else np.zeros(1)
    if weight is None or bias is None or any(vector is None for vector in vectors):
        return None
    # in double, rounded once
    scale, shift, mean, variance = (np.asarray(vector, np.float64) for vector in vectors)
    factor = scale / np.sqrt(variance + attributes(node)["epsilon"])
    new_weight = (weight * factor.reshape(-1, *(1,) * (weight.ndim - 1))).astype(weight.dtype)
    new_bias = ((bias - mean) * factor + shift).astype(weight.dtype)
    names = (view.constant(new_weight, conv.inputs[1]), view.constant(new_bias, node.inputs[2]))
    view.consume(conv)
    return replace(conv, inputs=(conv.inputs[0], *names), outputs=node.outputs)


def fold_batch_norm(graph: Graph) -> Graph:
    """The rule of this file, where it fits."""
    return apply(graph, into_convolution)
