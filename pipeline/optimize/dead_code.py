"""Dead code elimination."""

from __future__ import annotations

from dataclasses import replace

from mlsdk.pipeline.ir.graph import Graph, Node
from mlsdk.pipeline.optimize.rewrite import rebuilt

# Operators that compute fewer results when the last ones are not asked for.
OPTIONAL_RESULTS = {"LayerNormalization", "MaxPool"}


def remove_dead_code(graph: Graph) -> Graph:
    """before: a node, or an optional result, that no output depends on    after: without it."""
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if not any(name in needed for name in node.outputs):
            continue
        if node.op in OPTIONAL_RESULTS and node.outputs[-1] not in needed:
            outputs = list(node.outputs)
            while outputs[-1] not in needed:
                outputs.pop()
            node = replace(node, outputs=tuple(outputs))
        kept.append(node)
        needed.update(node.inputs)
    kept.reverse()
    if tuple(kept) == graph.nodes:
        return graph
    return rebuilt(graph, kept, graph.values, graph.constants)
