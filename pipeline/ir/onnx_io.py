"""Graph to and from ONNX: the persisted form, with deterministic bytes.

Opset and IR version are constants, so that the bytes do not follow the installed onnx. What an ONNX file may hold
beyond a Graph (subgraphs, functions, external data, symbolic shapes, sequences) is refused before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, TensorProto

from mlsdk.errors import GraphError
from mlsdk.pipeline.ir.graph import DTYPES, Attr, Graph, Node, Value, frozen_array

OPSET = 20
IR_VERSION = 10
DOMAIN = "mlsdk"
DOMAIN_VERSION = 1

# protobuf refuses messages from 2 GiB on.
LARGEST_MODEL = 2**31 - 1

ELEMENT_TYPES: Mapping[str, int] = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8,
    "bool": TensorProto.BOOL,
}
DTYPE_OF_ELEMENT_TYPE: Mapping[int, str] = {number: dtype for dtype, number in ELEMENT_TYPES.items()}


def domain_of(op: str) -> str:
    """ "" for an operator that ONNX defines up to our opset, "mlsdk" for one of ours."""
    return "" if onnx.defs.has(op, OPSET, "") else DOMAIN


# --- writing ---


def to_onnx(graph: Graph) -> bytes:
    """Deterministic ONNX bytes. Raises GraphError when the constants do not fit into one protobuf message."""
    size = sum(array.nbytes for array in graph.constants.values())
    if size > LARGEST_MODEL:
        raise GraphError(
            f"graph {graph.name}: {size} bytes of constants do not fit into one ONNX file ({LARGEST_MODEL} bytes); "
            "register the large tensors so that they become inputs"
        )
    model = onnx.ModelProto(ir_version=IR_VERSION)
    model.opset_import.add(domain="", version=OPSET)
    if any(domain_of(node.op) == DOMAIN for node in graph.nodes):
        model.opset_import.add(domain=DOMAIN, version=DOMAIN_VERSION)
    proto = model.graph
    proto.name = graph.name
    for name in graph.inputs:
        _write_value(proto.input.add(), graph.values[name])
    for name in graph.outputs:
        _write_value(proto.output.add(), graph.values[name])
    for name, array in graph.constants.items():
        _write_tensor(proto.initializer.add(), array, name)
    for node in graph.nodes:
        entry = proto.node.add(name=node.name, op_type=node.op, domain=domain_of(node.op))
        entry.input.extend(node.inputs)
        entry.output.extend(node.outputs)
        for key, attribute in node.attrs.items():
            _write_attribute(entry.attribute.add(name=key), attribute)
    outputs = set(graph.outputs)
    for node in graph.nodes:
        for name in node.outputs:
            if name and name not in outputs:
                _write_value(proto.value_info.add(), graph.values[name])
    return model.SerializeToString(deterministic=True)


def _write_value(entry: Any, value: Value) -> None:
    entry.name = value.name
    tensor = entry.type.tensor_type
    tensor.elem_type = ELEMENT_TYPES[value.dtype]
    tensor.shape.SetInParent()  # a 0-d value has a shape without dimensions, not an unknown shape
    for extent in value.shape:
        tensor.shape.dim.add(dim_value=extent)


def _write_tensor(entry: Any, array: np.ndarray, name: str = "") -> None:
    entry.name = name
    entry.data_type = ELEMENT_TYPES[str(array.dtype)]
    entry.dims.extend(array.shape)
    entry.raw_data = array.tobytes()


def _write_attribute(entry: Any, attribute: Attr) -> None:
    if isinstance(attribute, int):
        entry.type, entry.i = AttributeProto.INT, attribute
    elif isinstance(attribute, float):
        entry.type, entry.f = AttributeProto.FLOAT, attribute
    elif isinstance(attribute, str):
        entry.type, entry.s = AttributeProto.STRING, attribute.encode()
    elif isinstance(attribute, np.ndarray):
        entry.type = AttributeProto.TENSOR
        _write_tensor(entry.t, attribute)
    elif attribute and isinstance(attribute[0], float):
        entry.type = AttributeProto.FLOATS
        entry.floats.extend(attribute)
    elif attribute and isinstance(attribute[0], str):
        entry.type = AttributeProto.STRINGS
        entry.strings.extend(item.encode() for item in attribute if isinstance(item, str))
    else:
        entry.type = AttributeProto.INTS
        entry.ints.extend(attribute)


# --- reading ---


@dataclass(frozen=True)
class OnnxParts:
    """What an ONNX file holds, before the dtypes and shapes of its intermediate values are known to be complete."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    values: Mapping[str, Value]
    constants: Mapping[str, np.ndarray]


