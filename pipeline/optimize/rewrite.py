"""What rewrites have in common: look at a graph, change nodes one by one, get a new graph.

A rule is a function `rule(view, node) -> Node | None`. It may return another node with the outputs of the given one,
and may `consume` the producer of one of its inputs when nobody else reads it; then it should give the new node that
producer's name where the producer is the heart of it. No rule invents node names, so that `sources.json` stays valid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from mlsdk.pipeline.ir.graph import Graph, Node, Value

Pass = Callable[[Graph], Graph]


class View:
    """A graph while its nodes are rewritten in order: producers are the rewritten ones."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.values: dict[str, Value] = dict(graph.values)
        self.constants: dict[str, np.ndarray] = dict(graph.constants)
        self.producers: dict[str, Node] = {}
        self.consumed: set[str] = set()
        self.outputs = set(graph.outputs)
        self._small: dict[tuple[str, tuple[int, ...], bytes], str] = {
            (str(array.dtype), array.shape, array.tobytes()): name
            for name, array in graph.constants.items()
            if array.size <= 64
        }

    def type(self, name: str) -> tuple[str, tuple[int, ...]]:
        value = self.values[name]
        return value.dtype, value.shape

    def shape(self, name: str) -> tuple[int, ...]:
        return self.values[name].shape

    def data(self, name: str) -> np.ndarray | None:
        """The data of a constant, else None."""
        return self.constants.get(name) if name else None

    def ints(self, name: str) -> list[int] | None:
        """The data of a constant list of integers, else None."""
        data = self.data(name)
        return None if data is None else [int(item) for item in np.atleast_1d(data)]

    def made_by(self, name: str, op: str) -> Node | None:
        """The node that computes a value, if it is an `op`."""
        node = self.producers.get(name)
        return node if node is not None and node.op == op else None

    def read_once(self, name: str) -> bool:
        """Whether exactly one node of the graph reads a value, and it is no output."""
        return name not in self.outputs and len(self.graph.consumers.get(name, ())) == 1

    def consume(self, node: Node) -> None:
        """Drop a node that the new one replaces; its results must be read by nobody else."""
        self.consumed.add(node.name)

    def constant(self, array: np.ndarray, like: str) -> str:
        """The name of a constant with this data; a new one is named after `like`."""
        array = np.asarray(array)
        key = (str(array.dtype), array.shape, array.tobytes())
        if array.size <= 64 and key in self._small:
            return self._small[key]
        number, name = 0, f"{like}.c"
        while name in self.values:
            number += 1
            name = f"{like}.c{number}"
        self.values[name] = Value(name, str(array.dtype), array.shape)
        self.constants[name] = array
        if array.size <= 64:
            self._small[key] = name
        return name

    def list(self, numbers: list[int] | tuple[int, ...]) -> str:
        """The name of a constant int64 list."""
        return self.constant(np.array(numbers, np.int64), "list")


Rule = Callable[[View, Node], "Node | None"]


def identity(node: Node, name: str) -> Node:
    """`node` as a mere copy of the value `name`."""
    return replace(node, op="Identity", inputs=(name,), attrs={})


def apply(graph: Graph, *rules: Rule) -> Graph:
    """The graph after each node was offered to the rules, the first that fits; the same object if none fits."""
    view = View(graph)
    nodes: list[Node] = []
    changed = False
    for node in graph.nodes:
        for rule in rules:
            new = rule(view, node)
            if new is not None and new != node:
                node, changed = new, True
        nodes.append(node)
        for name in node.outputs:
            view.producers[name] = node
    if not changed:
        return graph
    # a consumed node is gone, unless a later node took over its name
    last = {node.name: index for index, node in enumerate(nodes)}
    original = {node.name: node for node in graph.nodes}
    takes_over = {name for name in view.consumed if nodes[last[name]].outputs != original[name].outputs}
    kept = [
        node
        for index, node in enumerate(nodes)
        if node.name not in view.consumed or (node.name in takes_over and last[node.name] == index)
    ]
    return rebuilt(graph, kept, view.values, view.constants)


def rebuilt(graph: Graph, nodes: list[Node], values: Mapping[str, Value], constants: Mapping[str, np.ndarray]) -> Graph:
    """A graph of these nodes with the inputs and outputs of `graph`, without values and constants that are not used."""
    read = {name for node in nodes for name in node.inputs} | set(graph.outputs)
    kept = {name: array for name, array in constants.items() if name in read}
    named = [*graph.inputs, *kept, *(name for node in nodes for name in node.outputs if name)]
    return Graph(graph.name, graph.inputs, graph.outputs, tuple(nodes), {name: values[name] for name in named}, kept)
