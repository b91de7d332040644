"""A Timeline in the forms that tools read: report.json, profile.json and trace.json (Chrome JSON, microseconds)."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from typing import Any

from mlsdk.device import spec
from mlsdk.pipeline.ir.timeline import Timeline

MICROSECONDS = 1e6 / spec.CLOCK_HZ  # of a cycle


def report(timeline: Timeline) -> bytes:
    """The summary: steps, simulated time, bytes, and the share of each operator."""
    by_op: dict[str, dict[str, Any]] = defaultdict(lambda: {"nodes": 0, "steps": 0.0, "dram_bytes": 0})
    for row in timeline.rows:
        entry = by_op[row.op]
        entry["nodes"] += 1
        entry["steps"] += (row.end - row.start) / spec.CYCLES_PER_STEP
        entry["dram_bytes"] += row.dram_lw * 8
    data = {
        "steps": timeline.steps,
        "pe_steps": timeline.pe_steps,
        "stall_steps": timeline.stall_steps,
        "simulated_us": timeline.steps * spec.CYCLES_PER_STEP * MICROSECONDS,
        "moves": timeline.moves,
        "dram_bytes": timeline.dram_bytes,
        "bound_steps": {
            "dram": timeline.dram_bytes / 8 / (spec.GROUPS * spec.DRAM_LW_PER_CYCLE * spec.CYCLES_PER_STEP)
        },
        "by_operator": dict(sorted(by_op.items(), key=lambda item: -item[1]["steps"])),
        "assumed": dict(spec.ASSUMED),
    }
    return (json.dumps(data, indent=1, allow_nan=False) + "\n").encode()


def profile(timeline: Timeline) -> bytes:
    """When and how long each layer runs on the device."""
    events = _thread(1, "layers")
    for row in timeline.rows:
        args = {
            "steps": (row.end - row.start) // spec.CYCLES_PER_STEP,
            "pe_steps": row.pe_steps,
            "dram_bytes": row.dram_lw * 8,
        }
        events.append(_slice(row.node, row.op, 1, row.start, row.end, args))
    return _chrome(events)


def trace(timeline: Timeline) -> bytes:
    """Layers, and under them the moves between DRAM and L2BM in lanes that do not overlap."""
    events = _thread(1, "layers")
    for row in timeline.rows:
        events.append(_slice(row.node, row.op, 1, row.start, row.end, {"op": row.op}))
    lanes: list[int] = []
    for flow in timeline.flows:
        lane = next((i for i, end in enumerate(lanes) if end <= flow.start), len(lanes))
        if lane == len(lanes):
            lanes.append(0)
            events += _thread(10 + lane, f"MV {lane}")
        lanes[lane] = flow.end
        args = {"segment": flow.segment, "long_words": flow.size, "node": flow.node}
        events.append(_slice(flow.mnemonic, "move", 10 + lane, flow.start, flow.end, args))
    return _chrome(events)


def _thread(number: int, name: str) -> list[dict[str, Any]]:
    """A lane: its name, and its place among the others, which would be ordered by name."""
    told = {"thread_name": {"name": name}, "thread_sort_index": {"sort_index": number}}
    return [{"ph": "M", "name": what, "pid": 1, "tid": number, "args": args} for what, args in told.items()]


def _nanoseconds(cycle: int) -> int:
    return round(cycle * MICROSECONDS * 1000)


def _microseconds(nanoseconds: int) -> float:
    """As the viewers read it: they cut off what lies behind the nanosecond, and a slice that then ends behind the start of
    the next in its lane is dropped."""
    found = nanoseconds / 1000
    return found if int(found * 1000) == nanoseconds else math.nextafter(found, math.inf)


def _slice(name: str, category: str, lane: int, start: int, end: int, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": 1,
        "tid": lane,
        "ts": _microseconds(_nanoseconds(start)),
        "dur": _microseconds(_nanoseconds(end) - _nanoseconds(start)),
        "args": args,
    }


def _chrome(events: list[dict[str, Any]]) -> bytes:
    head = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "MN-Core 2 (emulated)"}}
    return (json.dumps({"traceEvents": [head, *events], "displayTimeUnit": "ns"}, allow_nan=False) + "\n").encode()
