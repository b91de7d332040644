"""The planner's rules for normalisations: reductions and elementwise nodes, in single where the operands are halves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ir.scheme import Scheme
from mlsdk.pipeline.layout.reducing import as_single, finish
from mlsdk.pipeline.ops.table import attributes

if TYPE_CHECKING:
    from mlsdk.pipeline.layout.planner import Planner

Rule = Callable[["Planner", Node], None]


class Steps:
    """Nodes in place of one. Their results are single where the base dtype is half: the board keeps a graph's float16 so."""

    def __init__(self, planner: Planner, node: Node):
        self.planner, self.node, self.attrs = planner, node, attributes(node)

    def wide(self, name: str) -> str:
        return as_single(self.planner, name)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.planner.shape(name)

    def __call__(
        self, op: str, *inputs: str, shape: Sequence[int] | None = None, dtype_of: str = "", **attrs: Any
    ) -> str:
        """One elementwise node (or, with `shape`, another), its result's name; in the dtype of its first operand or
        `dtype_of`."""
        planner = self.planner
        dtype = planner.value(dtype_of or inputs[0]).dtype
        full = np.broadcast_shapes(*(planner.shape(name) for name in inputs)) if shape is None else shape
        half = planner.base == "half" and dtype == "float32"
        return planner.apply(self.node, op, inputs, full, dtype="float16" if half else dtype, **attrs)

    def once(self, part: str) -> str:
        """A part that only one more part reads: it may become a part of that."""
        self.planner.once.add(part)
        return part

    def number(self, value: float, like: str) -> str:
        dtype = np.dtype(self.planner.value(like).dtype)
        return self.planner.new_constant(f"{self.node.name}.number", np.array(value, dtype))

    def last(self, op: str, *inputs: str) -> None:
        """The elementwise node that gives the node's first result, of which a reader may make a part of its own."""
        self.planner.apply(self.node, op, inputs, self.shape(self.node.outputs[0]), out=self.node.outputs[0])

    def reduced(self, op: str, x: str, axes: Sequence[int]) -> str:
        """A reduction that keeps its axes."""
        kept = [1 if a in axes else n for a, n in enumerate(self.shape(x))]
        return self(op, x, shape=kept, axes=tuple(axes), keepdims=1) if axes else x

    def seen(self, x: str, shape: Sequence[int]) -> str:
        """x in another shape."""
        if self.shape(x) == tuple(shape):
            return x
        data = self.planner.data(x)
        if data is not None:
            return self.planner.new_constant(f"{x}.seen", data.reshape(tuple(shape)))
        return self("Reshape", x, shape=tuple(shape))

    def inverse(self, variance: str) -> str:
        """1 / sqrt(variance + epsilon)."""
        return self("Rsqrt", self.once(self("Add", variance, self.number(float(self.attrs["epsilon"]), variance))))

    def moments(self, x: str, axes: Sequence[int]) -> tuple[str, str, str]:
        """Mean, variance, and x - mean: in two passes, as the square of a large mean would leave nothing of a variance."""
        mean = self.reduced("ReduceMean", x, axes)
        centred = self("Sub", x, mean)
        return mean, self.reduced("ReduceMean", self("Mul", centred, centred), axes), centred

    def result(self, number: int, name: str) -> None:
        """The node's result of that number, if it has one."""
        outputs = self.node.outputs
        if number < len(outputs) and outputs[number]:
            name = self.seen(name, self.shape(outputs[number]))
            like = Node(self.node.name, self.node.op, (), (outputs[number],), {}, self.node.source, self.node.scope)
            finish(self.planner, like, name)


def _last_axes(steps: Steps, rank: int) -> tuple[int, ...]:
    return tuple(range(int(steps.attrs["axis"]) % rank, rank))


def layer_norm(planner: Planner, node: Node) -> None:
    steps = Steps(planner, node)
    scale, bias = (*node.inputs[1:], "")[:2]
    x = steps.wide(node.inputs[0])
    mean, variance, centred = steps.moments(x, _last_axes(steps, len(steps.shape(x))))
    inverse = steps.inverse(variance)
    y = steps.once(steps("Mul", centred, inverse))
    if bias:
        steps.last("Add", steps.once(steps("Mul", y, scale)), bias)
    else:
        steps.last("Mul", y, scale)
    steps.result(1, mean)
    steps.result(2, inverse)


def rms_norm(planner: Planner, node: Node) -> None:
    steps = Steps(planner, node)
    x = steps.wide(node.inputs[0])
    mean = steps.reduced("ReduceMean", steps("Mul", x, x), _last_axes(steps, len(steps.shape(x))))
    steps.last("Mul", steps.once(steps("Mul", x, steps.inverse(mean))), node.inputs[1])


