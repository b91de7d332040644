"""Nodes that a window operation computes on its way: the elementwise ones behind it, one after another, whose other operands are
numbers, values of channels, or one more plane that lies like the result.

A normalisation by known statistics is a factor and a shift of each channel, which the operation computes first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from mlsdk.errors import MLSDKError
from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ir.placed import LANES, ZERO
from mlsdk.pipeline.ir.scheme import BLOCK, Scheme
from mlsdk.pipeline.layout.fusing import MOST_STEPS, moved_step, word_of
from mlsdk.pipeline.layout.pointwise import KEEPS_ZERO, gelu_of, limits_of
from mlsdk.pipeline.ops.emitters.epilogue import FACTOR, PLANE, SHIFT, VECTOR, Form
from mlsdk.pipeline.ops.emitters.fused import has_kernel_of_halves, number_step, step_of
from mlsdk.pipeline.ops.table import attributes

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner

#: operators whose rule chooses a kernel, and what it is
CHOSEN: dict[str, Callable[[Any, Node], tuple[str, Node] | None]] = {"Clip": limits_of, "Gelu": gelu_of}
#: the signs of limits between which zero is
LIMITS = {"low": -1, "high": 1}


@dataclass(frozen=True)
class Chain:
    """Nodes that follow each other, as steps of one formula. `operands`: (kind, its name, the node of a normalisation), in
    the order of the steps, behind the result of the operation itself, which is number 0."""

    nodes: tuple[Node, ...] = ()
    steps: tuple[str, ...] = ()
    operands: tuple[tuple[str, str, Node], ...] = ()
    halves: bool = True  # whether halves would do

    def with_step(self, step: str, inputs: list[Any], numbers: Mapping[str, int]) -> Chain:
        """One more step; its `inputs` are None for the result so far, names of `numbers`, or operands."""
        operands = list(self.operands)
        for entry in inputs:
            if isinstance(entry, tuple) and entry not in operands:
                operands.append(entry)
        count, more = 1 + len(operands), len(operands) - len(self.operands)
        steps = [_behind(each, 1 + len(self.operands), more) for each in self.steps]
        last = count + len(steps) - 1 if steps else 0
        places = {name: count + len(steps) + i for i, name in enumerate(numbers)}
        found = [
            last if entry is None else 1 + operands.index(entry) if isinstance(entry, tuple) else places[entry]
            for entry in inputs
        ]
        steps += [*map(number_step, numbers.values()), moved_step(step, found, 0)]
        return replace(self, steps=tuple(steps), operands=tuple(operands))


def _behind(step: str, first: int, more: int) -> str:
    """A step with so many more inputs in front of the results."""
    kernel, operands, attrs, compute = json.loads(step)
    return json.dumps([kernel, [i + more if i >= first else i for i in operands], attrs, compute])


@dataclass(frozen=True)
class Target:
    """The operation: its result's name, scheme and dtype, and whether an epilogue fits it."""

    out: str
    scheme: Scheme
    dtype: str
    constants: tuple[str, ...]
    fits: Callable[[Form], bool] = field(compare=False)

    @property
    def compute(self) -> str:
        return "double" if self.dtype == "double" else "single"

    def form(self, chain: Chain) -> Form:
        halves = chain.halves and self.dtype == "half"
        raw = "half" if halves else self.compute
        dtypes = tuple(self.dtype if kind == PLANE else self.compute for kind, _, _ in chain.operands)
        steps = tuple(_of_halves(step) for step in chain.steps) if halves else chain.steps
        kinds = tuple(kind for kind, _, _ in chain.operands)
        return Form(steps, kinds, raw, dtypes, self.dtype, self.constants, _epsilons(chain))


def _epsilons(chain: Chain) -> tuple[float, ...]:
    return tuple(float(attributes(node)["epsilon"]) for kind, _, node in chain.operands if kind == FACTOR)


def _of_halves(step: str) -> str:
    kernel, operands, attrs, _ = json.loads(step)
    return json.dumps([kernel, operands, attrs, "half"])


def follow(planner: Planner, target: Target) -> Chain:
    """The longest chain behind the operation that it can compute."""
    chain, name = Chain(), target.out
    while (node := _next(planner, name)) is not None:
        longer = _longer(planner, target, chain, name, node)
        if longer is None or len(longer.steps) > MOST_STEPS or not _possible(target, longer):
            break
        chain, name = longer, node.outputs[0]
    return chain


def _possible(target: Target, chain: Chain) -> bool:
    form = target.form(chain)
    try:
        form.program()
    except MLSDKError:
        return False
    return target.fits(form)


def _next(planner: Planner, name: str) -> Node | None:
    """The only reader of a value, if it is computed on the board and free to lie where the value lies."""
    readers = planner.readers.get(name, [])
    if len(readers) != 1 or name in planner.graph.outputs or name in planner.options.fixed:
        return None
    node, out = readers[0], readers[0].outputs[0]
    alike = planner.shape(out) == planner.shape(name) and planner.value(out).dtype == planner.value(name).dtype
    if not alike or node.op in planner.options.on_host or planner.options.pins.touch(planner, node):
        return None
    return node


