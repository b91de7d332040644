"""What cannot become a program is refused, with the user's line and what to write instead."""

from __future__ import annotations

import inspect
import sys
import warnings

import numpy as np
import pytest
import torch
import torch.nn as nn
from torch.nn.utils import prune

from mlsdk.errors import (
    DataDependentControlFlow,
    InputMismatch,
    TraceError,
    TraceWarning,
    UnregisteredTensor,
    UnregisteredTensorWarning,
    UnsupportedOperator,
)
from mlsdk.pipeline.trace import trace

x = torch.linspace(-1, 1, 12).reshape(3, 4)
HERE = "test_refusals.py"


def here(function, offset=1):
    """`file:line` of the line `offset` below the def of a function."""
    return f"{HERE}:{inspect.getsourcelines(function)[1] + offset}"


def branch(inputs):
    if inputs["x"].sum() > 0:
        return {"y": inputs["x"]}
    return {"y": -inputs["x"]}


def loop(inputs):
    while inputs["x"].max() > 0:
        pass


def item(inputs):
    return {"y": inputs["x"] * inputs["x"][0, 0].item()}


def integer(inputs):
    return {"y": inputs["x"][: int(inputs["x"][0, 0])]}


def repeat(inputs):
    return {"y": [0 for _ in range(inputs["x"].sum().long())]}


def nonzero(inputs):
    return {"y": inputs["x"].nonzero()}


def mask(inputs):
    return {"y": inputs["x"][inputs["x"] > 0]}


def unique(inputs):
    return {"y": inputs["x"].unique()}


def equal(inputs):
    return {"y": inputs["x"] * torch.equal(inputs["x"], inputs["x"])}


def to_list(inputs):
    return {"y": inputs["x"] + inputs["x"].tolist()[0][0]}


def to_numpy(inputs):
    return {"y": inputs["x"] + torch.from_numpy(inputs["x"].numpy())}


def through_numpy(inputs):
    return {"y": np.sin(inputs["x"])}


def formatted(inputs):
    print(f"{inputs['x'].mean():.3f}")


def close(inputs):
    return {"y": inputs["x"] * torch.allclose(inputs["x"], -inputs["x"])}


def by_counts(inputs):
    return {"y": torch.repeat_interleave(inputs["x"], inputs["x"][:, 0].abs().long(), 0)}


DATA_DEPENDENT = {
    branch: "choose with torch.where",
    loop: "choose with torch.where",
    item: "keep it a tensor",
    integer: "keep it a tensor",
    repeat: "keep it a tensor",
    nonzero: "keep all elements",
    mask: r"torch.where\(mask, x, 0\)",
    unique: "sort, and compare neighbours",
    close: r"isclose\(a, b\).all()",
    by_counts: "give their sum as output_size",
    equal: r"\(a == b\).all\(\)",
    to_list: ".tolist() needs",
    to_numpy: ".numpy() needs",
    through_numpy: "a numpy function needs",
    formatted: "a format specification needs",
}


@pytest.mark.parametrize("function", DATA_DEPENDENT, ids=lambda function: function.__name__)
def test_data_dependence(function):
    with pytest.raises(DataDependentControlFlow, match=DATA_DEPENDENT[function].replace("()", r"\(\)")) as caught:
        trace(function, {"x": x})
    assert here(function) in str(caught.value)


def test_what_is_known_may_steer():
    weight = torch.tensor([2.0, -1.0])

    def function(inputs):
        y = inputs["x"]
        for _ in range(int(torch.arange(4)[2])):
            y = y + 1
        if weight[0].item() > 0 and inputs["x"].shape[0] == 3:
            y = y * torch.tensor([1, 2, 3, 4]).tolist()[1]
        return {"y": y}

    with pytest.warns(UnregisteredTensorWarning):
        graph = trace(function, {"x": x}).graph
    assert [node.op for node in graph.nodes] == ["Add", "Add", "Mul"]


