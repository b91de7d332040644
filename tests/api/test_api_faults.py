"""What a runtime may get wrong in silence: odd strides, no elements, more than fits, sources that are changed, freed or replaced,
other globals under the same names, other surroundings of a compile."""

from __future__ import annotations

import gc
import json
import re

import pytest
import torch

from mlsdk import set_tensor_name
from mlsdk.errors import ContextError, MLSDKError, ScheduleError
from mlsdk.store import digest_of


def named(tensor: torch.Tensor, name: str) -> torch.Tensor:
    set_tensor_name(tensor, name)
    return tensor


# --- strides ---

#: [3, 4] tensors of the values 0 to 11 that lie in memory in every other way
STRIDED = {
    "transposed": lambda: torch.arange(12.0).view(3, 4).t().contiguous().t(),
    "every second": lambda: torch.stack([torch.arange(12.0), -torch.ones(12)], 1).flatten()[::2].view(3, 4),
    "behind an offset": lambda: torch.cat([torch.full((5,), -1.0), torch.arange(12.0)])[5:].view(3, 4),
    "columns of a wider one": lambda: torch.cat([torch.arange(12.0).view(3, 4), torch.ones(3, 2)], 1)[:, :4],
    "flipped twice": lambda: torch.arange(12.0).flip(0).flip(0).view(3, 4),
    "channels last": lambda: torch.arange(12.0).view(1, 1, 3, 4).to(memory_format=torch.channels_last)[0, 0],
}


@pytest.mark.parametrize("how", STRIDED)
def test_registered_tensors_of_any_strides(how, any_context, tmp_path):
    """They are read as they are, and written back in place: what lies between their elements stays."""
    tensor = named(STRIDED[how](), "t")
    storage = torch.tensor([], dtype=torch.float32).set_(tensor.untyped_storage())
    stride, outside = tensor.stride(), storage.clone()
    torch.as_strided(outside, (3, 4), stride, tensor.storage_offset()).zero_()
    any_context.register_buffer(tensor)
    f = any_context.compile(
        lambda i: {"y": tensor.mul_(2) + i["x"]}, {"x": torch.ones(3, 4)}, tmp_path / "f", quiet=True
    )
    wanted = torch.arange(12.0).view(3, 4)
    assert torch.equal(f({"x": torch.ones(3, 4)})["y"].cpu(), 2 * wanted + 1)
    any_context.synchronize()
    assert torch.equal(tensor, 2 * wanted) and tensor.stride() == stride
    torch.as_strided(storage, (3, 4), stride, tensor.storage_offset()).zero_()
    assert torch.equal(storage, outside)


def test_numpy_strides_that_go_backwards(any_context, tmp_path):
    f = any_context.compile(lambda i: {"y": i["x"] * 1}, {"x": torch.zeros(4, 3)}, tmp_path / "f", quiet=True)
    array = torch.arange(12.0).view(4, 3).numpy()
    for view in (array[::-1], array[:, ::-1], array[::-1, ::-1]):
        assert f({"x": view})["y"].numpy().tolist() == view.tolist()


# --- no elements, and too many ---


@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0, 2)])
def test_no_elements_in_any_place(shape, any_context, tmp_path):
    x = torch.zeros(shape)

    def function(inputs):
        x = inputs["x"]
        return {
            "same": x,
            "more": x.exp() + 1,
            "sum": x.sum(),
            "turned": x.flatten()[None],
            "joined": torch.cat([x, x]),
        }

    f = any_context.compile(function, {"x": x}, tmp_path / "f", quiet=True)
    result = f({"x": x})
    for key, wanted in function({"x": x}).items():
        assert result[key].dtype == wanted.dtype and torch.equal(result[key].cpu(), wanted), key


def test_the_largest_of_nothing_is_refused_as_torch_does(any_context, tmp_path):
    with pytest.raises((MLSDKError, RuntimeError, IndexError), match="(?i)dim|empty|no elements|zero"):
        any_context.compile(lambda i: {"y": i["x"].amax(0)}, {"x": torch.zeros(0, 4)}, tmp_path / "f", quiet=True)
    assert any_context.compile(lambda i: {"y": i["x"]}, {"x": torch.zeros(0, 4)}, tmp_path / "f", quiet=True)


