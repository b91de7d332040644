"""Registered tensors: live on the device, shared by all functions of a Context, brought back by synchronize."""

from __future__ import annotations

import copy
import time

import pytest
import torch

from mlsdk import Context, MNCoreSGD, MNDevice, set_tensor_name, set_tensor_name_in_module
from mlsdk.errors import ContextError, InputMismatch, UnregisteredTensorWarning

pytestmark = pytest.mark.filterwarnings("error::mlsdk.errors.UnregisteredTensorWarning")


@pytest.fixture
def counter(any_context):
    """A registered buffer."""
    total = torch.zeros(2, 3)
    set_tensor_name(total, "total")
    any_context.register_buffer(total)
    return total


@pytest.fixture
def step(any_context, counter, tmp_path):
    def step(inputs):
        counter.add_(inputs["x"])
        return {"y": counter * 10}

    return any_context.compile(step, {"x": torch.zeros(2, 3)}, tmp_path / "step")


ONE = {"x": torch.ones(2, 3)}


def test_updates_live_on_the_device_until_synchronize(any_context, counter, step):
    results = [step(ONE)["y"] for _ in range(3)]
    assert [result.cpu()[0, 0].item() for result in results] == [10, 20, 30]
    assert counter.sum() == 0
    any_context.synchronize()
    assert torch.equal(counter, torch.full((2, 3), 3.0))
    assert not counter.requires_grad and counter.grad_fn is None


@pytest.mark.filterwarnings("error")
def test_a_buffer_may_hold_what_a_parameter_made(any_context, counter, tmp_path):
    weight = torch.nn.Parameter(torch.full((3, 3), 0.5))
    set_tensor_name(weight, "weight")
    any_context.register_param(weight)

    def step(inputs):  # without no_grad: torch gives the buffer a history
        counter.index_copy_(0, inputs["row"], inputs["x"] @ weight)
        return {"y": counter * 2}

    written = any_context.compile(step, {"x": torch.ones(1, 3), "row": torch.tensor([1])}, tmp_path / "step")
    assert counter.grad_fn is None and not counter.requires_grad
    assert torch.equal(
        written({"x": torch.ones(1, 3), "row": torch.tensor([1])})["y"].cpu()[:, 0], torch.tensor([0.0, 3.0])
    )


def test_functions_of_a_context_share_them(any_context, counter, step, tmp_path):
    read = any_context.compile(lambda i: {"z": counter.t() @ i["w"]}, {"w": torch.zeros(2, 2)}, tmp_path / "read")
    for n in range(1, 4):
        step(ONE)
        assert read({"w": torch.eye(2)})["z"].cpu()[0, 0] == n


def test_unchanged_values_keep_the_hosts_bits(any_context, tmp_path):
    weight = torch.tensor([1e-45, 3.4e38, 0.1, -0.0])  # a denormal, which the device does not have
    set_tensor_name(weight, "weight")
    any_context.register_param(weight)
    bits = weight.clone().view(torch.int32)
    f = any_context.compile(lambda i: {"y": weight * i["x"]}, {"x": torch.zeros(4)}, tmp_path / "f")
    f({"x": torch.zeros(4)})
    any_context.synchronize()
    assert torch.equal(weight.view(torch.int32), bits)


def test_a_host_reset_reaches_the_device_by_load_from(any_context, counter, step):
    step(ONE)
    counter.zero_()
    assert step(ONE)["y"].cpu()[0, 0] == 20  # the device's copy counts
    any_context.get_registered_value_proxy(counter).load_from(counter, clone=False)
    assert step(ONE)["y"].cpu()[0, 0] == 10


def test_loading_before_the_compile(any_context, counter, tmp_path):
    any_context.get_registered_value_proxy(counter).load_from(torch.full((2, 3), 7.0), clone=False)
    f = any_context.compile(lambda i: {"y": counter + i["x"]}, ONE, tmp_path / "f")
    assert f(ONE)["y"].cpu()[0, 0] == 8
    any_context.synchronize()
    assert counter[0, 0] == 7


