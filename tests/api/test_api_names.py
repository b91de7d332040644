"""Names of tensors, paths, and what `import mlsdk` gives."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import subprocess
import sys

import pytest
import torch

import fx2onnx
import mlsdk
from mlsdk import get_tensor_name, set_buffer_name_in_optimizer, set_tensor_name, set_tensor_name_in_module, storage
from mlsdk.errors import ContextError


def test_a_tensor_has_no_name_until_it_gets_one():
    tensor = torch.zeros(2)
    assert get_tensor_name(tensor) is None
    set_tensor_name(tensor, "weight")
    assert get_tensor_name(tensor) == "weight"
    fx2onnx.set_tensor_name(tensor, "other")
    assert get_tensor_name(tensor) == "other"
    assert get_tensor_name(tensor.clone()) is None and get_tensor_name(tensor[:]) is None
    assert get_tensor_name("tensor") is None


def test_names_end_with_their_tensor():
    from mlsdk.naming import _NAMES

    gc.collect()
    before = len(_NAMES._entries)
    tensors = [torch.zeros(1) for _ in range(100)]
    for number, tensor in enumerate(tensors):
        set_tensor_name(tensor, f"t{number}")
    del tensors, tensor
    gc.collect()
    assert len(_NAMES._entries) == before


def test_a_gradient_that_only_its_parameter_holds_keeps_its_name():
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.zeros(2)
    set_tensor_name(parameter.grad, "w_grad")
    gc.collect()
    assert get_tensor_name(parameter.grad) == "w_grad"


@pytest.mark.parametrize("name", ["", None, 3, "a\nb", "a\0", "x" * 513])
def test_bad_names(name):
    with pytest.raises(ContextError, match="is no name for a tensor; give printable text"):
        set_tensor_name(torch.zeros(1), name)


def test_only_tensors_and_modules_have_names():
    with pytest.raises(ContextError, match="a name is given to a torch.Tensor, not to list"):
        set_tensor_name([], "x")
    with pytest.raises(ContextError, match="takes a torch.nn.Module, not list"):
        set_tensor_name_in_module([], "x")


def test_names_in_a_module():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    set_tensor_name_in_module(model, "model0")
    names = {get_tensor_name(tensor) for tensor in [*model.parameters(), *model.buffers()]}
    assert "model0@0_weight" in names and "model0@1_running_mean" in names
    assert None not in names and not any("." in name for name in names)


def test_names_in_an_optimizer():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    set_buffer_name_in_optimizer(optimizer, "optim0")
    state = optimizer.state[model.weight]
    assert get_tensor_name(state["exp_avg"]) == "optim0@0@exp_avg"
    assert get_tensor_name(state["step"]) == "optim0@0@step"


# --- storage ---


def test_paths_join_and_are_opened(tmp_path):
    path = storage.path(target=str(tmp_path / "out"))
    assert os.fspath(path) == str(tmp_path / "out") and str(path / "a" / "b") == str(tmp_path / "out" / "a" / "b")
    assert not (tmp_path / "out").exists()
    torch.save({"x": torch.zeros(1)}, path / "deep" / "checkpoint.pt")
    assert (tmp_path / "out" / "deep" / "checkpoint.pt").exists()
    assert mlsdk.path is storage.path
    assert storage.path(path) == path


BAD = {
    "outside": ("../x", "leaves the working directory"),
    "outside below": ("a/../../x", "leaves the working directory"),
    "NUL": ("a\0b", "holds a NUL"),
    "empty": ("", "is empty"),
    "long": ("x" * 300, "a part of more than 255 bytes"),
    "URL": ("s3://bucket/x", "only local folders"),
    "number": (3, "takes a path, not int"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_paths(case):
    target, message = BAD[case]
    with pytest.raises(ContextError, match=message):
        storage.path(target)


@pytest.mark.parametrize("name", ["CON", "-x", "emoji 😀", "a/b", "\u202ex", "x" * 255, "a b", "./here"])
def test_odd_names_are_paths(name):
    assert os.fspath(storage.path(name)) == os.path.normpath(name)


# --- imports ---


def test_everything_can_be_imported():
    for name in mlsdk.__all__:
        assert getattr(mlsdk, name) is not None
    assert set(mlsdk.__all__) <= set(dir(mlsdk))
    with pytest.raises(AttributeError, match="module 'mlsdk' has no attribute 'Contxt'"):
        mlsdk.Contxt  # noqa: B018


def test_it_has_a_version():
    assert mlsdk.__version__ == importlib.metadata.version("open-mlsdk")


def test_errors_of_other_parts_are_found_by_name():
    from mlsdk.errors import DeviceBusy, DeviceError, MLSDKError, StoreError, StoreFull

    assert (
        issubclass(DeviceBusy, DeviceError) and issubclass(StoreFull, StoreError) and issubclass(StoreFull, MLSDKError)
    )


def test_importing_mlsdk_is_light():
    code = """
import sys
import mlsdk, mlsdk.device, mlsdk.store, mlsdk.errors, mlsdk.storage, fx2onnx
heavy = {"torch", "numpy", "onnx", "numba", "luigi", "sqlalchemy"} & set(sys.modules) - {"sqlalchemy"}
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_manual_is_current():
    from pathlib import Path

    from mlsdk import manual

    written = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    assert written == manual.page(), "run `make docs`"


def test_everything_public_is_described():
    import inspect

    for name in mlsdk.__all__:
        thing = getattr(mlsdk, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert inspect.getdoc(thing), name
            for method, value in vars(thing).items() if inspect.isclass(thing) else ():
                if inspect.isfunction(value) and not method.startswith("_"):
                    known = any(hasattr(base, method) for base in thing.__mro__[1:])
                    plain = method in ("dim", "size", "numel", "tolist")  # torch's own
                    assert value.__doc__ or known or plain, f"{name}.{method}"
