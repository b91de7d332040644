"""The ONNX node cases of `onnx.backend.test`, and what becomes of them on the reference functions."""

from __future__ import annotations

import re
import warnings

import numpy as np
import onnx
from onnx import numpy_helper

from mlsdk.errors import GraphError
from mlsdk.pipeline.ops import OPERATORS
from mlsdk.pipeline.ops.check import load_onnx
from mlsdk.pipeline.ops.interpreter import run_reference

PASS = "pass"
ABSENT = "an operator that the table does not have"
# reason -> pattern of the refusal
REFUSALS = {
    "a dtype that we do not have": r"has dtype [A-Z0-9_]+; allowed",
    "a dtype that its operator does not take": r"input \w+ has dtype \w+; allowed",
    "not a tensor": "is not a tensor",
    "another operator domain": "operator domain 'ai.onnx.preview",
    "an attribute of an older opset": "has no attribute axes",
    "a shape that is computed at run time": "make it constant",
    "max pooling by columns": "storage_order 1",
    "resizing a region": "coordinates are",
    "resizing with an aspect ratio": "keep_aspect_ratio_policy",
    "casts to a dtype that we do not have": "casts to element type",
    "an attribute of a newer opset": "has no attribute round_mode",
}

# the inputs from which operators take shapes: constants for us, inputs in the cases
STATIC_INPUTS = ("Resize", "OneHot", "Range")


def collected():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return collect_testcases(None)


def array_of(item):
    return numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else np.asarray(item)


def as_ours(case, inputs):
    """The case's model as of our opset, with integer operands (and those of STATIC_INPUTS) as constants."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for entry in model.opset_import:
        if entry.domain == "":
            entry.version = 20
    static = model.graph.node[0].op_type in STATIC_INPUTS
    for name, array in inputs.items():
        if array.dtype in (np.int32, np.int64) or (static and array.size <= 16 and name not in ("X", "x", "indices")):
            model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model.SerializeToString()


def on_reference(case):
    """pass, the reason of a refusal, or FAIL and what is wrong."""
    ops = {node.op_type for node in case.model.graph.node}
    if not all(op in OPERATORS for op in ops):
        return ABSENT
    given, wanted = case.data_sets[0]
    inputs = {info.name: array_of(item) for info, item in zip(case.model.graph.input, given)}
    try:
        graph = load_onnx(as_ours(case, inputs))
    except GraphError as error:
        for reason, pattern in REFUSALS.items():
            if re.search(pattern, str(error)):
                return reason
        return f"FAIL {error}"
    results = run_reference(graph, {name: inputs[name] for name in graph.inputs})
    for name, item in zip(graph.outputs, wanted):
        expected, actual = array_of(item), results[name]
        if actual.dtype != expected.dtype or actual.shape != expected.shape:
            return f"FAIL {actual.dtype}{actual.shape}, expected {expected.dtype}{expected.shape}"
        tolerance = 2e-3 if expected.dtype == np.float16 else case.rtol
        if not np.allclose(actual, expected, rtol=tolerance, atol=max(case.atol, 1e-6), equal_nan=True):
            return f"FAIL differs by {np.max(np.abs(actual.astype(float) - expected.astype(float)))}"
    return PASS