def test_the_last_host_value_before_the_first_call_counts(any_context, counter, step):
    counter.fill_(5)
    assert step(ONE)["y"].cpu()[0, 0] == 60
    any_context.synchronize()
    assert counter[0, 0] == 6


def test_a_value_from_elsewhere_is_written_back(any_context, counter, step):
    any_context.get_registered_value_proxy(counter).load_from(torch.full((2, 3), 2.0))
    any_context.synchronize()
    assert counter[0, 0] == 2


def test_its_proxy_shows_the_present_value(any_context, counter, step):
    proxy = any_context.get_registered_value_proxy(counter)
    assert proxy.cpu()[0, 0] == 0
    step(ONE)
    step(ONE)
    assert proxy.cpu()[0, 0] == 2 and counter[0, 0] == 0


def test_it_is_an_input_of_another_function(any_context, counter, step, tmp_path):
    double = any_context.compile(lambda i: {"y": i["x"] * 2}, ONE, tmp_path / "double")
    proxy = any_context.get_registered_value_proxy(counter)
    assert double({"x": proxy})["y"].cpu()[0, 0] == 0
    step(ONE)
    assert double({"x": proxy})["y"].cpu()[0, 0] == 2


def test_tensors_are_found_by_identity(any_context, counter):
    with pytest.raises(ContextError, match="this Tensor is not registered in this Context; register it first"):
        any_context.get_registered_value_proxy(counter.clone())
    with pytest.raises(ContextError, match="not registered"):
        any_context.get_registered_value_proxy("total")


def test_a_name_is_needed(any_context):
    with pytest.raises(ContextError, match=r"a tensor \(2x3\) has no name; call set_tensor_name"):
        any_context.register_param(torch.zeros(2, 3))


def test_names_are_unique_in_a_context(any_context, counter):
    other = torch.zeros(1)
    set_tensor_name(other, "total")
    with pytest.raises(ContextError, match="the name total is taken by another tensor of this Context"):
        any_context.register_param(other)
    any_context.register_buffer(counter)  # the same one again: nothing happens
    assert len(any_context.registry) == 1


@pytest.mark.parametrize("dtype", [torch.int16, torch.int8])
def test_dtypes_that_the_device_does_not_know(any_context, dtype):
    tensor = torch.zeros(2, dtype=dtype)
    set_tensor_name(tensor, "odd")
    with pytest.raises(ContextError, match=f"odd has dtype {str(dtype)[6:]}; allowed are float32"):
        any_context.register_param(tensor)


