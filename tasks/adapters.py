"""The phases as functions on bytes: what Luigi and the store see of them.

    function(inputs: name -> bytes, options: name -> value, services) -> name -> bytes

Each imports its phase when it is called, so that a cached build imports none. A phase knows nothing of this file: it
takes and gives the values of `pipeline/ir`, and this file turns those into bytes and back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import zstandard

from mlsdk.tasks.phases import imported

if TYPE_CHECKING:
    from mlsdk.tasks.session import Services
    from mlsdk.tasks.traced import Program

Inputs = Mapping[str, bytes]
Options = Mapping[str, Any]
Outputs = Mapping[str, bytes]


def trace(program: Program, options: Options, services: Services) -> Outputs:
    """Python function -> exported ONNX and signature. The one adapter that starts from a function."""
    traced = _phase("trace:trace")(program.function, program.sample, **program.keywords)
    return traced_artifacts(traced)


def traced_artifacts(traced: Any) -> Outputs:
    """What the tracer gives, as artifacts; Context.compile publishes the same."""
    from mlsdk.pipeline.ir.graph import sources

    return {
        "exported.onnx": traced.graph.to_onnx(),
        "signature.json": traced.signature.to_json().encode(),
        "sources.json": json_bytes(sources(traced.graph)),
    }


def optimize_onnx(inputs: Inputs, options: Options, services: Services) -> Outputs:
    return {"model.onnx": _phase("optimize:optimize")(_graph(inputs["exported.onnx"])).to_onnx()}


def layout_plan(inputs: Inputs, options: Options, services: Services) -> Outputs:
    """Also the planner's pages: `layout.reports(placed, history)` gives them by file name."""
    placed, history = _phase("layout:plan")(_graph(inputs["model.onnx"]), options)
    return {"placed.json": placed.to_json(), **_texts(_phase("layout:reports")(placed, history))}


def schedule(inputs: Inputs, options: Options, services: Services) -> Outputs:
    """Also the order for a reader: `schedule.reports(placed, plan)` gives l3ir.txt and l3ir_stripped.onnx."""
    placed = _placed(inputs)
    plan = _phase("schedule:schedule")(placed, options)
    return {"plan.json": plan.to_json(), **_texts(_phase("schedule:reports")(placed, plan))}


def simulate(inputs: Inputs, options: Options, services: Services) -> Outputs:
    """`simulate.reports(timeline)` gives the four files."""
    timeline = _phase("simulate:simulate")(_placed(inputs), _plan(inputs))
    return _texts(_phase("simulate:reports")(timeline))


def emit(inputs: Inputs, options: Options, services: Services) -> Outputs:
    program = _phase("emit:emit")(_placed(inputs), _plan(inputs))
    return {"model.vsm.zst": packed(program.vsm().encode()), "program.json.zst": packed(program.to_json())}


def load(inputs: Inputs, options: Options, services: Services) -> Outputs:
    return {"model.app.zst": _phase("load:pack")({name: unpacked(name, data) for name, data in inputs.items()})}


def run(inputs: Inputs, options: Options, services: Services) -> Outputs:
    """One call of the application for each row of inputs.npz; options: device."""
    return imported("mlsdk.tasks.running:execute")(inputs, options, services)


# -- bytes and values ------------------------------------------------------------------------------------------------


def packed(data: bytes) -> bytes:
    """A .zst file; the same bytes give the same file."""
    return zstandard.ZstdCompressor(level=10, write_checksum=True, write_content_size=True).compress(data)


def unpacked(name: str, data: bytes) -> bytes:
    """The content of a file that may be a .zst."""
    if not name.endswith(".zst"):
        return data
    return zstandard.ZstdDecompressor().decompress(data, read_across_frames=False, allow_extra_data=False)


def json_bytes(value: Any) -> bytes:
    """Canonical JSON for readers."""
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def _phase(name: str) -> Any:
    return imported(f"mlsdk.pipeline.{name}")


def _texts(files: Mapping[str, str | bytes]) -> dict[str, bytes]:
    return {name: data.encode() if isinstance(data, str) else data for name, data in files.items()}


def _graph(data: bytes) -> Any:
    from mlsdk.pipeline.ir.graph import Graph

    return Graph.from_onnx(data)


def _placed(inputs: Inputs) -> Any:
    from mlsdk.pipeline.ir.placed import Placed

    return Placed.from_json(inputs["placed.json"])


def _plan(inputs: Inputs) -> Any:
    from mlsdk.pipeline.ir.plan import Plan

    return Plan.from_json(inputs["plan.json"])
