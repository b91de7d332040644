"""Elementwise nodes that become one: a value that only the next of them reads stays in the PEs.

The steps lie in the attribute `steps` of the last node, one JSON text each: [kernel, operands, attributes]. Operands count the
node's inputs first, then the results of the steps before. An intermediate is not rounded to half, whatever its dtype was.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mlsdk.errors import MLSDKError
from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ir.placed import PlacedNode
from mlsdk.pipeline.ir.scheme import Scheme
from mlsdk.pipeline.ops.emitters.elementwise import INPUTS, Task, compute_dtype, program_of, room_of
from mlsdk.pipeline.ops.emitters.fused import FUSED, Fused, step_of

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner

MOST_STEPS = 8


def fuse(
    planner: Planner, node: Node, operands: Sequence[str], kernel: str, scheme: Scheme, dtype: str
) -> tuple[Node, list[str], str]:
    """The node, its operands and its kernel, with those operands' own nodes in it that nothing else needs."""
    kernel, operands = kernel or node.op, list(operands)
    step = step_of(kernel, replace(node, inputs=tuple(operands)), [dtype, *map(planner.device_dtype, operands)])
    if step is None:
        return node, operands, kernel
    steps: tuple[str, ...] = (step,)
    inputs, taken = operands, []
    for name in dict.fromkeys(operands):
        source = _source(planner, node, name, scheme)
        merged = _merged(planner, source, name, inputs, steps, dtype) if source is not None else None
        if source is not None and merged is not None:
            inputs, steps = merged
            taken.append((name, source))
    if len(set(inputs)) < len(inputs):  # x x and the like: one operand, brought once
        alone = list(dict.fromkeys(inputs))
        steps = tuple(_moved(s, [alone.index(n) for n in inputs], len(alone)) for s in steps)
        inputs = alone
    elif not taken:
        return node, operands, kernel
    for name, source in taken:
        planner.withdraw(source, name, node)
    return replace(node, attrs={"steps": steps}), inputs, FUSED


def _source(planner: Planner, node: Node, name: str, scheme: Scheme) -> PlacedNode | None:
    """The elementwise node that gives an operand which only `node` reads, lying like its result."""
    source = planner.made.get(name)
    alone = name in planner.once or [reader.name for reader in planner.readers.get(name, [])] == [node.name]
    if (
        source is None
        or source.emitter != "elementwise"
        or not alone
        or name in planner.graph.outputs
        or name in planner.options.fixed
        or planner.values[name].scheme != scheme
        or name in planner.read
    ):
        return None
    return source


def _merged(
    planner: Planner, source: PlacedNode, name: str, inputs: list[str], steps: tuple[str, ...], dtype: str
) -> tuple[list[str], tuple[str, ...]] | None:
    """Inputs and steps with those of `source` in front, or None where they do not fit."""
    first = source.node.attrs.get("steps")
    if first is None:
        dtypes = [*map(planner.device_dtype, source.node.inputs), planner.device_dtype(name)]
        step = step_of(source.kernel or source.node.op, source.node, dtypes)
        if step is None:
            return None
        first = (step,)
    assert isinstance(first, tuple)
    mine = list(dict.fromkeys([*(n for n in inputs if n != name), *source.node.inputs]))
    if len(mine) not in INPUTS or len(first) + len(steps) > MOST_STEPS:
        return None
    theirs = [mine.index(n) for n in source.node.inputs]
    result = len(mine) + len(first) - 1
    moved = [result if n == name else mine.index(n) for n in inputs]
    joined = (
        *(_moved(str(step), theirs, len(mine)) for step in first),
        *(_moved(step, moved, len(mine) + len(first)) for step in steps),
    )
    types = tuple(map(planner.device_dtype, mine))
    try:
        program_of(Task(Fused(joined), compute_dtype((*types, dtype)), types, dtype), room_of([""] * len(types)))
    except MLSDKError:
        return None
    return mine, joined


def _moved(step: str, inputs: Sequence[int], results: int) -> str:
    """A step whose inputs and earlier results have other numbers."""
    kernel, operands, attrs = json.loads(step)
    return json.dumps([kernel, [inputs[i] if i < len(inputs) else i - len(inputs) + results for i in operands], attrs])