class SpectralLayer(torch.nn.Module):
    """A layer of a Fourier neural operator: the lowest frequencies meet complex weights."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2, 2, 3, dtype=torch.complex64) / 2)
        self.register_buffer("turn", torch.polar(torch.ones(5), torch.arange(5.0)), persistent=False)

    def forward(self, x):
        low = torch.zeros(*x.shape[:2], 5, dtype=torch.complex64)
        low[..., :3] = torch.einsum("bix,iox->box", (torch.fft.rfft(x) * self.turn)[..., :3], self.weight)
        return torch.fft.irfft(low, n=x.shape[-1])


def test_complex_parameters_are_trained(any_context, tmp_path):
    model, x = SpectralLayer(), torch.randn(2, 2, 8)
    twin = copy.deepcopy(model)
    any_context.registry.register("model", model)
    optimizer, same = MNCoreSGD(model.parameters(), 0.1), torch.optim.SGD(twin.parameters(), 0.1)
    any_context.registry.register("optimizer", optimizer)

    def step(net, by, x):
        by.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        by.step()
        return {"loss": loss.detach()}

    compiled = any_context.compile(lambda i: step(model, optimizer, i["x"]), {"x": x}, tmp_path / "step")
    for _ in range(2):
        assert torch.allclose(compiled({"x": x})["loss"].cpu(), step(twin, same, x)["loss"], atol=1e-5)
    any_context.synchronize()
    assert torch.allclose(model.weight, twin.weight, atol=1e-5)


def test_a_replaced_parameter_is_an_error(any_context, tmp_path):
    model = torch.nn.Linear(3, 2)
    set_tensor_name_in_module(model, "model")
    for parameter in model.parameters():
        any_context.register_param(parameter)
    model.weight = torch.nn.Parameter(torch.zeros(2, 3))
    with pytest.raises(ContextError, match="weight of Linear was replaced after it was registered as model@weight"):
        any_context.compile(lambda i: {"y": model(i["x"])}, {"x": torch.zeros(1, 3)}, tmp_path / "f")


def test_a_tensor_that_is_not_registered_becomes_a_constant_with_a_warning(any_context, tmp_path):
    scale = torch.full((3,), 2.0)
    with pytest.warns(UnregisteredTensorWarning, match="uses 1 tensor that is not registered, and now constant"):
        f = any_context.compile(lambda i: {"y": i["x"] * scale}, {"x": torch.zeros(3)}, tmp_path / "f")
    scale.zero_()
    assert f({"x": torch.ones(3)})["y"].cpu().tolist() == [2, 2, 2]


def test_a_copy_of_a_registered_model_is_an_ordinary_one(any_context, tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    any_context.registry.register("model", model)
    twin = copy.deepcopy(model)
    from mlsdk import get_tensor_name

    assert all(get_tensor_name(tensor) is None for tensor in [*twin.parameters(), *twin.buffers()])
    any_context.registry.register("twin", twin)
    assert torch.equal(twin[0].weight, model[0].weight)


def test_tied_weights_are_registered_once(any_context, tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    any_context.registry.register("model", model)
    assert list(any_context.registry.state()) == ["model@0_weight"]
    f = any_context.compile(lambda i: {"y": model(i["x"])}, {"x": torch.zeros(2, 4)}, tmp_path / "f")
    x = torch.randn(2, 4)
    assert torch.allclose(f({"x": x})["y"].cpu(), model(x), atol=1e-6)


def test_register_takes_modules_and_optimizers(any_context):
    model = torch.nn.Linear(3, 2)
    any_context.registry.register("model0", model)
    any_context.registry.register("model0", model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    any_context.registry.register("optimizer0", optimizer)
    assert list(any_context.registry.state()) == [
        "model0@weight",
        "model0@bias",
        "optimizer0@model0@weight@momentum_buffer",
        "optimizer0@model0@bias@momentum_buffer",
        "optimizer0@0@learning_rate",
        "optimizer0@0@momentum",
    ]
    with pytest.raises(ContextError, match="the name model0 is taken by another Linear"):
        any_context.registry.register("model0", torch.nn.Linear(3, 2))
    with pytest.raises(ContextError, match="takes a torch.nn.Module or a torch optimizer, not list"):
        any_context.registry.register("model1", [])
    with pytest.raises(ContextError, match="'' is no name"):
        any_context.registry.register("", model)


def test_a_loaded_function_binds_to_registered_names(any_context, counter, step):
    step(ONE)
    again = any_context.load_codegen_dir(step.codegen_dir)
    assert again(ONE)["y"].cpu()[0, 0] == 20
    any_context.synchronize()
    assert counter[0, 0] == 2


def test_a_loaded_function_carries_its_own_state(any_context, step):
    with Context(MNDevice(any_context.device.device_name)) as elsewhere:
        one, other = (elsewhere.load_codegen_dir(step.codegen_dir) for _ in range(2))
        assert one(ONE)["y"].cpu()[0, 0] == 10 and one(ONE)["y"].cpu()[0, 0] == 20
        assert other(ONE)["y"].cpu()[0, 0] == 10


def test_a_loaded_function_needs_the_same_shape(any_context, step):
    with Context(MNDevice(any_context.device.device_name)) as elsewhere:
        total = torch.zeros(3, 2)
        set_tensor_name(total, "total")
        elsewhere.register_buffer(total)
        message = (
            r"step was compiled with total as float32 \[2, 3\], and float32 \[3, 2\] is registered under that name"
        )
        with pytest.raises(InputMismatch, match=message):
            elsewhere.load_codegen_dir(step.codegen_dir)


def test_what_was_trained_travels_with_a_later_compile(any_context, counter, step, tmp_path):
    """A compile takes the device's present values along, not the host's old ones."""
    step(ONE)
    any_context.compile(lambda i: {"y": counter + i["x"]}, ONE, tmp_path / "later")
    assert counter[0, 0] == 0
    with Context(MNDevice(any_context.device.device_name)) as elsewhere:
        assert elsewhere.load_codegen_dir(tmp_path / "later")(ONE)["y"].cpu()[0, 0] == 2


def test_functions_of_different_precision_share_a_parameter(context, tmp_path):
    weight = torch.randn(8, 8)
    set_tensor_name(weight, "weight")
    context.register_param(weight)
    x = torch.randn(4, 8)
    for number, float_dtype in enumerate(("float", "half", "double", "mixed")):
        options = {"float_dtype": float_dtype}
        f = context.compile(lambda i: {"y": i["x"] @ weight}, {"x": x}, tmp_path / str(number), options=options)
        assert torch.allclose(f({"x": x})["y"].cpu(), x @ weight, atol=0.1)
    context.synchronize()


def test_gradients_accumulate_on_the_device(any_context, tmp_path):
    weight = torch.nn.Parameter(torch.randn(4))
    weight.grad = torch.zeros(4)
    set_tensor_name(weight, "weight")
    set_tensor_name(weight.grad, "weight_grad")
    any_context.register_param(weight)
    any_context.register_param(weight.grad)

    def backward(inputs):
        loss = (weight * inputs["x"]).sum()
        loss.backward()
        return {"loss": loss}

    f = any_context.compile(backward, {"x": torch.zeros(4)}, tmp_path / "f")
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    for _ in range(3):
        f({"x": x})
    gradient = weight.grad
    any_context.synchronize()
    assert weight.grad is gradient and torch.equal(gradient, 3 * x)


def test_a_random_function_gives_other_numbers_each_time(host, tmp_path):
    f = host.compile(lambda i: {"y": torch.rand(100) + i["x"]}, {"x": torch.zeros(())}, tmp_path / "f")
    first, second = (f({"x": 0.0})["y"].cpu() for _ in range(2))
    assert not torch.equal(first, second)
    with Context(MNDevice("pfvm:cpu")) as again:
        assert torch.equal(again.load_codegen_dir(tmp_path / "f")({"x": 0.0})["y"].cpu(), first)


def test_a_later_compile_takes_the_devices_value_not_a_changed_host_tensor(any_context, counter, step, tmp_path):
    step(ONE)
    any_context.synchronize()
    counter.fill_(100)  # never sent
    any_context.compile(lambda i: {"y": counter + i["x"]}, ONE, tmp_path / "later")
    with Context(MNDevice(any_context.device.device_name)) as elsewhere:
        assert elsewhere.load_codegen_dir(tmp_path / "later")(ONE)["y"].cpu()[0, 0] == 2


def test_one_thread_compiles_while_another_calls(any_context, counter, step, tmp_path):
    import threading

    compiled = []

    def compile_more():
        for n in range(3):
            f = any_context.compile(lambda i, n=n: {"y": i["x"] * n + counter}, ONE, tmp_path / str(n))
            compiled.append(f)

    thread = threading.Thread(target=compile_more)
    thread.start()
    calls = 0
    while thread.is_alive():
        step(ONE)
        calls += 1
        time.sleep(0.01)
    thread.join()
    any_context.synchronize()
    assert counter[0, 0] == calls and len(compiled) == 3
    assert compiled[2](ONE)["y"].cpu()[0, 0] == 2 + calls


def test_a_model_that_changes_its_dtype(any_context, tmp_path):
    model = torch.nn.Linear(4, 4)
    any_context.registry.register("model", model)
    model.double()  # nobody has used it yet
    f = any_context.compile(
        lambda i: {"y": model(i["x"])}, {"x": torch.zeros(2, 4, dtype=torch.float64)}, tmp_path / "f"
    )
    x = torch.randn(2, 4, dtype=torch.float64)
    assert torch.allclose(f({"x": x})["y"].cpu(), model(x))
    model.half()
    with pytest.raises(
        ContextError, match=r"model@weight was float64\[4,4\] when it was registered, and is float16\[4,4\]"
    ):
        any_context.compile(lambda i: {"y": model(i["x"])}, {"x": torch.zeros(2, 4).half()}, tmp_path / "g")
