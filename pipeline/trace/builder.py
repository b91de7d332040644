"""The Builder: grows a Graph node by node, with the operators' own shape rules."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from mlsdk.pipeline.ir.graph import DTYPES, Graph, Node, Value
from mlsdk.pipeline.ir.onnx_io import ELEMENT_TYPES
from mlsdk.pipeline.ops import Operand, infer

# Equal constants up to this many elements are one value.
SHARED_ELEMENTS = 64

# torch brings these into float16 by way of float32.
ROUNDED_TWICE = ("float64", "int32", "int64")


class Names:
    """Gives names that are not taken yet: `add`, `add_1`, ..."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def take(self, wanted: str) -> str:
        name, number = wanted, self._next.get(wanted, 0)
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._next[wanted] = number
        self._taken.add(name)
        return name


def snake(op: str) -> str:
    """`ReduceSum` -> `reduce_sum`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", op).lower()


class Builder:
    """Adds inputs, constants and nodes; each new node gets the current `source` and `scope`."""

    def __init__(self) -> None:
        self.inputs: list[str] = []
        self.nodes: list[Node] = []
        self.values: dict[str, Value] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.names = Names()
        self.source = ""
        self.scope = ""
        self._shared: dict[tuple[str, tuple[int, ...], bytes], Value] = {}
        self._state: Value | None = None
        self._streams: dict[Any, int] = {}
        self._marks: Iterator[Any]
        self.draw_for(None)

    # --- values ---

    def input(self, name: str, dtype: str, shape: Iterable[int]) -> Value:
        value = self._value(name, dtype, tuple(shape))
        self.inputs.append(value.name)
        return value

    def _value(self, name: str, dtype: str, shape: tuple[int, ...]) -> Value:
        value = Value(self.names.take(name), dtype, shape)
        self.values[value.name] = value
        return value

    def constant(self, data: Any, dtype: str | None = None, name: str = "") -> Value:
        """A value with data; small equal ones are shared."""
        array = np.asarray(data, None if dtype is None else DTYPES[dtype])
        kind = str(array.dtype)
        if name or array.size > SHARED_ELEMENTS:
            return self._store(array, kind, name or "constant")
        key = (kind, array.shape, array.tobytes())
        found = self._shared.get(key)
        if found is None:
            found = self._shared[key] = self._store(array, kind, "scalar" if array.ndim == 0 else "list")
        return found

    def _store(self, array: np.ndarray, dtype: str, name: str) -> Value:
        value = self._value(name, dtype, array.shape)
        self.constants[value.name] = array
        return value

    def data(self, value: Value) -> np.ndarray | None:
        """The data of a constant, else None."""
        return self.constants.get(value.name)

    # --- nodes ---

    def nodes_of(self, op: str, *inputs: Value | None, outputs: int = 1, **attrs: Any) -> list[Value]:
        """Add a node; returns its outputs."""
        name = self.names.take(snake(op))
        operands = [
            None if value is None else Operand(value.name, value.dtype, value.shape, self.constants.get(value.name))
            for value in inputs
        ]
        while operands and operands[-1] is None:
            operands.pop()
        names = tuple("" if operand is None else operand.name for operand in operands)
        node = Node(name, op, names, ("",) * outputs, attrs, self.source, self.scope)
        types = infer(node, operands)
        results = []
        for index, (dtype, shape) in enumerate(types[:outputs]):
            result = Value(name if index == 0 else self.names.take(name), dtype, shape)
            self.values[result.name] = result
            results.append(result)
        self.nodes.append(
            Node(name, op, names, tuple(result.name for result in results), attrs, self.source, self.scope)
        )
        return results

    def op(self, op: str, *inputs: Value | None, **attrs: Any) -> Value:
        """Add a node with one output; returns it."""
        return self.nodes_of(op, *inputs, **attrs)[0]

    def maker(self, value: Value) -> Node | None:
        """The node that a value is the first result of."""
        return next((node for node in reversed(self.nodes) if node.outputs[0] == value.name), None)

    # --- frequent nodes, left out where they would do nothing ---

    def scalar(self, number: float | int | bool, dtype: str) -> Value:
        return self.constant(number, dtype)

    def ints(self, numbers: Iterable[int]) -> Value:
        return self.constant(np.array(list(numbers), np.int64))

    def cast(self, x: Value, dtype: str) -> Value:
        if dtype == "float16" and x.dtype in ROUNDED_TWICE:
            x = self.cast(x, "float32")
        return x if x.dtype == dtype else self.op("Cast", x, to=ELEMENT_TYPES[dtype])

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        shape = tuple(shape)
        if shape == x.shape:
            return x
        # 0 stands for "as before" in ONNX unless allowzero says that it means 0
        zero = {"allowzero": 1} if 0 in shape else {}
        return self.op("Reshape", x, self.ints(shape), **zero)

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        if list(perm) == list(range(len(x.shape))):
            return x
        return self.op("Transpose", x, perm=tuple(perm))

    def expand(self, x: Value, shape: Sequence[int]) -> Value:
        return x if tuple(shape) == x.shape else self.op("Expand", x, self.ints(shape))

    def slice(self, x: Value, axis: int, start: int, end: int, step: int = 1) -> Value:
        """Elements start, start + step, ... before end of one axis; all three counted from 0."""
        if start == 0 and end >= x.shape[axis] and step == 1:
            return x
        steps = None if step == 1 else self.ints([step])
        return self.op("Slice", x, self.ints([start]), self.ints([end]), self.ints([axis]), steps)

    def concat(self, parts: Sequence[Value], axis: int) -> Value:
        parts = [part for part in parts if part.shape[axis] > 0] or [parts[0]]
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=axis)

    def reduce(self, op: str, x: Value, axes: Sequence[int] | None, keepdims: bool = False) -> Value:
        """A reduction over axes (None: all)."""
        axes = range(len(x.shape)) if axes is None else axes
        if not axes:
            return x if op not in ("ReduceL2", "ReduceL1") else self.op("Abs", x)
        return self.op(op, x, self.ints(sorted(axis % len(x.shape) for axis in axes)), keepdims=int(keepdims))

    def full(self, shape: Sequence[int], number: float | int | bool, dtype: str) -> Value:
        return self.expand(self.scalar(number, dtype), shape)

    def where(self, condition: Value, a: Value, b: Value) -> Value:
        return self.op("Where", condition, a, b)

    # --- random bits ---

    def draw_for(self, mark: Any) -> None:
        """The random bits of the nodes from now on belong to this draw; None for a draw of its own."""
        self._marks = zip(itertools.repeat(mark or object()), itertools.count())

    def random_bits(self, shape: Sequence[int]) -> Value:
        """int32 bits, other ones at each call of the program and for each draw in it."""
        if self._state is None:
            from mlsdk.pipeline.ir.signature import RANDOM_STATE

            self._state = self.input(RANDOM_STATE, "int32", (2,))
        stream = self._streams.setdefault(next(self._marks), len(self._streams))
        return self.op("RandomBits", self._state, shape=tuple(shape), stream=stream)

    @property
    def random_state(self) -> Value | None:
        """The state of the random operators, if there are any."""
        return self._state

    # --- the result ---

    def graph(self, name: str, outputs: Sequence[Value]) -> Graph:
        """The Graph of all nodes, without constants that nobody reads."""
        read = {name for node in self.nodes for name in node.inputs} | {value.name for value in outputs}
        constants = {name: array for name, array in self.constants.items() if name in read}
        values = {name: value for name, value in self.values.items() if name not in self.constants or name in constants}
        names = tuple(value.name for value in outputs)
        return Graph(name, tuple(self.inputs), names, tuple(self.nodes), values, constants)
