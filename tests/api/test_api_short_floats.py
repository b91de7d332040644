"""Casts to float16 and bfloat16 round as torch does, on the board too, where such values are kept as singles."""

from __future__ import annotations

import pytest
import torch

from mlsdk import set_tensor_name

SHORT = [torch.float16, torch.bfloat16]


def numbers() -> torch.Tensor:
    """Singles around every border of both formats, the middles between neighbours, and random bits of every exponent."""
    generator = torch.Generator().manual_seed(0)
    exponents = torch.arange(-126, 128, dtype=torch.float64)
    whole = torch.randint(0, 1 << 11, (254, 16), generator=generator).double()
    ties = (1 + (whole + 0.5) / (1 << 10)) * 2.0 ** exponents[:, None]
    short = (1 + (whole % 128 + 0.5) / 128) * 2.0 ** exponents[:, None]
    beside = torch.cat([ties, short]).flatten().float()
    beside = beside[torch.isfinite(beside)]
    random = torch.randint(-(2**31), 2**31, (4096,), generator=generator, dtype=torch.int64).int().view(torch.float32)
    random = random[torch.isfinite(random) & ((random.abs() >= 2.0**-126) | (random == 0))]
    steps = torch.arange(-8, 9) * 2.0**-25
    borders = torch.tensor([0.0, 65504, 65519.99, 65520, 65536, 3.3895e38, 3.3961e38, 3.4e38, 2.0**-14, 2.0**-126])
    every = torch.cat([beside, torch.nextafter(beside, torch.tensor(0.0)), random, steps, borders])
    return torch.cat([every, -every, torch.tensor([float("inf"), -float("inf")])])


def same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Bit for bit, with what the board holds for a denormal single: 0 of its sign or not."""
    tiny = wanted.abs() < 2.0**-126
    assert torch.equal(torch.where(tiny, 0.0, found.float()), torch.where(tiny, 0.0, wanted.float()))
    assert torch.equal(torch.signbit(found)[~tiny], torch.signbit(wanted)[~tiny])


@pytest.mark.parametrize("dtype", SHORT)
def test_every_border_of_the_formats(dtype, any_context, tmp_path):
    x = numbers()
    f = any_context.compile(lambda i: {"y": i["x"].to(dtype).float()}, {"x": x}, tmp_path / "f", quiet=True)
    same(f({"x": x})["y"].cpu(), x.to(dtype).float())


@pytest.mark.parametrize("source", [torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("dtype", SHORT)
def test_from_other_dtypes(dtype, source, any_context, tmp_path):
    """By way of a single, which 1 + 2^-11 + 2^-30 shows: rounded once it would be above the middle."""
    numbers = [0, 1, 255, 257, 2049, 2051, 65519, 70000, 2**31 - 1, 1 + 2.0**-11 + 2.0**-30, 1 + 2.0**-8]
    x = torch.tensor(numbers, dtype=torch.float64).to(source)
    f = any_context.compile(lambda i: {"y": i["x"].to(dtype).double()}, {"x": x}, tmp_path / "f", quiet=True)
    assert f({"x": x})["y"].cpu().tolist() == x.to(dtype).double().tolist()


@pytest.mark.parametrize("float_dtype", ["mixed", "half", "double"])
@pytest.mark.parametrize("dtype", SHORT)
def test_in_every_precision(dtype, float_dtype, context, tmp_path):
    """Values that a half of the board has as well; then only range and mantissa of the short float count."""
    x = torch.tensor([1 + 2.0**-9, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 131072, -65536, 2.0**-25, 3 * 2.0**-25, -(2.0**-24)])
    f = context.compile(
        lambda i: {"y": i["x"].to(dtype).float()},
        {"x": x},
        tmp_path / "f",
        options={"float_dtype": float_dtype},
        quiet=True,
    )
    assert f({"x": x})["y"].cpu().tolist() == x.to(dtype).float().tolist()


@pytest.mark.parametrize("dtype", SHORT)
def test_other_ways_of_casting(dtype, any_context, tmp_path):
    x = torch.tensor([1 + 2.0**-12, 3.14159, 1e-6, -2.71828])

    def function(inputs):
        into = torch.zeros(4, dtype=dtype)
        into.copy_(inputs["x"])
        part = torch.zeros(2, 4, dtype=dtype)
        part[1] = inputs["x"]
        return {
            "copy": into.float(),
            "part": part.float(),
            "type_as": inputs["x"].type_as(into).float(),
            "twice": inputs["x"].half().bfloat16().float(),
            "between": (inputs["x"] * 2).to(dtype).float() + inputs["x"],
        }

    f = any_context.compile(function, {"x": x}, tmp_path / "f", quiet=True)
    wanted = function({"x": x})
    for key, found in f({"x": x}).items():
        assert torch.equal(found.cpu(), wanted[key]), key


def test_autocast_rounds_the_operands_of_a_product(any_context, tmp_path):
    """Whole numbers of more bits than bfloat16 has: products of what is left are exact, and others than without."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-2000, 2000, (8, 8), generator=generator).float() for _ in range(2))

    def function(inputs):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return {"y": (inputs["a"] @ inputs["b"]).float()}

    f = any_context.compile(function, {"a": a, "b": b}, tmp_path / "f", quiet=True)
    exact = a.bfloat16().double() @ b.bfloat16().double()
    found = f({"a": a, "b": b})["y"].cpu().double()
    assert torch.allclose(found, exact, rtol=1e-5, atol=1e-5 * exact.abs().max())
    assert not torch.allclose(found, a.double() @ b.double(), rtol=1e-5, atol=1e-5 * exact.abs().max())