def from_onnx(data: bytes) -> Graph:
    """The Graph in ONNX bytes that declare every value. Raises GraphError."""
    parts = read_parts(data)
    for node in parts.nodes:
        for name in node.outputs:
            if name and name not in parts.values:
                raise _refuse(f"value {name} of node {node.name} has no dtype and shape; run shape inference first")
    return Graph(parts.name, parts.inputs, parts.outputs, parts.nodes, parts.values, parts.constants)


def read_parts(data: bytes) -> OnnxParts:
    """Decode and check ONNX bytes as far as no operator's rule is needed. Raises GraphError."""
    model = _decode(data)
    proto = model.graph
    if proto.sparse_initializer:
        raise _refuse("it holds sparse initializers; store them dense")
    constants = {tensor.name: _read_tensor(tensor, tensor.name) for tensor in proto.initializer}
    values = {name: Value(name, str(array.dtype), array.shape) for name, array in constants.items()}
    if len(constants) != len(proto.initializer):
        raise _refuse("two initializers have the same name; names must be unique")
    inputs = []
    for info in proto.input:
        if info.name not in constants:  # old files list their initializers as inputs, too
            inputs.append(info.name)
            values[info.name] = _read_value(info)
    nodes: list[Node] = []
    produced: set[str] = set()
    for index, entry in enumerate(proto.node):
        constant = _constant_node(entry)
        if constant is not None:
            name, array = constant
            if name in values:
                raise _refuse(f"value {name} is defined twice; names must be unique")
            constants[name] = array
            values[name] = Value(name, str(array.dtype), array.shape)
            continue
        nodes.append(_read_node(entry, index))
        produced.update(name for name in entry.output if name)
    for info in [*proto.value_info, *proto.output]:
        if info.name in produced and info.type.tensor_type.HasField("shape"):
            values[info.name] = _read_value(info)
    outputs = tuple(info.name for info in proto.output)
    return OnnxParts(proto.name or "graph", tuple(inputs), outputs, _named(nodes), values, constants)


def _refuse(fact: str) -> GraphError:
    return GraphError(f"not an ONNX model that we accept: {fact}")


def _decode(data: bytes) -> Any:
    if not data:
        raise GraphError("not an ONNX model: the file is empty")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(bytes(data))
    except (DecodeError, ValueError, RecursionError) as error:
        raise GraphError(f"not an ONNX model: {error}") from error
    if not model.HasField("graph") or not model.ir_version:
        raise GraphError("not an ONNX model: it has no graph or no IR version")
    versions = {entry.domain if entry.domain != "ai.onnx" else "": entry.version for entry in model.opset_import}
    if versions.get("", OPSET) != OPSET:
        raise _refuse(f"its opset is {versions['']}, ours is {OPSET}; convert it with onnx.version_converter")
    if not versions:
        raise _refuse("it names no opset")
    unknown = sorted(set(versions) - {"", DOMAIN})
    if unknown:
        raise _refuse(f"it uses the operator domain {unknown[0]!r}; known are '' and {DOMAIN!r}")
    if versions.get(DOMAIN, DOMAIN_VERSION) != DOMAIN_VERSION:
        raise _refuse(f"domain {DOMAIN} has version {versions[DOMAIN]}, ours is {DOMAIN_VERSION}")
    if model.functions:
        raise _refuse("it holds functions; inline them first (onnx.inliner)")
    return model


def _read_value(info: Any) -> Value:
    if info.type.WhichOneof("value") != "tensor_type":
        raise _refuse(f"value {info.name} is not a tensor")
    tensor = info.type.tensor_type
    dtype = _dtype(tensor.elem_type, info.name)
    if not tensor.HasField("shape"):
        raise _refuse(f"value {info.name} has no shape; shapes are static")
    shape = []
    for axis, dim in enumerate(tensor.shape.dim):
        if dim.WhichOneof("value") != "dim_value":
            extent = dim.dim_param or "unknown"
            raise _refuse(f"dimension {axis} of {info.name} is {extent!r}, not a number; shapes are static")
        shape.append(_extent(dim.dim_value, info.name))
    return Value(info.name, dtype, tuple(shape))


def _dtype(element_type: int, name: str) -> str:
    dtype = DTYPE_OF_ELEMENT_TYPE.get(element_type)
    if dtype is None:
        known = element_type in TensorProto.DataType.values()
        kind = TensorProto.DataType.Name(element_type) if known else element_type
        raise _refuse(f"{name} has dtype {kind}; allowed are {', '.join(DTYPES)}")
    return dtype


