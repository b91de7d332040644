"""Constant folding."""

from __future__ import annotations

import numpy as np

from mlsdk.errors import GraphError
from mlsdk.pipeline.ir.graph import Graph, Node
from mlsdk.pipeline.ops import run
from mlsdk.pipeline.optimize.rewrite import rebuilt

# A folded constant has at most this many elements, ...
LARGEST = 2**20
# ... and beyond a small size at most this many times the elements that it was made from: a fill stays a node.
SMALL, GROWTH = 1024, 4

# A tensor's shape is known even when its content is not.
SHAPE_ONLY = {"Shape", "Size"}


def fold_constants(graph: Graph) -> Graph:
    """before: y = Op(constants)    after: y is a constant.

    Computed by the operators' reference functions. An output of the graph stays the result of a node: y = Identity(c).
    """
    constants, values = dict(graph.constants), dict(graph.values)
    outputs = set(graph.outputs)
    nodes: list[Node] = []
    for node in graph.nodes:
        results = _folded(graph, node, constants)
        if results is None:
            nodes.append(node)
            continue
        for name, array in zip(node.outputs, results):
            if not name:
                continue
            if name in outputs:
                constants[f"{name}.c"] = array
                values[f"{name}.c"] = type(values[name])(f"{name}.c", values[name].dtype, values[name].shape)
                nodes.append(Node(node.name, "Identity", (f"{name}.c",), (name,), {}, node.source, node.scope))
            else:
                constants[name] = array
    return graph if len(constants) == len(graph.constants) else rebuilt(graph, nodes, values, constants)


def _folded(graph: Graph, node: Node, constants: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """The results of a node that can be computed now, else None."""
    if node.op in ("Identity", "RandomBits") and any(name in graph.outputs for name in node.outputs):
        return None
    if sum(1 for name in node.outputs if name in graph.outputs) and len([name for name in node.outputs if name]) > 1:
        return None
    known = [constants.get(name) if name else None for name in node.inputs]
    if node.op in SHAPE_ONLY:
        value = graph.values[node.inputs[0]]
        known = [np.broadcast_to(np.zeros((), value.dtype), value.shape)]
    elif any(name and array is None for name, array in zip(node.inputs, known)):
        return None
    size = sum(graph.values[name].size for name in node.outputs if name)
    source = max((array.size for array in known if array is not None), default=0)
    if size > LARGEST or size > max(SMALL, GROWTH * source):
        return None
    try:
        results = [np.ascontiguousarray(array).reshape(array.shape) for array in run(node, known)]
    except (GraphError, ValueError, IndexError):
        return None  # it fails in the same way when the program runs
    # The device says what it makes of 0 / 0, in a constant as in what it computes.
    return None if any(array.dtype.kind == "f" and np.isnan(array).any() for array in results) else results