def batch_norm(planner: Planner, node: Node) -> None:
    steps = Steps(planner, node)
    if not steps.attrs["training_mode"]:
        _known_statistics(steps)
        return
    x = steps.wide(node.inputs[0])
    shape = steps.shape(x)
    rank = len(shape)
    axes = [a for a in range(rank) if a != 1 and rank > 1]
    channels = [1 if a in axes else n for a, n in enumerate(shape)]
    scale, bias, mean, variance = (steps.seen(steps.wide(name), channels) for name in node.inputs[1:])
    old, momentum = (mean, variance), float(steps.attrs["momentum"])
    mean, variance, centred = steps.moments(x, axes)
    for number, (before, now) in enumerate(zip(old, (mean, variance)), 1):
        kept = steps("Mul", before, steps.number(momentum, before))
        steps.result(number, steps("Add", kept, steps("Mul", now, steps.number(1 - momentum, now))))
    factor = steps("Mul", steps.inverse(variance), scale)
    steps.last("Add", steps.once(steps("Mul", centred, factor)), bias)


def _known_statistics(steps: Steps) -> None:
    """A factor and a shift for each channel, and one pass over x, halves as they are: the formula that torch has, too."""
    x = steps.node.inputs[0]
    scale, bias, mean, variance = (_of_channels(steps, name) for name in steps.node.inputs[1:])
    factor = steps("Mul", steps.once(steps.inverse(variance)), scale)
    shift = steps("Sub", bias, steps.once(steps("Mul", mean, factor)))
    steps.last("Add", steps.once(steps("Mul", x, factor, dtype_of=mean)), shift)


def _of_channels(steps: Steps, name: str) -> str:
    """A number for each channel, to be met with x: where nobody placed it, it lies as an operand of an elementwise node."""
    planner, x = steps.planner, steps.node.inputs[0]
    shape, scheme = steps.shape(x), planner.scheme_of(x)
    channels = [n if a == min(1, len(shape) - 1) else 1 for a, n in enumerate(shape)]
    if not planner.free(name) or scheme is None or len(shape) < 2:
        return steps.seen(steps.wide(name), channels)
    wanted = scheme.restrict(channels, shape)
    alone = Scheme((wanted.axes[1],), None if wanted.lane is None else 0, wanted.copies)
    placed = planner.want(name, alone, reason=f"a number for each channel of {steps.node.op}")
    seen = planner.temporary(name, channels)
    planner.view(Node(planner.fresh(f"{steps.node.name}.Reshape"), "Reshape", (name,), (seen,)), placed, wanted)
    return steps.wide(seen)


def _standardised(steps: Steps, x: str, groups: int) -> str:
    """x of a batch and channels, standardised over each group of channels."""
    n, c, *space = steps.shape(x)
    grouped = steps.seen(x, (n, groups, c // groups * prod(space)))
    _, variance, centred = steps.moments(grouped, (2,))
    return steps("Mul", centred, steps.inverse(variance))


def group_norm(planner: Planner, node: Node) -> None:
    """GroupNormalization, and InstanceNormalization with a group for each channel."""
    steps = Steps(planner, node)
    x, scale, bias = (steps.wide(name) for name in node.inputs)
    shape = steps.shape(x)
    groups = int(steps.attrs["num_groups"]) if node.op == "GroupNormalization" else shape[1]
    y = _standardised(steps, x, groups)
    count = prod(steps.shape(scale))
    if count != groups:
        y = steps.seen(y, shape)
    channels = (1, count, *(1,) * (len(steps.shape(y)) - 2))
    scale, bias = steps.seen(scale, channels), steps.seen(bias, channels)
    product = steps.once(steps("Mul", y, scale))
    if steps.shape(y) == shape:
        steps.last("Add", product, bias)
    else:
        steps.result(0, steps("Add", product, bias))


def log_softmax(planner: Planner, node: Node) -> None:
    """x - max - log(sum(exp(x - max))); who takes the exponential of that (a gradient does) gets exp(x - max) / sum."""
    steps = Steps(planner, node)
    x = steps.wide(node.inputs[0])
    axis = (int(steps.attrs["axis"]) % len(steps.shape(x)),)
    top = steps.reduced("ReduceMax", x, axis)

    def below() -> str:
        """Computed for each reader, which then has no need of a place for it."""
        part = steps("Sub", x, top)
        planner.once.add(part)
        return part

    powers = steps("Exp", below())
    total = steps.reduced("ReduceSum", powers, axis)
    steps.result(0, steps("Sub", below(), steps("Log", total)))
    for reader in planner.readers.get(node.outputs[0], ()):
        if reader.op == "Exp" and reader.name not in planner.taken:
            planner.taken.add(reader.name)
            Steps(planner, reader).result(0, Steps(planner, reader)("Div", powers, total))


RULES: dict[str, Rule] = {
    "LayerNormalization": layer_norm,
    "RMSNormalization": rms_norm,
    "BatchNormalization": batch_norm,
    "GroupNormalization": group_norm,
    "InstanceNormalization": group_norm,
    "LogSoftmax": log_softmax,
}
