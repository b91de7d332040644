"""Common subexpression elimination."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from mlsdk.pipeline.ir.graph import Graph, Node, attribute_key
from mlsdk.pipeline.optimize.rewrite import identity, rebuilt


def share_equal(graph: Graph) -> Graph:
    """before: a = Op(x, y); b = Op(x, y)    after: a = Op(x, y), and all readers of b read a.

    Equal constants become one. An output of the graph keeps its name: b = Identity(a).
    """
    same: dict[str, str] = {}
    seen_constants: dict[Any, str] = {}
    for name, array in graph.constants.items():
        content = (str(array.dtype), array.shape, hashlib.sha256(array.tobytes()).digest())
        first = seen_constants.setdefault(content, name)
        if first != name and name not in graph.outputs:
            same[name] = first
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
