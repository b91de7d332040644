"""Matrix products with a bias and with transposed operands become Gemm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mlsdk.pipeline.ir.graph import FLOATS, Graph, Node
from mlsdk.pipeline.ops.shape import permutation
from mlsdk.pipeline.ops.table import attributes
from mlsdk.pipeline.optimize.rewrite import View, apply


def _flipped(view: View, name: str) -> str | None:
    """x, for the value of Transpose(x) of a matrix."""
    node = view.made_by(name, "Transpose")
    if node is None or len(view.shape(name)) != 2 or permutation(node, 2) != (1, 0):
        return None
    return node.inputs[0]


def transposed_operands(view: View, node: Node) -> Node | None:
    """before: MatMul or Gemm of Transpose(a), Transpose(b)    after: Gemm(a, b) with transA, transB."""
    if node.op not in ("MatMul", "Gemm") or view.values[node.outputs[0]].dtype not in FLOATS:
        return None
    if any(len(view.shape(name)) != 2 for name in node.inputs[:2]):
        return None
    attrs = {**attributes(node)} if node.op == "Gemm" else {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}
    inputs = list(node.inputs)
    for place, key in ((0, "transA"), (1, "transB")):
        source = _flipped(view, inputs[place])
        if source is not None:
            inputs[place] = source
            attrs[key] = 1 - attrs[key]
    if tuple(inputs) == node.inputs:
        return None
    return replace(node, op="Gemm", inputs=tuple(inputs), attrs=attrs)


def bias(view: View, node: Node) -> Node | None:
    """before: Add(MatMul(a, b), c), Add(Gemm(a, b), c)    after: Gemm(a, b, c).

    Where the product is read by nobody else, and c broadcasts to its shape.
    """
    if node.op != "Add" or view.values[node.outputs[0]].dtype not in FLOATS:
        return None
    for place in (0, 1):
        name, other = node.inputs[place], node.inputs[1 - place]
        product = view.made_by(name, "MatMul") or view.made_by(name, "Gemm")
        if product is None or not view.read_once(name) or name == other:
            continue
        if len(product.inputs) > 2 or any(len(view.shape(operand)) != 2 for operand in product.inputs):
            continue
        shape = view.shape(name)
        if view.shape(node.outputs[0]) != shape or len(view.shape(other)) > 2:
            continue
        if np.broadcast_shapes(view.shape(other), shape) != shape:
            continue
        attrs = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0, **product.attrs}
        view.consume(product)
        return replace(
            product, op="Gemm", inputs=(*product.inputs, other), outputs=node.outputs, attrs={**attrs, "beta": 1.0}
        )
    return None


def fuse_gemm(graph: Graph) -> Graph:
    """All rules of this file, each where it fits."""
    return apply(graph, transposed_operands, bias)
