"""Convolutions and pooling on the board against torch in double: kernels, strides, borders, groups, odd sizes."""

import numpy as np
import pytest
import torch
from emulated import graph_of, run, steps_of
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from mlsdk.errors import EmitError

DTYPES = ("float", "half", "mixed", "double")
#: relative to the largest inputs and the square root of the contraction, as for matrix products
CONV = {"float": 4e-6, "double": 3e-7, "mixed": 2**-7, "half": 2**-7}

extents = st.sampled_from([1, 2, 3, 5, 8, 13, 17, 40, 70])
kernels = st.sampled_from([1, 2, 3, 5])


def convolve(x, w, b, stride=1, padding=0, dilation=1, groups=1, dtype="mixed", constant=True):
    """Runs it and compares; returns the steps."""
    rank = x.ndim - 2
    pairs = [v if isinstance(v, tuple) else (v,) * rank for v in (stride, padding, dilation)]
    operands = [torch.from_numpy(v).double() if v is not None else None for v in (x, w, b)]
    function = torch.nn.functional.conv1d if rank == 1 else torch.nn.functional.conv2d
    want = function(*operands, *pairs, groups).numpy()
    attrs = {"strides": pairs[0], "pads": pairs[1] * 2, "dilations": pairs[2], "group": groups}
    others = {"w": w} | ({"b": b} if b is not None else {})
    inputs = {"x": x} | ({} if constant else others)
    graph = graph_of(
        "Conv", {k: ("float32", v.shape) for k, v in inputs.items()}, {"y": ("float32", want.shape)}, attrs,
        others if constant else {},
    )  # fmt: skip
    result, stats = run(graph, inputs, dtype)
    scale = np.abs(x).max() * np.abs(w).max() * np.prod(w.shape[1:]) ** 0.5 + (0 if b is None else np.abs(b).max())
    assert result["y"].shape == want.shape
    assert np.abs(result["y"] - want).max() <= CONV[dtype] * scale
    return stats.total_steps


def arrays(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


@given(
    n=st.integers(1, 3), c=st.sampled_from([1, 3, 16, 20, 40]), h=extents, w=extents, o=st.sampled_from([1, 5, 16, 33]),
    kernel=st.tuples(kernels, kernels), stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)), dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    groups=st.sampled_from([1, 1, 1, 2, 16]), bias=st.booleans(), constant=st.booleans(), dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**31),
)  # fmt: skip
def test_conv_matches_torch(n, c, h, w, o, kernel, stride, padding, dilation, groups, bias, constant, dtype, seed):
    for extent, k, p, d in zip((h, w), kernel, padding, dilation):
        assume(extent + 2 * p >= (k - 1) * d + 1)
    assume(c * groups <= 64 and n * c * groups * h * w <= 40000)  # emulating much larger ones takes long
    x, weights, b = arrays(seed, (n, c * groups, h, w), (o * groups, c, *kernel), (o * groups,))
    convolve(x, weights, b if bias else None, stride, padding, dilation, groups, dtype, constant)


@pytest.mark.parametrize("dtype", ["mixed", *(pytest.param(d, marks=pytest.mark.slow) for d in DTYPES if d != "mixed")])
@pytest.mark.parametrize(("channels", "edge"), [(256, 2), (272, 1)])
def test_weights_in_many_pieces(channels, edge, dtype):
    """A loop over pieces: with two output groups to a block, results of repetitions lie at two distances in turn."""
    x, w, b = arrays(1, (1, channels, edge, edge), (channels, channels, 3, 3), (channels,))
    convolve(x, w / channels**0.5, b, (1, 1), (1, 1), (1, 1), 1, dtype, True)


@pytest.mark.parametrize("dtype", ["float", "mixed"])
def test_windows_that_meet_borders_only(dtype):
    x, w, b = arrays(9, (1, 130, 1, 1), (5, 130, 1, 1), (5,))
    convolve(x, w, b, (1, 3), (0, 1), dtype=dtype)


@pytest.mark.parametrize("width", [28, 30])
def test_segments_that_begin_inside_of_a_row_fit_lm(width):
    """They may load some columns more than the first one, which begins with a border."""
    x, w, b = arrays(10, (1, 128, 5, width), (16, 128, 3, 3), (16,))
    convolve(x, w, b, 1, 1, dtype="double")


