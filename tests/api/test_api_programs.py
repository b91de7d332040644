"""Whole programs, as a user writes them."""

from __future__ import annotations

import time

import pytest
import torch

from mlsdk import (
    CacheOptions,
    Context,
    MNDevice,
    set_tensor_name_in_module,
    storage,
)


def test_add_two_tensors_twice_with_a_cache(tmp_path, pair):
    device = MNDevice("mncore2:auto")
    context = Context(device)
    Context.switch_context(context)

    def add(inputs):
        return {"sum": inputs["a"] + inputs["b"]}

    def compiled():
        return context.compile(
            add,
            pair,
            storage.path(tmp_path / "add_two_tensors"),
            options={"float_dtype": "float"},
            cache_options=CacheOptions(str(tmp_path / "add_two_tensors_cache")),
        )

    first = compiled()
    clock = time.perf_counter()
    second = compiled()
    assert time.perf_counter() - clock < 0.5
    for function in (first, second):
        result = function(pair)
        assert list(result) == ["sum"]
        assert torch.equal(result["sum"].cpu(), pair["a"] + pair["b"])
    context.invalidate()
    assert (tmp_path / "add_two_tensors_cache" / "index.sqlite").exists()
    assert {"model.onnx", "model.vsm.zst", "model.app.zst", "option.json", "report.json"} <= {
        file.name for file in (tmp_path / "add_two_tensors").iterdir()
    }


def test_a_linear_layer_with_registered_parameters(any_context, tmp_path):
    context = any_context
    model = torch.nn.Linear(64, 10).eval()
    set_tensor_name_in_module(model, "model0")
    for parameter in model.parameters():
        context.register_param(parameter)
    for buffer in model.buffers():
        context.register_buffer(buffer)

    def infer(inputs):
        return {"out": model(inputs["x"])}

    sample = {"x": torch.randn(8, 64)}
    compiled = context.compile(infer, sample, tmp_path / "infer", options={"float_dtype": "mixed"})
    with torch.no_grad():
        assert torch.allclose(compiled(sample)["out"].cpu(), model(sample["x"]), atol=0.02)


def test_two_models_in_one_context(any_context, tmp_path):
    context = any_context
    models = [torch.nn.Linear(4, 4) for _ in range(2)]
    compiled = []
    sample = {"x": torch.randn(4, 4)}
    for number, model in enumerate(models):
        set_tensor_name_in_module(model, f"model{number}")
        for parameter in model.parameters():
            context.register_param(parameter)

        def infer(inputs, model=model):
            return {"out": model(inputs["x"])}

        compiled.append(context.compile(infer, sample, storage.path(tmp_path / f"infer{number}")))
    for function, model in zip(compiled, models):
        assert torch.allclose(function(sample)["out"].cpu(), model(sample["x"]))


def test_load_codegen_dir_in_a_fresh_process(tmp_path, run_program):
    directory = tmp_path / "linear"
    run_program(
        """
import sys, torch
from mlsdk import Context, MNDevice, set_tensor_name_in_module, storage
context = Context(MNDevice("mncore2:auto"))
torch.manual_seed(3)
model = torch.nn.Linear(6, 5)
set_tensor_name_in_module(model, "model")
for parameter in model.parameters():
    context.register_param(parameter)
compiled = context.compile(lambda inputs: {"y": model(inputs["x"])}, {"x": torch.zeros(2, 6)}, storage.path(sys.argv[1]))
""",
        str(directory),
        PYTHONWARNINGS="error",  # nothing that the packages below say at their import ends a program that is strict
    )
    moved = directory.rename(tmp_path / "moved")
    run_program(
        """
import sys, torch
from mlsdk import Context, MNDevice, storage
context = Context(MNDevice("mncore2:auto"))
compiled = context.load_codegen_dir(storage.path(sys.argv[1]))
torch.manual_seed(3)
model = torch.nn.Linear(6, 5)
x = torch.randn(2, 6)
assert torch.allclose(compiled({"x": x})["y"].cpu(), model(x)), "the weights travel with the application"
""",
        str(moved),
        MLSDK_STORE=str(tmp_path / "an empty store"),
        PYTHONWARNINGS="error",
    )


def test_data_is_transferred_explicitly(any_context, tmp_path):
    context = any_context
    model = torch.nn.Linear(4, 4)
    set_tensor_name_in_module(model, "model")
    for parameter in model.parameters():
        context.register_param(parameter)
    compiled = context.compile(lambda inputs: {"y": model(inputs["x"])}, {"x": torch.zeros(4, 4)}, tmp_path / "infer")
    proxies = compiled.allocate_input_proxy()
    assert type(proxies) is dict and list(proxies) == ["x"]
    proxies["x"].load_from(torch.ones(4, 4), clone=False)
    for parameter in model.parameters():
        context.get_registered_value_proxy(parameter).load_from(parameter)
    uploads = context.counters.uploads
    result = compiled(proxies)["y"].cpu()
    assert torch.allclose(result, model(torch.ones(4, 4)))
    assert context.counters.uploads <= uploads + 3  # nothing is sent a second time
    assert context.counters.relocations == 1  # the input was read where it was loaded


@pytest.mark.parametrize("float_dtype", ["float", "mixed", "half", "double"])
def test_the_board_agrees_with_the_reference(float_dtype, context, host, tmp_path):
    tolerance = {"float": 1e-5, "mixed": 3e-2, "half": 3e-2, "double": 1e-5}[float_dtype]
    model = torch.nn.Sequential(torch.nn.Linear(20, 33), torch.nn.ReLU(), torch.nn.Linear(33, 7))
    sample = {"x": torch.randn(9, 20)}
    results = []
    for place in (context, host):
        place.registry.register("model", model)
        compiled = place.compile(
            lambda inputs: {"y": model(inputs["x"]).softmax(1)},
            sample,
            tmp_path / place.device.device_name.replace(":", "_"),
            options={"float_dtype": float_dtype},
        )
        results.append(compiled(sample)["y"].cpu())
    assert torch.allclose(*results, atol=tolerance)
