"""Linking: the fragments of a plan's nodes, one after another, with their symbols bound to segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from math import inf

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.pipeline.ir.placed import ON_HOST, VIEW, Placed
from mlsdk.pipeline.ir.plan import CONSTANT, Plan, Segment, Slot, nodes_of
from mlsdk.pipeline.ir.program import Program, renamed
from mlsdk.pipeline.ops.clock import Measure
from mlsdk.pipeline.ops.emitters import emit
from mlsdk.pipeline.ops.emitters.home import Lives
from mlsdk.pipeline.ops.line import Line, Node
from mlsdk.pipeline.ops.overlap import REACHES, Found, overlapped, steps_of

#: of the plans that searches came upon lately: (placed, plan, reach) -> what is known of each part; a few numbers each
_found: dict[tuple[str, str, int], list[Found]] = {}
_FOUND_SIZE = 10_000
#: the last program, for who asks for it next
_last: tuple[tuple[str, str], Linked] | None = None

#: a program, and the data of its tables (segment -> uint64[4][n])
Linked = tuple[Program, dict[str, np.ndarray]]


def link(placed: Placed, plan: Plan) -> Linked:
    """The program, and the data of its tables."""
    global _last
    key, last = (placed.digest, plan.digest), _last
    if last is None or last[0] != key:
        _last = last = key, _linked(placed, plan)
    return last[1][0], dict(last[1][1])


def _linked(placed: Placed, plan: Plan) -> Linked:
    parts, segments, tables = _parts(placed, plan)
    found = [n for part in parts for n in (overlapped(Line(part), plan.merged) if plan.merged else part)]
    return Program(tuple(s for n in found for s in (m.Marker(n.name), *n.statements)), segments), tables


def count(placed: Placed, plan: Plan, measure: Measure) -> int:
    """The steps of a plan, once in a process."""
    key = placed.digest, replace(plan, merged=0).digest, plan.merged
    found = _found.get(key, [])
    steps = found[0].within(inf) if len(found) == 1 else None
    if steps is not None:
        return int(steps)
    counted = measure(_linked(placed, plan)[0].statements)[0]
    if not plan.merged:
        _keep(key, [Found(counted, counted)])
    return counted


def _keep(key: tuple[str, str, int], found: list[Found]) -> None:
    if len(_found) > _FOUND_SIZE:
        _found.clear()
    _found[key] = found


def with_overlap(placed: Placed, plan: Plan, limit: float = inf) -> tuple[float, Plan]:
    """The plan with its nodes overlapping as far ahead as gives the fewest steps, and these, if they are fewer than `limit`."""
    lines: list[Line] = []
    best = plan
    for reach in REACHES:
        found = _found.get((placed.digest, plan.digest, reach))
        known = sum_within(found, limit) if found is not None else None
        if known is None:
            lines = lines or [Line(part) for part in _parts(placed, plan)[0]]
            if found is None:
                found = [Found(line.steps) for line in lines]
                _keep((placed.digest, plan.digest, reach), found)
            known = 0.0
            for line, one in zip(lines, found):
                known += steps_of(line, reach, limit - known, one)
        if known < limit:
            limit, best = known, replace(plan, merged=reach)
    return limit, best


def sum_within(found: Sequence[Found], limit: float) -> float | None:
    """The steps of all parts if they are fewer than `limit`, infinitely many if they are not; None where that is not known."""
    total = 0.0
    for one in found:
        steps = one.within(limit - total)
        if steps is None:
            return None
        total += steps
    return total


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
            segment = f"table:{fragment.digests[symbol][:16]}"
            if segment not in segments:
                segments[segment] = Segment(segment, CONSTANT, data.shape[1])
                tables[segment] = data
            names[symbol] = Slot(segment)
        homes = {**dict(step.reads), **{len(inputs) + o: home for o, home in step.keeps}}
        code = renamed(fragment.settled({operand: home.word for operand, home in homes.items()}), names)
        found.append(Node(step.node, tuple(code)))
    parts = [list(part) for _, part in groupby(found, lambda n: nodes[n.name].emitter == ON_HOST)]
    return parts, segments, tables