@pytest.fixture
def shared_out(monkeypatch):
    """Convolutions whose channels the L1Bs share wherever they can; counts them."""
    from mlsdk.pipeline.layout import windows as rules
    from mlsdk.pipeline.ops.emitters import conv, conv_joined

    met = []

    def pays(window, mode, dtypes):
        try:
            conv_joined.choose("", window, mode, *dtypes)
        except EmitError:
            return False
        return True

    join = conv_joined.join
    monkeypatch.setattr(rules, "pays_to_join", pays)
    monkeypatch.setattr(conv.conv_joined, "join", lambda *a: (met.append(1), join(*a))[1])
    return met


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    n=st.integers(1, 2), c=st.sampled_from([1, 20, 40, 144, 272]), h=st.sampled_from([1, 2, 5, 9, 17]),
    w=st.sampled_from([1, 3, 7, 14, 18, 37, 70]), o=st.sampled_from([1, 16, 33]), kernel=st.tuples(kernels, kernels),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)), padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)), bias=st.booleans(), constant=st.booleans(),
    dtype=st.sampled_from(["float", "half", "mixed"]), seed=st.integers(0, 2**31),
)  # fmt: skip
def test_channels_that_l1bs_share(
    shared_out, n, c, h, w, o, kernel, stride, padding, dilation, bias, constant, dtype, seed
):
    for extent, k, p, d in zip((h, w), kernel, padding, dilation):
        assume(extent + 2 * p >= (k - 1) * d + 1)
    assume(n * c * h * w <= 20000 and c * o * kernel[0] * kernel[1] <= 60000)
    x, weights, b = arrays(seed, (n, c, h, w), (o, c, *kernel), (o,))
    convolve(x, weights, b if bias else None, stride, padding, dilation, 1, dtype, constant)
    event("shared" if shared_out else "not shared")


