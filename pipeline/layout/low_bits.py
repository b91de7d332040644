"""Constants of more than 32 bits of which only the low ones count: the factors of a hash, `(x * 2654435761 ^ y) % 2**19`.

Integers on the board have 32 bits. Such a constant is an error there, unless all that is made of it is cut to fewer bits again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mlsdk.pipeline.ir.graph import Graph, Node

#: operators of which each bit of the result depends on no higher bit of the operands
KEEPS_LOW = {
    "Add", "Sub", "Mul", "Neg", "Sum", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "Identity",
    "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Expand", "Tile", "Split", "Concat",
}  # fmt: skip


def wrapped(graph: Graph, readers: Mapping[str, Sequence[Node]]) -> dict[str, np.ndarray]:
    """These constants, as the integers of 32 bits with the same low bits."""
    found = {}
    for name, data in graph.constants.items():
        if data.dtype == np.int64:
            low = data.astype(np.int32).astype(data.dtype)
            if not np.array_equal(low, data) and _only_low_bits(graph, readers, name):
                found[name] = low
    return found


def _only_low_bits(graph: Graph, readers: Mapping[str, Sequence[Node]], name: str) -> bool:
    """Whether the bits from 31 on of a value are of no consequence for any result."""
    todo, seen = [name], {name}
    while todo:
        name = todo.pop()
        if name in graph.outputs:
            return False
        for node in readers.get(name, ()):
            if _cuts(graph, node, name):
                continue
            if node.op not in KEEPS_LOW:
                return False
            todo += [result for result in node.outputs if result and result not in seen]
            seen |= set(node.outputs)
    return True


def _cuts(graph: Graph, node: Node, name: str) -> bool:
    """Whether a node takes the remainder of a value by a power of two, or masks it."""
    if name not in node.inputs:
        return False
    other = graph.constants.get(node.inputs[1 - node.inputs.index(name)]) if len(node.inputs) == 2 else None
    if other is None or (other <= 0).any() or (other >= 2**31).any():
        return False
    if node.op == "BitwiseAnd":
        return True
    return (
        node.op == "Mod"
        and node.inputs[0] == name
        and not node.attrs.get("fmod", 0)
        and not (other & (other - 1)).any()
    )
