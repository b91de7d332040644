"""Give values of a graph other names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mlsdk.pipeline.ir.graph import Graph, Value


def renamed_values(graph: Graph, names: Mapping[str, str]) -> Graph:
    """The same graph with values renamed; names that are not in `names` stay."""

    def new(name: str) -> str:
        return names.get(name, name)

    return Graph(
        graph.name,
        tuple(map(new, graph.inputs)),
        tuple(map(new, graph.outputs)),
        tuple(
            replace(node, inputs=tuple(map(new, node.inputs)), outputs=tuple(map(new, node.outputs)))
            for node in graph.nodes
        ),
        {new(name): Value(new(name), value.dtype, value.shape) for name, value in graph.values.items()},
        {new(name): array for name, array in graph.constants.items()},
    )
