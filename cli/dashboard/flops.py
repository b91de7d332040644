"""How many floating-point operations a node of the graph asks for, from its shapes. A multiply-add counts as two.

The numbers are those of the graph, not of the board: padding and recomputation do not count. Operators that only move
elements count nothing; an operator that is in no table counts one per element of its result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

Shape = Sequence[int]

MOVES = frozenset(
    {
        "MNCoreLayoutSwitch", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Concat", "Split",
        "Slice", "Gather", "GatherElements", "GatherND", "Expand", "Tile", "Pad", "Cast",
        "Constant", "ConstantOfShape", "Shape", "Where", "ScatterElements", "ScatterND", "DepthToSpace", "SpaceToDepth",
        "Range", "OneHot",
    }
)  # fmt: skip
#: operations per element of the input
PER_INPUT = {
    "ReduceSum": 1, "ReduceMean": 1, "ReduceMax": 1, "ReduceMin": 1, "ReduceProd": 1, "ReduceL2": 2, "ArgMax": 1, "ArgMin": 1,
    "Softmax": 5, "LogSoftmax": 5, "LayerNormalization": 8, "BatchNormalization": 4, "InstanceNormalization": 8,
    "GlobalAveragePool": 1, "GlobalMaxPool": 1, "CumSum": 1, "TopK": 1,
}  # fmt: skip


def flops(op: str, attrs: Mapping[str, Any], inputs: Sequence[Shape | None], outputs: Sequence[Shape | None]) -> int:
    """The operations of one node; 0 if its shapes are not known."""
    result = outputs[0] if outputs else None
    first = inputs[0] if inputs else None
    if result is None or op in MOVES:
        return 0
    if steps := [json.loads(step)[0] for step in attrs.get("steps", ()) if isinstance(step, str)]:
        return sum(0 if step in MOVES else prod(result) for step in steps)  # several elementwise operators in one node
    if op in ("Gemm", "MatMul") and first:
        rows_first = op == "Gemm" and attrs.get("transA")
        return 2 * prod(result) * (first[0] if rows_first else first[-1])
    if op in ("Conv", "ConvTranspose") and len(inputs) > 1 and (weight := inputs[1]):
        # each output (each input of a transposed convolution) meets one channel group of the kernel
        reached = first if op == "ConvTranspose" and first else result
        return 2 * prod(reached) * prod(weight[1:])
    if op in ("AveragePool", "MaxPool"):
        return prod(result) * prod(attrs.get("kernel_shape") or [1])
    if op in PER_INPUT and first is not None:
        return PER_INPUT[op] * prod(first)
    return prod(result)
