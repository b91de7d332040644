"""Values that an input's dtype does not have are refused before anything is cast."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlsdk import set_tensor_name
from mlsdk.errors import ContextError, InputMismatch

NAN, INF = float("nan"), float("inf")
DTYPES = {
    "i": torch.int32,
    "l": torch.int64,
    "u": torch.uint8,
    "b": torch.bool,
    "f": torch.float32,
    "h": torch.float16,
}


def echo(inputs):
    return {key: value.clone() for key, value in inputs.items()}


@pytest.fixture
def function(any_context, tmp_path):
    """One input of each dtype; those that a call does not give are zero."""
    zeros = {key: torch.zeros(2, dtype=dtype) for key, dtype in DTYPES.items()}
    compiled = any_context.compile(echo, zeros, tmp_path / "f", quiet=True)
    return lambda **given: compiled({**zeros, **given})


REFUSED = [
    ("i", torch.tensor([1, 2**32 + 5]), "4294967301, which is no int32"),
    ("i", torch.tensor([-(2**31) - 1, 0]), "-2147483649, which is no int32"),
    ("i", torch.tensor([1, NAN]), "nan, which is no int32"),
    ("i", torch.tensor([1e20, 0]), "1.*e.20, which is no int32"),
    ("i", torch.tensor([2.0**31, 0]), "2147483648.*, which is no int32"),
    ("l", torch.tensor([INF, 0]), "inf, which is no int64"),
    ("l", torch.tensor([2.0**63, 0]), "9.2.*, which is no int64"),
    ("l", np.array([2**63, 0], np.uint64), "9223372036854775808, which is no int64"),
    ("u", torch.tensor([300, -1]), r"300, which is no uint8 \(0 to 255\)"),
    ("u", torch.tensor([0, -1], dtype=torch.int8), "-1, which is no uint8"),
    ("u", torch.tensor([0.0, 256.0]), "256.0, which is no uint8"),
    ("f", torch.tensor([0, 1e300], dtype=torch.float64), r"1e\+300, which is no float32"),
    ("h", torch.tensor([0, 1e6]), "1000000.0, which is no float16"),
    ("h", torch.tensor([0, 70000]), "70000, which is no float16"),
]


def test_values_that_do_not_fit(function):
    for key, value, message in REFUSED:
        with pytest.raises(InputMismatch, match=f"input {key} of echo holds {message}"):
            function(**{key: value})
    for value in (
        10**30,
        np.array(["a", "b"]),
        np.array([1, None]),
        np.zeros(2, "datetime64[s]"),
        np.zeros(2, complex),
    ):
        with pytest.raises(InputMismatch, match="input f is .*; give real numbers of at most 64 bits"):
            function(f=value)
    with pytest.raises(InputMismatch, match=r"input f is torch.float32 without data \(device meta\)"):
        function(f=torch.zeros(2, device="meta"))


ALLOWED = [
    ("i", torch.tensor([2**31 - 1, -(2**31)]), [2**31 - 1, -(2**31)]),
    ("i", torch.tensor([2.75, -2.75]), [2, -2]),
    ("i", torch.tensor([-(2.0**31), True]), [-(2**31), 1]),
    ("u", torch.tensor([255.9, -0.5]), [255, 0]),
    ("b", torch.tensor([NAN, 0.0]), [True, False]),
    ("f", torch.tensor([INF, 1e-300], dtype=torch.float64), [INF, 0]),
    ("f", torch.tensor([2**31 - 1, 1]), [2.0**31, 1]),
    ("f", torch.tensor([1.5, -3], dtype=torch.bfloat16), [1.5, -3]),
    ("f", np.array([1, 2], np.uint16), [1, 2]),
    ("f", np.array([1.0, 2.0])[::-1], [2, 1]),
    ("h", torch.tensor([INF, 60000.0]), [INF, 60000]),
]


def test_values_that_fit_are_cast(function):
    for key, value, wanted in ALLOWED:
        assert function(**{key: value})[key].cpu().tolist() == wanted, (key, value)


def test_a_proxy_of_another_dtype(any_context, tmp_path):
    make = any_context.compile(lambda i: {"y": i["x"] * 200}, {"x": torch.zeros(2)}, tmp_path / "make")
    take = any_context.compile(echo, {"y": torch.zeros(2, dtype=torch.uint8)}, tmp_path / "take")
    assert take(make({"x": torch.ones(2)}))["y"].cpu().tolist() == [200, 200]
    result = take(make({"x": torch.tensor([1.0, 2.0])}))
    with pytest.raises(InputMismatch, match="holds 400.0, which is no uint8"):
        result["y"].cpu()


def test_integers_of_more_than_32_bits_on_the_board(context, tmp_path):
    f = context.compile(echo, {"x": torch.zeros(1, dtype=torch.int64)}, tmp_path / "f")
    with pytest.raises(InputMismatch, match="input x holds 1099511627776; integers on the board have 32 bits"):
        f({"x": 2**40})


def test_constants_of_which_only_the_low_bits_count(context, tmp_path):
    primes = torch.tensor([1, 2654435761, 805459861])
    x = torch.tensor([[3, -5, 7], [0, 2**30, -(2**31)]])

    def places(i):
        a, b, c = (i["x"] * primes).unbind(1)
        return {"y": (a ^ b ^ c + 2**40) % 2**9, "z": (a - b * (2**50 + 3)) & 0x7FFFFFFF}

    found = context.compile(places, {"x": x}, tmp_path / "f")({"x": x})
    assert all(torch.equal(found[key].cpu(), wanted) for key, wanted in places({"x": x}).items())
    for number, lost in enumerate(
        (lambda x: x * 2654435761, lambda x: x * 2654435761 % 1000, lambda x: (x * 2654435761 ^ 5) & 0xFFFFFFFF)
    ):
        with pytest.raises(InputMismatch, match="integers on the board have 32 bits"):
            context.compile(lambda i, lost=lost: {"y": lost(i["x"])}, {"x": x}, tmp_path / f"lost{number}")


def test_load_from_takes_data(any_context, tmp_path):
    f = any_context.compile(echo, {"x": torch.zeros(3)}, tmp_path / "f")
    proxy = f.allocate_input_proxy()["x"]
    with pytest.raises(InputMismatch, match="input x cannot be loaded from a tensor on the device meta"):
        proxy.load_from(torch.zeros(3, device="meta"))
    proxy.load_from(torch.tensor([1, 2, 3], dtype=torch.bfloat16))
    assert f({"x": proxy})["x"].cpu().tolist() == [1, 2, 3]


def test_bfloat16(any_context, tmp_path):
    """Inputs, constants and registered tensors of bfloat16 are computed as single; what goes back is rounded."""
    weight = torch.tensor([1.0, 1.5], dtype=torch.bfloat16)
    set_tensor_name(weight, "weight")
    any_context.register_buffer(weight)

    def function(inputs):
        weight.add_(inputs["x"])
        return {"y": weight * torch.tensor(2.0, dtype=torch.bfloat16)}

    f = any_context.compile(function, {"x": torch.zeros(2, dtype=torch.bfloat16)}, tmp_path / "f")
    small = torch.tensor([2.0**-10, 0], dtype=torch.bfloat16)
    result = f({"x": small})["y"].cpu()
    assert result.dtype == torch.bfloat16 and result.tolist() == [2, 3]  # 2 + 2^-9 has too many bits
    any_context.synchronize()
    assert weight.dtype == torch.bfloat16 and weight.tolist() == [1, 1.5]


def test_item_gives_one_number(host, tmp_path):
    y = host.compile(echo, {"x": torch.zeros(3)}, tmp_path / "f")({"x": torch.ones(3)})["x"]
    with pytest.raises(InputMismatch, match=r"echo x is float32\[3\], and .item\(\) gives one number"):
        y.item()


# --- registered tensors in one memory ---


def named(tensor, name):
    set_tensor_name(tensor, name)
    return tensor


def test_registered_tensors_share_no_memory(host):
    base = torch.zeros(6)
    host.register_buffer(named(base[:3], "a"))
    overlapping = {"a part": base[1:4], "the same": base[:3], "every second": base[::2], "all": base, "data": base.data}
    for name, tensor in overlapping.items():
        with pytest.raises(ContextError, match=f"{name} shares memory with a, which is registered"):
            host.register_buffer(named(tensor, name))
    beside = named(base[3:], "beside")
    host.register_buffer(beside)
    parameter = torch.nn.Parameter(torch.zeros(3, 4))
    host.register_param(named(parameter, "parameter"))
    with pytest.raises(ContextError, match="transposed shares memory with parameter"):
        host.register_buffer(named(parameter.data.t(), "transposed"))
    assert len(host.registry) == 3


def test_columns_beside_each_other_share_no_memory(host):
    base = torch.zeros(4, 4, dtype=torch.bfloat16)
    host.register_buffer(named(base[:, :2], "left"))
    host.register_buffer(named(base[:, 2:], "right"))


def test_tied_weights_are_one_tensor(host):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    model[1].weight = model[0].weight
    host.registry.register("model", model)
    assert len(host.registry) == 3
