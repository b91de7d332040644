"""Common subexpression elimination."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mlsdk.pipeline.ir.graph import Graph, Node, attribute_key
from mlsdk.pipeline.optimize.rewrite import identity, rebuilt


def share_equal(graph: Graph) -> Graph:
    """before: a = Op(x, y); b = Op(x, y)    after: a = Op(x, y), and all readers of b read a.

    Equal constants become one. An output of the graph keeps its name: b = Identity(a).
    """
    same = equal_constants(graph)
    seen: dict[Any, Node] = {}
    nodes: list[Node] = []
    outputs = set(graph.outputs)
    for node in graph.nodes:
        node = replace(node, inputs=tuple(same.get(name, name) for name in node.inputs))
        if node.op == "Identity":
            nodes.append(node)
            continue
        key = (node.op, node.inputs, len(node.outputs), tuple((k, attribute_key(v)) for k, v in node.attrs.items()))
        first_node = seen.setdefault(key, node)
        if first_node is node:
            nodes.append(node)
            continue
        shared = dict(zip(node.outputs, first_node.outputs))
        if all(old not in outputs for old in shared) and all(new for old, new in shared.items() if old):
            same.update(shared)
        elif len(shared) == 1:
            nodes.append(identity(node, first_node.outputs[0]))
        else:
            nodes.append(node)
    if not same and tuple(nodes) == graph.nodes:
        return graph
    return rebuilt(graph, nodes, graph.values, graph.constants)


def equal_constants(graph: Graph) -> dict[str, str]:
    """Name of a constant -> the first one with the same bytes; outputs are not among the keys."""
    same: dict[str, str] = {}
    alike: dict[Any, list[str]] = {}
    for name, array in graph.constants.items():
        flat = array.reshape(-1)
        # a few elements tell most large constants apart without reading them whole
        sample = flat[:: max(1, flat.size // 32)].tobytes()
        others = alike.setdefault((str(array.dtype), array.shape, sample), [])
        first = next((other for other in others if _same_bytes(graph.constants[other], array)), None)
        if first is None:
            others.append(name)
        elif name not in graph.outputs:
            same[name] = first
    return same


def _same_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8))
