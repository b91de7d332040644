"""The ONNX node cases of `onnx.backend.test` on the board: each passes, or is refused or deviates for a reason listed here."""

from __future__ import annotations

import collections
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from emulated import run

from mlsdk.errors import GraphError, MLSDKError
from mlsdk.pipeline.ops import OPERATORS
from mlsdk.pipeline.optimize import optimize

sys.path.append(str(Path(__file__).parents[1] / "ops"))
from test_conformance import array_of, as_ours, collected

# reason -> pattern of the refusal
REFUSALS = {
    "the axes or shape are computed at run time": "computed at run time",
    "an operand without elements": "has no elements",
    "integers to a power that is no integer": "integers to a power",
    "indices by columns": "storage_order 1",
    "bits from the host's generator": "RandomNormal|RandomUniform|Bernoulli|Multinomial",
}
# The board has no NaN, and its infinity is a number (docs/numerics.md).
WITHOUT_NAN = r"isnan|isinf|mod_float_edge_cases|reduce_log_sum_exp_empty|nan"
EVERY = 9  # of the cases, in the short suite


def outcome(case):
    """pass, a reason, or what is wrong; None if the reference does not take the case either."""
    if not all(node.op_type in OPERATORS for node in case.model.graph.node):
        return None
    given, wanted = case.data_sets[0]
    inputs = {info.name: array_of(item) for info, item in zip(case.model.graph.input, given)}
    try:
        graph = load(case, inputs)
    except GraphError:
        return None
    arrays = [
        np.asarray(array_of(item), np.float64) for item in (*given, *wanted) if array_of(item).dtype.kind in "fiub"
    ]
    if re.search(WITHOUT_NAN, case.name) or any(np.isnan(array).any() for array in arrays):
        return "not a number"
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
    return "pass"


def load(case, inputs):
    from mlsdk.pipeline.ops.check import load_onnx

    return load_onnx(as_ours(case, inputs))


def report(cases):
    found = {case.name: outcome(case) for case in cases}
    counts = collections.Counter("FAIL" if text.startswith("FAIL") else text for text in found.values() if text)
    print("\n".join(f"{count:5} {reason}" for reason, count in counts.most_common()))
    return counts, {name: text for name, text in found.items() if text and text.startswith("FAIL")}


def test_some_cases():
    counts, wrong = report(collected()[::EVERY])
    assert not wrong
    assert counts["pass"] >= 100


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_cases():
    counts, wrong = report(collected())
    assert not wrong
    assert counts["pass"] >= 1040