def _extent(number: int, name: str) -> int:
    if not 0 <= number < 2**48:
        raise _refuse(f"{name} has an extent of {number}")
    return int(number)


def _read_tensor(tensor: Any, name: str) -> np.ndarray:
    if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
        raise _refuse(f"constant {name} lies in another file; load it with its data inside")
    if tensor.HasField("segment"):
        raise _refuse(f"constant {name} is one segment of a tensor")
    dtype = DTYPES[_dtype(tensor.data_type, name)]
    shape = tuple(_extent(extent, name) for extent in tensor.dims)
    count = 1
    for extent in shape:
        count *= extent
    if tensor.HasField("raw_data"):
        if len(tensor.raw_data) != count * dtype.itemsize:
            needed = count * dtype.itemsize
            raise _refuse(f"constant {name} has {len(tensor.raw_data)} bytes, its shape {shape} needs {needed}")
        array = np.frombuffer(tensor.raw_data, dtype.newbyteorder("<")).reshape(shape)
        if dtype == np.bool_:
            array = array.view(np.uint8) != 0
        return frozen_array(array)
    field = {"float32": "float_data", "float64": "double_data", "int64": "int64_data"}.get(str(dtype), "int32_data")
    items = getattr(tensor, field)
    if len(items) != count:
        raise _refuse(f"constant {name} has {len(items)} elements, its shape {shape} needs {count}")
    if dtype == np.float16:
        return frozen_array(np.array(items, np.uint16).view(np.float16).reshape(shape))
    return frozen_array(np.array(items, dtype).reshape(shape))


_SCALAR_CONSTANTS: Mapping[str, tuple[str, type]] = {
    "value_int": ("i", np.int64),
    "value_ints": ("ints", np.int64),
    "value_float": ("f", np.float32),
    "value_floats": ("floats", np.float32),
}


def _constant_node(entry: Any) -> tuple[str, np.ndarray] | None:
    """Name and data of a `Constant` node: constants are values of a Graph, not nodes."""
    if entry.op_type != "Constant" or entry.domain not in ("", "ai.onnx"):
        return None
    if len(entry.attribute) != 1 or len(entry.output) != 1 or entry.input:
        raise _refuse(f"node {entry.name or entry.output} is a Constant without exactly one value")
    attribute, name = entry.attribute[0], entry.output[0]
    if attribute.name == "value":
        return name, _read_tensor(attribute.t, name)
    if attribute.name not in _SCALAR_CONSTANTS:
        raise _refuse(f"constant {name} has an attribute {attribute.name}; use `value`")
    field, dtype = _SCALAR_CONSTANTS[attribute.name]
    return name, np.array(getattr(attribute, field), dtype)


_READ_ATTRIBUTE = {
    AttributeProto.INT: lambda entry: entry.i,
    AttributeProto.FLOAT: lambda entry: entry.f,
    AttributeProto.STRING: lambda entry: entry.s.decode(),
    AttributeProto.INTS: lambda entry: tuple(entry.ints),
    AttributeProto.FLOATS: lambda entry: tuple(entry.floats),
    AttributeProto.STRINGS: lambda entry: tuple(item.decode() for item in entry.strings),
    AttributeProto.TENSOR: lambda entry: _read_tensor(entry.t, entry.name),
}


def _read_node(entry: Any, index: int) -> Node:
    name = entry.name or f"{entry.op_type}_{index}"
    if entry.domain not in ("", "ai.onnx", DOMAIN):
        raise _refuse(f"node {name} is of the operator domain {entry.domain!r}; known are '' and {DOMAIN!r}")
    attrs: dict[str, Attr] = {}
    for attribute in entry.attribute:
        read = _READ_ATTRIBUTE.get(attribute.type)
        if read is None:
            raise _refuse(f"attribute {attribute.name} of node {name} is a graph, a type or a sparse tensor")
        try:
            attrs[attribute.name] = read(attribute)
        except UnicodeDecodeError as error:
            raise _refuse(f"attribute {attribute.name} of node {name} is not UTF-8 text") from error
    return Node(name, entry.op_type, tuple(entry.input), tuple(entry.output), attrs)


def _named(nodes: list[Node]) -> tuple[Node, ...]:
    """Nodes with unique names: ONNX allows equal and absent ones."""
    seen: set[str] = set()
    named = []
    for node in nodes:
        name, number = node.name, 0
        while name in seen:
            number += 1
            name = f"{node.name}_{number}"
        seen.add(name)
        named.append(node if name == node.name else replace(node, name=name))
    return tuple(named)
