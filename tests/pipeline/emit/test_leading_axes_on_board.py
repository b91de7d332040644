"""Products keep the axes that Reshapes join for them and split again, where that saves moves."""

import numpy as np
import pytest
import torch
from emulated import compiled, run, steps_of

from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.layout.leading import keep_leading_axes
from mlsdk.pipeline.ops.interpreter import run_reference
from mlsdk.pipeline.optimize import optimize
from mlsdk.pipeline.trace import trace


def traced(function, *tensors, state=None):
    sample = {f"x{i}": tensor for i, tensor in enumerate(tensors)}
    graph = trace(lambda d: function(*d.values()), sample, state=state).graph
    inputs = {f"x{i}": tensor.numpy() for i, tensor in enumerate(tensors)}
    return optimize(graph), {name: inputs.get(name) for name in inputs} | {
        name: state[name.partition("@")[2] or name].detach().numpy() for name in graph.inputs if name not in inputs
    }


w, v, b = torch.randn(48, 40), torch.randn(40, 48), torch.randn(48)
FUNCTIONS = {
    "linear": (lambda x: {"y": torch.nn.functional.linear(x, w, b)}, (2, 13, 40)),
    "two": (lambda x: {"y": torch.relu(x @ v) @ w, "z": torch.tanh(x @ v)}, (2, 13, 40)),
    "one_reader_more": (lambda x: {"y": (x @ v).view(2, 13, 3, 16).transpose(1, 2), "z": (x @ v) * 2}, (2, 13, 40)),
    "heads": (lambda x: {"y": x.transpose(1, 2).reshape(2, 13, 40) @ v}, (2, 5, 13, 8)),
    "batches": (lambda x: {"y": (x @ x.mT).softmax(-1) @ x}, (3, 5, 13, 16)),
    "three": (lambda x: {"y": torch.nn.functional.linear(x, w)}, (3, 1, 7, 40)),
}


@pytest.fixture(scope="module", autouse=True)
def constants_are_meant():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_stay(name):
    function, shape = FUNCTIONS[name]
    graph, inputs = traced(function, torch.randn(shape))
    changed = keep_leading_axes(graph)
    assert changed is not graph and changed.outputs == graph.outputs
    assert sum(n.op == "Reshape" for n in changed.nodes) < sum(n.op == "Reshape" for n in graph.nodes)
    for name, want in run_reference(graph, inputs).items():
        np.testing.assert_allclose(run_reference(changed, inputs)[name], want, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(run(graph, inputs)[0][name], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: {"y": x @ v}, (2, 64, 40)),
        (lambda x: {"y": (x @ v).reshape(-1, 48).softmax(0)}, (2, 13, 40)),
        (lambda x: {"y": x @ v, "z": x.reshape(26, 40).T @ x.reshape(26, 40)}, (2, 13, 40)),
        (lambda x: {"y": x.reshape(26, 40) @ v}, (2, 13, 40)),
        (lambda x: {"y": (x.reshape(26, 40) @ v).reshape(13, 2, 48)}, (2, 13, 40)),
    ],
    ids=["views", "read_joined", "joined_for_others", "output", "split_otherwise"],
)
def test_what_stays(function, shape):
    graph, _ = traced(function, torch.randn(shape))
    assert keep_leading_axes(graph) is graph


@pytest.mark.parametrize(("float_dtype", "most"), [("mixed", 1600), ("float", 3000)])
def test_steps(float_dtype, most):
    values = {"x": (2, 65, 256), "f": (130, 256), "g": (130, 688), "y": (2, 65, 688), "w": (688, 256)}
    values = {n: Value(n, "float32", s) for n, s in values.items()}
    values |= {n: Value(n, "int64", (k,)) for n, k in (("s", 2), ("t", 3))}
    constants = {"s": np.array([130, 256]), "t": np.array([2, 65, 688])}
    nodes = (
        Node("join", "Reshape", ("x", "s"), ("f",)),
        Node("gemm", "Gemm", ("f", "w"), ("g",), {"transB": 1}),
        Node("split", "Reshape", ("g", "t"), ("y",)),
    )
    graph = Graph("g", ("x", "w"), ("y",), nodes, values, constants)
    assert steps_of(graph, float_dtype) <= most
    assert [p.node.op for p in compiled(graph, float_dtype)[0].nodes if p.emitter != "view"] == ["Gemm"]
