"""Calls: what they accept, and how they refuse the rest."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch
from conftest import add

from mlsdk.errors import ContextError, InputMismatch, MLSDKError, TraceError


@pytest.fixture
def added(any_context, tmp_path, pair):
    return any_context.compile(add, pair, tmp_path / "add")


def test_extra_keys_are_ignored(added, pair):
    assert torch.equal(added({**pair, "image": "a picture"})["sum"].cpu(), pair["a"] + pair["b"])


def test_missing_keys_are_named(added, pair):
    with pytest.raises(InputMismatch, match=r"add lacks the input b; given are a, x"):
        added({"a": pair["a"], "x": pair["b"]})


def test_a_tensor_instead_of_a_mapping(added, pair):
    with pytest.raises(InputMismatch, match="add takes a mapping of names to tensors, not Tensor; its inputs are a, b"):
        added(pair["a"])


@pytest.mark.parametrize("shape", [(4, 4), (12,), (3, 4, 1), (1, 4), ()])
def test_another_shape_is_refused(added, pair, shape):
    with pytest.raises(InputMismatch, match=r"input b of add: expected float32\[3,4\], got float32\["):
        added({**pair, "b": torch.zeros(shape)})


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.float64, torch.float16, torch.bfloat16])
def test_another_dtype_is_cast(added, pair, dtype):
    b = torch.tensor([[0, 1, 0, 1]] * 3).to(dtype)
    assert torch.equal(added({**pair, "b": b})["sum"].cpu(), pair["a"] + b.float())


def test_complex_numbers_are_refused(added, pair):
    with pytest.raises(InputMismatch, match="input b is torch.complex64"):
        added({**pair, "b": torch.zeros(3, 4, dtype=torch.complex64)})


def test_something_that_is_no_tensor(added, pair):
    with pytest.raises(InputMismatch, match="input b is str; give a torch.Tensor or a TensorProxy"):
        added({**pair, "b": "b"})


def test_a_call_in_a_function_that_is_compiled(any_context, added, pair, tmp_path):
    def loads(inputs):
        added.allocate_input_proxy()["a"].load_from(inputs["a"])

    for function, what in ((added, "input a"), (loads, "what input a is loaded from")):
        with pytest.raises(TraceError, match=f"^{what} is a traced tensor: .* call the Python function"):
            any_context.compile(function, pair, tmp_path / "f")


def test_one_element_may_have_any_shape(any_context, tmp_path):
    f = any_context.compile(lambda i: {"y": i["t"] * 2}, {"t": torch.tensor([0.0])}, tmp_path / "f")
    for t in (torch.tensor(3.0), torch.tensor([3]), torch.tensor([[3.0]]), 3.0, np.float32(3), np.array([3])):
        result = f({"t": t})["y"]
        assert result.shape == (1,) and result.item() == 6


STRIDES = {
    "transposed": lambda: torch.randn(4, 3).t(),
    "every second": lambda: torch.randn(6, 8)[::2, ::2],
    "expanded": lambda: torch.randn(3, 1).expand(3, 4),
    "flipped": lambda: torch.randn(3, 4).flip(0),
    "with an offset": lambda: torch.randn(5, 4)[2:],
    "conjugate": lambda: torch.randn(3, 4, dtype=torch.complex64).conj().imag,
    "a parameter": lambda: torch.nn.Parameter(torch.randn(3, 4)),
    "computed": lambda: torch.nn.Parameter(torch.randn(3, 4)) * 2,
}


@pytest.mark.parametrize("how", STRIDES)
def test_any_strides(added, pair, how):
    a = STRIDES[how]()
    assert torch.equal(added({**pair, "a": a})["sum"].cpu(), a.detach() + pair["b"])


def test_integers_that_do_not_fit_are_refused(context, tmp_path):
    f = context.compile(lambda i: {"y": i["n"] + 1}, {"n": torch.zeros(4, dtype=torch.int64)}, tmp_path / "f")
    assert f({"n": torch.tensor([2**31 - 2, -(2**31), 0, 1])})["y"].cpu().tolist() == [2**31 - 1, -(2**31) + 1, 1, 2]
    with pytest.raises(InputMismatch, match=f"input n holds {2**31}; integers on the board have 32 bits"):
        f({"n": torch.tensor([2**31, 0, 0, 0])})
    assert f({"n": torch.zeros(4)})["y"].cpu().tolist() == [1, 1, 1, 1]  # usable after it


def test_inputs_may_change_after_the_call(added, pair):
    expected = pair["a"] + pair["b"]
    results = []
    for _ in range(5):
        a = pair["a"].clone()
        results.append(added({**pair, "a": a})["sum"])
        a.fill_(float("inf"))
    assert all(torch.equal(result.cpu(), expected) for result in results)


def test_results_of_earlier_calls_stay(added, pair):
    results = [added({**pair, "a": torch.full((3, 4), float(n))}) for n in range(6)]
    kept = results[3]["sum"]
    del results[1:3]
    for number, result in zip((0, 3, 4, 5), results):
        assert torch.equal(result["sum"].cpu(), number + pair["b"])
    assert torch.equal(kept.cpu(), 3 + pair["b"])


def test_only_results_that_somebody_holds_are_moved_away(context, tmp_path, pair):
    added = context.compile(add, pair, tmp_path / "add")
    for _ in range(3):
        added(pair)
    context.synchronize()
    assert context.counters.device_copies == 0
    held = [added(pair) for _ in range(3)]
    context.synchronize()
    assert context.counters.device_copies == 2 and len(held) == 3


def test_a_result_goes_to_another_function_without_the_host(context, tmp_path, pair):
    added = context.compile(add, pair, tmp_path / "add")
    doubled = context.compile(lambda i: {"y": i["sum"] * 2}, {"sum": torch.zeros(3, 4)}, tmp_path / "double")
    result = added(pair)
    before = vars(context.counters).copy()
    twice = doubled(result)
    context.synchronize()
    after = vars(context.counters)
    changed = {name for name, count in after.items() if count != before[name]}
    assert changed == {"runs", "steps", "relocations"}
    assert torch.equal(twice["y"].cpu(), 2 * (pair["a"] + pair["b"]))


def test_a_result_goes_back_into_its_own_function(any_context, tmp_path):
    step = any_context.compile(lambda i: {"x": i["x"] * 2 + 1}, {"x": torch.zeros(3, 5)}, tmp_path / "step")
    values = {"x": torch.ones(3, 5)}
    history = [step(values)]
    for _ in range(4):
        history.append(step(history[-1]))
    assert [one["x"].cpu()[0, 0].item() for one in history] == [3, 7, 15, 31, 63]


def test_pieces_of_results_are_inputs(any_context, tmp_path):
    whole = any_context.compile(lambda i: {"y": i["x"] + 1}, {"x": torch.zeros(4, 6)}, tmp_path / "whole")
    part = any_context.compile(lambda i: {"z": i["y"] * 3}, {"y": torch.zeros(4, 2)}, tmp_path / "part")
    x = torch.randn(4, 6)
    for piece, expected in zip(whole({"x": x})["y"].split(2, dim=1), (x + 1).split(2, dim=1)):
        assert torch.allclose(part({"y": piece})["z"].cpu(), expected * 3)


def test_the_result_is_a_plain_dict(added, pair):
    outputs = added(pair)
    assert type(outputs) is dict
    for key in outputs:
        outputs[key] = outputs[key].cpu()
    outputs["more"] = torch.zeros(1)
    pair.update(outputs)
    assert isinstance(pair["sum"], torch.Tensor)


def test_calls_of_several_threads(added, pair):
    wrong = []

    def work(number):
        for count in range(10):
            a = torch.full((3, 4), float(10 * number + count))
            if not torch.equal(added({**pair, "a": a})["sum"].cpu(), a + pair["b"]):
                wrong.append((number, count))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_invalidated_context_says_so(any_context, tmp_path, pair):
    added = any_context.compile(add, pair, tmp_path / "add")
    result = added(pair)
    any_context.invalidate()
    any_context.invalidate()
    for use in (lambda: added(pair), lambda: any_context.synchronize(), lambda: added.allocate_input_proxy()):
        with pytest.raises(ContextError, match="this Context was invalidated; make a new one"):
            use()
    with pytest.raises(ContextError, match="was given up; make a new Context"):
        result["sum"].cpu()


def test_a_context_that_is_invalidated_while_threads_call(any_context, tmp_path, pair):
    """Each call before is carried out, each one later is refused: nobody meets a device that is closed."""
    f = any_context.compile(add, pair, tmp_path / "add")
    f(pair)["sum"].cpu()
    told, counts = [], []

    def calls():
        try:
            while True:
                f(pair)
                counts.append(1)
        except MLSDKError as error:
            told.append(error)

    threads = [threading.Thread(target=calls) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(counts) < 6 and not told:
        time.sleep(0.01)
    any_context.invalidate()
    for thread in threads:
        thread.join(60)
    assert [type(error) for error in told] == [ContextError] * 3
    any_context.invalidate()


def test_functions_without_inputs_or_with_scalars(any_context, tmp_path):
    f = any_context.compile(lambda i: {"y": i["x"].sum()}, {"x": torch.ones(2, 3)}, tmp_path / "f")
    assert f({"x": torch.full((2, 3), 2.0)})["y"].item() == 12
    assert f({"x": torch.ones(2, 3)})["y"].shape == ()


def test_steps_of_the_last_call(context, tmp_path, pair):
    import json

    added = context.compile(add, pair, tmp_path / "add")
    assert added.last_steps == 0
    added(pair)
    assert added.last_steps == json.loads((tmp_path / "add" / "report.json").read_text())["steps"] > 0


def test_a_program_is_not_too_far_ahead_of_the_device(any_context, tmp_path, pair):
    from mlsdk.runtime import session

    added = any_context.compile(add, pair, tmp_path / "add")
    go = threading.Event()
    any_context._session.runner.submit(go.wait)
    calls = []
    thread = threading.Thread(target=lambda: [calls.append(added(pair)) for _ in range(session.CALLS_AHEAD + 5)])
    thread.start()
    thread.join(0.5)
    assert len(calls) == session.CALLS_AHEAD and thread.is_alive()
    go.set()
    thread.join()
    assert torch.equal(calls[-1]["sum"].cpu(), pair["a"] + pair["b"])
