"""Gradients of every operator, in double: the traced graph gives what eager torch gives."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from agreement import agree
from test_functions import CASES
from test_networks import LAYERS, flat, registered

FLOATING = {
    name: case
    for name, case in CASES.items()
    if any(isinstance(operand, torch.Tensor) and operand.is_floating_point() for operand in case[1:])
}
# no gradient in torch, or none of a floating result
NO_GRADIENT = {
    "elementwise/comparisons_number",
    "elementwise/isnan",
    "elementwise/logical_not",
    "elementwise/to_dtypes",
    "reduction/any_float",
    "reduction/argmax",
    "reduction/argsort",
    "indexing/searching",
    # torch wants a source of the index's shape for a gradient: see SCATTERS
    "indexing/scatter",
    "indexing/scatter_add",
    "indexing/scatter_reduce",
    "indexing/scatter_reduce_alone",
    "more/scatter_mean",
    # a backward operator without a row: refused by name
    "more/masked_scatter",
    # rounds to half on the way, so the order of operations shows
    "more/conv_half",
    "more/half_sums",
    "more/layer_norm_half",
    "more/bucketize",
    # joins a single with a double here
    "more/grid_sample",
    "shape/made",
    "in place/out",
    "shape/constant_only",
}


def double(tensor):
    return tensor.double() if tensor.is_floating_point() else tensor


def weighted(results):
    """A number that depends on every element of the floating results, each in its own way."""
    total = 0
    for index, result in enumerate(flat(results)):
        if result.is_floating_point() and result.requires_grad:
            weights = torch.cos(torch.arange(result.numel(), dtype=result.dtype) + index).reshape(result.shape)
            total = total + (result * weights).sum()
    return total


def gradients(function):
    """Operands -> the gradients of `weighted(function(operands))` by the floating operands."""

    def run(*operands):
        leaves = [t.detach().requires_grad_() if t.is_floating_point() else t for t in operands]
        wanted = [leaf for leaf in leaves if leaf.is_floating_point()]
        total = weighted(function(*leaves))
        found = torch.autograd.grad(total, wanted, allow_unused=True)
        return [gradient for gradient in found if gradient is not None]

    run.__name__ = "gradients"
    return run


@pytest.mark.parametrize("name", [name for name in FLOATING if name not in NO_GRADIENT])
def test_function(name):
    function, *operands = FLOATING[name]
    # torch's own kernel multiplies doubles by a sixth in single
    agree(gradients(function), *map(double, operands), tolerance=1e-8 if "hardsigmoid" in name else None)


WITHOUT = {"max_pool2d_indices", "embedding"}


@pytest.mark.parametrize("name", [name for name in LAYERS if name not in WITHOUT])
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_layer(name, training):
    """By the input and by every parameter."""
    if training and name not in ("batch_norm1d", "batch_norm2d", "conv2d_all", "layer_norm", "instance_norm", "linear"):
        pytest.skip("the same as in evaluation")
    torch.manual_seed(0)
    make, sample = LAYERS[name]
    module = make().double().train(training)
    parameters = list(module.parameters())

    def run(x):
        x = x.detach().requires_grad_()
        total = weighted(module(x))
        return [g for g in torch.autograd.grad(total, [x, *parameters], allow_unused=True) if g is not None]

    agree(run, sample().double(), state=registered(module))


x34 = torch.linspace(-2.3, 2.7, 12, dtype=torch.float64).reshape(3, 4)
labels = torch.tensor([2, -100, 0])
soft = torch.softmax(x34 * 0.3, 1)
weights = torch.tensor([0.5, 1.0, 2.0, 1.5], dtype=torch.float64)
binary = (x34 > 0).double() * 0.8 + 0.1

LOSSES = {
    "cross_entropy": lambda x, r: F.cross_entropy(x, labels, reduction=r),
    "cross_entropy_weight": lambda x, r: F.cross_entropy(x, labels, weights, reduction=r),
    "cross_entropy_smooth": lambda x, r: F.cross_entropy(x, labels, label_smoothing=0.1, reduction=r),
    "cross_entropy_smooth_weight": lambda x, r: F.cross_entropy(x, labels, weights, label_smoothing=0.1, reduction=r),
    "cross_entropy_ignore": lambda x, r: F.cross_entropy(x, labels.clamp(min=0), ignore_index=0, reduction=r),
    "cross_entropy_soft": lambda x, r: F.cross_entropy(x, soft, weights, label_smoothing=0.2, reduction=r),
    "nll": lambda x, r: F.nll_loss(F.log_softmax(x, 1), labels, weights, reduction=r),
    "nll_2d": lambda x, r: F.nll_loss(
        F.log_softmax(x.reshape(1, 3, 2, 2), 1), torch.tensor([[[0, 2], [1, -100]]]), reduction=r
    ),
    "bce": lambda x, r: F.binary_cross_entropy(torch.sigmoid(x), binary, reduction=r),
    "bce_weight": lambda x, r: F.binary_cross_entropy(torch.sigmoid(x), binary, weights, reduction=r),
    "bce_logits": lambda x, r: F.binary_cross_entropy_with_logits(x, binary, reduction=r),
    "bce_logits_pos": lambda x, r: F.binary_cross_entropy_with_logits(
        x, binary, weights, pos_weight=weights + 1, reduction=r
    ),
    "mse": lambda x, r: F.mse_loss(x, soft, reduction=r),
    "l1": lambda x, r: F.l1_loss(x, soft, reduction=r),
    "smooth_l1": lambda x, r: F.smooth_l1_loss(x, soft, beta=0.7, reduction=r),
    "smooth_l1_zero": lambda x, r: F.smooth_l1_loss(x, soft, beta=0.0, reduction=r),
    "huber": lambda x, r: F.huber_loss(x, soft, delta=0.8, reduction=r),
    "kl_div": lambda x, r: F.kl_div(F.log_softmax(x, 1), soft, reduction="batchmean" if r == "mean" else r),
    "soft_margin": lambda x, r: F.soft_margin_loss(x, torch.sign(x34), reduction=r),
    "hinge": lambda x, r: F.hinge_embedding_loss(x, torch.sign(x34), reduction=r),
    "cosine": lambda x, r: F.cosine_embedding_loss(x, soft, torch.tensor([1, -1, 1]), reduction=r),
    "triplet": lambda x, r: F.triplet_margin_loss(x, soft, x.flip(0), reduction=r),
    "poisson": lambda x, r: F.poisson_nll_loss(x, soft, reduction=r),
    "gaussian": lambda x, r: F.gaussian_nll_loss(x, soft, soft + 0.1, reduction=r),
}


@pytest.mark.filterwarnings("ignore::mlsdk.errors.UnregisteredTensorWarning")
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", LOSSES)
def test_loss(name, reduction):
    loss = LOSSES[name]
    agree(lambda x: loss(x, reduction), x34)
    agree(gradients(lambda x: loss(x, reduction)), x34)


index = torch.tensor([[2, 0], [1, 3], [3, 2]])
SCATTERS = {
    "replace": lambda x, s: x.scatter(1, index, s),
    "add": lambda x, s: x.scatter_add(1, index, s),
    "sum": lambda x, s: x.scatter_reduce(1, index, s, "sum"),
    "prod": lambda x, s: x.scatter_reduce(1, index, s, "prod"),
    "amax": lambda x, s: x.scatter_reduce(1, index, s, "amax"),
}


@pytest.mark.filterwarnings("ignore::mlsdk.errors.UnregisteredTensorWarning")
@pytest.mark.parametrize("name", SCATTERS)
def test_scatter_gradient(name):
    agree(gradients(SCATTERS[name]), x34, x34[:, :2] * 0.7 + 0.05)


def test_attention_and_its_gradient():
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 4, 5, 6, generator=generator, dtype=torch.float64) for _ in range(3))
    agree(gradients(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)), q, k, v)
    agree(gradients(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True)), q, k[:, :2], v[:, :2])


def test_embedding_gradients():
    table = nn.Embedding(7, 4, padding_idx=2, dtype=torch.float64)
    ids = torch.tensor([[1, 2, 1], [6, 0, 1]])

    def run(ids):
        return torch.autograd.grad(weighted(table(ids)), [table.weight])

    agree(run, ids, state=registered(table))


image, ids = torch.sin(torch.arange(40, dtype=torch.float64)).reshape(1, 2, 5, 4), torch.tensor([[2, 0, 2], [1, 2, 4]])
# the first two at the border itself, where torch passes nothing on
grid = torch.cos(torch.arange(24, dtype=torch.float64) * 1.7).reshape(1, 3, 4, 2) * 1.3
grid[0, 0, 0], grid[0, 0, 1] = torch.tensor([-1.0, 1.0]), torch.tensor([1.0, 0.2])
SAMPLED = {
    f"{mode} {padding} {corners}": (
        lambda x, g, m=mode, p=padding, c=corners: F.grid_sample(x, g, m, p, align_corners=c),
        image,
        grid,
    )
    for mode in ("bilinear", "nearest", "bicubic")
    for padding, corners in (("zeros", False), ("border", True), ("reflection", False))
}
RARER = {
    **SAMPLED,
    "volume": (
        lambda x, g: F.grid_sample(x, g, padding_mode="reflection", align_corners=True),
        image.reshape(1, 2, 5, 2, 2),
        grid.reshape(1, 2, 2, 2, 3),
    ),
    "padded_output": (
        lambda x, w: F.conv_transpose2d(x, w, stride=(1, 2), dilation=2, padding=1, output_padding=1),
        image,
        image.reshape(2, 2, 2, 5),
    ),
    "by_frequency": (lambda w: F.embedding(ids, w, padding_idx=1, scale_grad_by_freq=True), image.reshape(5, 8)),
    "masked_scatter": (lambda x, s: x.masked_scatter(image > 0.2, s), image * 2, image.flatten()),
    "antialiased": (lambda x: F.interpolate(x, (3, 3), mode="bilinear", antialias=True), image),
    "antialiased_cubic": (lambda x: F.interpolate(x, (7, 3), mode="bicubic", antialias=True), image),
}


@pytest.mark.filterwarnings("ignore::mlsdk.errors.UnregisteredTensorWarning")
@pytest.mark.parametrize("name", RARER)
def test_rarer(name):
    function, *operands = RARER[name]
    agree(gradients(function), *operands)
