"""Kinds of tensors as inputs and results: dtypes, scalars, no elements, special numbers, unused and repeated ones."""

from __future__ import annotations

import warnings

import pytest
import torch

from mlsdk import set_tensor_name
from mlsdk.errors import InputMismatch, ScheduleError, TraceError


def compiled(context, tmp_path, function, sample):
    return context.compile(function, sample, tmp_path / "f")


def test_no_elements(any_context, tmp_path):
    f = compiled(any_context, tmp_path, lambda i: {"y": i["x"] + 1, "s": i["x"].sum(0)}, {"x": torch.zeros(0, 4)})
    result = f({"x": torch.zeros(0, 4)})
    assert result["y"].cpu().shape == (0, 4) and torch.equal(result["s"].cpu(), torch.zeros(4))
    proxy = f.allocate_input_proxy()["x"]
    proxy.load_from(torch.zeros(0, 4))
    assert f({"x": proxy})["y"].shape == (0, 4)


def test_inputs_that_are_not_used_and_results_that_are_not_computed(any_context, tmp_path):
    def function(inputs):
        return {"one": torch.ones(3), "a": inputs["a"], "twice": inputs["b"] * 2, "again": inputs["b"] * 2}

    sample = {"a": torch.randn(2), "b": torch.randn(3), "unused": torch.randn(5)}
    f = compiled(any_context, tmp_path, function, sample)
    assert list(f.input_specs) == ["a", "b", "unused"]
    for given in (sample, {**sample, "unused": "of any kind"}, {"a": sample["a"], "b": sample["b"]}):
        result = f(given)
        for key, value in function(sample).items():
            assert torch.equal(result[key].cpu(), value)
    sent = any_context.counters.uploads
    f(sample)["a"].cpu()
    assert any_context.counters.uploads == sent + 2  # what is not used is not sent
    assert f(f.allocate_input_proxy() | {"a": sample["a"], "b": sample["b"]})["a"].cpu().equal(sample["a"])
    with pytest.raises(InputMismatch, match="lacks the input b;"):
        f({"a": sample["a"], "unused": sample["unused"]})
    loaded = any_context.load_codegen_dir(f.codegen_dir)
    assert loaded({"a": sample["a"], "b": sample["b"]})["a"].cpu().equal(sample["a"])


def test_no_inputs_and_no_results(any_context, tmp_path):
    assert compiled(any_context, tmp_path, lambda i: {"y": torch.arange(4)}, {})({})["y"].cpu().tolist() == [0, 1, 2, 3]
    with pytest.raises(TraceError, match="returns an empty mapping and changes no registered tensor"):
        compiled(any_context, tmp_path, lambda i: {}, {"x": torch.ones(2)})
    total = torch.zeros(2)
    set_tensor_name(total, "total")
    any_context.register_buffer(total)
    counts = compiled(any_context, tmp_path, lambda i: {} if total.add_(i["x"]) is not None else None, {"x": total + 0})
    assert counts({"x": torch.ones(2)}) == {}
    any_context.synchronize()
    assert total.tolist() == [1, 1]


DTYPES = {
    torch.float32: [0.5, -1.25, 3e38],
    torch.float64: [0.1, 1e300, -1e-300],
    torch.float16: [0.5, 65504.0, -1.0],
    torch.int32: [1, -(2**31), 2**31 - 1],
    torch.int64: [1, -(2**31), 2**31 - 1],
    torch.uint8: [0, 1, 255],
    torch.bool: [True, False, True],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_comes_back(any_context, tmp_path, dtype):
    x = torch.tensor(DTYPES[dtype], dtype=dtype)
    weight = x.clone()
    set_tensor_name(weight, "weight")
    any_context.register_buffer(weight)
    f = compiled(any_context, tmp_path, lambda i: {"x": i["x"], "w": weight}, {"x": x})
    result = f({"x": x})
    for key in ("x", "w"):
        assert result[key].dtype == dtype and torch.equal(result[key].cpu(), x)
    assert torch.equal(any_context.get_registered_value_proxy(weight).cpu(), x)


def test_special_numbers_on_the_board(context, tmp_path):
    """The board has no NaN (it is infinity there) and no denormals (they are zero)."""
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e-45, -0.0, 3e38])
    f = compiled(context, tmp_path, lambda i: {"y": i["x"] + 0}, {"x": x})
    assert f({"x": x})["y"].cpu().tolist() == [float("inf"), float("inf"), -float("inf"), 0, 0, pytest.approx(3e38)]


def test_numbers_too_large_for_the_results_dtype_are_infinite_without_a_warning(context, tmp_path):
    f = compiled(context, tmp_path, lambda i: {"y": i["x"] * 2}, {"x": torch.zeros(1, dtype=torch.float16)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert f({"x": torch.tensor([60000.0])})["y"].cpu().tolist() == [float("inf")]


def test_the_same_tensor_twice_stays_two_inputs(any_context, tmp_path):
    x = torch.ones(3)
    f = compiled(any_context, tmp_path, lambda i: {"y": i["a"] - i["b"]}, {"a": x, "b": x})
    assert f({"a": torch.full((3,), 5.0), "b": x})["y"].cpu().tolist() == [4, 4, 4]


def test_what_does_not_fit_into_memory_is_refused_with_bytes(context, tmp_path):
    x = torch.zeros(1).expand(65536, 65536)
    with pytest.raises(ScheduleError, match=r"needs [\d,]+ bytes of each group's DRAM, the board has 4,294,967,296"):
        compiled(context, tmp_path, lambda i: {"y": i["x"] + 1}, {"x": x})


def test_nested_results(any_context, tmp_path):
    def function(inputs):
        return {"out": inputs["x"] * 2, "layers": [{"l": inputs["x"] + 1}, (inputs["x"], None, 3)]}

    f = compiled(any_context, tmp_path, function, {"x": torch.zeros(2)})
    result = f({"x": torch.ones(2)})
    assert result["layers"][0]["l"].cpu().tolist() == [2, 2]
    assert result["layers"][1][0].cpu().tolist() == [1, 1] and result["layers"][1][1:] == (None, 3)


def test_bytes_wrap(any_context, tmp_path):
    x = torch.tensor([0, 1, 100, 128, 255], dtype=torch.uint8)

    def function(inputs):
        x = inputs["x"]
        return {"neg": -x, "below": 3 - x, "sum": x + x, "product": x * x, "shift": x << 1, "inverse": ~x}

    f = any_context.compile(function, {"x": x}, tmp_path / "f", quiet=True)
    wanted = function({"x": x})
    for key, found in f({"x": x}).items():
        assert torch.equal(found.cpu(), wanted[key]), key
