"""The driver: runs the passes until none changes anything, and verifies the graph after each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from mlsdk.errors import GraphError
from mlsdk.pipeline.ir.graph import Graph
from mlsdk.pipeline.ops.check import check
from mlsdk.pipeline.optimize.batch_norm import fold_batch_norm
from mlsdk.pipeline.optimize.common_subexpressions import share_equal
from mlsdk.pipeline.optimize.dead_code import remove_dead_code
from mlsdk.pipeline.optimize.fold_constants import fold_constants
from mlsdk.pipeline.optimize.gemm import fuse_gemm
from mlsdk.pipeline.optimize.identities import remove_identities, simplify
from mlsdk.pipeline.optimize.movement import merge_movement
from mlsdk.pipeline.optimize.rewrite import Pass
from mlsdk.pipeline.optimize.softmax import plain_softmax

# In the order in which they run; names are what logs and errors show.
PASSES: Mapping[str, Pass] = MappingProxyType(
    {
        "dead-code": remove_dead_code,
        "fold-constants": fold_constants,
        "simplify": simplify,
        "identities": remove_identities,
        "movement": merge_movement,
        "share-equal": share_equal,
        "gemm": fuse_gemm,
        "batch-norm": fold_batch_norm,
        "softmax": plain_softmax,
    }
)

# Each round makes the graph smaller or simpler; more than this many means that two passes undo each other.
MOST_ROUNDS = 32

Observer = Callable[[str, Graph, Graph], None]


def optimize(graph: Graph, *, passes: Mapping[str, Pass] = PASSES, observe: Observer | None = None) -> Graph:
    """An equivalent graph with fewer and simpler nodes; inputs, outputs and their names stay.

    `observe(pass name, before, after)` is called for each pass that changed something. Raises GraphError when the graph
    breaks an operator's rule, or when a pass made a graph that does (which names the pass).
    """
    graph = check(graph)
    for _ in range(MOST_ROUNDS):
        before_round = graph
        for name, run in passes.items():
            after = run(graph)
            if after is graph:
                continue
            _verify(name, graph, after)
            if observe is not None:
                observe(name, graph, after)
            graph = after
        if graph is before_round:
            return graph
    raise GraphError(f"graph {graph.name}: the passes do not come to rest in {MOST_ROUNDS} rounds; please report it")


def _verify(name: str, before: Graph, after: Graph) -> None:
    """Check the nodes that a pass made, and that it kept the graph's interface."""
    if (before.inputs, before.outputs) != (after.inputs, after.outputs):
        raise GraphError(f"pass {name} changed the inputs or outputs of graph {before.name}; please report it")
    for value in (*before.inputs, *before.outputs):
        if before.values[value] != after.values[value]:
            raise GraphError(f"pass {name} changed the type of {value} in graph {before.name}; please report it")
    old = {id(node) for node in before.nodes}
    try:
        check(after, only=[node for node in after.nodes if id(node) not in old])
    except GraphError as error:
        raise GraphError(f"pass {name}: {error}; please report it") from error
