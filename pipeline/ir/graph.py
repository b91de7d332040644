"""The Graph: what is computed, and nothing about where, when or how.

A Graph is a frozen value. Nodes stand in execution order, every value has a dtype and a static shape, names are unique.
`source` and `scope` of a node say where it comes from; they never enter bytes that are hashed (see `sources`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np

from mlsdk.errors import GraphError

DTYPES: Mapping[str, np.dtype] = MappingProxyType(
    {name: np.dtype(name) for name in ("float32", "float64", "float16", "int32", "int64", "uint8", "bool")}
)
FLOATS = ("float32", "float64", "float16")
INTEGERS = ("int32", "int64", "uint8")

Attr = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | np.ndarray

# A value's data is printed in `text` up to this many elements, and as a digest beyond.
PRINTED_ELEMENTS = 16


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the graph: its name, dtype (one of DTYPES) and static shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    @property
    def nbytes(self) -> int:
        return self.size * DTYPES[self.dtype].itemsize

    def __str__(self) -> str:
        return f"{self.name}: {type_text(self.dtype, self.shape)}"


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operation. An empty input name is an absent optional input; an empty output name is one that nobody wants."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    source: str = ""
    scope: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", tuple(self.inputs))
        object.__setattr__(self, "outputs", tuple(self.outputs))
        attrs = {key: _attribute(self.name, key, self.attrs[key]) for key in sorted(self.attrs)}
        object.__setattr__(self, "attrs", MappingProxyType(attrs))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Node):
            return NotImplemented
        return self is other or self._key() == other._key()

    def __hash__(self) -> int:
        return hash((self.name, self.op, self.inputs, self.outputs))

    def _key(self) -> tuple[object, ...]:
        attrs = tuple((key, attribute_key(value)) for key, value in self.attrs.items())
        return (self.name, self.op, self.inputs, self.outputs, attrs, self.source, self.scope)


def attribute_key(value: Attr) -> object:
    """A hashable value that is equal for equal attributes; unlike the attributes themselves it tells 1 from 1.0."""
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    return (type(value), value)


def _attribute(node: str, key: str, value: object) -> Attr:
    """The canonical form of an attribute: tuples for lists, Python's numbers."""
    if isinstance(value, (bool, int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    if isinstance(value, str):
        return value
    if isinstance(value, np.ndarray):
        return frozen_array(value)
    if isinstance(value, (list, tuple)):
        items = tuple(_attribute(node, key, item) for item in value)
        kinds = {type(item) for item in items}
        if kinds == {int, float}:
            return tuple(float(item) for item in items)  # type: ignore[arg-type]
        if len(kinds) <= 1 and kinds <= {int, float, str}:
            return items  # type: ignore[return-value]
    kind = type(value).__name__
    raise GraphError(f"node {node}: attribute {key} is {kind}; use int, float, str, a list of one, or an array")


def _as_stored(node: Node) -> Node:
    """The node with its floats as the float32 that ONNX stores."""
    floats = {key: value for key, value in node.attrs.items() if _is_float(value)}
    stored = {key: _in_single(value) for key, value in floats.items()}
    return node if stored == floats else replace(node, attrs={**node.attrs, **stored})


def _is_float(value: Attr) -> bool:
    return isinstance(value, float) or (isinstance(value, tuple) and isinstance(next(iter(value), None), float))


def _in_single(value: Attr) -> Attr:
    if isinstance(value, tuple):
        return tuple(float(np.float32(item)) for item in value)
    return float(np.float32(value))


def frozen_array(array: np.ndarray) -> np.ndarray:
    """A C-contiguous, little-endian view or copy of `array` that cannot be written through."""
    array = np.asarray(array, order="C")
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    array = array.view()
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False)
class Graph:
    """A validated dataflow graph.

    `values` holds every named value: inputs, constants and node outputs. `constants` holds the data of those that have
    some. Floats among the attributes of its nodes are rounded to the float32 that ONNX stores. Raises GraphError when a
    name is used twice or before it is defined, a dtype or shape is not allowed, or the data of a constant does not fit
    its value.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    values: Mapping[str, Value]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in ("inputs", "outputs", "nodes"):
            object.__setattr__(self, key, tuple(getattr(self, key)))
        object.__setattr__(self, "nodes", tuple(map(_as_stored, self.nodes)))
        object.__setattr__(self, "values", MappingProxyType(dict(self.values)))
        constants = {name: frozen_array(array) for name, array in self.constants.items()}
        object.__setattr__(self, "constants", MappingProxyType(constants))
        _validate(self)

    # --- questions ---

    @cached_property
    def producers(self) -> Mapping[str, Node]:
        """Value name -> the node that computes it (inputs and constants have none)."""
        return {output: node for node in self.nodes for output in node.outputs if output}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[Node, ...]]:
        """Value name -> the nodes that read it, in order; a node that reads it twice stands there once."""
        readers: dict[str, list[Node]] = {name: [] for name in self.values}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                if name:
                    readers[name].append(node)
        return {name: tuple(nodes) for name, nodes in readers.items()}

    def operands(self, node: Node) -> list[Value | None]:
        """The values that a node reads; None for an absent optional input."""
        return [self.values[name] if name else None for name in node.inputs]

    def results(self, node: Node) -> list[Value]:
        return [self.values[name] for name in node.outputs if name]

    # --- forms ---

    def to_onnx(self) -> bytes:
        """The persisted form: deterministic ONNX bytes without sources, producer or metadata."""
        from mlsdk.pipeline.ir.onnx_io import to_onnx

        return to_onnx(self)

    @staticmethod
    def from_onnx(data: bytes) -> Graph:
        """The graph in `data`. Raises GraphError when it is not a model that we accept."""
        from mlsdk.pipeline.ir.onnx_io import from_onnx

        return from_onnx(data)

    def text(self, *, sources: bool = False) -> str:
        return text(self, sources=sources)

    def __str__(self) -> str:
        return text(self, sources=True)


def _validate(graph: Graph) -> None:
    defined: set[str] = set()

    def define(name: str, by: str) -> None:
        if not isinstance(name, str) or not name:
            raise GraphError(f"graph {graph.name}: {by} has an empty name; give every value a name")
        if name in defined:
            raise GraphError(f"graph {graph.name}: value {name} is defined twice (again by {by}); names must be unique")
        if name not in graph.values:
            raise GraphError(f"graph {graph.name}: value {name} of {by} has no dtype and shape; add it to `values`")
        defined.add(name)

    for name in graph.inputs:
        define(name, "the inputs")
    for name in graph.constants:
        define(name, "the constants")
    names: set[str] = set()
    for node in graph.nodes:
        if not node.name or node.name in names:
            raise GraphError(f"graph {graph.name}: node name {node.name!r} is empty or used twice; make it unique")
        names.add(node.name)
        for name in node.inputs:
            if name and name not in defined:
                raise GraphError(
                    f"graph {graph.name}: node {node.name} reads {name} before it is defined; sort the nodes"
                )
        if not any(node.outputs):
            raise GraphError(f"graph {graph.name}: node {node.name} has no output; remove it")
        for name in node.outputs:
            if name:
                define(name, f"node {node.name}")
    if len(set(graph.outputs)) != len(graph.outputs):
        raise GraphError(f"graph {graph.name}: an output is listed twice: {', '.join(graph.outputs)}; list it once")
    for name in graph.outputs:
        if name not in defined:
            raise GraphError(f"graph {graph.name}: output {name} is not defined by any node, input or constant")
    for name, value in graph.values.items():
        _validate_value(graph, name, value, name in defined)
    for name, array in graph.constants.items():
        value = graph.values[name]
        if array.dtype != DTYPES[value.dtype] or array.shape != value.shape:
            raise GraphError(
                f"graph {graph.name}: constant {name} has data {type_text(str(array.dtype), array.shape)}, "
                f"declared {type_text(value.dtype, value.shape)}"
            )


def _validate_value(graph: Graph, name: str, value: Value, defined: bool) -> None:
    if value.name != name:
        raise GraphError(f"graph {graph.name}: value {value.name} is stored under the name {name}")
    if not defined:
        raise GraphError(f"graph {graph.name}: value {name} is not an input, a constant or a node's output; remove it")
    if value.dtype not in DTYPES:
        raise GraphError(f"graph {graph.name}: value {name} has dtype {value.dtype}; allowed are {', '.join(DTYPES)}")
    for extent in value.shape:
        if type(extent) is not int or extent < 0:
            raise GraphError(f"graph {graph.name}: value {name} has shape {value.shape}; extents are integers >= 0")


# --- the canonical text ---


def type_text(dtype: str, shape: Iterable[int]) -> str:
    """`float32[3,4]`; a 0-d value is `float32[]`."""
    return f"{dtype}[{','.join(map(str, shape))}]"


def text(graph: Graph, *, sources: bool = False) -> str:
    """The canonical, readable form: one line a value, in order; with `sources` each node's line ends in its origin."""
    lines = [f"graph {graph.name}"]
    lines += [f"input {graph.values[name]}" for name in graph.inputs]
    lines += [f"const {graph.values[name]} = {_data_text(array)}" for name, array in graph.constants.items()]
    for node in graph.nodes:
        results = ", ".join(str(graph.values[name]) if name else "_" for name in node.outputs)
        operands = ", ".join(name or "_" for name in node.inputs)
        attrs = "".join(f" {key}={_attr_text(value)}" for key, value in node.attrs.items())
        origin = f"  # {node.source} {node.scope}".rstrip() if sources and (node.source or node.scope) else ""
        lines.append(f"{results} = {node.op}({operands}){attrs}{origin}")
    lines.append(f"return {', '.join(graph.outputs)}")
    return "\n".join(lines) + "\n"


def _attr_text(value: Attr) -> str:
    if isinstance(value, tuple):
        return f"[{','.join(_attr_text(item) for item in value)}]"
    if isinstance(value, np.ndarray):
        return f"{type_text(str(value.dtype), value.shape)}{_data_text(value)}"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _data_text(array: np.ndarray) -> str:
    if array.size <= PRINTED_ELEMENTS:
        return f"[{','.join(repr(item) for item in array.ravel().tolist())}]"
    return f"sha256:{hashlib.sha256(array.tobytes()).hexdigest()[:16]}"


# --- sources travel beside the graph ---


def sources(graph: Graph) -> dict[str, dict[str, str]]:
    """Node name -> {"source": "file.py:12", "scope": "model.layer1"}, for `sources.json`."""
    return {node.name: {"source": node.source, "scope": node.scope} for node in graph.nodes}


def with_sources(graph: Graph, origins: Mapping[str, Mapping[str, str]]) -> Graph:
    """The same graph with the sources and scopes of `origins` (the content of a `sources.json`) on its nodes."""
    nodes = []
    for node in graph.nodes:
        origin = origins.get(node.name)
        if origin is not None:
            node = replace(node, source=origin.get("source", ""), scope=origin.get("scope", ""))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))
