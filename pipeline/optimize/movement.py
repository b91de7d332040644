"""Chains of nodes that move elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from mlsdk.pipeline.ir.graph import Graph, Node
from mlsdk.pipeline.ops.shape import permutation
from mlsdk.pipeline.optimize.identities import reshape
from mlsdk.pipeline.optimize.rewrite import View, apply


def reshape_of_reshape(view: View, node: Node) -> Node | None:
    """before: Reshape(Reshape(x, a), b)    after: Reshape(x, b)."""
    inner = view.made_by(node.inputs[0], "Reshape") if node.op == "Reshape" else None
    return None if inner is None else reshape(view, node, inner.inputs[0])


def transpose_of_transpose(view: View, node: Node) -> Node | None:
    """before: Transpose(Transpose(x, p), q)    after: Transpose(x, p then q)."""
    inner = view.made_by(node.inputs[0], "Transpose") if node.op == "Transpose" else None
    if inner is None:
        return None
    rank = len(view.shape(inner.inputs[0]))
    first, second = permutation(inner, rank), permutation(node, rank)
    return replace(node, inputs=inner.inputs, attrs={"perm": tuple(first[axis] for axis in second)})


def expand_of_expand(view: View, node: Node) -> Node | None:
    """before: Expand(Expand(x, a), b)    after: Expand(x, shape of the result)."""
    inner = view.made_by(node.inputs[0], "Expand") if node.op == "Expand" else None
    if inner is None:
        return None
    return replace(node, inputs=(inner.inputs[0], view.list(view.shape(node.outputs[0]))))


def expand_by_reshape(view: View, node: Node) -> Node | None:
    """before: Expand that adds only axes of extent 1    after: Reshape."""
    if node.op != "Expand":
        return None
    before, after = view.values[node.inputs[0]], view.values[node.outputs[0]]
    return reshape(view, node, node.inputs[0]) if before.size == after.size and before.shape != after.shape else None


# Operators that broadcast their operands themselves.
BROADCASTS = {
    "Add", "Sub", "Mul", "Div", "Mod", "Pow", "Min", "Max", "Where", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr",
    "BitwiseXor", "BitShift", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "PRelu", "Atan2",
}  # fmt: skip


def broadcast_operand(view: View, node: Node) -> Node | None:
    """before: Add(Expand(x), y), or a constant with one value everywhere    after: Add(x, y), or a constant of size 1.

    Only where the result's shape stays the same.
    """
    return _with_smaller(view, node, _smaller, 0) if node.op in BROADCASTS else None


def _with_smaller(view: View, node: Node, smaller: Callable[[View, str], str | None], own: int) -> Node | None:
    """The node with the smaller operands that give the same result; the last `own` axes of each do not broadcast."""
    inputs, out = list(node.inputs), view.shape(node.outputs[0])
    if any(len(view.shape(name)) < own for name in inputs):
        return None  # a vector's one axis is in no result

    def broadcasting(name: str) -> tuple[int, ...]:
        return view.shape(name)[: len(view.shape(name)) - own]

    for place, name in enumerate(inputs):
        small = smaller(view, name)
        if small is None:
            continue
        shapes = [broadcasting(other) for index, other in enumerate(inputs) if index != place]
        found = np.broadcast_shapes(broadcasting(small), *shapes)
        if (*found, *out[len(out) - own :]) == out:
            inputs[place] = small
    return replace(node, inputs=tuple(inputs)) if tuple(inputs) != node.inputs else None


def _smaller(view: View, name: str) -> str | None:
    """A value that gives the same elements by broadcasting, else None."""
    expand = view.made_by(name, "Expand")
    if expand is not None:
        return expand.inputs[0]
    data = view.data(name)
    if data is None or data.size < 2:
        return None
    first = data.flat[0]
    if data.dtype.kind == "f" and (first == 0 or first != first):  # -0 and NaN are not what they equal
        same = data.tobytes() == np.full_like(data, first).tobytes()
    else:
        same = bool(np.all(data == first))
    return view.constant(np.asarray(first, data.dtype), name) if same else None


def product_of_copies(view: View, node: Node) -> Node | None:
    """before: MatMul(a, Expand(b)), or a constant with equal matrices    after: MatMul(a, b), which broadcasts b.

    torch copies the matrix of a linear layer for every image when the other operand is transposed or otherwise strided.
    """
    return _with_smaller(view, node, _one_matrix, 2) if node.op == "MatMul" else None


def _one_matrix(view: View, name: str) -> str | None:
    """The matrix of which a batch holds only copies, else None."""
    shape = view.shape(name)
    if len(shape) < 3:
        return None
    reshaped = view.made_by(name, "Reshape")
    if reshaped is not None and view.shape(reshaped.inputs[0])[-2:] == shape[-2:]:
        name = reshaped.inputs[0]
    expand = view.made_by(name, "Expand")
    if expand is not None:
        source = expand.inputs[0]
        inner = view.made_by(source, "Reshape")
        if inner is not None and view.shape(inner.inputs[0]) == shape[-2:]:
            return inner.inputs[0]
        alike = view.shape(source)[-2:] == shape[-2:] and view.values[source].size == shape[-2] * shape[-1]
        return source if alike else None
    data = view.data(name)
    if data is None or data.ndim < 3 or data.size == 0:
        return None
    matrices = data.reshape(-1, *data.shape[-2:])
    first = matrices[0].tobytes()
    return view.constant(matrices[0], name) if all(m.tobytes() == first for m in matrices[1:]) else None


def merge_movement(graph: Graph) -> Graph:
    """All rules of this file, each where it fits."""
    return apply(
        graph,
        reshape_of_reshape,
        transpose_of_transpose,
        expand_of_expand,
        expand_by_reshape,
        broadcast_operand,
        product_of_copies,
    )