@pytest.mark.parametrize(
    ("shape", "outputs", "kernel", "stride", "most"),
    [((1, 256, 14, 14), 64, 3, 1, 1100), ((1, 144, 7, 9), 160, 3, 2, 950), ((2, 512, 7, 7), 32, 1, 1, 700)],
)
def test_planes_of_few_columns(shape, outputs, kernel, stride, most):
    """MABs would have little to do, were rows and columns all that is shared out."""
    x, w, b = arrays(8, shape, (outputs, shape[1], kernel, kernel), (outputs,))
    assert convolve(x, w, b, stride, kernel // 2) < most


@pytest.mark.parametrize("dtype", DTYPES)
def test_conv_of_one_axis(dtype):
    x, w, b = arrays(1, (2, 20, 75), (33, 20, 5), (33,))
    convolve(x, w, b, 2, 3, 2, dtype=dtype)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(("kernel", "padding", "dtype"), [(7, 3, "mixed"), (4, 0, "float"), (3, 2, "half")])
def test_strides_over_few_channels(kernel, padding, dtype, constant):
    """Neighbours of a large image become channels, whether the filters are constant or live on the board."""
    x, w, b = arrays(6, (1, 3, 136, 140), (8, 3, kernel, kernel), (8,))
    convolve(x, w, b, 2, padding, 1, 1, dtype, constant)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("dtype", ["mixed", "float"])
@pytest.mark.parametrize(
    ("groups", "each", "outputs", "most"),
    [(5, 8, 8, 2000), (16, 4, 4, 3500), (3, 8, 24, 4000), (6, 12, 4, 4200), (7, 2, 2, 900)],
)
def test_groups_of_few_channels(groups, each, outputs, most, dtype, constant):
    """They are gathered until lanes are in use, filters that live on the board, too."""
    x, w = arrays(5, (1, groups * each, 6, 6), (groups * outputs, each, 3, 3))
    assert convolve(x, w, None, 1, 1, 1, groups, dtype, constant) < most


@pytest.mark.parametrize(
    ("n", "c", "h", "o", "k", "s", "p"),
    [(1, 64, 56, 64, 3, 1, 1), (1, 256, 14, 512, 3, 2, 1), (16, 16, 28, 32, 5, 1, 2)],
)
def test_conv_as_networks_have_it(n, c, h, o, k, s, p):
    x, w, b = arrays(2, (n, c, h, h), (o, c, k, k), (o,))
    convolve(x, w, b, s, p)


@pytest.mark.parametrize("dtype", ["mixed", "float"])
def test_what_stands_in_padded_channels_does_not_reach_a_result(dtype):
    """Lanes beyond the channels hold whatever the node before left there; large values would spoil the block's exponent."""
    from mlsdk.pipeline.ir.graph import Graph, Node, Value

    x, w = arrays(3, (1, 5, 9, 9), (7, 5, 3, 3))
    shapes = {"x": (1, 5, 9, 9), "e": (1, 5, 9, 9), "w": w.shape, "y": (1, 7, 7, 7), "big": (1, 5, 9, 9)}
    values = {n: Value(n, "float32", s) for n, s in shapes.items()}
    nodes = (Node("a", "Sub", ("x", "big"), ("e",)), Node("c", "Conv", ("e", "w"), ("y",)))
    graph = Graph("g", ("x",), ("y",), nodes, values, {"w": w, "big": np.zeros((1, 5, 9, 9), np.float32)})
    result, _ = run(graph, {"x": x}, dtype)
    want = torch.nn.functional.conv2d(torch.from_numpy(x).double(), torch.from_numpy(w).double()).numpy()
    assert np.abs(result["y"] - want).max() <= CONV[dtype] * np.abs(x).max() * np.abs(w).max() * 45**0.5


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_result_that_is_not_shared_out_lies_in_all_l2bs(dtype):
    """The next convolution's L2Bs each read their own copy (squeeze and excitation: many channels, one, many)."""
    from mlsdk.pipeline.ir.graph import Graph, Node, Value

    x, w, b, v = arrays(4, (1, 30, 1, 1), (1, 30, 1, 1), (1,), (30, 1, 1, 1))
    shapes = {"x": x.shape, "w": w.shape, "b": b.shape, "v": v.shape, "e": (1, 1, 1, 1), "y": (1, 30, 1, 1)}
    values = {n: Value(n, "float32", s) for n, s in shapes.items()}
    nodes = (Node("a", "Conv", ("x", "w", "b"), ("e",)), Node("c", "Conv", ("e", "v"), ("y",)))
    graph = Graph("g", ("x",), ("y",), nodes, values, {"w": w, "b": b, "v": v})
    result, _ = run(graph, {"x": x}, dtype)
    middle = (x[0, :, 0, 0].astype(float) @ w[0, :, 0, 0].astype(float) + b[0].astype(float)).item()
    want = middle * v[:, 0, 0, 0].astype(float)
    scale = np.abs(v).max() * (np.abs(x).max() * np.abs(w).max() * 30**0.5 + np.abs(b).max())
    assert np.abs(result["y"].ravel() - want).max() <= 2 * CONV[dtype] * scale


# ---- transposed convolution ---------------------------------------------------------------------------------------


@given(
    c=st.sampled_from([1, 3, 16, 20]), h=st.sampled_from([1, 3, 8, 13]), w=st.sampled_from([1, 5, 17]),
    o=st.sampled_from([1, 5, 16]), kernel=st.tuples(kernels, kernels), stride=st.integers(1, 3), padding=st.integers(0, 2),
    extra=st.integers(0, 1), dilation=st.integers(1, 2), groups=st.sampled_from([1, 2]), constant=st.booleans(),
    dtype=st.sampled_from(DTYPES), seed=st.integers(0, 2**31),
)  # fmt: skip
def test_transposed_conv_matches_torch(
    c, h, w, o, kernel, stride, padding, extra, dilation, groups, constant, dtype, seed
):
    assume(extra < max(stride, dilation))
    x, weights, b = arrays(seed, (2, c * groups, h, w), (c * groups, o, *kernel), (o * groups,))
    operands = [torch.from_numpy(v).double() for v in (x, weights, b)]
    spans = [(n - 1) * stride - 2 * padding + dilation * (k - 1) + 1 + extra for n, k in zip((h, w), kernel)]
    assume(min(spans) > 0)
    want = torch.nn.functional.conv_transpose2d(*operands, stride, padding, extra, groups, dilation).numpy()
    attrs = {
        "strides": (stride,) * 2, "pads": (padding,) * 4, "dilations": (dilation,) * 2, "group": groups,
        "output_padding": (extra,) * 2,
    }  # fmt: skip
    others = {"w": weights, "b": b}
    inputs = {"x": x} | ({} if constant else others)
    shapes = {k: ("float32", v.shape) for k, v in inputs.items()}
    graph = graph_of("ConvTranspose", shapes, {"y": ("float32", want.shape)}, attrs, others if constant else {})
    result, _ = run(graph, inputs, dtype)
    scale = np.abs(x).max() * np.abs(weights).max() * (c * kernel[0] * kernel[1]) ** 0.5 + np.abs(b).max()
    assert np.abs(result["y"] - want).max() <= CONV[dtype] * scale


@pytest.mark.parametrize(("extents", "kernel", "stride"), [((9,), (4,), (4,)), ((2, 3, 4), (2, 3, 2), (2, 1, 2))])
def test_transposed_conv_of_lines_and_volumes(extents, kernel, stride):
    x, weights = arrays(3, (2, 5, *extents), (5, 7, *kernel))
    function = getattr(torch.nn.functional, f"conv_transpose{len(extents)}d")
    want = function(torch.from_numpy(x).double(), torch.from_numpy(weights).double(), None, stride).numpy()
    graph = graph_of("ConvTranspose", {"x": ("float32", x.shape)}, {"y": ("float32", want.shape)}, {"strides": stride},
                     {"w": weights})  # fmt: skip
    result, _ = run(graph, {"x": x}, "float")
    assert np.abs(result["y"] - want).max() <= CONV["float"] * np.abs(want).max() * 10


@pytest.mark.parametrize(
    ("x", "w", "most"), [((1, 64, 16, 16), (64, 32, 2, 2), 350), ((1, 64, 32, 32), (64, 3, 4, 4), 1700)]
)
def test_transposed_conv_moves_no_zeros(x, w, most):
    """Steps of the convolution of an input stretched by 2: 6,625 and 30,138."""
    pads = (w[2] // 2 - 1,) * 4
    shape = (1, w[1], 2 * x[2], 2 * x[3])
    attrs = {"strides": (2, 2), "pads": pads}
    graph = graph_of(
        "ConvTranspose", {"x": ("float32", x)}, {"y": ("float32", shape)}, attrs, {"w": np.zeros(w, np.float32)}
    )
    assert steps_of(graph, "mixed") <= most


# ---- the gradient of filters --------------------------------------------------------------------------------------


def gradient_of_filters(n, c, h, w, o, kernel, stride, padding, dilation, groups=1, dtype="mixed", seed=1):
    """Runs it and compares; returns the steps."""
    places = [
        (extent + 2 * p - d * (k - 1) - 1) // s + 1
        for extent, p, d, k, s in zip((h, w), padding, dilation, kernel, stride)
    ]
    x, g = arrays(seed, (n, c, h, w), (n, o, *places))
    wide = [torch.from_numpy(v).double() for v in (x, g)]
    want = torch.nn.grad.conv2d_weight(
        wide[0], (o, c // groups, *kernel), wide[1], stride, padding, dilation, groups
    ).numpy()
    attrs = {"strides": stride, "pads": padding * 2, "dilations": dilation, "group": groups, "kernel_shape": kernel}
    shapes = {"x": ("float32", x.shape), "g": ("float32", g.shape)}
    graph = graph_of("ConvFilterGrad", shapes, {"y": ("float32", want.shape)}, attrs)
    result, stats = run(graph, {"x": x, "g": g}, dtype)
    scale = np.abs(x).max() * np.abs(g).max() * (n * places[0] * places[1]) ** 0.5
    assert np.abs(result["y"] - want).max() <= CONV[dtype] * scale
    return stats.total_steps


@settings(max_examples=int(settings().max_examples) // 2)
@given(
    n=st.sampled_from([1, 2, 3, 9, 17]), c=st.sampled_from([1, 3, 16, 20, 40]), h=extents, w=extents,
    o=st.sampled_from([1, 5, 16, 33, 70]), kernel=st.tuples(kernels, kernels),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)), padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)), groups=st.sampled_from([1, 1, 1, 2, 16]),
    dtype=st.sampled_from(DTYPES), seed=st.integers(0, 2**31),
)  # fmt: skip
def test_the_gradient_of_filters_matches_torch(n, c, h, w, o, kernel, stride, padding, dilation, groups, dtype, seed):
    for extent, k, p, d in zip((h, w), kernel, padding, dilation):
        assume(extent + 2 * p >= (k - 1) * d + 1)
    assume(max(c, o) * groups <= 80 and n * max(c, o) * groups * h * w <= 30000)
    gradient_of_filters(n, c * groups, h, w, o * groups, kernel, stride, padding, dilation, groups, dtype, seed)