def test_all_unsupported_operators_at_once():
    class Inner(nn.Module):
        def forward(self, y):
            return torch.linalg.svd(y)[0]

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = Inner()

        def forward(self, y):
            return self.part(y) + torch.linalg.eigvalsh(y[:3, :3])[0]

    model = Outer()

    def function(inputs):
        y = model(inputs["x"])
        return {"y": y, "z": torch.fft.fft(inputs["x"]).tan().real}

    with pytest.raises(UnsupportedOperator) as caught:
        trace(function, {"x": x})
    text, misuses = str(caught.value), caught.value.misuses
    assert "aten::_linalg_svd" in text and "_linalg_eigh" in text and "aten::tan on complex64" in text
    svd = next(misuse for misuse in misuses if "svd" in misuse.what)
    assert (svd.source, svd.scope) == (here(Inner.forward), "Outer.part")
    assert len({misuse.source for misuse in misuses}) == 3


def test_other_dtypes_are_named():
    with pytest.raises(UnsupportedOperator, match="int16 at .*use one of float32, float64"):
        trace(lambda inputs: {"y": inputs["x"].short().float()}, {"x": x})
    with pytest.raises(InputMismatch, match="input x has dtype int16; allowed are float32"):
        trace(lambda inputs: inputs, {"x": x.short()})
    with pytest.raises(InputMismatch, match="input x has dtype complex64"):
        trace(lambda inputs: inputs, {"x": x.to(torch.complex64)})
    with pytest.raises(TraceError, match="registered tensor w has dtype int8"):
        trace(lambda inputs: inputs, {"x": x}, state={"w": torch.zeros(2, dtype=torch.int8)})


def test_inputs_and_results_are_tensors():
    with pytest.raises(InputMismatch, match="input x is int, not a tensor"):
        trace(lambda inputs: inputs, {"x": 3})
    with pytest.raises(TraceError, match="returns a tensor; return a mapping"):
        trace(lambda inputs: inputs["x"], {"x": x})
    with pytest.raises(TraceError, match="result y is int, not a tensor"):
        trace(lambda inputs: {"y": 3}, {"x": x})
    with pytest.raises(TraceError, match="result y is ndarray, not a tensor"):
        trace(lambda inputs: {"y": np.zeros(3)}, {"x": x})


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), SystemExit(3), RecursionError("deep")])
def test_the_users_exception_comes_through(error):
    def function(inputs):
        inputs["x"] + 1
        raise error

    with pytest.raises(type(error)) as caught:
        trace(function, {"x": x})
    assert caught.value is error
    if isinstance(error, Exception):
        assert any(f"while tracing function; the last operation was at {HERE}" in note for note in error.__notes__)
    graph = trace(lambda inputs: {"y": inputs["x"] + 1}, {"x": x}).graph  # the next trace is good
    assert [node.op for node in graph.nodes] == ["Add"]


def test_torchs_own_errors_keep_their_kind_and_get_the_line():
    def function(inputs):
        return {"y": inputs["x"] @ inputs["x"]}

    with pytest.raises(RuntimeError) as caught:
        trace(function, {"x": x})
    assert any(here(function) in note for note in caught.value.__notes__)


def test_unregistered_tensors_become_constants_with_one_warning():
    model, other = nn.Linear(4, 2), torch.ones(2)
    with pytest.warns(UnregisteredTensorWarning) as caught:
        traced = trace(lambda inputs: {"y": model(inputs["x"]) + other}, {"x": x})
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "Linear.weight (2x4)" in message and "Linear.bias (2)" in message and f"first used at {HERE}" in message
    assert caught[0].filename == __file__
    assert traced.graph.inputs == ("x",) and not traced.signature.state


def test_a_warning_of_many_constants_is_short():
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(40)))
    with pytest.warns(UnregisteredTensorWarning) as caught:
        trace(lambda inputs: {"y": model(inputs["x"])}, {"x": x})
    message = str(caught[0].message)
    assert "uses 80 tensors" in message and "0.weight (4x4)" in message and " and 72 more; register" in message
    assert len(message) < 600


