"""Products keep the axes that a Reshape joins for them.

    before: Reshape (2, 65, 256 -> 130, 256); Gemm; Reshape (130, 688 -> 2, 65, 688)
    after:  Gemm of (2, 65, 256) to (2, 65, 688)

torch multiplies matrices, and joins batch and sequence to rows. Where 65 rows are shared out over places of the chip with some
left over, the joined rows lie elsewhere, and each Reshape is a move that takes longer than the product. Where they do not, a
Reshape is a view, and stays. So does what other nodes read, as in a training step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.ir.scheme import choose_lane, spread
from mlsdk.pipeline.ops.table import attributes

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Product:
    """A product whose first axis was several: `operands` that were joined, and their places among the inputs."""

    node: Node
    lead: Shape
    places: tuple[int, ...]


def _moves(lead: Shape, joined: Shape) -> bool:
    """Whether a Reshape that joins axes moves elements."""
    shape = (*lead, *joined[1:])
    scheme = spread(shape, choose_lane(shape)).plain.reshape(shape, joined)
    return scheme is None or bool(scheme.copies)


class Rewriting:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.makers = {name: node for node in graph.nodes for name in node.outputs}
        self.readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in node.inputs:
                self.readers.setdefault(name, []).append(node)

    def shape(self, name: str) -> Shape:
        return self.graph.values[name].shape

    # ---- which ------------------------------------------------------------------------------------------------

    def products(self) -> dict[str, Product]:
        """By name: those of which nothing is needed with joined axes."""
        found = {node.name: product for node in self.graph.nodes if (product := self._product(node)) is not None}
        while True:
            lost = [name for name, product in found.items() if not self._alone(product, found)]
            if not lost:
                return found
            for name in lost:
                del found[name]

    def _alone(self, product: Product, found: dict[str, Product]) -> bool:
        joined = {product.node.inputs[place] for place in product.places}
        return all(r.name in found and r.op != "Reshape" for name in joined for r in self.readers[name])

    def _product(self, node: Node) -> Product | None:
        places = self._places(node)
        leads = {self._lead(node.inputs[place]) for place in places}
        lead = leads.pop() if len(leads) == 1 else None
        if lead is None:
            return None
        out = node.outputs[0]
        readers = self.readers.get(out, [])
        splits = all(r.op == "Reshape" and self.shape(r.outputs[0])[: len(lead)] == lead for r in readers)
        if out in self.graph.outputs or not readers or not splits:
            return None
        shapes = [self.shape(name) for name in (out, *(node.inputs[place] for place in places))]
        return Product(node, lead, places) if any(_moves(lead, shape) for shape in shapes) else None

    def _places(self, node: Node) -> tuple[int, ...]:
        """The operands that share the first axis of the result."""
        if node.op not in ("Gemm", "MatMul"):
            return ()
        ranks = [len(self.shape(name)) for name in node.inputs]
        if node.op == "Gemm":
            bias = self.shape(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else ()
            return (0,) if not attributes(node)["transA"] and (len(bias) < 2 or bias[0] == 1) else ()
        return {(2, 2): (0,), (3, 2): (0,), (3, 3): (0, 1)}.get((ranks[0], ranks[1]), ())

    def _lead(self, name: str) -> Shape | None:
        """The axes that a Reshape joined to the first one."""
        maker = self.makers.get(name)
        if maker is None or maker.op != "Reshape":
            return None
        shape, rows = self.shape(maker.inputs[0]), self.shape(name)[0]
        return next((shape[:n] for n in range(2, len(shape)) if rows and prod(shape[:n]) == rows), None)

    # ---- how --------------------------------------------------------------------------------------------------

    def graph_of(self, found: dict[str, Product]) -> Graph:
        values, constants = dict(self.graph.values), dict(self.graph.constants)
        gone = {self.first_reader(product).name for product in found.values()}
        nodes: list[Node] = []

        def reshape(node: Node, source: str, result: str) -> Node:
            goal = f"{node.name}.wide_shape"
            constants[goal] = np.array(values[result].shape, np.int64)
            values[goal] = Value(goal, "int64", constants[goal].shape)
            return replace(node, inputs=(source, goal), outputs=(result,), attrs={})

        wide: dict[str, str] = {}

        def widened(product: Product) -> Iterator[Node]:
            inputs = list(product.node.inputs)
            for place in product.places:
                name = inputs[place]
                maker = self.makers[name]
                goal = (*product.lead, *self.shape(name)[1:])
                if self.shape(maker.inputs[0]) == goal:
                    wide[name] = maker.inputs[0]
                elif name not in wide:
                    wide[name] = f"{name}.wide"
                    values[wide[name]] = replace(values[name], name=wide[name], shape=goal)
                    yield reshape(replace(maker, name=f"{maker.name}.wide"), maker.inputs[0], wide[name])
                inputs[place] = wide[name]
            out = product.node.outputs[0]
            first, goal = self.first_reader(product), (*product.lead, *self.shape(out)[1:])
            if self.shape(first.outputs[0]) == goal:
                wide[out] = first.outputs[0]
            else:
                wide[out] = f"{out}.wide"
                values[wide[out]] = replace(values[out], name=wide[out], shape=goal)
            yield replace(product.node, inputs=tuple(inputs), outputs=(wide[out],))
            if wide[out] != first.outputs[0]:
                yield reshape(first, wide[out], first.outputs[0])

        for node in self.graph.nodes:
            if node.name in found:
                nodes += widened(found[node.name])
            elif node.name in gone:
                continue
            elif node.op == "Reshape" and node.inputs[0] in wide and self.makers[node.inputs[0]].name in found:
                nodes.append(reshape(node, wide[node.inputs[0]], node.outputs[0]))
            else:
                nodes.append(node)
        return _without_unread(self.graph, nodes, values, constants)

    def first_reader(self, product: Product) -> Node:
        """The Reshape of a product's result whose place the product takes: one that gives its own shape, if there is one."""
        out = product.node.outputs[0]
        goal = (*product.lead, *self.shape(out)[1:])
        readers = self.readers[out]
        return next((r for r in readers if self.shape(r.outputs[0]) == goal), readers[0])


def _without_unread(
    graph: Graph, nodes: list[Node], values: dict[str, Value], constants: dict[str, np.ndarray]
) -> Graph:
    read, kept = set(graph.outputs), []
    for node in reversed(nodes):
        if node.op != "Reshape" or node.outputs[0] in read:
            kept.append(node)
            read |= set(node.inputs)
    named = {*graph.inputs, *(n for n in constants if n in read), *(n for node in kept for n in node.outputs if n)}
    return Graph(
        graph.name,
        graph.inputs,
        graph.outputs,
        tuple(reversed(kept)),
        {name: value for name, value in values.items() if name in named},
        {name: array for name, array in constants.items() if name in read},
    )


def keep_leading_axes(graph: Graph) -> Graph:
    """The graph; the same object where there is no such product."""
    rewriting = Rewriting(graph)
    found = rewriting.products()
    return rewriting.graph_of(found) if found else graph
