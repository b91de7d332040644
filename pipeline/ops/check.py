"""Check a graph against the operators' rules, and complete one that lacks dtypes and shapes."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import numpy as np

from mlsdk.errors import GraphError, UnknownOperator
from mlsdk.pipeline.ir.graph import Graph, Node, Value, type_text
from mlsdk.pipeline.ir.onnx_io import read_parts
from mlsdk.pipeline.ops import OPERATORS, Operand, infer
from mlsdk.pipeline.ops.table import operand


def check(graph: Graph, only: Sequence[Node] | None = None) -> Graph:
    """The graph, if each node obeys its operator's rule and gives the dtypes and shapes that the graph declares.

    `only` restricts the check to these nodes of it.
    Raises UnknownOperator with all unknown operators at once, or GraphError for the first node that breaks its rule.
    """
    known_operators(graph)
    for node in graph.nodes if only is None else only:
        inferred = infer(node, [operand(graph, name) for name in node.inputs])
        if len(inferred) < len(node.outputs):
            count = f"{len(node.outputs)} outputs, its operator {len(inferred)}"
            raise GraphError(f"node {node.name} ({node.op}) has {count}")
        for name, (dtype, shape) in zip(node.outputs, inferred):
            if name and (graph.values[name].dtype, graph.values[name].shape) != (dtype, shape):
                declared = graph.values[name]
                raise GraphError(
                    f"node {node.name} ({node.op}): output {name} is declared "
                    f"{type_text(declared.dtype, declared.shape)}, its operator gives {type_text(dtype, shape)}"
                )
    return graph


def known_operators(graph: Graph) -> None:
    """Raises UnknownOperator that lists every node whose operator is not in the table."""
    unknown = [node for node in graph.nodes if node.op not in OPERATORS]
    if not unknown:
        return
    lines = []
    for node in unknown:
        near = difflib.get_close_matches(node.op, OPERATORS, n=1)
        lines.append(
            f"  {node.op} (node {node.name}"
            + (f", {node.source}" if node.source else "")
            + (f"); did you mean {near[0]}?" if near else ")")
        )
    head = f"graph {graph.name}: {len(unknown)} nodes have no operator in the table"
    raise UnknownOperator("\n".join([head, *lines]))


def _known(value: Value, data: np.ndarray | None) -> Operand:
    return Operand(value.name, value.dtype, value.shape, data)


def load_onnx(data: bytes) -> Graph:
    """A checked Graph from ONNX bytes of any origin: dtypes and shapes of intermediate values are inferred.

    Raises GraphError or UnknownOperator.
    """
    parts = read_parts(data)
    values = dict(parts.values)
    for node in parts.nodes:
        known: list[Operand | None] = []
        for name in node.inputs:
            if name and name not in values:
                raise GraphError(f"node {node.name} reads {name} before it is defined; sort the nodes, or define it")
            known.append(None if not name else _known(values[name], parts.constants.get(name)))
        for name, (dtype, shape) in zip(node.outputs, infer(node, known)):
            if name:
                values[name] = Value(name, dtype, shape)
    return check(Graph(parts.name, parts.inputs, parts.outputs, parts.nodes, values, parts.constants))
