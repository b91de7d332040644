"""Execute a graph by the operators' reference functions: what `pfvm:cpu` runs, and the oracle of the tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from mlsdk.errors import GraphError, InputMismatch
from mlsdk.pipeline.ir.graph import DTYPES, Graph, Node, type_text
from mlsdk.pipeline.ops.table import run

Watch = Callable[[Node, list[np.ndarray]], None]


def run_reference(
    graph: Graph, inputs: Mapping[str, np.ndarray], *, watch: Watch | None = None
) -> dict[str, np.ndarray]:
    """Graph outputs by value name, for graph inputs by value name.

    `watch(node, results)` sees each node's results. Values are dropped after their last reader. Raises InputMismatch
    when an input is missing or has another dtype or shape, GraphError when a reference function breaks its own rule.
    """
    live: dict[str, np.ndarray] = dict(graph.constants)
    for name in graph.inputs:
        live[name] = _checked_input(graph, name, inputs)
    last = _last_readers(graph)
    for index, node in enumerate(graph.nodes):
        results = run(node, [live[name] if name else None for name in node.inputs])
        for name, array in zip(node.outputs, results):
            if name:
                _check_result(graph, node, name, array)
                live[name] = array
        if watch is not None:
            watch(node, results)
        for name in last.get(index, ()):
            live.pop(name, None)
    return {name: np.ascontiguousarray(live[name]).reshape(live[name].shape) for name in graph.outputs}


def _checked_input(graph: Graph, name: str, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    value = graph.values[name]
    if name not in inputs:
        raise InputMismatch(f"input {name} is missing; the graph reads {', '.join(graph.inputs)}")
    array = np.asarray(inputs[name])
    if array.dtype != DTYPES[value.dtype] or array.shape != value.shape:
        raise InputMismatch(
            f"input {name} is {type_text(str(array.dtype), array.shape)}, "
            f"compiled for {type_text(value.dtype, value.shape)}"
        )
    return array


def _check_result(graph: Graph, node: Node, name: str, array: np.ndarray) -> None:
    value = graph.values[name]
    if array.dtype != DTYPES[value.dtype] or array.shape != value.shape:
        raise GraphError(
            f"node {node.name} ({node.op}): the reference gives {type_text(str(array.dtype), array.shape)} "
            f"for {value}; its row is wrong"
        )


def _last_readers(graph: Graph) -> dict[int, list[str]]:
    """Node index -> values that no later node and no output needs."""
    last: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        for name in (*node.inputs, *node.outputs):
            if name:
                last[name] = index
    keep = set(graph.outputs)
    readers: dict[int, list[str]] = {}
    for name, index in last.items():
        if name not in keep:
            readers.setdefault(index, []).append(name)
    return readers