@pytest.mark.parametrize(
    ("sizes", "most"),
    [((8, 16, 16, 16, 32, 3, 1), 521), ((16, 32, 16, 16, 64, 3, 2), 1168), ((8, 1, 28, 28, 32, 5, 1), 1610)],
)
def test_the_gradient_of_filters_reads_images_where_they_lie(sizes, most):
    """As a convolution whose window is the image they took 8,145, 10,753 and 16,117 steps."""
    n, c, h, w, o, k, stride = sizes
    steps = gradient_of_filters(n, c, h, w, o, (k, k), (stride, stride), (k // 2, k // 2), (1, 1))
    assert steps <= most


# ---- pooling ------------------------------------------------------------------------------------------------------


def pooled(x, kernel, stride, padding, dilation=(1, 1), ceil=False, average=False, counted=True, dtype="float"):
    """Runs MaxPool or AveragePool on the board: the result and torch's."""
    tensor = torch.from_numpy(x).double()
    if average:
        want = torch.nn.functional.avg_pool2d(tensor, kernel, stride, padding, ceil, counted).numpy()
    else:
        want = torch.nn.functional.max_pool2d(tensor, kernel, stride, padding, dilation, ceil).numpy()
    attrs = {"kernel_shape": kernel, "strides": stride, "pads": padding * 2, "ceil_mode": int(ceil)}
    attrs |= {"count_include_pad": int(counted)} if average else {"dilations": dilation}
    op = "AveragePool" if average else "MaxPool"
    graph = graph_of(op, {"x": ("float32", x.shape)}, {"y": ("float32", want.shape)}, attrs)
    return run(graph, {"x": x}, dtype)[0]["y"], want


POOL = {"float": 2**-22, "mixed": 2**-22, "half": 2**-9, "double": 2**-23}
windows = {
    "n": st.integers(1, 3), "c": st.sampled_from([1, 3, 16, 40]), "h": extents, "w": extents,
    "kernel": st.tuples(kernels, kernels), "stride": st.tuples(st.integers(1, 3), st.integers(1, 3)),
    "padding": st.tuples(st.integers(0, 2), st.integers(0, 2)), "ceil": st.booleans(), "dtype": st.sampled_from(DTYPES),
    "seed": st.integers(0, 2**31),
}  # fmt: skip


@given(**windows, dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)))
def test_max_pool_matches_torch(n, c, h, w, kernel, stride, padding, ceil, dtype, seed, dilation):
    for extent, k, p, d in zip((h, w), kernel, padding, dilation):
        assume(p <= k // 2 and extent + 2 * p >= (k - 1) * d + 1)
    (x,) = arrays(seed, (n, c, h, w))
    got, want = pooled(x - 3, kernel, stride, padding, dilation, ceil, dtype=dtype)
    assert np.abs(got - want).max() <= POOL[dtype] * np.abs(want).max()


@given(**windows, counted=st.booleans())
def test_average_pool_matches_torch(n, c, h, w, kernel, stride, padding, ceil, dtype, seed, counted):
    for extent, k, p in zip((h, w), kernel, padding):
        assume(p <= k // 2 and extent + 2 * p >= k)
    (x,) = arrays(seed, (n, c, h, w))
    got, want = pooled(x, kernel, stride, padding, (1, 1), ceil, True, counted, dtype)
    assert np.abs(got - want).max() <= POOL[dtype] * np.abs(x).max()


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("shape", [(2, 20, 7, 7), (1, 3, 1, 9), (1, 512, 7, 7), (2, 3, 4, 5, 6)])
def test_global_pools(op, shape):
    (x,) = arrays(5, shape)
    axes = tuple(range(2, len(shape)))
    want = x.astype(np.float64).mean(axes, keepdims=True) if "Average" in op else x.max(axes, keepdims=True)
    result, _ = run(graph_of(op, {"x": ("float32", shape)}, {"y": ("float32", want.shape)}), {"x": x}, "float")
    assert np.abs(result["y"] - want).max() <= 2**-22 * np.abs(x).max()
