"""Nothing that a function does is lost in silence: writes through views, operators on lists, tensors of other traces."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from mlsdk.errors import (
    DataDependentControlFlow,
    InputMismatch,
    TraceError,
    TraceWarning,
    UnregisteredTensor,
    UnsupportedOperator,
)
from mlsdk.pipeline.ops.interpreter import run_reference
from mlsdk.pipeline.trace import trace

x = torch.tensor([1.0, 4.0, 9.0])


def results(function, **keywords):
    """What the traced function gives for `x` by the reference functions, by key; and its signature."""
    state = keywords.get("state", {})
    traced = trace(function, {"x": x}, **keywords)
    names = {s.input: state[s.name].detach().numpy() for s in traced.signature.state if s.input}
    values = run_reference(traced.graph, {"x": x.numpy(), **names})
    found = {e.key: values[e.value] for e in traced.signature.outputs}
    found.update({s.name: values[s.output] for s in traced.signature.state if s.output})
    return found


# --- writes into tensors of the closure ---

WRITES = {
    "an element": lambda b, v: b.__setitem__(0, v[0]),
    "a slice": lambda b, v: b[0:1].add_(1),
    "a view": lambda b, v: b.view(3).add_(1),
    "data": lambda b, v: b.data.add_(1),
    "a view of data": lambda b, v: b.data.view(3, 1)[1].copy_(v[:1]),
    "detach": lambda b, v: b.detach()[None].mul_(v),
    "a transposed one": lambda b, v: b[None].T.add_(1),
    "split": lambda b, v: b.split(1)[1].copy_(v[:1]),
    "unbind": lambda b, v: b.unbind()[1].copy_(v[0]),
    "as_strided": lambda b, v: b.as_strided((2,), (1,)).add_(1),
    "reshape": lambda b, v: b.reshape(3, 1).add_(1),
    "out": lambda b, v: torch.add(v, 1, out=b),
    "out, a view": lambda b, v: torch.add(v[:2], 1, out=b[:2]),
    "index_put_": lambda b, v: b.view(3).index_put_((torch.tensor([0]),), v[:1]),
    "data replaced": lambda b, v: setattr(b, "data", v * 2),
    "a list": lambda b, v: torch._foreach_add_([b], 1),
    "a list of views": lambda b, v: torch._foreach_mul_([b[:1], v * 1], 2),
}


@pytest.mark.parametrize("how", WRITES)
def test_a_write_that_reaches_the_closure(how):
    b = torch.zeros(3)

    def function(inputs):
        WRITES[how](b, inputs["x"])
        return {"y": inputs["x"] + b}

    with pytest.raises(
        UnregisteredTensor, match=r"updates a tensor first used at test_lost.py:\d+ \(3\) \(at test_lost.py"
    ):
        trace(function, {"x": x})
    assert torch.equal(b, torch.zeros(3))


@pytest.mark.parametrize("how", WRITES)
def test_a_write_that_reaches_a_registered_tensor(how):
    b = torch.zeros(3)

    def function(inputs):
        WRITES[how](b, inputs["x"])
        return {"y": inputs["x"] + b}

    found = results(function, state={"b": b})
    twin = torch.zeros(3)
    WRITES[how](twin, x)
    assert torch.equal(torch.from_numpy(found["b"]), twin) and torch.equal(torch.from_numpy(found["y"]), x + twin)


def test_registered_tensors_side_by_side_in_one_storage():
    base = torch.arange(6.0)
    p, q = base[:3], base[3:]

    def function(inputs):
        q.data.add_(1)
        return {"y": inputs["x"] + q.detach() + p.data}

    found = results(function, state={"p": p, "q": q})
    assert found["q"].tolist() == [4, 5, 6] and found["y"].tolist() == [5, 10, 17]


def test_the_data_of_a_tensor_is_replaced():
    weight = torch.nn.Parameter(torch.ones(3))

    def step(inputs):
        (inputs["x"] * weight).sum().backward()
        weight.data = weight.data - 0.5 * weight.grad
        y = inputs["x"] * 1
        y.data = y + 1
        return {"y": y}

    found = results(step, state={"w": weight})
    assert found["w"].tolist() == [0.5, -1, -3.5] and found["y"].tolist() == [2, 5, 10]
    assert weight.tolist() == [1, 1, 1] and "data" not in torch.Tensor.__dict__
    with pytest.raises(
        TraceError, match=r"at test_lost.py:\d+ the .data of a tensor \(float32\[3\]\) is replaced by another"
    ):
        trace(lambda inputs: setattr(weight, "data", inputs["x"][:2]), {"x": x}, state={"w": weight})


# --- operators without a result ---


def foreach(v):
    a, b = v + 1, v * 2
    torch._foreach_mul_([a, b], 2)
    torch._foreach_add_([a], [b], alpha=0.5)
    torch._foreach_addcmul_([a], [b], [b], value=0.25)
    torch._foreach_sqrt_([a, b])
    torch._foreach_lerp_([a], [b], 0.5)
    torch._foreach_copy_([b], [a.clone()])
    torch._foreach_div_([b], [2.0])
    torch._foreach_clamp_max_([a], 5)
    return {"a": a, "b": b, "norm": torch._foreach_norm([a])[0], "sum": torch._foreach_add([a], 1)[0]}


def test_operators_on_lists():
    found = results(lambda inputs: foreach(inputs["x"]))
    for key, wanted in foreach(x).items():
        assert torch.allclose(torch.from_numpy(found[key]), wanted), key


def test_an_optimizer_that_takes_lists():
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.5, foreach=True)

    def step(inputs):
        optimizer.zero_grad()
        loss = (inputs["x"] * weight).sum()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    assert results(step, state={"w": weight})["w"].tolist() == [0.5, -1, -3.5]


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("_assert_async", lambda v: torch._assert_async(v[0] > 0)),
        ("_fused_sgd_", lambda v: torch.optim.SGD([torch.nn.Parameter(v * 1)], fused=True)),
        (
            "_amp_foreach_non_finite_check",
            lambda v: torch._amp_foreach_non_finite_check_and_unscale_([v * 1], v[0], v[1]),
        ),
    ],
)
def test_an_operator_that_gives_nothing(name, function):
    def program(inputs):
        v = inputs["x"]
        if name == "_fused_sgd_":
            lists = {"weight_decay": 0, "momentum": 0, "dampening": 0, "nesterov": False, "maximize": False}
            torch._fused_sgd_([v * 1], [v * 2], [], lr=0.1, is_first_step=True, **lists)
        else:
            function(v)
        return {"y": v + 1}

    with pytest.raises(UnsupportedOperator, match=f"aten::{name}.* at test_lost.py"):
        trace(program, {"x": x})


# --- tensors that got out of their trace ---


def leaked():
    kept = []

    def function(inputs):
        kept.append(inputs["x"] * 2)
        return {"y": inputs["x"] + 1}

    with pytest.warns(TraceWarning, match="stores tensors"):
        trace(function, {"x": x})
    return kept[0]


def test_a_tensor_of_another_trace_is_named_by_its_line():
    kept = leaked()
    made = r"a tensor that test_lost.py:\d+ made in a traced function"
    with pytest.raises(TraceError, match=f"{made} is used in another one at test_lost.py"):
        trace(lambda inputs: {"y": inputs["x"] + kept}, {"x": x})
    with pytest.raises(TraceError, match=f"{made} is used in another one"):
        trace(lambda inputs: {"y": kept}, {"x": x})
    with pytest.raises(TraceError, match=f"{made} cannot be saved or sent"):
        pickle.dumps(kept)
    with pytest.raises(TraceError, match=f"{made} met aten.add"):
        kept + 1


def test_a_copy_within_the_function():
    assert results(lambda inputs: {"y": copy.copy(inputs["x"]) + 1})["y"].tolist() == [2, 5, 10]


def test_a_trace_within_a_trace():
    def outer(inputs):
        y = inputs["x"] * 2
        trace(lambda inner: {"y": inner["x"] + 1}, {"x": x})
        return {"y": y + inputs["x"]}

    assert results(outer)["y"].tolist() == [3, 12, 27]


# --- devices and short floats ---


def test_the_device_meta():
    for function in (lambda v: v.to("meta"), lambda v: v + torch.empty(3, device="meta")):
        with pytest.raises(TraceError, match="on the device meta at test_lost.py"):
            trace(lambda inputs, f=function: {"y": f(inputs["x"])}, {"x": x})
    with pytest.raises(InputMismatch, match="input x is on the device meta"):
        trace(lambda inputs: inputs, {"x": torch.zeros(3, device="meta")})


def test_bfloat16_everywhere():
    weight = torch.full((3,), 1.5, dtype=torch.bfloat16)
    traced = trace(
        lambda inputs: {"y": inputs["x"] * weight + torch.tensor(2.0, dtype=torch.bfloat16)},
        {"x": x.bfloat16()},
        state={"w": weight},
    )
    assert [value.dtype for value in traced.signature.inputs + traced.signature.outputs + traced.signature.state] == (
        ["float32"] * 3
    )


# --- results ---


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda inputs: inputs["x"] * 2, "lambda returns a tensor; return a mapping"),
        (lambda inputs: {}, "lambda returns an empty mapping and changes no registered tensor"),
        (lambda inputs: {1: inputs["x"]}, "returns a result with the key 1, which is int; keys are strings"),
        (lambda inputs: {("a",): inputs["x"]}, "returns a result with the key .*, which is tuple"),
    ],
)
def test_results_that_are_no_mapping_of_names(function, message):
    with pytest.raises(TraceError, match=message):
        trace(function, {"x": x})


def test_a_function_that_only_changes_state():
    b = torch.zeros(3)
    assert results(lambda inputs: b.add_(inputs["x"]) is None or {}, state={"b": b})["b"].tolist() == [1, 4, 9]


# --- everything that is unsupported, at once ---


def test_what_is_unsupported_before_the_value_of_a_tensor():
    def function(inputs):
        y = torch.linalg.svd(inputs["x"].reshape(1, 3))[0]
        y += 1
        if y.sum() > 0:
            return {"y": y}
        return {"y": y + 1}

    with pytest.raises(
        DataDependentControlFlow, match=r"(?s)Python needs the value.*besides.*_linalg_svd at test_lost"
    ):
        trace(function, {"x": x})


def test_what_is_unsupported_before_an_operator_that_ends_the_trace():
    def function(inputs):
        y = torch.fft.fft(inputs["x"]).tan().real
        torch._assert_async(y[0] > 0)
        return {"y": y}

    with pytest.raises(UnsupportedOperator) as caught:
        trace(function, {"x": x})
    assert {"aten::_assert_async", "aten::tan on complex64"} <= {misuse.what for misuse in caught.value.misuses}
    assert caught.value.partial is not None
