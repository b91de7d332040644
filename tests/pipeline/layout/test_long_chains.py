"""Nodes that nothing places wait for what reads them; a chain of them is as long as a program makes it."""

from __future__ import annotations

from itertools import pairwise

from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.layout import LayoutOptions, plan
from mlsdk.pipeline.optimize import optimize


def test_a_chain_of_any_length():
    names = [f"v{i}" for i in range(1500)]
    nodes = tuple(Node(f"n_{b}", "Sigmoid" if i % 7 else "Neg", (a,), (b,)) for i, (a, b) in enumerate(pairwise(names)))
    graph = Graph("chain", (names[0],), (names[-1],), nodes, {n: Value(n, "float32", (3, 5)) for n in names})
    placed, _ = plan(optimize(graph), LayoutOptions())
    layouts = {str(placed.values[name].layout) for name in (names[0], names[-1])}
    assert len(layouts) == 1 and placed.outputs == (names[-1],)
