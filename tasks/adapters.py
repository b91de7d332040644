"""The phases as functions on bytes: what Luigi and the store see of them.

    function(inputs: name -> bytes, options: name -> value, services) -> name -> bytes

Each imports its phase when it is called, so that a cached build imports none. A phase knows nothing of this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlsdk.tasks.session import Services
    from mlsdk.tasks.traced import Program

Inputs = Mapping[str, bytes]
Options = Mapping[str, Any]
Outputs = Mapping[str, bytes]


def trace(program: Program, options: Options, services: Services) -> Outputs:
    """Python function -> exported ONNX and signature. The one adapter that starts from a function."""
    from mlsdk.pipeline.trace import trace as traced_by

    traced = traced_by(program.function, program.sample, **program.keywords)
    return traced_artifacts(traced)


def traced_artifacts(traced: Any) -> Outputs:
    """What the tracer gives, as artifacts; Context.compile publishes the same."""
    return {
        "exported.onnx": traced.graph.to_onnx(),
        "signature.json": traced.signature.to_json(),
        "sources.json": traced.graph.sources(),
    }


def optimize_onnx(inputs: Inputs, options: Options, services: Services) -> Outputs:
    from mlsdk.pipeline.optimize import optimize

    from mlsdk.pipeline.ir.graph import Graph

    return {"model.onnx": optimize(Graph.from_onnx(inputs["exported.onnx"])).to_onnx()}


def layout_plan(inputs: Inputs, options: Options, services: Services) -> Outputs:
    raise NotImplementedError


def schedule(inputs: Inputs, options: Options, services: Services) -> Outputs:
    raise NotImplementedError


def simulate(inputs: Inputs, options: Options, services: Services) -> Outputs:
    raise NotImplementedError


def emit(inputs: Inputs, options: Options, services: Services) -> Outputs:
    raise NotImplementedError


def load(inputs: Inputs, options: Options, services: Services) -> Outputs:
    raise NotImplementedError


def run(inputs: Inputs, options: Options, services: Services) -> Outputs:
    raise NotImplementedError
