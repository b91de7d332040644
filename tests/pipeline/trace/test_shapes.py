"""The quick shape rules give what torch's own meta functions give: shapes, dtypes and strides."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from mlsdk.pipeline.trace.shapes import quick_shapes

aten = torch.ops.aten


def t(*shape, order=None):
    x = torch.empty(shape, device="meta")
    return x if order is None else x.permute(order)


CASES = {
    "stack": (aten.stack.default, [t(2, 3), t(2, 3)], 1),
    "stack at the end": (aten.stack.default, [t(2, 3), t(2, 3), t(2, 3)], -1),
    "layer norm": (aten.native_layer_norm.default, t(3, 5, 7), (7,), t(7), t(7), 1e-5),
    "layer norm, transposed": (aten.native_layer_norm.default, t(3, 5, 7, order=(2, 0, 1)), (5,), t(5), None, 1e-5),
    "group norm": (aten.native_group_norm.default, t(2, 8, 4, 3), t(8), t(8), 2, 8, 12, 4, 1e-5),
    "transposed convolution": (
        aten.convolution.default, t(2, 8, 5, 6), t(8, 3, 4, 2), None, [3], [1, 0], [1, 2], True, [1, 0], 2,
    ),
    "transposed convolution of a line": (
        aten.convolution.default, t(2, 8, 5), t(8, 3, 4), t(3), [2], [1], [1], True, [0], 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_torch_says(name):
    func, *args = CASES[name]
    shadowed = [
        [SimpleNamespace(elem=x) for x in arg] if func is aten.stack.default and arg is args[0] else arg for arg in args
    ]
    found, wanted = quick_shapes(func, shadowed, {}), func(*args)
    assert found is not None
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, wanted)), strict=True):
        assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride())