def test_constants_are_copies():
    weight = torch.ones(4)
    with pytest.warns(UnregisteredTensorWarning):
        graph = trace(lambda inputs: {"y": inputs["x"] + weight}, {"x": x}).graph
    weight.zero_()
    (array,) = graph.constants.values()
    assert (array == 1).all()


def test_updates_of_unregistered_tensors_are_refused():
    norm, count = nn.BatchNorm1d(4), torch.zeros(())
    before = {name: tensor.clone() for name, tensor in norm.state_dict().items()}
    with pytest.raises(UnregisteredTensor, match=r"BatchNorm1d.running_mean \(4\) \(at test_refusals.py:\d+\)"):
        trace(lambda inputs: {"y": norm(inputs["x"])}, {"x": x})
    with pytest.raises(UnregisteredTensor, match="not registered, so the update would be lost; register the tensor"):
        trace(lambda inputs: {"y": inputs["x"] + count.add_(1)}, {"x": x})
    assert count == 0 and all(torch.equal(before[name], tensor) for name, tensor in norm.state_dict().items())


def test_writes_into_inputs_are_warned_about_and_stay_inside():
    sample = x.clone()
    with pytest.warns(TraceWarning, match="writes into its input x; the caller's tensor does not see it"):
        trace(lambda inputs: {"y": inputs["x"].mul_(2)}, {"x": sample})
    assert torch.equal(sample, x)


def test_tensors_kept_outside_are_warned_about():
    kept = []

    class Caching(nn.Module):
        def forward(self, y):
            self.cache = y * 2
            return self.cache

    model = Caching()

    def stores(inputs):
        kept.append(inputs["x"] * 3)
        return {"y": inputs["x"]}

    with pytest.warns(TraceWarning, match=f"stores tensors that it computes at {here(stores)}"):
        trace(stores, {"x": x})
    with pytest.raises(TraceError, match="in a traced function met aten.add"):
        kept[0] + 1
    with pytest.warns(TraceWarning, match="assigns traced tensors to Caching.cache"):
        trace(lambda inputs: {"y": model(inputs["x"])}, {"x": x})
    assert not hasattr(model, "cache")


def test_gradients_from_before():
    """They would be added again in each call; not where the function clears them first."""
    layer = nn.Linear(4, 1)
    layer(x).sum().backward()

    def function(inputs, clear):
        if clear:
            layer.zero_grad(set_to_none=clear == "none")
        loss = layer(inputs["x"]).sum()
        loss.backward()
        return {"y": layer.weight.grad * 1}

    state = {"model@weight": layer.weight, "model@bias": layer.bias}
    with pytest.warns(
        UnregisteredTensorWarning, match=r"constant: the gradient of model@weight \(1x4\).*zero_grad\(\)"
    ):
        trace(lambda inputs: function(inputs, ""), {"x": x}, state=state)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for clear in ("none", "zero"):
            trace(lambda inputs, clear=clear: function(inputs, clear), {"x": x}, state=state)


def test_numbers_that_are_counted_in_python():
    """They are what they were, as is what was frozen in the function."""

    class Counting(nn.Linear):
        calls, warm = 0, True

        def __init__(self):
            super().__init__(4, 2)
            self.calls, self.warm = 3, True

        def forward(self, y):
            self.calls += 1
            self.warm = False
            self.weight.requires_grad_(False)
            return super().forward(y) / self.calls

    model = Counting()
    with pytest.warns(
        TraceWarning, match=r"changes Counting.calls \(3 -> 4\), Counting.warm \(True -> False\); it runs once"
    ):
        trace(lambda inputs: {"y": model.eval()(inputs["x"])}, {"x": x}, state=dict(model.named_parameters()))
    assert (model.calls, model.warm, model.training, model.weight.requires_grad) == (3, True, False, True)


def test_changes_of_storage_are_refused():
    with pytest.raises(TraceError, match="aten::resize_ changes the tensor itself at"):
        trace(lambda inputs: {"y": (inputs["x"] + 1).resize_(2, 2)}, {"x": x})