def test_more_than_two_to_the_31_elements_are_counted_right(context, tmp_path):
    """Declared only; the message has the bytes, which 32 bits cannot count."""
    x = torch.zeros(1).expand(2**16, 2**15 + 1)
    with pytest.raises(ScheduleError, match="bytes") as caught:
        context.compile(lambda i: {"y": i["x"] * 2}, {"x": x}, tmp_path / "f", quiet=True)
    assert max(int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", str(caught.value))) > 2**32


# --- sources of load_from ---


def test_a_source_that_nobody_holds_is_kept_until_it_is_read(any_context, tmp_path):
    f = any_context.compile(lambda i: {"y": i["x"] + 0}, {"x": torch.zeros(512, 512)}, tmp_path / "f", quiet=True)
    proxy = f.allocate_input_proxy()["x"]
    source = torch.full((512, 512), 3.0)
    proxy.load_from(source, clone=False)
    del source
    gc.collect()
    other = torch.full((512, 512), 4.0)  # likely in the same memory
    assert torch.equal(f({"x": proxy})["y"].cpu(), torch.full((512, 512), 3.0)), other[0, 0]


def test_with_clone_the_source_may_be_resized(any_context, tmp_path):
    f = any_context.compile(lambda i: {"y": i["x"] + 0}, {"x": torch.zeros(4)}, tmp_path / "f", quiet=True)
    proxy, source = f.allocate_input_proxy()["x"], torch.ones(4)
    proxy.load_from(source)
    source.resize_(1).fill_(7)
    assert f({"x": proxy})["y"].cpu().tolist() == [1, 1, 1, 1]


# --- registered tensors that are replaced ---


def test_a_state_dict_that_is_assigned_replaces_parameters(any_context, tmp_path):
    model = torch.nn.Linear(2, 2)
    any_context.registry.register("model", model)
    model.load_state_dict({key: value + 1 for key, value in model.state_dict().items()}, assign=True)
    with pytest.raises(ContextError, match="model@weight.*replaced|replaced.*model@weight"):
        any_context.compile(lambda i: {"y": model(i["x"])}, {"x": torch.zeros(1, 2)}, tmp_path / "f", quiet=True)


def test_a_state_dict_that_is_copied_is_used(any_context, tmp_path):
    model = torch.nn.Linear(2, 2)
    any_context.registry.register("model", model)
    f = any_context.compile(lambda i: {"y": model(i["x"])}, {"x": torch.zeros(1, 2)}, tmp_path / "f", quiet=True)
    model.load_state_dict({"weight": torch.eye(2), "bias": torch.ones(2)})
    assert f({"x": torch.tensor([[3.0, 4.0]])})["y"].cpu().tolist() == [[4, 5]]


def test_a_numpy_view_sees_what_synchronize_brings(any_context, tmp_path):
    """In place means the same memory, for views that were made before too."""
    tensor = named(torch.zeros(3), "t")
    view = tensor.numpy()
    any_context.register_buffer(tensor)
    f = any_context.compile(lambda i: {"y": tensor.add_(i["x"])}, {"x": torch.ones(3)}, tmp_path / "f", quiet=True)
    f({"x": torch.ones(3)})
    any_context.synchronize()
    assert view.tolist() == [1, 1, 1]


# --- what a function reads from outside ---


def scaled(factor):
    scale, more = torch.tensor(factor), int(factor)
    return lambda inputs: {"y": inputs["x"] * scale + more}


def test_equal_functions_with_other_globals_are_other_programs(any_context, tmp_path):
    x, results = torch.ones(2), []
    for factor in (2.0, 3.0):
        with pytest.warns(match="not registered"):
            f = any_context.compile(scaled(factor), {"x": x}, tmp_path / "f", quiet=True)
        results.append(f({"x": x})["y"].cpu().tolist())
    assert results == [[4, 4], [6, 6]]


# --- other surroundings ---

PROGRAM = """
import sys, torch
from mlsdk import Context, MNDevice, storage

torch.manual_seed(0)
torch.set_num_threads(int(sys.argv[2]))
model = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 3))
with Context(MNDevice("emu2")) as context:
    context.registry.register("model", model)
    x = torch.randn(2, 2, 6, 6)
    options = {"float_dtype": "mixed", "num_threads": int(sys.argv[2])}
    context.compile(lambda i: {"y": model(i["x"]).softmax(1)}, {"x": x}, storage.path(sys.argv[1]), options=options, quiet=True)
"""

# When, where and how long it was.
ABOUT_THE_COMPILE = {"CLOG.log", "glog/codegen.INFO.log", "manifest.json", "option.json"}


def test_every_artifact_is_the_same_in_other_surroundings(run_program, tmp_path):
    """Another process, another folder, another order of hashes, another number of threads: byte by byte."""
    found = []
    for number, seed in enumerate(("1", "77")):
        store, out = tmp_path / f"store{number}", tmp_path / ("a" if number else "deeper/folder")
        run_program(
            PROGRAM,
            str(out),
            str(number + 1),
            PYTHONHASHSEED=seed,
            MLSDK_STORE=str(store),
            OMP_NUM_THREADS=str(number + 1),
        )
        names = sorted(json.loads((out / "manifest.json").read_text())["files"])
        found.append({name: digest_of((out / name).read_bytes()) for name in names if name not in ABOUT_THE_COMPILE})
    assert {"exported.onnx", "placed.json", "plan.json", "model.vsm.zst", "model.app.zst"} <= found[0].keys()
    assert found[0] == found[1]
