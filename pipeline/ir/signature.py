"""The Signature: what a caller sees of a graph, beside the computation itself.

It maps the keys of the caller's dictionaries to values of the graph, and names the state: registered tensors that the
program reads and updates. Its persisted form is canonical JSON (`signature.json`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from mlsdk.errors import GraphError
from mlsdk.pipeline.ir.pytree import Spec, spec_from_json, spec_to_json

FORMAT = 1

# The state that random operators read and advance: int32[2] = (seed, number of the call).
RANDOM_STATE = "mlsdk@random"


@dataclass(frozen=True)
class Input:
    """A key of the input mapping, and the graph input that carries it. `used`: the program reads it; where it does not,
    a caller may leave the key out."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    value: str
    used: bool = True


@dataclass(frozen=True)
class Output:
    """A key of the result mapping, and the graph output that carries it; two keys may share one. `bfloat16`: the caller
    sees one, where the graph has a float32."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    value: str
    bfloat16: bool = False


@dataclass(frozen=True)
class State:
    """A registered tensor that the program uses.

    `input` is the graph input that reads it, or "" when the program only writes it; `output` the graph output that
    holds its new content, or None when the program leaves it alone.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    input: str
    output: str | None = None


@dataclass(frozen=True)
class Signature:
    """Ordered inputs, outputs and state; the pytree specs of the call and of the result (None: a plain dict)."""

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    state: tuple[State, ...] = ()
    call_spec: Spec | None = None
    result_spec: Spec | None = None

    def __post_init__(self) -> None:
        for what, keys in (
            ("input", [entry.key for entry in self.inputs]),
            ("output", [entry.key for entry in self.outputs]),
            ("state", [entry.name for entry in self.state]),
        ):
            if len(set(keys)) != len(keys):
                raise GraphError(f"signature: an {what} is named twice: {', '.join(keys)}; keys must be unique")

    @cached_property
    def input_by_key(self) -> Mapping[str, Input]:
        return {entry.key: entry for entry in self.inputs}

    @cached_property
    def state_by_name(self) -> Mapping[str, State]:
        return {entry.name: entry for entry in self.state}

    def to_json(self) -> str:
        document = {
            "format": FORMAT,
            "inputs": [_without_default(asdict(entry), used=True) for entry in self.inputs],
            "outputs": [_without_default(asdict(entry), bfloat16=False) for entry in self.outputs],
            "state": [asdict(entry) for entry in self.state],
            "call_spec": None if self.call_spec is None else spec_to_json(self.call_spec),
            "result_spec": None if self.result_spec is None else spec_to_json(self.result_spec),
        }
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"

    @staticmethod
    def from_json(text: str) -> Signature:
        """Raises GraphError when `text` is not a signature that `to_json` wrote."""
        try:
            document = json.loads(text)
            if document["format"] != FORMAT:
                raise GraphError(f"signature: format {document['format']}, ours is {FORMAT}; trace the function again")
            return Signature(
                tuple(Input(**_with_shape(entry)) for entry in document["inputs"]),
                tuple(Output(**_with_shape(entry)) for entry in document["outputs"]),
                tuple(State(**_with_shape(entry)) for entry in document["state"]),
                *(document[key] and spec_from_json(document[key]) for key in ("call_spec", "result_spec")),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise GraphError(f"not a signature: {error!r}") from error


def _without_default(entry: dict[str, Any], **defaults: bool) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in defaults or value != defaults[key]}


def _with_shape(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {**entry, "shape": tuple(int(extent) for extent in entry["shape"])}
