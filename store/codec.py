"""Canonical text of a value: equal values give equal bytes, and values of another type give other bytes.

    None, True, 3, "x"     null  true  3  "x"
    1.5, -0.0              ["float","0x1.8000000000000p+0"]  ["float","-0x0.0p+0"]
    b"\\x01"                ["bytes","01"]
    [1], (1,)              ["list",1]  ["tuple",1]
    {"b": 1, "a": 2}       {"a":2,"b":1}
    Point(x=1)             ["data","Point",{"x":1}]           a dataclass

A JSON array always begins with its tag, so nothing is ambiguous. NaN and infinities have no place in a key.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from mlsdk.store.errors import BadName

_encode = json.JSONEncoder(sort_keys=True, allow_nan=False, ensure_ascii=True, separators=(",", ":")).encode


def canonical(value: Any) -> bytes:
    """The canonical bytes of `value`."""
    return _encode(tagged(value)).encode("ascii")


def decode(data: bytes | str) -> Any:
    """The value of canonical bytes; a dataclass comes back as ("data", name, fields)."""
    return untagged(json.loads(data))


def tagged(value: Any) -> Any:
    """`value` as plain JSON data with type tags."""
    kind = type(value)
    # The exact types first: this runs thousands of times in a compile.
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is float:
        return ["float", _hex(value)]
    if kind is tuple:
        return ["tuple", *map(tagged, value)]
    if kind is list:
        return ["list", *map(tagged, value)]
    if isinstance(value, Mapping):
        return {_key(name): tagged(item) for name, item in value.items()}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return ["bytes", bytes(value).hex()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: tagged(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return ["data", kind.__name__, fields]
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return ["float", _hex(float(value))]
    if isinstance(value, tuple):
        return ["tuple", *map(tagged, value)]
    if isinstance(value, list):
        return ["list", *map(tagged, value)]
    if isinstance(value, (set, frozenset)):
        return ["set", *sorted(map(tagged, value), key=_encode)]
    raise BadName(
        f"a key cannot hold {value!r:.80} of type {kind.__name__}; use None, bool, int, float, str, bytes, list, "
        "tuple, dict, set or a dataclass"
    )


def untagged(data: Any) -> Any:
    """The value of tagged JSON data."""
    if isinstance(data, dict):
        return {name: untagged(item) for name, item in data.items()}
    if not isinstance(data, list):
        return data
    tag, *items = data
    if tag == "float":
        return float.fromhex(items[0])
    if tag == "bytes":
        return bytes.fromhex(items[0])
    if tag == "data":
        return ("data", items[0], untagged(items[1]))
    return _CONTAINERS[tag](map(untagged, items))


_CONTAINERS: dict[str, Any] = {"list": list, "tuple": tuple, "set": frozenset}


def plain(value: Any) -> Any:
    """`value` as JSON for readers: no tags, floats as numbers. Not for keys."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value


def _hex(value: float) -> str:
    if not math.isfinite(value):
        raise BadName(f"a key cannot hold {value}; give a finite number")
    return value.hex()


def _key(name: Any) -> str:
    if not isinstance(name, str):
        raise BadName(f"a key cannot hold a mapping with the name {name!r:.80}; names are strings")
    return str.__str__(name)
