"""Trace a function, and hold the graph and the optimised graph against eager torch."""

from __future__ import annotations

import numpy as np
import torch

from mlsdk.pipeline.ops.check import check
from mlsdk.pipeline.ops.interpreter import run_reference
from mlsdk.pipeline.optimize import optimize
from mlsdk.pipeline.trace import Traced, check_against_eager, trace
from mlsdk.pipeline.trace.compare import TOLERANCE, distance


def agree(function, *tensors, state=None, tolerance=None) -> Traced:
    """Trace `function(*tensors) -> tensor or tuple`; raises when a graph differs from eager. Returns the trace."""
    sample = {f"x{index}": tensor for index, tensor in enumerate(tensors)}

    def mapped(inputs):
        result = function(*(inputs[key] for key in sample))
        results = result if isinstance(result, (tuple, list)) else [result]
        return {f"y{index}": value for index, value in enumerate(results)}

    mapped.__name__ = getattr(function, "__name__", "function")
    traced = trace(mapped, sample, state=state)
    check(traced.graph)
    check_against_eager(traced, mapped, sample, state=state, tolerance=tolerance).verify()
    same_results(traced.graph, optimize(traced.graph), tolerance)
    return traced


def random_inputs(graph, seed=0):
    """Numbers for every input of a graph: small integers, floats around 0, booleans."""
    generator = np.random.default_rng(seed)
    inputs = {}
    for name in graph.inputs:
        value = graph.values[name]
        if value.dtype.startswith("float"):
            inputs[name] = generator.standard_normal(value.shape).astype(value.dtype)
        elif value.dtype == "bool":
            inputs[name] = generator.integers(0, 2, value.shape).astype(bool)
        else:
            inputs[name] = generator.integers(0, 2, value.shape).astype(value.dtype)
    return inputs


def same_results(before, after, tolerance=None, seed=0):
    """Raises when two graphs with the same interface give different results on random numbers."""
    inputs = random_inputs(before, seed)
    first, second = run_reference(before, inputs), run_reference(after, inputs)
    assert list(first) == list(second)
    for name, array in first.items():
        limit = TOLERANCE.get(str(array.dtype), 0.0) if tolerance is None else tolerance
        assert distance(second[name], array) <= limit, name


def seeded(seed=0):
    torch.manual_seed(seed)
