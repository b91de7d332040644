"""Inputs, results, signatures, names, sources, and bytes that are the same everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import OrderedDict, UserDict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnx
import pytest
import torch
import torch.nn as nn

from mlsdk.errors import UnsupportedOperator
from mlsdk.pipeline.ir import pytree
from mlsdk.pipeline.ops.interpreter import run_reference
from mlsdk.pipeline.trace import check_against_eager, trace, trace_call

x = torch.linspace(-1, 1, 12).reshape(3, 4)


def run(traced, sample):
    results = run_reference(traced.graph, {e.value: sample[e.key].numpy() for e in traced.signature.inputs})
    return {entry.key: torch.from_numpy(results[entry.value].copy()) for entry in traced.signature.outputs}


def test_the_function_gets_a_copy_of_the_mapping():
    sample = {"x": x, "past": x}

    def function(inputs):
        inputs["past"] = None
        inputs["new"] = 1
        return {"y": inputs["x"] + 1}

    trace(function, sample)
    assert list(sample) == ["x", "past"] and sample["past"] is x


@pytest.mark.parametrize("kind", [dict, OrderedDict, UserDict])
def test_other_mappings(kind):
    sample = kind(x=x, z=x + 1)
    traced = trace(lambda inputs: kind(b=inputs["x"] * 2, a=inputs["z"]), sample)
    assert [entry.key for entry in traced.signature.outputs] == ["b", "a"]
    assert [entry.key for entry in traced.signature.inputs] == ["x", "z"]


def test_a_mapping_keeps_its_type_inside():
    class Encoding(UserDict):
        @property
        def ids(self):
            return self["ids"]

    traced = trace(lambda inputs: {"y": inputs.ids + 1}, Encoding(ids=torch.tensor([1, 2])))
    assert traced.graph.inputs == ("ids",)


def test_the_same_tensor_twice_is_two_inputs():
    traced = trace(lambda inputs: {"y": inputs["a"] - inputs["b"]}, {"a": x, "b": x})
    torch.testing.assert_close(run(traced, {"a": x, "b": x * 3})["y"], -2 * x)


def test_results_that_are_inputs_constants_or_the_same():
    constant = torch.ones(2)

    def function(inputs):
        y = inputs["x"] * 2
        return {"y": y, "again": y, "x": inputs["x"], "c": constant, "c2": constant, "made": torch.arange(3)}

    with pytest.warns(match="not registered"):
        traced = trace(function, {"x": x})
    result = run(traced, {"x": x})
    assert list(result) == ["y", "again", "x", "c", "c2", "made"]
    assert torch.equal(result["again"], 2 * x) and torch.equal(result["x"], x) and torch.equal(result["c2"], constant)
    assert result["made"].tolist() == [0, 1, 2]
    assert all(name in traced.graph.producers for name in traced.graph.outputs)
    onnx.checker.check_model(onnx.load_from_string(traced.graph.to_onnx()), full_check=True)


def test_an_input_that_is_not_used_stays_an_input():
    traced = trace(lambda inputs: {"y": inputs["x"]}, {"x": x, "extra": x})
    assert traced.graph.inputs == ("x", "extra")


STRIDED = {
    "transposed": x.t(),
    "every second": x[:, ::2],
    "expanded": torch.ones(1, 4).expand(3, 4),
    "offset": x[1:],
    "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "0-d": torch.tensor(3.0),
    "empty": torch.zeros(0, 4),
    "no axes left": torch.zeros(4, 0, 2),
    "int64": torch.arange(6).reshape(2, 3),
    "bool": torch.tensor([True, False]),
    "uint8": torch.tensor([250, 3], dtype=torch.uint8),
    "double": x.double(),
    "half": x.half(),
    "needs grad": x.clone().requires_grad_(),
}


@pytest.mark.parametrize("name", STRIDED)
def test_samples_of_every_kind(name):
    sample = {"x": STRIDED[name]}

    def function(inputs):
        y = inputs["x"]
        return {"same": y, "flat": y.reshape(-1), "twice": y + y, "sum": y.sum(), "first": y.flatten()[:1]}

    traced = trace(function, sample)
    check_against_eager(traced, function, sample).verify()
    entry = traced.signature.inputs[0]
    assert entry.shape == tuple(sample["x"].shape) and entry.dtype == str(sample["x"].dtype).removeprefix("torch.")


def test_reductions_of_nothing_are_as_eager():
    def function(inputs):
        y = inputs["x"]
        folded = {"sum": y.sum(0), "prod": y.prod(0), "mean": y.mean(0), "any": y.any(0), "all": y.all(0)}
        return {**folded, "cat": torch.cat([y, y])}

    sample = {"x": torch.zeros(0, 4)}
    check_against_eager(trace(function, sample), function, sample).verify()
    with pytest.raises(UnsupportedOperator, match="axis 0 is empty, so it has no extremum"):
        trace(lambda inputs: {"y": inputs["x"].max(0)[0]}, sample)


def test_nan_is_as_eager():
    sample = {"x": torch.tensor([[1.0, float("nan"), 3.0], [float("inf"), -1.0, float("-inf")]])}

    def function(inputs):
        y = inputs["x"]
        values, places = y.max(1)
        return {
            "max": values,
            "places": places,
            "amax": y.amax(1),
            "argmin": y.argmin(1),
            "relu": y.relu(),
            "clamp": y.clamp(-1, 1),
            "sort": y.sort(1)[0],
            "maximum": torch.maximum(y, y * 0),
            "softmax": y.softmax(1),
            "sign": y.sign(),
            "where": torch.where(y > 0, y, 0),
            "equal": y == y,
        }

    check_against_eager(trace(function, sample), function, sample).verify()


def test_nested_results():
    def function(inputs):
        return {"y": [inputs["x"], (inputs["x"] + 1, None)], "z": {"deep": inputs["x"] * 2}}

    traced = trace(function, {"x": x})
    assert [entry.key for entry in traced.signature.outputs] == ["y.0", "y.1.0", "z.deep"]
    tree = pytree.unflatten(traced.signature.result_spec, run(traced, {"x": x}).__getitem__)
    assert tree["y"][1][1] is None and torch.equal(tree["z"]["deep"], 2 * x)
    assert trace(lambda inputs: {"y": inputs["x"]}, {"x": x}).signature.result_spec is None


@pytree.register_class
class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


@pytree.register_class
@dataclass
class Batch:
    image: torch.Tensor
    scale: float


def test_any_signature():
    def function(pair, batch, *, bias=None, flag=True):
        y = pair.first * batch.scale + pair.second
        return Pair(y + bias["b"], batch.image) if flag else y

    args, kwargs = (Pair(x, x + 1), Batch(x * 2, 0.5)), {"bias": {"b": x}, "flag": True}
    traced = trace_call(function, args, kwargs)
    signature = traced.signature
    keys = ["args.0.first", "args.0.second", "args.1.image", "kwargs.bias.b"]
    assert [entry.key for entry in signature.inputs] == keys
    assert [entry.key for entry in signature.outputs] == ["first", "second"]
    again = type(signature).from_json(signature.to_json())
    leaves, spec = pytree.flatten({"args": args, "kwargs": kwargs})
    assert again == signature and again.call_spec == spec
    result = pytree.unflatten(again.result_spec, run(traced, dict(leaves)).__getitem__)
    assert isinstance(result, Pair) and torch.allclose(result.first, x * 0.5 + x + 1 + x)


def test_a_bare_tensor_as_result():
    traced = trace_call(lambda a, b: a + b, (x, x))
    assert [entry.key for entry in traced.signature.outputs] == ["result"]
    assert traced.signature.result_spec.kind == "leaf"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, y):
        for layer in self.layers:
            y = torch.relu(layer(y))
        return y


def test_sources_and_scopes():
    model = Net()
    state = {name: tensor for name, tensor in model.named_parameters()}
    traced = trace(lambda inputs: {"y": model(inputs["x"])}, {"x": x}, state=state, modules={"encoder": model})
    scopes = [node.scope for node in traced.graph.nodes if node.op == "Gemm"]
    assert scopes == ["encoder.layers.0", "encoder.layers.1"]
    relu = next(node for node in traced.graph.nodes if node.op == "Relu")
    line = Net.forward.__code__.co_firstlineno + 2
    assert (relu.source, relu.scope) == (f"test_interface.py:{line}", "encoder")


def test_output_and_state_names_in_the_graph():
    traced = trace(lambda inputs: {"logits": inputs["x"] + 1, "x": inputs["x"] * 2}, {"x": x})
    assert traced.graph.outputs == ("logits", "x_1") and traced.graph.name == "lambda"


def test_bytes_are_the_same_in_every_process(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        "import hashlib, json, sys, torch, torch.nn as nn\n"
        "from mlsdk.pipeline.ir.graph import sources\n"
        "from mlsdk.pipeline.optimize import optimize\n"
        "from mlsdk.pipeline.trace import trace\n"
        "torch.manual_seed(0)\n"
        "m = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 2))\n"
        "state = dict(m.named_parameters())\n"
        "def step(d):\n"
        "    m.zero_grad()\n"
        "    loss = nn.functional.cross_entropy(m(d['x']), d['t'])\n"
        "    loss.backward()\n"
        "    with torch.no_grad():\n"
        "        for p in m.parameters(): p -= 0.1 * p.grad\n"
        "    return {'loss': loss}\n"
        "t = trace(step, {'x': torch.zeros(3, 4), 't': torch.tensor([0, 1, 1])}, state=state)\n"
        "text = json.dumps(sources(t.graph))\n"
        "parts = [t.graph.to_onnx(), optimize(t.graph).to_onnx(), t.signature.to_json().encode(), text.encode()]\n"
        "print([hashlib.sha256(part).hexdigest() for part in parts])\n"
    )
    found = set()
    for seed, threads, folder in (("0", "1", tmp_path), ("11", "2", "/")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": threads}
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, cwd=folder)
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    assert len(found) == 1


def test_check_against_eager_finds_a_wrong_attribute():
    model = nn.AvgPool2d(2, divisor_override=3)
    image = {"x": torch.randn(1, 2, 4, 4)}
    traced = trace(lambda inputs: {"y": model(inputs["x"])}, image)
    wrong = nn.AvgPool2d(2)
    with pytest.raises(Exception, match="differs from the function: y by"):
        check_against_eager(traced, lambda inputs: {"y": wrong(inputs["x"])}, image).verify()


def test_a_small_network_is_traced_in_a_moment():
    import time

    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    state = dict(model.named_parameters())
    start = time.perf_counter()
    trace(lambda inputs: {"y": model(inputs["x"])}, {"x": torch.zeros(8, 64)}, state=state)
    assert time.perf_counter() - start < 0.3
    assert np.all([parameter.grad is None for parameter in model.parameters()])
