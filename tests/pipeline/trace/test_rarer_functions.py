"""Functions that networks use less often: the traced graph gives what eager torch gives."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from agreement import agree


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def integers(low, high, *shape, seed=0):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


x, other = numbers(3, 7, 11), numbers(3, 3, 11, seed=1)
whole = integers(-9, 9, 3, 7, 11)
image, volume = numbers(2, 6, 9, 11), numbers(2, 3, 4, 5, 6)
ordered, steps = numbers(9).sort().values, torch.tensor([1, 3, 3, 5])
# a part of the places lies outside
places2, places3 = 1.5 * numbers(2, 5, 4, 2), 1.5 * numbers(2, 3, 5, 4, 3)

FUNCTIONS = {
    "searchsorted": (lambda s, a: torch.searchsorted(s, a), ordered, x),
    "searchsorted_right": (lambda s, a: torch.searchsorted(s, a, right=True, out_int32=True), ordered, x),
    "searchsorted_rows": (lambda a: torch.searchsorted(a.sort(-1).values, a[..., :4], side="right"), x),
    "searchsorted_equal": (lambda s, a: (torch.searchsorted(s, a), torch.searchsorted(s, a, right=True)), steps, whole),
    "searchsorted_sorter": (lambda s, a: torch.searchsorted(s, a, sorter=s.argsort()), numbers(9, seed=3), x),
    "searchsorted_number": (lambda s: torch.searchsorted(s, 0.3), ordered),
    "searchsorted_nan": (lambda s, a: torch.searchsorted(s, a), ordered, torch.tensor([float("nan"), 0.0])),
    "fake_quantize": (lambda a: torch.fake_quantize_per_tensor_affine(a, 0.1, 3, -8, 17), x),
    "fake_quantize_strides": (lambda a: torch.fake_quantize_per_tensor_affine(a.mT, 0.1, 3, -8, 17), x),
    "fake_quantize_tensors": (
        lambda a, s, z: torch.fake_quantize_per_tensor_affine(a, s, z, -8, 17),
        x,
        torch.tensor([0.1]),
        torch.tensor([3], dtype=torch.int32),
    ),
    "fake_quantize_channels": (
        lambda a, s: torch.fake_quantize_per_channel_affine(a, s, torch.arange(7, dtype=torch.int32), 1, -8, 17),
        x,
        torch.arange(1, 8) * 0.1,
    ),
    "grouped_mm": (
        lambda a, w, ends: F.grouped_mm(a.bfloat16(), w.bfloat16(), offs=ends).float(),
        integers(-3, 3, 12, 8).float(),
        integers(-3, 3, 4, 8, 16, seed=1).float(),
        torch.tensor([3, 3, 9, 12], dtype=torch.int32),
    ),
    "repeat_interleave_counts": (
        lambda a, n: torch.repeat_interleave(a, n, 1, output_size=8),
        x,
        torch.tensor([0, 3, 0, 1, 1, 0, 3]),
    ),
    "gcd": (lambda a: (torch.gcd(a, a.flip(0)), torch.lcm(a, torch.tensor(6))), whole),
    "gcd_largest": (lambda a, b: torch.gcd(a, b), torch.tensor([1134903170, -(2**31), 0]), torch.tensor(1836311903)),
    "pdist": (lambda a: (F.pdist(a), F.pdist(a, 1.0)), x[0]),
    "rrelu": (lambda a: F.rrelu(a), x),
    **{
        f"index_reduce_{how}_{alone}": (
            lambda a, u, how=how, alone=alone: a.index_reduce(
                1, torch.tensor([1, 4, 1]), u, how, include_self=not alone
            ),
            x,
            other,
        )
        for how in ("amax", "amin", "prod", "mean")
        for alone in (False, True)
    },
    **{
        f"scatter_integers_{how}": (
            lambda a, how=how: a.scatter_reduce(1, a.abs() % 7, a, how, include_self=False),
            whole,
        )
        for how in ("amax", "amin", "prod", "sum")
    },
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_agrees_with_eager(name):
    function, *operands = FUNCTIONS[name]
    agree(function, *operands)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(5, 20), (4, 3), (9, 11), (18, 5), 0.37, 1.7, (0.5, 2.0)])
def test_resizing_with_antialias(mode, size):
    key = "size" if isinstance(size, tuple) and isinstance(size[0], int) else "scale_factor"
    agree(lambda a: F.interpolate(a, **{key: size}, mode=mode, antialias=True), image)


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_sampling_at_a_grid(mode, padding, corners):
    agree(lambda a, at: F.grid_sample(a, at, mode, padding, corners), image, places2)
    if mode != "bicubic":
        agree(lambda a, at: F.grid_sample(a, at, mode, padding, corners), volume, places3)


@pytest.mark.parametrize("padding", ["border", "reflection"])
@pytest.mark.parametrize("corners", [False, True])
def test_sampling_an_axis_of_one_element(padding, corners):
    agree(lambda a, at: F.grid_sample(a, at, "bilinear", padding, corners), image[:, :, :1], places2)
