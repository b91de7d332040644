"""The standard case of each operator that is no kernel, on the board, against its reference in double: the error is within what
`pipeline/ops/bounds.py` states."""

from dataclasses import replace

import numpy as np
import pytest
from emulated import compiled, execute_plan

from bench.standard import CONSTANT, TENSORS, draw
from mlsdk.pipeline.ops import OPERATORS
from mlsdk.pipeline.ops.bounds import BOUNDS, bound
from mlsdk.pipeline.ops.emitters.kernels import KERNELS
from mlsdk.pipeline.ops.interpreter import run_reference

BITS = {"half": 10, "single": 24, "double": 53}
RULES = [op for op in OPERATORS if op not in CONSTANT and op not in {name for name, _ in KERNELS} and op.isalnum()]
#: these measure what the others share with them, and take long
CASES = [pytest.param(op, kind, marks=[] if kind == "mixed" else pytest.mark.slow) for op in RULES for kind in TENSORS]


def in_double(graph, inputs):
    """The graph and its operands with doubles for singles."""
    wide = {n: replace(v, dtype="float64") if v.dtype == "float32" else v for n, v in graph.values.items()}
    if graph.nodes[0].op == "Resize":
        wide["x2"] = graph.values["x2"]  # its scales are float32 by ONNX
    constants = {n: a.astype(wide[n].dtype) for n, a in graph.constants.items()}
    return replace(graph, values=wide, constants=constants), {n: a.astype(wide[n].dtype) for n, a in inputs.items()}


@pytest.mark.parametrize(("op", "float_dtype"), CASES)
def test_the_error_is_within_its_bound(op, float_dtype):
    graph, inputs = draw(op, float_dtype)
    want = run_reference(*in_double(graph, inputs))
    chain = compiled(graph, float_dtype)
    got, _ = execute_plan(graph, inputs, *chain)
    for name, placed in zip(graph.outputs, chain[0].outputs):
        assert got[name].shape == want[name].shape
        if got[name].dtype.kind != "f":
            np.testing.assert_array_equal(got[name], want[name])
            continue
        size = 2.0 ** np.floor(np.log2(np.abs(want[name]).max()))
        error = np.abs(got[name].astype(np.float64) - want[name]).max() / size
        assert error * 2.0 ** (BITS[chain[0].values[placed].device_dtype] - 1) <= getattr(bound(op), float_dtype)


def test_bounds_are_of_operators_without_a_kernel():
    assert set(BOUNDS) <= set(RULES)
