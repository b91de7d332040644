"""The ONNX form of traced graphs runs in onnxruntime, and gives what our reference functions give."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
from agreement import random_inputs
from test_functions import CASES
from test_networks import LAYERS, registered

from mlsdk.pipeline.ir.onnx_io import domain_of
from mlsdk.pipeline.ops.interpreter import run_reference
from mlsdk.pipeline.optimize import optimize
from mlsdk.pipeline.trace import trace
from mlsdk.pipeline.trace.compare import distance

# what onnxruntime cannot run: no CPU kernel for a dtype, or (BitShift) a dtype that we allow beyond ONNX
CANNOT_RUN = ("Could not find an implementation", "of operator (BitShift)")


def run_onnxruntime(graph, inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(graph.to_onnx(), options, providers=["CPUExecutionProvider"])
    return dict(zip(graph.outputs, session.run(list(graph.outputs), inputs)))


def hold_against_onnxruntime(graph, operands):
    if any(domain_of(node.op) for node in graph.nodes):
        pytest.skip("uses operators of the domain mlsdk")
    inputs = random_inputs(graph)  # for the state
    inputs |= {f"x{index}": tensor.numpy() for index, tensor in enumerate(operands)}
    try:
        theirs = run_onnxruntime(graph, inputs)
    except Exception as error:
        if any(reason in str(error) for reason in CANNOT_RUN):
            pytest.skip(str(error).split(":")[-1].strip())
        raise
    for name, array in run_reference(graph, inputs).items():
        assert theirs[name].dtype == array.dtype and theirs[name].shape == array.shape
        assert distance(array, theirs[name]) < (1e-2 if array.dtype == np.float16 else 1e-4), name


def traced(function, operands, state=None):
    sample = {f"x{index}": tensor for index, tensor in enumerate(operands)}

    def mapped(inputs):
        result = function(*(inputs[key] for key in sample))
        results = result if isinstance(result, (tuple, list)) else [result]
        return {f"y{index}": value for index, value in enumerate(results)}

    return trace(mapped, sample, state=state).graph


@pytest.mark.parametrize("name", CASES)
def test_function(name):
    function, *operands = CASES[name]
    hold_against_onnxruntime(optimize(traced(function, operands)), operands)


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name):
    torch.manual_seed(0)
    make, sample = LAYERS[name]
    module = make().eval()

    def run(x):
        result = module(x)
        return result if isinstance(result, torch.Tensor) else result[0]

    hold_against_onnxruntime(optimize(traced(run, [sample()], registered(module))), [sample()])
