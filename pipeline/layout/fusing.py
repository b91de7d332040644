"""Elementwise nodes that become one: a value that only the next of them reads stays in the PEs, and a constant of one value is
part of the formula.

The steps lie in the attribute `steps` of the last node, one JSON text each (`emitters/fused.py`). Operands count the node's
inputs first, then the results of the steps before. An intermediate is not rounded to half, whatever its dtype was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mlsdk.errors import MLSDKError
from mlsdk.pipeline.ir.bits import from_bits, to_bits
from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ir.layout import L1B, MAB
from mlsdk.pipeline.ir.placed import PlacedNode
from mlsdk.pipeline.ir.scheme import Scheme
from mlsdk.pipeline.ops.emitters.elementwise import INPUTS, Task, compute_dtype, program_of, room_of, steps_of_item
from mlsdk.pipeline.ops.emitters.formula import HALF
from mlsdk.pipeline.ops.emitters.fused import FUSED, NUMBER, Fused, has_kernel_of_halves, number_step, step_of

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner

MOST_STEPS = 8
#: steps of one more pass over a small operand
A_PASS = 150


def can_share(planner: Planner, operands: Sequence[str], scheme: Scheme) -> bool:
    """Whether PEs that would all compute the same can share it out: every operand is of the result's size, or one number
    (`emitters.seen.shared_out`)."""
    levels = {d.level for axis in (*scheme.axes, scheme.copies) for d in axis if d.n > 1}
    alike = all(planner.values[n].scheme == scheme or planner.shape(n) == () for n in operands)
    return alike and not {L1B, MAB} <= levels


def of_one_size(scheme: Scheme) -> bool:
    """Whether they can only if all operands are of the result's dtype, too, or of one as large."""
    return any(d.level in (L1B, MAB) for axis in (*scheme.axes, scheme.copies) for d in axis if d.n > 1)


def work_alone(planner: Planner, node: Node, operands: Sequence[str], kernel: str, scheme: Scheme, dtype: str) -> float:
    """Steps of a formula where each PE computes all that it holds, beyond those that bring operand and result."""
    work = steps_of_item(replace(node, inputs=tuple(operands)), kernel, [*map(planner.device_dtype, operands), dtype])
    return scheme.addresses("double" if dtype == "double" else "single") / 4 * (work - 2)


def fuse(
    planner: Planner,
    node: Node,
    operands: Sequence[str],
    kernel: str,
    scheme: Scheme,
    dtype: str,
    numbers: Mapping[str, int],
) -> tuple[Node, list[str], str]:
    """The node, its operands and its kernel, with those operands' own nodes in it that nothing else needs, and `numbers`, the
    operands that are constants, by their bits."""
    kernel, operands = kernel or node.op, list(operands)
    found = _with_numbers(planner, node, operands, kernel, dtype, numbers)
    if found is None:
        return node, operands, kernel
    inputs, steps = found
    taken = []
    long = work_alone(planner, node, operands, kernel, scheme, dtype) >= A_PASS
    one_size = not of_one_size(scheme) or all(planner.device_dtype(name) == dtype for name in inputs)
    shared = long and one_size and can_share(planner, inputs, scheme)
    for name in inputs:
        source = _source(planner, node, name, scheme)
        if source is not None and shared and not can_share(planner, source.node.inputs, scheme):
            continue
        merged = _merged(planner, source, name, inputs, steps, dtype) if source is not None else None
        if source is not None and merged is not None:
            inputs, steps = merged
            taken.append((name, source))
    if not taken and not numbers and len(inputs) == len(operands):  # x x and the like: one operand, brought once
        return node, operands, kernel
    for name, source in taken:
        planner.withdraw(source, name, node)
    return replace(node, attrs={"steps": steps}), inputs, FUSED


def numbers_of(planner: Planner, node: Node, kernel: str, dtype: str) -> dict[str, int]:
    """The operands that are constants of one value which a node's formula can take, by their bits; `dtype`: of its result."""
    operands, kernel = [name for name in node.inputs if name], kernel or node.op
    words = {name: word for name in operands if (word := word_of(planner, name)) is not None}
    if not words or len(words) == len(set(operands)):
        return {}
    found = _with_numbers(planner, node, operands, kernel, dtype, words)
    if found is None or has_kernel_of_halves(kernel, [dtype, *map(planner.device_dtype, operands)]):
        return {}
    return words if _fits(planner, *found, dtype) else {}


def word_of(planner: Planner, name: str) -> int | None:
    """The bits of a constant of one value, those of a half as a single."""
    data = planner.data(name)
    if data is None or data.size == 0:
        return None
    stored = planner.device_dtype(name)
    bits = to_bits(np.asarray(data), stored, name).reshape(-1)
    if (bits != bits[0]).any():
        return None
    if stored == HALF:
        bits = from_bits(bits[:1], HALF, "float32").view(np.uint32)
    return int(bits[0])


def _with_numbers(
    planner: Planner, node: Node, operands: Sequence[str], kernel: str, dtype: str, numbers: Mapping[str, int]
) -> tuple[list[str], tuple[str, ...]] | None:
    """The operands that are no numbers, and the node as steps; None where it cannot be a step."""
    step = step_of(kernel, replace(node, inputs=tuple(operands)), [dtype, *map(planner.device_dtype, operands)])
    if step is None:
        return None
    inputs = [name for name in dict.fromkeys(operands) if name not in numbers]
    places = {name: i for i, name in enumerate([*inputs, *numbers])}
    return inputs, (*map(number_step, numbers.values()), moved_step(step, [places[name] for name in operands], 0))


def _fits(planner: Planner, inputs: Sequence[str], steps: tuple[str, ...], dtype: str) -> bool:
    """Whether these steps have a program."""
    types = tuple(map(planner.device_dtype, inputs))
    if len(inputs) not in INPUTS or sum(json.loads(step)[0] != NUMBER for step in steps) > MOST_STEPS:
        return False
    try:
        program_of(Task(Fused(steps), compute_dtype((*types, dtype)), types, dtype), room_of([""] * len(types)))
    except MLSDKError:
        return False
    return True


def _source(planner: Planner, node: Node, name: str, scheme: Scheme) -> PlacedNode | None:
    """The elementwise node that gives an operand which only `node` reads, lying like its result."""
    source = planner.made.get(name)
    alone = name in planner.once or [reader.name for reader in planner.readers.get(name, [])] == [node.name]
    if (
        source is None
        or source.emitter != "elementwise"
        or source.node.attrs.get("clean")
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
    theirs = [mine.index(n) for n in source.node.inputs]
    result = len(mine) + len(first) - 1
    moved = [result if n == name else mine.index(n) for n in inputs]
    joined = (
        *(moved_step(str(step), theirs, len(mine)) for step in first),
        *(moved_step(step, moved, len(mine) + len(first)) for step in steps),
    )
    return (mine, joined) if _fits(planner, mine, joined, dtype) else None


def moved_step(step: str, inputs: Sequence[int], results: int) -> str:
    """A step whose inputs and earlier results have other numbers."""
    kernel, operands, attrs, compute = json.loads(step)
    operands = [inputs[i] if i < len(inputs) else i - len(inputs) + results for i in operands]
    return json.dumps([kernel, operands, attrs, compute])
