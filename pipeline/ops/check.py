"""Check a graph against the operators' rules, and complete one that lacks dtypes and shapes."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import numpy as np

from mlsdk.errors import GraphError, UnknownOperator
from mlsdk.pipeline.ir.graph import DTYPES, Graph, Node, Value, type_text
from mlsdk.pipeline.ir.onnx_io import read_parts
from mlsdk.pipeline.ops import OPERATORS, Operand, infer, run
from mlsdk.pipeline.ops.table import operand as operand_of


def check(graph: Graph, only: Sequence[Node] | None = None) -> Graph:
    """The graph, if each node obeys its operator's rule and gives the dtypes and shapes that the graph declares.

    `only` restricts the check to these nodes of it.
    Raises UnknownOperator with all unknown operators at once, or GraphError for the first node that breaks its rule.
    """
    known_operators(graph)
    for node in graph.nodes if only is None else only:
        inferred = infer(node, [operand_of(graph, name) for name in node.inputs])
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

    Files from exporters compute shapes by nodes (Shape, Gather, Concat, Reshape, ...); these are computed here, since
    the rules need them as constants. Raises GraphError or UnknownOperator.
    """
    parts = read_parts(data)
    values, constants = dict(parts.values), dict(parts.constants)
    nodes: list[Node] = []
    for node in parts.nodes:
        known: list[Operand | None] = []
        for name in node.inputs:
            if name and name not in values:
                raise GraphError(f"node {node.name} reads {name} before it is defined; sort the nodes, or define it")
            known.append(None if not name else _known(values[name], constants.get(name)))
        types = infer(node, known)
        for name, (dtype, shape) in zip(node.outputs, types):
            if name:
                values[name] = Value(name, dtype, shape)
        results = _small_results(node, known, types)
        if results is None or any(name in parts.outputs for name in node.outputs):
            nodes.append(node)
        else:
            constants.update((name, array) for name, array in zip(node.outputs, results) if name)
    read = {name for node in nodes for name in node.inputs} | set(parts.outputs)
    constants = {name: array for name, array in constants.items() if name in read}
    made = {name for node in nodes for name in node.outputs}
    kept = {name: value for name, value in values.items() if name in made or name in constants or name in parts.inputs}
    return check(Graph(parts.name, parts.inputs, parts.outputs, tuple(nodes), kept, constants))


# What a file computes about shapes is small.
SHAPE_ELEMENTS = 1024


def _small_results(
    node: Node, known: Sequence[Operand | None], types: Sequence[tuple[str, tuple[int, ...]]]
) -> list[np.ndarray] | None:
    """The results of a node over small constants, or over nothing but a shape; else None."""
    arrays: list[np.ndarray | None] = []
    for operand in known:
        if operand is None:
            arrays.append(None)
        elif node.op in ("Shape", "Size"):
            arrays.append(np.broadcast_to(np.zeros((), DTYPES[operand.dtype]), operand.shape))
        elif operand.data is None or operand.size > SHAPE_ELEMENTS:
            return None
        else:
            arrays.append(operand.data)
    if sum(int(np.prod(shape)) for _, shape in types) > SHAPE_ELEMENTS or node.op == "RandomBits":
        return None
    return run(node, arrays)
