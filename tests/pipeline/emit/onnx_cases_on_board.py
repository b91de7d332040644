"""What becomes of the ONNX node cases on the board."""

from __future__ import annotations

import re

import numpy as np
from emulated import run
from onnx_cases import PASS, array_of, as_ours

from mlsdk.errors import MLSDKError
from mlsdk.pipeline.ops.check import load_onnx
from mlsdk.pipeline.optimize import optimize

# reason -> pattern of the refusal
REFUSALS = {
    "the axes or shape are computed at run time": "computed at run time",
    "an operand without elements": "has no elements",
    "integers to a power that is no integer": "integers to a power",
    "indices by columns": "storage_order 1",
    "bits from the host's generator": "RandomNormal|RandomUniform|Bernoulli|Multinomial",
}
NAN = "a NaN or an infinity, which the board does not have"
# The board has no NaN, and its infinity is a number (docs/numerics.md).
WITHOUT_NAN = r"isnan|isinf|mod_float_edge_cases|reduce_log_sum_exp_empty|nan"


def on_board(case):
    """pass, a reason, or FAIL and what is wrong; for a case that the reference functions pass."""
    given, wanted = case.data_sets[0]
    inputs = {info.name: array_of(item) for info, item in zip(case.model.graph.input, given)}
    graph = load_onnx(as_ours(case, inputs))
    arrays = [
        np.asarray(array_of(item), np.float64) for item in (*given, *wanted) if array_of(item).dtype.kind in "fiub"
    ]
    if re.search(WITHOUT_NAN, case.name) or any(np.isnan(array).any() for array in arrays):
        return NAN
    try:
        results, _ = run(optimize(graph), {name: inputs[name] for name in graph.inputs}, "float")
    except MLSDKError as error:
        for reason, pattern in REFUSALS.items():
            if re.search(pattern, str(error)):
                return reason
        return f"FAIL {type(error).__name__}: {error}"
    for name, item in zip(graph.outputs, wanted):
        expected, actual = array_of(item), np.asarray(results[name])
        if actual.shape != expected.shape:
            return f"FAIL {actual.shape}, expected {expected.shape}"
        tolerance = 2e-3 if expected.dtype == np.float16 else max(2e-4, case.rtol)
        actual, expected = actual.astype(np.float64), expected.astype(np.float64)
        if not np.allclose(actual, expected, rtol=tolerance, atol=1e-5):
            return f"FAIL differs by {np.max(np.abs(actual - expected))}"
    return PASS
