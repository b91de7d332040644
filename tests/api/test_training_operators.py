"""Losses and layers in training on the board: the loss and every gradient against eager torch in double."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from training_nets import agree, register

TOLERANCE = {"float": 5e-6, "mixed": 1e-2, "double": 5e-6}

classes = torch.tensor([1, 3, 9, 0])

#: (output, target) -> loss, and the target
LOSSES = {
    "cross_entropy": (F.cross_entropy, classes),
    "cross_entropy_smooth": (lambda o, y: F.cross_entropy(o, y, label_smoothing=0.1), classes),
    "cross_entropy_ignore": (lambda o, y: F.cross_entropy(o, y, ignore_index=3), classes),
    "cross_entropy_soft": (F.cross_entropy, "shares"),
    "nll": (lambda o, y: F.nll_loss(F.log_softmax(o, 1), y, reduction="sum"), classes),
    "mse": (F.mse_loss, "numbers"),
    "l1": (F.l1_loss, "numbers"),
    "smooth_l1": (lambda o, y: F.smooth_l1_loss(o, y, beta=0.7), "numbers"),
    "huber": (F.huber_loss, "numbers"),
    "bce": (lambda o, y: F.binary_cross_entropy(torch.sigmoid(o), y), "truths"),
    "bce_logits": (F.binary_cross_entropy_with_logits, "truths"),
    "kl_div": (lambda o, y: F.kl_div(F.log_softmax(o, 1), y, reduction="batchmean"), "shares"),
    "soft_margin": (lambda o, y: F.soft_margin_loss(o, y * 2 - 1), "truths"),
    "hinge": (lambda o, y: F.hinge_embedding_loss(o, y * 2 - 1), "truths"),
    "cosine": (lambda o, y: F.cosine_embedding_loss(o, y, torch.tensor([1, -1, 1, -1])), "numbers"),
    "triplet": (lambda o, y: F.triplet_margin_loss(o, y, o.flip(0)), "numbers"),
    "poisson": (lambda o, y: F.poisson_nll_loss(o, y), "truths"),
}
TARGETS = {
    "numbers": lambda: torch.randn(4, 10),
    "shares": lambda: torch.softmax(torch.randn(4, 10), 1),
    "truths": lambda: (torch.randn(4, 10) > 0).float(),
}


class Squares(nn.Module):
    """The mean square of what a layer makes of its input."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        found = self.layer(x)
        return ((found[0] if isinstance(found, tuple) else found) ** 2).mean()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 24)

    def forward(self, x):
        parts = self.project(x).reshape(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(*parts, is_causal=True)


def after_conv(*layers):
    return lambda: nn.Sequential(nn.Conv2d(3, 4, 1), *(layer() for layer in layers))


def numbers(*shape):
    return lambda: torch.randn(*shape)


#: layers whose programs are small
LAYERS = {
    "batch_norm": (lambda: nn.BatchNorm2d(3), numbers(2, 3, 4, 5)),
    "layer_norm": (lambda: nn.LayerNorm(12), numbers(4, 12)),
    "group_norm": (lambda: nn.GroupNorm(2, 6), numbers(2, 6, 3, 3)),
    "rms_norm": (lambda: nn.RMSNorm(12), numbers(4, 12)),
    "embedding": (lambda: nn.Embedding(11, 6, padding_idx=2), lambda: torch.tensor([[1, 2, 2], [0, 10, 1]])),
    "attention": (Attention, numbers(2, 5, 8)),
}
#: and the others
MORE = {
    "conv_stride": (lambda: nn.Conv2d(3, 5, 3, 2, 1), numbers(2, 3, 7, 8)),
    "conv_dilated": (lambda: nn.Conv2d(3, 5, 3, dilation=2, padding=2), numbers(2, 3, 7, 7)),
    "conv_groups": (lambda: nn.Conv2d(4, 8, 3, groups=2), numbers(2, 4, 7, 7)),
    "conv_depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4, padding=1), numbers(2, 4, 7, 7)),
    "conv_1d": (lambda: nn.Conv1d(3, 5, 3, padding=1), numbers(2, 3, 9)),
    "conv_3d": (lambda: nn.Conv3d(2, 3, 2), numbers(2, 2, 3, 4, 4)),
    "conv_transposed": (lambda: nn.ConvTranspose2d(3, 5, 3, 2, 1, 1), numbers(2, 3, 5, 5)),
    "conv_twice": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)), numbers(2, 3, 8, 8)),
    "instance_norm": (lambda: nn.InstanceNorm2d(3, affine=True), numbers(2, 3, 4, 4)),
    "max_pool": (after_conv(lambda: nn.MaxPool2d(2)), numbers(2, 3, 6, 6)),
    "max_pool_overlapping": (after_conv(lambda: nn.MaxPool2d(3, 2, 1)), numbers(2, 3, 7, 7)),
    "average_pool": (after_conv(lambda: nn.AvgPool2d(3, 1, 1)), numbers(2, 3, 6, 6)),
    "adaptive_average": (after_conv(lambda: nn.AdaptiveAvgPool2d(3)), numbers(2, 3, 7, 7)),
    "pixel_shuffle": (after_conv(lambda: nn.PixelShuffle(2)), numbers(2, 3, 4, 4)),
    "reflection": (after_conv(lambda: nn.ReflectionPad2d(1)), numbers(2, 3, 4, 4)),
    "gru": (lambda: nn.GRU(4, 5, batch_first=True), numbers(2, 3, 4)),
    "lstm": (lambda: nn.LSTM(4, 5), numbers(3, 2, 4)),
    "bilinear": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)), numbers(5, 4)),
}


