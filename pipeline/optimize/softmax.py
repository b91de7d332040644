"""A softmax that guards against rows of nothing but -inf is a plain one where there are no such rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mlsdk.pipeline.ir.graph import Graph, Node
from mlsdk.pipeline.ops.table import attributes
from mlsdk.pipeline.optimize.rewrite import View, apply

#: operators whose result is finite where the operand is: by a finite factor that is not zero
_SCALES = ("Mul", "Div")


def guarded(view: View, node: Node) -> Node | None:
    """before: Where(Equal(ReduceMax(x), -inf), 0, Softmax(x))    after: Softmax(x).

    Where x is a product, perhaps with a factor and a constant mask that lets each row see something.
    """
    softmax = view.made_by(node.inputs[2], "Softmax") if node.op == "Where" else None
    if softmax is None or not view.read_once(node.inputs[2]) or not _is(view, node.inputs[1], 0.0):
        return None
    (x,) = softmax.inputs
    equal = view.made_by(node.inputs[0], "Equal")
    peak = view.made_by(equal.inputs[0], "ReduceMax") if equal is not None else None
    if equal is None or peak is None or peak.inputs[0] != x or not _is(view, equal.inputs[1], -np.inf):
        return None
    rank = len(view.shape(x))
    axis = int(attributes(softmax)["axis"]) % rank
    if not attributes(peak).get("keepdims", 1) or view.ints(peak.inputs[1]) not in ([axis], [axis - rank]):
        return None
    if view.type(x) != view.type(node.outputs[0]) or not _sees(view, x, axis - rank):
        return None
    view.consume(softmax)
    return replace(softmax, outputs=node.outputs)


def _is(view: View, name: str, number: float) -> bool:
    data = view.data(name)
    return data is not None and data.size == 1 and float(data.reshape(())) == number


def _sees(view: View, name: str, axis: int) -> bool:
    """Whether each row of a value along an axis, counted from the end, has an element that is not -inf."""
    mask: np.ndarray | None = None  # where the constants on the way are finite
    seen = False  # in another shape: masks there have other axes
    while True:
        made = view.producers.get(name)
        if made is None:
            return False
        if made.op == "MatMul" or (made.op == "Gemm" and len(made.inputs) == 2):
            break
        if made.op == "Reshape":
            name, seen = made.inputs[0], True
            continue
        if made.op not in (*_SCALES, "Add", "Where"):
            return False
        found = _step(view, made)
        if found is None or (seen and found[1] is not None):
            return False
        name, finite = found
        if finite is not None:
            mask = finite if mask is None else mask & finite
    if mask is None:
        return True
    if mask.ndim < -axis or mask.shape[axis] == 1:
        return bool(mask.all())
    return bool(mask.any(axis=axis).all())


def _step(view: View, made: Node) -> tuple[str, np.ndarray | None] | None:
    """The operand of a node that its result has elements of, scaled, and where these are; None: it may have others."""
    if made.op == "Where":
        condition = view.data(made.inputs[0])
        for place, finite in ((1, condition), (2, ~condition if condition is not None else None)):
            if finite is not None and view.data(made.inputs[3 - place]) is not None:
                return made.inputs[place], finite
        return None
    for place in (0, 1):
        data = view.data(made.inputs[place])
        if data is None or (made.op == "Div" and place == 0):
            continue
        if made.op == "Add":
            return (made.inputs[1 - place], np.isfinite(data)) if not np.isnan(data).any() else None
        return (made.inputs[1 - place], None) if (np.isfinite(data) & (data != 0)).all() else None
    return None


def plain_softmax(graph: Graph) -> Graph:
    """All rules of this file, each where it fits."""
    return apply(graph, guarded)
