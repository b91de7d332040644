"""Reference models, small enough to be compiled many times: name -> (a function of the inputs, a sample, what is registered)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Model:
    """`function` maps a sample to a dict of tensors; `module` and `optimizer` are registered with the Context."""

    function: Callable[[Mapping[str, torch.Tensor]], dict[str, torch.Tensor]]
    sample: Mapping[str, torch.Tensor]
    module: nn.Module
    optimizer: Any = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def inference(module: nn.Module, x: torch.Tensor) -> Model:
    module.eval()
    return Model(lambda inputs: {"y": module(inputs["x"])}, {"x": x}, module)


def training(module: nn.Module, x: torch.Tensor, classes: int, optimizer: Any) -> Model:
    def step(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        optimizer.zero_grad()
        loss = F.cross_entropy(module(inputs["x"]), inputs["t"])
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    return Model(step, {"x": x, "t": torch.randint(0, classes, x.shape[:1])}, module, optimizer)


class UNet(nn.Module):
    """Two levels, group normalisation, skips."""

    def __init__(self, width: int = 16):
        super().__init__()

        def stage(inputs: int, outputs: int) -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.SiLU())

        self.a, self.b, self.c = stage(3, width), stage(width, 2 * width), stage(2 * width, 4 * width)
        self.up1, self.d1 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), stage(4 * width, 2 * width)
        self.up2, self.d2 = nn.ConvTranspose2d(2 * width, width, 2, 2), stage(2 * width, width)
        self.out = nn.Conv2d(width, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        x = self.d1(torch.cat([self.up1(self.c(F.max_pool2d(b, 2))), b], 1))
        return self.out(self.d2(torch.cat([self.up2(x), a], 1)))


class Transformer(nn.Module):
    """Embedding, encoder layers, a head: a language model's middle."""

    def __init__(self, width: int = 128, layers: int = 2, words: int = 500, length: int = 64, causal: bool = True):
        super().__init__()
        self.embedding, self.places = nn.Embedding(words, width), nn.Parameter(torch.randn(1, length, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, words, bias=False)
        self.mask = nn.Transformer.generate_square_subsequent_mask(length) if causal else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embedding(x) + self.places, mask=self.mask, is_causal=self.mask is not None))


class ViT(nn.Module):
    def __init__(self, width: int = 96, layers: int = 2):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        layer = nn.TransformerEncoderLayer(width, 3, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


class Recurrent(nn.Module):
    def __init__(self, width: int = 64):
        super().__init__()
        self.lstm, self.head = nn.LSTM(32, width, batch_first=True), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def convolutions() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(32, 10),
    )  # fmt: skip


def models() -> dict[str, Callable[[], Model]]:
    """Seeded by whoever calls."""
    from mlsdk import MNCoreAdam, MNCoreSGD
    from mlsdk.workflows.resnet_model import ResNet18

    def mlp_step() -> Model:
        module = mlp(1024, 256, 10)
        return training(module, torch.randn(64, 1024), 10, MNCoreSGD(module.parameters(), lr=0.1, momentum=0.9))

    def cnn_step() -> Model:
        module = convolutions()
        return training(module, torch.randn(8, 3, 32, 32), 10, MNCoreAdam(module.parameters(), lr=1e-3))

    return {
        "mlp": lambda: inference(mlp(1024, 256, 10), torch.randn(64, 1024)),
        "mlp_step": mlp_step,
        "cnn_step": cnn_step,
        "resnet18_64": lambda: inference(ResNet18(1000), torch.randn(1, 3, 64, 64)),
        "unet": lambda: inference(UNet(), torch.randn(1, 3, 32, 32)),
        "vit": lambda: inference(ViT(), torch.randn(1, 3, 64, 64)),
        "transformer": lambda: inference(Transformer(), torch.randint(0, 500, (1, 64))),
        "lstm": lambda: inference(Recurrent(), torch.randn(4, 12, 32)),
    }