def gradients_agree(context, directory, model, sample, float_dtype):
    """One backward pass. The error of a gradient is relative to the largest element of any."""
    reference = copy.deepcopy(model).double()
    register(context, model)

    def backward(inputs):
        loss = model(*inputs.values())
        loss.backward()
        found = {f"gradient{n}": p.grad for n, p in enumerate(model.parameters())}
        for parameter in model.parameters():
            parameter.grad = None
        return {"loss": loss, **found}

    options = {"float_dtype": float_dtype}
    result = context.compile(backward, sample, directory / "backward", options=options, quiet=True)(sample)
    expected = reference(*(value.double() if value.is_floating_point() else value for value in sample.values()))
    expected.backward()
    tolerance = TOLERANCE[float_dtype]
    agree(result["loss"].cpu(), expected.detach(), tolerance)
    mine = torch.cat([result[f"gradient{n}"].cpu().flatten() for n, _ in enumerate(model.parameters())])
    agree(mine, torch.cat([parameter.grad.flatten() for parameter in reference.parameters()]), tolerance)


class WithLoss(nn.Module):
    def __init__(self, loss):
        super().__init__()
        self.linear, self.loss = nn.Linear(12, 10), loss

    def forward(self, x, target):
        return self.loss(self.linear(x), target)


@pytest.mark.filterwarnings("ignore::mlsdk.errors.UnregisteredTensorWarning")
@pytest.mark.parametrize("name", LOSSES)
def test_loss(context, tmp_path, name):
    loss, target = LOSSES[name]
    sample = {"x": torch.randn(4, 12), "target": TARGETS[target]() if isinstance(target, str) else target}
    gradients_agree(context, tmp_path, WithLoss(loss), sample, "float")


@pytest.mark.parametrize("name", LAYERS)
def test_layer(context, tmp_path, name):
    make, sample = LAYERS[name]
    gradients_agree(context, tmp_path, Squares(make()), {"x": sample()}, "float")


@pytest.mark.slow
@pytest.mark.parametrize("float_dtype", TOLERANCE)
@pytest.mark.parametrize("name", [*LAYERS, *MORE])
def test_layer_in_every_precision(context, tmp_path, name, float_dtype):
    make, sample = {**LAYERS, **MORE}[name]
    gradients_agree(context, tmp_path, Squares(make()), {"x": sample()}, float_dtype)