def _longer(planner: Planner, target: Target, chain: Chain, name: str, node: Node) -> Chain | None:
    if node.op == "BatchNormalization":
        return _normalised(planner, target, chain, name, node)
    from mlsdk.pipeline.layout.rules import elementwise, rule_of

    kernel, told = node.op, node
    if node.op in CHOSEN:
        found = CHOSEN[node.op](planner, node)
        if found is None:
            return None
        kernel, told = found
    elif rule_of(node, planner) is not elementwise:
        return None
    step = step_of(kernel, told, [target.compute])
    if step is None:
        return None
    inputs: list[Any] = []
    numbers: dict[str, int] = {}
    for operand in told.inputs:
        if operand == name:
            inputs.append(None)
        elif (word := word_of(planner, operand)) is not None and _reachable(planner, target, operand):
            inputs.append(operand)
            numbers[operand] = word
        else:
            kind = _kind(planner, target, operand)
            if kind is None:
                return None
            inputs.append((kind, operand, None))
    keeps = node.op in KEEPS_ZERO and (node.op == "Mul" or not any(numbers.values()))
    if kernel == "ClipConstant":
        keeps = all(np.sign(float(told.attrs[key])) in (0, sign) for key, sign in LIMITS.items() if key in told.attrs)  # type: ignore[arg-type]
    if not keeps and planner.shape(target.out)[1] % BLOCK:
        return None  # the lanes beyond the channels would have to be cleared
    halves = chain.halves and inputs == [None] and has_kernel_of_halves(kernel, ["half"])
    longer = chain.with_step(step, inputs, numbers)
    return replace(longer, nodes=(*chain.nodes, node), halves=halves)


def _kind(planner: Planner, target: Target, name: str) -> str | None:
    """What another operand is, if it can be one."""
    full, shape = planner.shape(target.out), planner.shape(name)
    placed = planner.placed(name)
    if shape == full:
        alike = placed is not None and placed.scheme == target.scheme and placed.device_dtype == target.dtype
        return PLANE if alike and _clean(planner, name, full[1]) else None
    wide = (1,) * (len(full) - len(shape)) + shape
    if len(wide) != len(full) or wide[1] != full[1] or prod(wide) != full[1]:
        return None
    return VECTOR if _reachable(planner, target, name) and _clean(planner, name, full[1]) else None


def _clean(planner: Planner, name: str, channels: int) -> bool:
    placed = planner.placed(name)
    return placed is None or channels % BLOCK == 0 or placed.pad in (ZERO, LANES)


def _reachable(planner: Planner, target: Target, name: str) -> bool:
    """Whether a value of channels can be had in the dtype that is computed in."""
    have = planner.device_dtype(name)
    if planner.is_constant(name) or planner.free(name) or planner.placed(name) is not None:
        return have == target.compute or (have == "half" and target.compute == "single")
    return False


def _normalised(planner: Planner, target: Target, chain: Chain, name: str, node: Node) -> Chain | None:
    if attributes(node)["training_mode"] or node.inputs[0] != name or any(node.outputs[1:]):
        return None
    channels = planner.shape(name)[1]
    if not all(_reachable(planner, target, each) and _clean(planner, each, channels) for each in node.inputs[1:]):
        return None
    for op, kind in (("Mul", FACTOR), ("Add", SHIFT)):
        step = step_of(op, Node(node.name, op, (name, kind), node.outputs), [target.compute])
        assert step is not None
        chain = chain.with_step(step, [None, (kind, node.name, node)], {})
    return replace(chain, nodes=(*chain.nodes, node), halves=False)


# ---- what it reads ------------------------------------------------------------------------------------------------


def realised(planner: Planner, target: Target, chain: Chain) -> tuple[dict[str, Any], list[str]]:
    """The attributes that say what to do, and the operands, placed."""
    form = target.form(chain)
    inputs: list[str] = []
    for kind, name, node in chain.operands:
        given = {PLANE: (), VECTOR: (name,), FACTOR: node.inputs[1:] if node is not None else (), SHIFT: ()}[kind]
        inputs += [name] if kind == PLANE else [_vector(planner, target, each) for each in given]
    for node in chain.nodes:
        planner.taken.add(node.name)
    return {
        "epilogue": form.steps,
        "operands": form.operands,
        "epsilons": form.epsilons,
        "raw": form.raw,
    }, inputs


def _vector(planner: Planner, target: Target, name: str) -> str:
    """A value of channels where the epilogue reads it, in the dtype that is computed in."""
    from mlsdk.pipeline.layout.rules import cast_to

    full, shape = planner.shape(target.out), planner.shape(name)
    channels = shape if len(shape) > 1 else (full[1], *(1,) * (len(full) - 2))
    scheme = target.scheme.restrict(channels, full)
    if len(shape) == 1 and len(full) > 2:
        scheme = Scheme((scheme.axes[0],), scheme.lane, scheme.copies)
    have = planner.device_dtype(name)
    settled = planner.placed(name) is not None and not planner.is_constant(name)
    name = planner.want(name, scheme.plain, have if settled else target.compute, reason="values of channels")
    return name if planner.device_dtype(name) == target.compute else cast_to(planner, name, target.compute)
