"""Linking: the fragments of a plan's nodes, one after another, with their symbols bound to segments."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import groupby

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.pipeline.ir.placed import ON_HOST, VIEW, Placed
from mlsdk.pipeline.ir.plan import CONSTANT, Plan, Segment, Slot, nodes_of
from mlsdk.pipeline.ir.program import Program, renamed
from mlsdk.pipeline.ops.emitters import emit
from mlsdk.pipeline.ops.emitters.home import Lives, settled
from mlsdk.pipeline.ops.line import Line, Node
from mlsdk.pipeline.ops.overlap import REACHES, overlapped, steps_of


def link(placed: Placed, plan: Plan) -> tuple[Program, dict[str, np.ndarray]]:
    """The program, and the data of its tables (segment -> uint64[4][n])."""
    parts, segments, tables = _parts(placed, plan)
    found = [n for part in parts for n in (overlapped(Line(part), plan.merged) if plan.merged else part)]
    return Program(tuple(s for n in found for s in (m.Marker(n.name), *n.statements)), segments), tables


def with_overlap(placed: Placed, plan: Plan, limit: float = float("inf")) -> tuple[float, Plan]:
    """The plan with its nodes overlapping as far ahead as gives the fewest steps, and these, if they are fewer than `limit`."""
    lines = [Line(part) for part in _parts(placed, plan)[0]]
    best = plan
    for reach in REACHES:
        steps = 0.0
        for line in lines:
            steps += steps_of(line, reach, limit - steps)
        if steps < limit:
            limit, best = steps, replace(plan, merged=reach)
    return limit, best


def _parts(placed: Placed, plan: Plan) -> tuple[list[list[Node]], dict[str, Segment], dict[str, np.ndarray]]:
    """The fragments, cut before each node of the host: what stands behind one reads what it computes. The segments and tables
    of all."""
    nodes = nodes_of(placed, plan.steps)
    found: list[Node] = []
    segments, tables = dict(plan.segments), {}
    for step in plan.steps:
        node = nodes[step.node]
        if node.emitter == VIEW:
            continue
        inputs, outputs = node.node.inputs, [o for o in node.node.outputs if o]
        fragment = emit(node, placed.values, Lives.of(step, len(inputs), len(outputs)))
        names: dict[str, Slot] = {}
        for prefix, operands in (("in", inputs), ("out", outputs)):
            for i, name in enumerate(operands):
                if name in plan.slots:
                    names[f"{prefix}{i}"] = plan.slots[name]
        for symbol, data in fragment.constants.items():
            segment = f"table:{hashlib.sha256(data.tobytes()).hexdigest()[:16]}"
            if segment not in segments:
                segments[segment] = Segment(segment, CONSTANT, data.shape[1])
                tables[segment] = data
            names[symbol] = Slot(segment)
        code = renamed(fragment.statements, names)
        if not step.in_dram:
            homes = {**dict(step.reads), **{len(inputs) + o: home for o, home in step.keeps}}
            code = settled(code, {operand: home.word for operand, home in homes.items()})
        found.append(Node(step.node, tuple(code)))
    parts = [list(part) for _, part in groupby(found, lambda n: nodes[n.name].emitter == ON_HOST)]
    return parts, segments, tables