def test_higher_order_operators_are_refused():
    from torch._higher_order_ops import while_loop

    def function(inputs):
        return {"y": while_loop(lambda y: y.sum() < 9, lambda y: (y + 1,), (inputs["x"],))[0]}

    with pytest.raises(
        UnsupportedOperator, match="torch.while_loop.*: write a loop in Python, of a fixed number of rounds"
    ):
        trace(function, {"x": x})


def test_no_warning_without_reason():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.BatchNorm1d(4)).train()
    prune.l1_unstructured(model[0], "weight", 0.5)  # whose weight is computed in each call
    state = {name: tensor for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace(lambda inputs: {"y": model(inputs["x"])}, {"x": x}, state=state)


def test_torch_dynamo_is_not_needed():
    import subprocess

    code = (
        "import sys, torch, torch.nn as nn\n"
        "from mlsdk.pipeline.trace import trace\n"
        "m = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1),\n"
        "                  nn.Flatten(), nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2), nn.Softmax(-1))\n"
        "m.eval()\n"
        "state = dict([*m.named_parameters(), *m.named_buffers()])\n"
        "trace(lambda d: {'y': m(d['x']).argmax(1)}, {'x': torch.zeros(2, 3, 9, 9)}, state=state)\n"
        "print([name for name in ('torch._dynamo', 'sympy', 'torchvision', 'onnxscript') if name in sys.modules])\n"
        "trace(lambda d: {'y': d['x'].std(1).tril() + d['x'].cumsum(1).mT.mean(1)}, {'x': torch.zeros(3, 3, 3)})\n"
        "print('torch._dynamo' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.split() == ["[]", "False"], run.stderr


def test_a_schedule_belongs_outside():
    optimizer = torch.optim.SGD(nn.Linear(4, 1).parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)

    def function(inputs):
        schedule.step()
        return {"y": inputs["x"] * optimizer.param_groups[0]["lr"]}

    with pytest.raises(TraceError, match=r"StepLR.step\(\) at .*call it outside, after each call") as caught:
        trace(function, {"x": x})
    assert here(function, 1) in str(caught.value)


def joined(inputs):
    return {"y": torch.tensor([inputs["x"].sum(), inputs["x"].max()])}


def test_a_tensor_of_tensors():
    with pytest.raises(DataDependentControlFlow, match="torch.stack") as caught:
        trace(joined, {"x": x})
    assert here(joined) in str(caught.value)


def test_numpy_sees_what_is_known():
    """Tensors of the closure, and those made from numbers; not what a program may change."""
    closed, parameter = torch.arange(3.0) + 5, nn.Parameter(torch.arange(3.0))

    def function(inputs):
        found = [closed.numpy(), np.asarray(closed), np.array(closed), torch.arange(5.0, 8).numpy()]
        assert all(array.tolist() == [5, 6, 7] for array in found)
        assert parameter.detach().numpy().tolist() == [0, 1, 2]
        return {"y": inputs["x"] * torch.from_numpy(closed.numpy() * 2).sum()}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnregisteredTensorWarning)
        trace(function, {"x": x})
        with pytest.raises(DataDependentControlFlow, match=r"\.numpy\(\) needs"):
            trace(function, {"x": x}, state={"p": parameter})
    assert "numpy" not in torch.Tensor.__dict__ and closed.numpy().tolist() == [5, 6, 7]


def test_a_value_that_only_registered_tensors_decide():
    stride = torch.tensor(2)

    def function(inputs):
        return {"y": inputs["x"][:: int(stride + 1)]}

    with pytest.raises(
        DataDependentControlFlow, match=r"is that of layer@stride at .*leave it out of what you register"
    ):
        trace(function, {"x": x}, state={"layer@stride": stride})
    with pytest.warns(UnregisteredTensorWarning):
        assert trace(function, {"x": x}).signature.outputs[0].shape[0] == -(-len(x) // 3)
