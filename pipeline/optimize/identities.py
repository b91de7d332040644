"""Nodes that change nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mlsdk.pipeline.ir.graph import Graph, Node
from mlsdk.pipeline.ops.elementwise import cast_target
from mlsdk.pipeline.ops.shape import permutation
from mlsdk.pipeline.optimize.rewrite import Rule, View, apply, identity, rebuilt

# --- copies ---


def remove_identities(graph: Graph) -> Graph:
    """before: y = Identity(x); z = Op(y)    after: z = Op(x).

    Where y is an output and x is computed by a node and no output itself, x takes the name y. An output that copies an
    input, a constant or another output stays a copy.
    """
    renamed: dict[str, str] = {}  # x -> y
    outputs = set(graph.outputs)
    produced = graph.producers
    for node in graph.nodes:
        if node.op == "Identity" and node.outputs[0] in outputs:
            source = _root(graph, node.inputs[0])
            if source in produced and source not in outputs and source not in renamed:
                renamed[source] = node.outputs[0]
    alias: dict[str, str] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        inputs = tuple(alias.get(name, renamed.get(name, name)) for name in node.inputs)
        if node.op == "Identity":
            result, source = node.outputs[0], inputs[0]
            if result not in outputs:
                alias[result] = source
                continue
            if source == result:  # the renamed producer has this name now
                continue
            nodes.append(replace(node, inputs=inputs))
            continue
        nodes.append(replace(node, inputs=inputs, outputs=tuple(renamed.get(name, name) for name in node.outputs)))
    if tuple(nodes) == graph.nodes:
        return graph
    return rebuilt(graph, nodes, graph.values, graph.constants)


def _root(graph: Graph, name: str) -> str:
    """The value that a chain of Identity nodes copies."""
    while True:
        node = graph.producers.get(name)
        if node is None or node.op != "Identity" or name in graph.outputs:
            return name
        name = node.inputs[0]


# --- one form for what only changes the shape ---

RESHAPES = {"Flatten", "Squeeze", "Unsqueeze"}


def reshape_form(view: View, node: Node) -> Node | None:
    """before: Squeeze, Unsqueeze or Flatten    after: Reshape."""
    if node.op not in RESHAPES:
        return None
    return reshape(view, node, node.inputs[0])


def reshape(view: View, node: Node, source: str) -> Node:
    """`node` as a Reshape of `source` to the shape that its result has."""
    shape = view.shape(node.outputs[0])
    attrs = {"allowzero": 1} if 0 in shape else {}
    return replace(node, op="Reshape", inputs=(source, view.list(shape)), attrs=attrs)


def transpose_of_ones(view: View, node: Node) -> Node | None:
    """before: Transpose that moves only axes of extent 1    after: Reshape."""
    if node.op != "Transpose":
        return None
    shape = view.shape(node.inputs[0])
    moved = [axis for axis in permutation(node, len(shape)) if shape[axis] != 1]
    return reshape(view, node, node.inputs[0]) if moved == sorted(moved) else None


FOLDS_ONE = {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"}


def reduction_of_ones(view: View, node: Node) -> Node | None:
    """before: a reduction over axes of extent 1    after: Reshape."""
    if node.op not in FOLDS_ONE:
        return None
    before, after = view.values[node.inputs[0]], view.values[node.outputs[0]]
    return reshape(view, node, node.inputs[0]) if before.size == after.size and before.size else None


# --- the result is the operand ---

# operator -> nothing happens when its result has the operand's shape and dtype
SAME_IF_SAME_TYPE = {"Reshape", "Cast", "Expand", "Slice", "Tile"}


def same_type(view: View, node: Node) -> Node | None:
    """before: Reshape, Cast, Expand, Slice or Tile to what the operand is    after: Identity."""
    if node.op not in SAME_IF_SAME_TYPE or view.type(node.inputs[0]) != view.type(node.outputs[0]):
        return None
    if node.op == "Slice" and len(node.inputs) > 4 and any(step < 0 for step in view.ints(node.inputs[4]) or [-1]):
        return None
    return identity(node, node.inputs[0])


def one_part(view: View, node: Node) -> Node | None:
    """before: Concat of one, Split into one, Sum, Mean, Min or Max of one    after: Identity."""
    alone = node.op in ("Concat", "Sum", "Mean", "Min", "Max") and len(node.inputs) == 1
    if alone or (node.op == "Split" and len(node.outputs) == 1):
        return identity(node, node.inputs[0])
    return None


def no_border(view: View, node: Node) -> Node | None:
    """before: Pad by nothing    after: Identity."""
    if node.op != "Pad" or any(view.ints(node.inputs[1]) or [1]):
        return None
    return identity(node, node.inputs[0])


def still(view: View, node: Node) -> Node | None:
    """before: Transpose with the axes in order    after: Identity."""
    if node.op != "Transpose":
        return None
    rank = len(view.shape(node.inputs[0]))
    return identity(node, node.inputs[0]) if permutation(node, rank) == tuple(range(rank)) else None


# operator -> the constant that does nothing, and at which operands it may stand
NEUTRAL = {"Add": (0, (0, 1)), "Sub": (0, (1,)), "Mul": (1, (0, 1)), "Div": (1, (1,)), "Pow": (1, (1,))}


def neutral(view: View, node: Node) -> Node | None:
    """before: x + 0, x - 0, x * 1, x / 1, x ** 1    after: Identity. (x + 0 turns -0 into 0; both are equal.)"""
    if node.op not in NEUTRAL:
        return None
    number, places = NEUTRAL[node.op]
    for place in places:
        data, other = view.data(node.inputs[place]), node.inputs[1 - place]
        if data is not None and data.size and np.all(data == number) and view.type(other) == view.type(node.outputs[0]):
            return identity(node, other)
    return None


def constant_condition(view: View, node: Node) -> Node | None:
    """before: Where(all true, a, b)    after: a; the same for all false."""
    condition = view.data(node.inputs[0]) if node.op == "Where" else None
    if condition is None or not condition.size:
        return None
    for wanted, name in ((True, node.inputs[1]), (False, node.inputs[2])):
        if np.all(condition == wanted) and view.type(name) == view.type(node.outputs[0]):
            return identity(node, name)
    return None


# operator -> twice is nothing
INVERSE_OF_ITSELF = {"Neg", "Not", "BitwiseNot"}
# operator -> twice is once
IDEMPOTENT = {"Relu", "Abs", "Floor", "Ceil", "Round", "Sign"}


def repeated(view: View, node: Node) -> Node | None:
    """before: Neg(Neg(x)), Not(Not(x))    after: x; before: Relu(Relu(x)), Abs(Abs(x)), ...    after: Relu(x)."""
    inner = view.made_by(node.inputs[0], node.op) if node.inputs else None
    if inner is None:
        return None
    if node.op in INVERSE_OF_ITSELF:
        return identity(node, inner.inputs[0])
    return identity(node, node.inputs[0]) if node.op in IDEMPOTENT else None


# dtype -> the dtypes that hold each of its values
HOLDS = {
    "bool": ("uint8", "int32", "int64", "float16", "float32", "float64"),
    "uint8": ("int32", "int64", "float16", "float32", "float64"),
    "int32": ("int64", "float64"),
    "float16": ("float32", "float64"),
    "float32": ("float64",),
}


def cast_of_cast(view: View, node: Node) -> Node | None:
    """before: Cast(Cast(x, wider), to)    after: Cast(x, to)."""
    inner = view.made_by(node.inputs[0], "Cast") if node.op == "Cast" else None
    if inner is None:
        return None
    first = view.values[inner.inputs[0]].dtype
    if cast_target(inner) not in HOLDS.get(first, ()):
        return None
    return replace(node, inputs=inner.inputs)


RULES: tuple[Rule, ...] = (
    reshape_form,
    transpose_of_ones,
    reduction_of_ones,
    cast_of_cast,
    same_type,
    one_part,
    no_border,
    still,
    neutral,
    constant_condition,
    repeated,
)


def simplify(graph: Graph) -> Graph:
    """All rules of this file, each where it fits."""
    return apply(graph, *RULES)
