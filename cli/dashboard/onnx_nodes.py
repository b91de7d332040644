"""The nodes of an ONNX file, read from its wire format without the data of its tensors.

Only what a list of nodes shows is decoded; a tensor is stepped over. So a file of gigabytes costs no memory, external data
are never opened, and `import onnx` (0.3 s) is not paid.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mlsdk.cli.dashboard.problems import Problem

NODE_LIMIT = 2_000_000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_ATTRIBUTE_KINDS = {1: "float", 2: "int", 3: "string", 4: "tensor", 5: "graph", 6: "floats", 7: "ints", 8: "strings"}
#: ONNX's numbers of element types
DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string", 9: "bool",
    10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16",
}  # fmt: skip
TEXT_LIMIT = 200


@dataclass
class OnnxNode:
    name: str = ""
    op: str = ""
    domain: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    attrs: dict[str, Any] = field(default_factory=dict)


@dataclass
class OnnxFile:
    """`values`: name -> (dtype, shape) as far as the file says it."""

    graph: str = ""
    nodes: list[OnnxNode] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    initializers: int = 0
    values: dict[str, tuple[str, list[Any]]] = field(default_factory=dict)
    opsets: dict[str, int] = field(default_factory=dict)
    producer: str = ""


def read_onnx(data: bytes, name: str) -> OnnxFile:
    """The graph of a model. Problem if the bytes are none."""
    found = OnnxFile()
    graph = None
    view = memoryview(data)
    try:
        for number, value in fields(view):
            if number == 7:
                graph = value
            elif number == 2:
                found.producer = _text(value)
            elif number == 8:
                pair = dict(fields(value))
                found.opsets[_text(pair.get(1, b"")) or "ai.onnx"] = int(pair.get(2, 0))
        if graph is None:
            raise ValueError("no graph")
        _graph(graph, found)
    except (ValueError, IndexError, TypeError, struct.error) as error:
        raise Problem(f"{name} is not an ONNX model, or still being written: {error}", 422) from None
    return found


def fields(view: memoryview) -> Iterator[tuple[int, Any]]:
    """(field number, value) of a message: int, memoryview, or the raw bytes of a fixed number."""
    at, end = 0, len(view)
    while at < end:
        key, at = _varint(view, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(view, at)
            yield key >> 3, value
        elif kind == _BYTES:
            size, at = _varint(view, at)
            if at + size > end:
                raise ValueError(f"it ends at byte {end:,} inside a field")
            yield key >> 3, view[at : at + size]
            at += size
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
            yield key >> 3, view[at : at + size]
            at += size
        else:
            raise ValueError(f"unknown wire type {kind} at byte {at:,}")


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    byte = view[at]
    at += 1
    if byte < 128:
        return byte, at
    result, shift = byte & 127, 7
    while True:
        byte = view[at]
        at += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result, at
        shift += 7
        if shift > 63:
            raise ValueError(f"a number without end at byte {at:,}")


def _graph(view: memoryview, found: OnnxFile) -> None:
    for number, value in fields(view):
        if number == 1:
            if len(found.nodes) >= NODE_LIMIT:
                raise ValueError(f"more than {NODE_LIMIT:,} nodes")
            found.nodes.append(_node(value))
        elif number == 2:
            found.graph = _text(value)
        elif number == 5:
            found.initializers += 1
            _initializer(value, found)
        elif number in (11, 12, 13):
            name = _value_info(value, found)
            if number == 11:
                found.inputs.append(name)
            elif number == 12:
                found.outputs.append(name)


def _node(view: memoryview) -> OnnxNode:
    node = OnnxNode()
    for number, value in fields(view):
        if number == 1:
            node.inputs.append(_text(value))
        elif number == 2:
            node.outputs.append(_text(value))
        elif number == 3:
            node.name = _text(value)
        elif number == 4:
            node.op = _text(value)
        elif number == 5:
            name, attr = _attribute(value)
            node.attrs[name] = attr
        elif number == 7:
            node.domain = _text(value)
    return node


def _attribute(view: memoryview) -> tuple[str, Any]:
    name, kind = "", 0
    single: Any = None
    many: list[Any] = []
    for number, value in fields(view):
        if number == 1:
            name = _text(value)
        elif number == 20:
            kind = value
        elif number == 2:
            single = struct.unpack("<f", value)[0]
        elif number == 3:
            single = _signed(value)
        elif number == 4:
            single = _text(value)[:TEXT_LIMIT]
        elif number == 5:
            single = _tensor(value)
        elif number == 6:
            single = "a graph"
        elif number == 7:
            many += _floats(value)
        elif number == 8:
            many += _ints(value)
        elif number == 9:
            many.append(_text(value)[:TEXT_LIMIT])
    plural = _ATTRIBUTE_KINDS.get(kind, "").endswith("s") or (single is None and many)
    return name, many if plural else single


def _floats(value: Any) -> list[float]:
    return [x[0] for x in struct.iter_unpack("<f", value)]


def _ints(value: Any) -> list[int]:
    if isinstance(value, int):
        return [_signed(value)]
    found: list[int] = []
    at = 0
    while at < len(value):
        number, at = _varint(value, at)
        found.append(_signed(number))
    return found


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _tensor(view: memoryview) -> str:
    dims: list[int] = []
    dtype = 0
    for number, value in fields(view):
        if number == 1:
            dims += _ints(value)
        elif number == 2:
            dtype = value
    return f"tensor {DTYPES.get(dtype, dtype)}{dims}"


def _initializer(view: memoryview, found: OnnxFile) -> None:
    name, dtype = "", 0
    dims: list[int] = []
    for number, value in fields(view):
        if number == 1:
            dims += _ints(value)
        elif number == 2:
            dtype = value
        elif number == 8:
            name = _text(value)
    found.values[name] = (DTYPES.get(dtype, str(dtype)), dims)


def _value_info(view: memoryview, found: OnnxFile) -> str:
    name = ""
    for number, value in fields(view):
        if number == 1:
            name = _text(value)
        elif number == 2:
            for kind, inner in fields(value):
                if kind == 1:
                    found.values[name] = _tensor_type(inner)
    return name


def _tensor_type(view: memoryview) -> tuple[str, list[Any]]:
    dtype = 0
    dims: list[Any] = []
    for number, value in fields(view):
        if number == 1:
            dtype = value
        elif number == 2:
            for _number, dim in fields(value):
                one = dict(fields(dim))
                dims.append(_signed(one[1]) if 1 in one else _text(one.get(2, b"?")))
    return DTYPES.get(dtype, str(dtype)), dims


def _text(value: Any) -> str:
    return bytes(value).decode("utf-8", "replace")
