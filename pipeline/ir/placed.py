"""Placed: a graph in which every value has a device dtype, a layout and a place, and every node an emitter.

It says where each element lies, not when. Values that the planner put in (layout switches, copies of constants) stand beside
those of the Graph. The data of constants stay in the Graph: a placed constant names its source. What the planner itself knew
(the result of an operation on no elements) stands in `literals`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from mlsdk.pipeline.ir.graph import Attr, Node
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import Layout
from mlsdk.pipeline.ir.scheme import Digit, Scheme
from mlsdk.pipeline.ir.written import Written

#: what the padding of a value holds: zeros; zeros in the lanes beyond the lane axis, elsewhere anything; anything
ZERO, LANES, ANY = "zero", "lanes", "any"

#: emitters of nodes that have no instructions
VIEW, ON_HOST = "view", "host"
#: the emitter of what a plan brings to LM
LOAD = "load"

#: device dtypes by logical dtype; float32 follows the option float_dtype
DEVICE_DTYPE = {"float64": "double", "float16": "single", "int32": "int", "int64": "int", "uint8": "int", "bool": "int"}


@dataclass(frozen=True)
class PlacedValue:
    """`dtype`: the graph's; `device_dtype`: half, single, double or int. `origin`: input, constant or node; `data`: the
    constant of the Graph that holds its data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    device_dtype: str
    layout: Layout
    scheme: Scheme | None = None
    pad: str = ZERO
    origin: str = "node"
    data: str = ""

    @cached_property
    def image(self) -> Image:
        return Image(self.layout, self.device_dtype, self.shape)

    @cached_property
    def as_operand(self) -> str:
        """What the instructions of nodes that read or make it depend on, as text."""
        return json.dumps([self.device_dtype, self.shape, str(self.layout), repr(self.scheme), self.pad])


@dataclass(frozen=True)
class PlacedNode:
    """A node and how it is emitted: `emitter` names the function, `kernel` and `batches` are its choices. VIEW: the result
    lies where the input lies; ON_HOST: the runtime computes it, between two stretches of the program."""

    node: Node
    emitter: str
    kernel: str = ""
    batches: int = 1

    @cached_property
    def as_operation(self) -> str:
        """What its instructions depend on, as text, beside its operands."""
        attrs = {
            k: [str(a.dtype), a.shape, a.tobytes().hex()] if isinstance(a, np.ndarray) else repr(a)
            for k, a in sorted(self.node.attrs.items())
        }
        return json.dumps([self.node.op, attrs, self.emitter, self.kernel, self.batches])[1:-1]


@dataclass(frozen=True)
class Placed(Written):
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[PlacedNode, ...]
    values: Mapping[str, PlacedValue] = field(default_factory=dict)
    literals: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", MappingProxyType(dict(self.values)))
        object.__setattr__(self, "literals", MappingProxyType(dict(self.literals)))

    def data_of(self, value: PlacedValue, constants: Mapping[str, np.ndarray]) -> np.ndarray:
        """The data of a constant, from the Graph's `constants` or the planner's own."""
        return self.literals[value.data] if value.data in self.literals else constants[value.data]

    # ---- text form --------------------------------------------------------------------------------------------

    def _data(self) -> dict[str, Any]:
        """Nodes' sources and scopes are not part of it."""
        return {
            "name": self.name,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "values": [_value_json(self.values[name]) for name in self.values],
            "nodes": [_node_json(node) for node in self.nodes],
            "literals": {name: attr_to_json(array) for name, array in self.literals.items()},
        }

    @classmethod
    def from_json(cls, data: bytes) -> Placed:
        d = json.loads(data)
        values = [_value(v) for v in d["values"]]
        literals = {name: np.asarray(attr_from_json(array)) for name, array in d["literals"].items()}
        nodes = tuple(_node(n) for n in d["nodes"])
        return cls(d["name"], tuple(d["inputs"]), tuple(d["outputs"]), nodes, {v.name: v for v in values}, literals)


def scheme_to_json(scheme: Scheme | None) -> Any:
    if scheme is None:
        return None
    return {
        "axes": [[[d.n, d.level, d.stride] for d in axis] for axis in scheme.axes],
        "lane": scheme.lane,
        "copies": [[d.n, d.level, d.stride] for d in scheme.copies],
    }


def scheme_from_json(data: Any) -> Scheme | None:
    if data is None:
        return None
    axes = tuple(tuple(Digit(*x) for x in axis) for axis in data["axes"])
    return Scheme(axes, data["lane"], tuple(Digit(*x) for x in data["copies"]))


def _value_json(v: PlacedValue) -> dict[str, Any]:
    return {
        "name": v.name,
        "dtype": v.dtype,
        "shape": v.shape,
        "device_dtype": v.device_dtype,
        "layout": str(v.layout),
        "scheme": scheme_to_json(v.scheme),
        "pad": v.pad,
        "origin": v.origin,
        "data": v.data,
    }


def _value(d: Mapping[str, Any]) -> PlacedValue:
    layout = Layout.parse(d["layout"])
    return PlacedValue(
        d["name"],
        d["dtype"],
        tuple(d["shape"]),
        d["device_dtype"],
        layout,
        scheme_from_json(d["scheme"]),
        d["pad"],
        d["origin"],
        d["data"],
    )


def attr_to_json(value: Attr) -> Any:
    if isinstance(value, np.ndarray):
        return {"dtype": str(value.dtype), "shape": value.shape, "data": value.tobytes().hex()}
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, tuple) and value and isinstance(value[0], float):
        return {"floats": [float(x).hex() for x in value]}
    return value


def attr_from_json(value: Any) -> Attr:
    if isinstance(value, dict):
        if "float" in value:
            return float.fromhex(value["float"])
        if "floats" in value:
            return tuple(float.fromhex(x) for x in value["floats"])
        return np.frombuffer(bytes.fromhex(value["data"]), value["dtype"]).reshape(value["shape"])
    return tuple(value) if isinstance(value, list) else value


def _node_json(p: PlacedNode) -> dict[str, Any]:
    return {
        "name": p.node.name,
        "op": p.node.op,
        "inputs": p.node.inputs,
        "outputs": p.node.outputs,
        "attrs": {key: attr_to_json(value) for key, value in p.node.attrs.items()},
        "emitter": p.emitter,
        "kernel": p.kernel,
        "batches": p.batches,
    }


def _node(d: Mapping[str, Any]) -> PlacedNode:
    attrs = {key: attr_from_json(value) for key, value in d["attrs"].items()}
    return PlacedNode(
        Node(d["name"], d["op"], tuple(d["inputs"]), tuple(d["outputs"]), attrs),
        d["emitter"],
        d["kernel"],
        d["batches"],
    )
