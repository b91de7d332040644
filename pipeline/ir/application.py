"""Application: everything that running a compiled function needs, in one file.

The container (`model.app`) is a line of magic, the length of a JSON header, the header, and blobs of raw little-endian long
words. The header names the program (assembly with loops, symbols and strides), the signature, how each input, output and
state lies in DRAM, and which blob fills which segment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from mlsdk.errors import GraphError
from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import Layout
from mlsdk.pipeline.ir.placed import attr_from_json, attr_to_json, scheme_from_json, scheme_to_json
from mlsdk.pipeline.ir.program import Program
from mlsdk.pipeline.ir.scheme import Scheme
from mlsdk.pipeline.ir.signature import Signature

MAGIC = b"open-mlsdk application 3\n"


@dataclass(frozen=True)
class Placement:
    """How a graph value lies in DRAM: its segment, logical dtype and shape, device dtype and layout. `clean`: what holds
    no element is zero, as readers of inputs take it for granted; `scheme`: the planner's own form of the layout."""

    segment: str
    offset: int
    dtype: str
    shape: tuple[int, ...]
    device_dtype: str
    layout: Layout
    clean: bool = False
    scheme: Scheme | None = None

    @property
    def image(self) -> Image:
        return Image(self.layout, self.device_dtype, self.shape)


@dataclass(frozen=True)
class HostNode:
    """A node that the host computes when the program comes to its marker: it reads its operands from DRAM, and writes its
    results there. None: an operand or result that is left out."""

    node: Node
    inputs: tuple[Placement | None, ...]
    outputs: tuple[Placement | None, ...]


@dataclass(frozen=True)
class Application:
    """`values`: the graph's inputs and outputs by value name; `data`: contents of constant segments, uint64[4][LW] or
    uint64[1][LW] where all groups hold the same; `host`: the nodes that the host computes, by marker."""

    signature: Signature
    program: Program
    values: Mapping[str, Placement]
    data: Mapping[str, np.ndarray] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    host: Mapping[str, HostNode] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", MappingProxyType(dict(self.values)))
        object.__setattr__(self, "data", MappingProxyType(dict(self.data)))
        object.__setattr__(self, "facts", MappingProxyType(dict(self.facts)))
        object.__setattr__(self, "host", MappingProxyType(dict(self.host)))

    def to_bytes(self) -> bytes:
        blobs, entries, at = [], {}, 0
        for segment, image in self.data.items():
            same = image.shape[0] == 1 or all((image[g] == image[0]).all() for g in range(1, image.shape[0]))
            blob = np.ascontiguousarray(image[:1] if same else image, "<u8").tobytes()
            entries[segment] = [1 if same else 4, at, len(blob)]
            blobs.append(blob)
            at += len(blob)
        header = {
            "signature": json.loads(self.signature.to_json()),
            "program": self.program.to_data(),
            "values": {name: _placement_to_json(p) for name, p in self.values.items()},
            "host": {marker: _host_to_json(h) for marker, h in self.host.items()},
            "data": entries,
            "facts": dict(self.facts),
        }
        text = json.dumps(header, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
        return b"".join([MAGIC, len(text).to_bytes(8, "little"), text, *blobs])

    @classmethod
    def from_bytes(cls, data: bytes) -> Application:
        """Raises GraphError when `data` is not an application of this version."""
        if not data.startswith(MAGIC):
            raise GraphError("not an application of this version of Open MLSDK; compile the function again")
        start = len(MAGIC) + 8
        length = int.from_bytes(data[len(MAGIC) : start], "little")
        try:
            header = json.loads(data[start : start + length])
            blobs = memoryview(data)[start + length :]
            filled = {}
            for segment, (groups, at, size) in header["data"].items():
                if at + size > len(blobs):
                    raise GraphError(f"the application is cut off in the data of {segment}; compile the function again")
                filled[segment] = np.frombuffer(blobs[at : at + size], "<u8").reshape(groups, -1)
            return cls(
                Signature.from_json(json.dumps(header["signature"])),
                Program.from_data(header["program"]),
                {name: _placement(p) for name, p in header["values"].items()},
                filled,
                header["facts"],
                {marker: _host(h) for marker, h in header["host"].items()},
            )
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise GraphError(f"the application is damaged ({error!r:.80}); compile the function again") from error


def _placement_to_json(p: Placement) -> list[Any]:
    return [
        *(p.segment, p.offset, p.dtype, p.shape, p.device_dtype, str(p.layout)),
        *(p.clean, scheme_to_json(p.scheme)),
    ]


def _placement(data: Any) -> Placement:
    segment, offset, dtype, shape, device, layout, clean, scheme = data
    return Placement(
        segment, offset, dtype, tuple(shape), device, Layout.parse(layout), clean, scheme_from_json(scheme)
    )


def _host_to_json(h: HostNode) -> dict[str, Any]:
    return {
        "node": [h.node.name, h.node.op, h.node.inputs, h.node.outputs],
        "attrs": {key: attr_to_json(value) for key, value in h.node.attrs.items()},
        "inputs": [p and _placement_to_json(p) for p in h.inputs],
        "outputs": [p and _placement_to_json(p) for p in h.outputs],
    }


def _host(data: Any) -> HostNode:
    name, op, inputs, outputs = data["node"]
    attrs = {key: attr_from_json(value) for key, value in data["attrs"].items()}
    node = Node(name, op, tuple(inputs), tuple(outputs), attrs)
    places = [tuple(_placement(p) if p else None for p in data[side]) for side in ("inputs", "outputs")]
    return HostNode(node, places[0], places[1])