def test_the_gradient_of_a_cast_is_cast(any_context, tmp_path):
    def function(inputs):
        x = inputs["x"].detach().requires_grad_()
        (x.bfloat16().float() * inputs["w"]).sum().backward()
        return {"g": x.grad}

    x, w = torch.ones(3), torch.tensor([1 + 2.0**-10, 3.14159, 1e-3])
    f = any_context.compile(function, {"x": x, "w": w}, tmp_path / "f", quiet=True)
    assert torch.equal(f({"x": x, "w": w})["g"].cpu(), w.bfloat16().float())


def test_results_have_the_dtype_that_torch_gives_them(any_context, tmp_path):
    """Also where the graph has one value for two of them, in a loaded function, and as an input of another one."""
    x = torch.tensor([1 + 2.0**-10, 3.14159, -0.1])

    def function(inputs):
        short = inputs["x"].bfloat16()
        return {"short": short, "wide": short.float(), "sum": short + short, "half": inputs["x"].half()}

    wanted = function({"x": x})
    made = any_context.compile(function, {"x": x}, tmp_path / "f", quiet=True)
    for f in (made, any_context.load_codegen_dir(tmp_path / "f")):
        found = f({"x": x})
        for key, value in found.items():
            assert value.dtype == wanted[key].dtype and torch.equal(value.cpu(), wanted[key]), key
            assert torch.allclose(value, wanted[key]) and value.tolist() == wanted[key].tolist()
    again = any_context.compile(lambda i: {"y": i["s"] * 2}, {"s": found["short"]}, tmp_path / "g", quiet=True)
    result = again({"s": found["short"]})["y"]
    assert result.dtype == torch.bfloat16 and torch.equal(result.cpu(), wanted["short"] * 2)


def test_the_proxy_of_a_registered_bfloat16_is_one(any_context):
    weight = torch.tensor([1.5, -2], dtype=torch.bfloat16)
    set_tensor_name(weight, "weight")
    any_context.register_buffer(weight)
    proxy = any_context.get_registered_value_proxy(weight)
    assert proxy.dtype == torch.bfloat16 and torch.equal(proxy.cpu(), weight)
