"""Stand-in phases: small functions on bytes, deterministic, each with the artifacts of the real one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mlsdk.store import digest_of
from mlsdk.tasks.phases import PHASES

calls: list[str] = []

TRACED = {
    "exported.onnx": b"graph of add " * 50,
    "signature.json": b'{"inputs": ["x", "y"]}\n',
    "sources.json": b'{"add": "add.py:3"}\n',
}


def stand_in(phase: str):
    """A function that gives each artifact of the phase: its name, what it was made of, the options."""

    def function(inputs: Mapping[str, bytes], options: Mapping[str, Any], services: Any) -> dict[str, bytes]:
        calls.append(phase)
        made_of = {name: digest_of(data)[:8] for name, data in sorted(inputs.items())}
        facts = {"phase": phase, "of": made_of, "options": {k: repr(v) for k, v in sorted(options.items())}}
        if phase == "Run":
            facts.pop("options")
        return {
            artifact.name: json.dumps({"name": artifact.name, **facts}, sort_keys=True).encode() * 20
            for artifact in PHASES[phase].gives
            if not artifact.optional
        }

    return function


def trace(program: Any, options: Mapping[str, Any], services: Any) -> dict[str, bytes]:
    calls.append("Trace")
    text = f"{program.function.__name__} {program.sample!r} {sorted(program.keywords)}"
    return {**TRACED, "exported.onnx": text.encode() * 20}


FUNCTIONS = {
    "trace": trace,
    "optimize_onnx": stand_in("OptimizeOnnx"),
    "layout_plan": stand_in("LayoutPlan"),
    "schedule": stand_in("Schedule"),
    "simulate": stand_in("Simulate"),
    "emit": stand_in("Emit"),
    "load": stand_in("Load"),
    "run": stand_in("Run"),
}
