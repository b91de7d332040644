"""Programs that were wrong or refused once, each traced, compiled and compared with torch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from emulated import run
from torch import nn

from mlsdk.pipeline.optimize import optimize
from mlsdk.pipeline.trace import trace

torch.manual_seed(0)
PROGRAMS = {
    "grouped convolution of several images": (nn.Conv2d(6, 18, 1, groups=6, bias=False), [(3, 6, 9, 9)], "float"),
    "grouped convolution in three dimensions": (nn.Conv3d(6, 6, 3, groups=6, padding=1), [(2, 6, 2, 3, 3)], "double"),
    **{
        f"convolution of volumes, {what}": (
            lambda x, w, b, how=how: F.conv3d(x, w, b, **how),
            [(2, 6, 5, 6, 7), (12, 6 // how.get("groups", 1), *kernel), (12,)],
            dtype,
        )
        for what, kernel, how, dtype in (
            ("padded", (3, 2, 3), {"padding": (1, 0, 1)}, "mixed"),
            (
                "strided and dilated",
                (3, 2, 2),
                {"stride": (2, 1, 2), "padding": (2, 1, 0), "dilation": (2, 1, 1)},
                "float",
            ),
            ("of one slice", (1, 3, 3), {"stride": (2, 1, 1)}, "mixed"),
            ("each channel on its own", (2, 3, 3), {"groups": 6}, "float"),
            ("in groups", (3, 3, 3), {"groups": 3, "padding": 1}, "mixed"),
        )
    },
    "statistics on the board": (
        lambda x, w, *numbers: F.hardswish(F.batch_norm(F.conv2d(x, w, padding=1), *numbers, eps=25.0)),
        [(2, 6, 9, 9), (20, 6, 3, 3), *[(20,)] * 4],
        "mixed",
    ),
    "einsum over two axes": (lambda x, k: torch.einsum("bijk,bk->ij", x, k), [(17, 5, 4, 16), (17, 16)], "double"),
    "few rows a batch": (lambda a, b: a @ b, [(9, 3, 3), (9, 3, 3)], "mixed"),
    "attention with one query": (
        F.scaled_dot_product_attention,
        [(1, 12, 1, 16), (1, 12, 7, 16), (1, 12, 7, 16)],
        "mixed",
    ),
    "adaptive pooling of extents that do not divide": (
        lambda x: F.adaptive_avg_pool3d(x, 3),
        [(1, 3, 4, 4, 4)],
        "float",
    ),
    "normalisation of a transposed view": (lambda x: BN(x.transpose(1, 2)), [(2, 5, 4)], "float"),
    "flip of a scalar": (lambda x: x.flip(0) * 2, [()], "float"),
    "transposed convolution of a long row": (
        nn.ConvTranspose1d(1, 3, 3, padding=1, dilation=2),
        [(2, 1, 513)],
        "float",
    ),
    "transposed convolution of a constant": (  # of which it makes views
        lambda w: F.conv_transpose2d(CONSTANT, w, None, (3, 1), (2, 0), groups=3),
        [(12, 1, 5, 3)],
        "float",
    ),
}
CONSTANT = torch.randn(3, 12, 2, 2)
BN = nn.BatchNorm1d(4).eval()
TOLERANCE = {"float": 1e-5, "double": 1e-6, "mixed": 1e-2}


@pytest.mark.filterwarnings("ignore::mlsdk.errors.UnregisteredTensorWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    function, shapes, dtype = PROGRAMS[name]
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    sample = {f"x{i}": torch.from_numpy(np.asarray(a)) for i, a in enumerate(arrays)}
    graph = optimize(trace(lambda d: {"y": function(*(d[key] for key in sample))}, sample).graph)
    (got,) = run(graph, dict(zip(graph.inputs, arrays)), dtype)[0].values()
    with torch.no_grad():
        want = function(*sample.values()).numpy()
    assert np.abs(got - want).max() <= TOLERANCE[dtype] * max(1.0, np.abs(want).max())
