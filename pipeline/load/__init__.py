"""The load phase: program, constants and signature become an Application."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlsdk.pipeline.ir.application import Application, HostNode, Placement
from mlsdk.pipeline.ir.bits import to_bits
from mlsdk.pipeline.ir.graph import Graph
from mlsdk.pipeline.ir.placed import ON_HOST, ZERO, Placed
from mlsdk.pipeline.ir.plan import Plan
from mlsdk.pipeline.ir.program import Program
from mlsdk.pipeline.ir.signature import Signature

__all__ = ["pack"]


def pack(
    graph: Graph,
    signature: Signature,
    placed: Placed,
    plan: Plan,
    program: Program,
    tables: Mapping[str, np.ndarray],
    state: Mapping[str, np.ndarray] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Application:
    """The application: constants of `graph` and `state` (name -> array) packed into the images of their layouts, tables as
    they are."""

    def placement(name: str) -> Placement:
        v, slot = placed.values[name], plan.slots[name]
        clean = v.pad == ZERO or v.image.full
        return Placement(slot.segment, slot.offset, v.dtype, v.shape, v.device_dtype, v.layout, clean, v.scheme)

    shown = [*zip(graph.inputs, placed.inputs), *zip(graph.outputs, placed.outputs)]
    values = {seen: placement(name) for seen, name in shown}
    host = {
        p.node.name: HostNode(
            p.node,
            tuple(placement(name) if name else None for name in p.node.inputs),
            tuple(placement(name) if name else None for name in p.node.outputs),
        )
        for p in placed.nodes
        if p.emitter == ON_HOST
    }
    data = dict(tables)
    for name, v in placed.values.items():
        if v.origin == "constant" and name in plan.slots:
            data[plan.slots[name].segment] = v.image.pack(
                to_bits(placed.data_of(v, graph.constants), v.device_dtype, name)
            )
    for entry in signature.state:
        if entry.input and state and entry.name in state:
            place = values[entry.input]
            data[place.segment] = place.image.pack(to_bits(state[entry.name], place.device_dtype, entry.name))
    return Application(signature, program, values, data, dict(facts or {}), host)
