"""Emitters: how a placed node becomes instructions. `emit` looks the emitter up by the name that the planner chose."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.placed import LOAD, ON_HOST, VIEW, PlacedNode, PlacedValue
from mlsdk.pipeline.ops.emitters.argument import emit_argument
from mlsdk.pipeline.ops.emitters.asm import Asm
from mlsdk.pipeline.ops.emitters.conv import emit_conv
from mlsdk.pipeline.ops.emitters.copy import emit_copy
from mlsdk.pipeline.ops.emitters.elementwise import emit_elementwise
from mlsdk.pipeline.ops.emitters.fetch import emit_fetch
from mlsdk.pipeline.ops.emitters.filters import emit_filters
from mlsdk.pipeline.ops.emitters.fragment import Call, Fragment
from mlsdk.pipeline.ops.emitters.gather import emit_gather
from mlsdk.pipeline.ops.emitters.gemm import emit_gemm
from mlsdk.pipeline.ops.emitters.home import IN_DRAM, Lives
from mlsdk.pipeline.ops.emitters.load import emit_load
from mlsdk.pipeline.ops.emitters.onehot import emit_one_hot
from mlsdk.pipeline.ops.emitters.rearrange import emit_rearrange
from mlsdk.pipeline.ops.emitters.reduce import emit_reduce
from mlsdk.pipeline.ops.emitters.scan import emit_scan
from mlsdk.pipeline.ops.emitters.scatter import emit_scatter
from mlsdk.pipeline.ops.emitters.slide import emit_slide
from mlsdk.pipeline.ops.emitters.softmax import emit_softmax
from mlsdk.pipeline.ops.emitters.topk import emit_topk
from mlsdk.pipeline.ops.emitters.transfer import Tensor

Emitter = Callable[[Call], Asm | tuple[Asm, dict[str, np.ndarray]]]

EMITTERS: dict[str, Emitter] = {
    "elementwise": emit_elementwise,
    "gemm": emit_gemm,
    "reduce": emit_reduce,
    "softmax": emit_softmax,
    "argument": emit_argument,
    "move": emit_rearrange,
    "gather": emit_gather,
    "fetch": emit_fetch,
    "scatter": emit_scatter,
    "onehot": emit_one_hot,
    "scan": emit_scan,
    "topk": emit_topk,
    "copy": emit_copy,
    LOAD: emit_load,
    "conv": emit_conv,
    "slide": emit_slide,
    "filters": emit_filters,
}

_KNOWN: dict[str, Fragment] = {}


def emit(placed: PlacedNode, values: Mapping[str, PlacedValue], lives: Lives = IN_DRAM) -> Fragment:
    """The instructions of one node with its operands where `lives` says; equal nodes (operator, attributes, shapes, layouts,
    choices) are emitted once. EmitError where its emitter cannot read an operand in LM, or leave a result there."""
    key = fragment_key(placed, values, lives)
    if key not in _KNOWN:
        _KNOWN[key] = emit_anew(placed, values, lives)
    return _KNOWN[key]


def emit_anew(placed: PlacedNode, values: Mapping[str, PlacedValue], lives: Lives) -> Fragment:
    """`emit` without its memory, for candidates of which few are used."""
    if placed.emitter in (VIEW, ON_HOST):
        return Fragment(())
    emitter = EMITTERS.get(placed.emitter)
    if emitter is None:
        raise EmitError(f"{placed.node.name}: there is no emitter {placed.emitter}; known are {', '.join(EMITTERS)}")

    def tensor(name: str, symbol: str, index: int, stored: bool) -> Tensor | None:
        if not name:
            return None
        v, home = values[name], lives.place(index)
        return Tensor(v.image, symbol if stored else "", v.pad, v.scheme, home)

    count, kept = len(placed.node.inputs), [name for name in placed.node.outputs if name]
    stored = lives.stored or (True,) * len(kept)
    inputs = tuple(tensor(name, f"in{i}", i, lives.place(i) is None) for i, name in enumerate(placed.node.inputs))
    outputs = tuple(tensor(name, f"out{i}", count + i, stored[i]) for i, name in enumerate(kept))
    try:
        found = emitter(Call(placed.node, inputs, outputs, placed.kernel, placed.batches))  # type: ignore[arg-type]
    except EmitError as error:
        error.node = placed.node.name
        raise
    asm, constants = found if isinstance(found, tuple) else (found, {})
    asm.quiesce()
    fragment = Fragment(tuple(asm.statements), constants)
    for index, out in enumerate(outputs, count):
        assert out is not None
        if out.home is not None:
            left = fragment.written.get((out.home.space, index + 1), 0)
            if ~left & (1 << out.image.addresses) - 1:
                raise EmitError(f"{placed.node.name}: {placed.node.op} leaves results in DRAM only", placed.node.name)
    return fragment


def fragment_key(placed: PlacedNode, values: Mapping[str, PlacedValue], lives: Lives = IN_DRAM) -> str:
    """What the instructions of a node depend on."""

    def of(names: Sequence[str]) -> str:
        return f"[{', '.join(values[name].as_operand if name else 'null' for name in names)}]"

    where = json.dumps([lives.reads, lives.keeps, lives.stored])
    parts = [placed.as_operation, of(placed.node.inputs), of(placed.node.outputs), where]
    return hashlib.sha256(f"[{', '.join(parts)}]".encode()).hexdigest()
