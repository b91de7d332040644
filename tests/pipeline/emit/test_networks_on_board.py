"""Small forms of the networks that people bring, against torch in double; the full ones are slow."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from emulated import run
from torch import nn

from mlsdk.pipeline.optimize import optimize
from mlsdk.pipeline.trace import trace

TOLERANCE = {"float": 3e-6, "mixed": 1e-2, "half": 3e-2, "double": 3e-6}


class Inverted(nn.Module):
    """MobileNetV2's block."""

    def __init__(self, inputs, outputs, stride, times):
        super().__init__()
        wide = inputs * times
        self.body = nn.Sequential(
            nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.body(x) if self.adds else self.body(x)


class MobileNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU6())
        self.body = nn.Sequential(Inverted(width, 12, 2, 3), Inverted(12, 12, 1, 3))
        self.head = nn.Linear(12, 10)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).mean((2, 3)))


class Encoder(nn.Module):
    """ViT's block."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, d))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, width=32, layers=1):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.cls, self.places = nn.Parameter(torch.randn(1, 1, width)), nn.Parameter(torch.randn(1, 5, width) * 0.02)
        self.body = nn.Sequential(*(Encoder(width, 4) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.body(x))[:, 0])


class Recurrent(nn.Module):
    """An LSTM, unrolled by tracing."""

    def __init__(self, width=16):
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, width, batch_first=True), nn.Linear(width, 4)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def resnet():
    from mlsdk.workflows.resnet_model import ResNet18

    return ResNet18(10)


NETWORKS = {
    "mobilenet": (MobileNet, (1, 3, 32, 32)),
    "vit": (ViT, (2, 3, 16, 16)),
    "lstm": (Recurrent, (3, 4, 8)),
    "resnet18": (resnet, (1, 3, 32, 32)),
}


def check(make, shape, dtype):
    torch.manual_seed(0)
    model, x = make().eval(), torch.randn(shape)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    graph = optimize(trace(lambda batch: {"y": model(batch["x"])}, {"x": x}).graph)
    got, _ = run(graph, {graph.inputs[0]: x.numpy()}, dtype)
    with torch.no_grad():
        want = model.double()(x.double()).numpy()
    (result,) = got.values()
    assert np.linalg.norm(result - want) <= TOLERANCE[dtype] * np.linalg.norm(want)


@pytest.mark.filterwarnings("ignore::mlsdk.errors.UnregisteredTensorWarning")
@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "mixed") for name in NETWORKS), *((name, "float") for name in NETWORKS if name != "resnet18")],
)
def test_networks_match_torch(name, dtype):
    check(*NETWORKS[name], dtype)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore::mlsdk.errors.UnregisteredTensorWarning")
@pytest.mark.parametrize("dtype", ["mixed", "half", "float", "double"])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: MobileNet(32), (1, 3, 224, 224)), (lambda: ViT(192, 4), (1, 3, 16, 16)), (lambda: Recurrent(64), (8, 20, 8)),
        (resnet, (1, 3, 224, 224)),
    ],
    ids=["mobilenet", "vit", "lstm", "resnet18"],
)  # fmt: skip
def test_whole_networks_match_torch(make, shape, dtype):
    check(make, shape, dtype)


@pytest.mark.parametrize(
    ("layers", "tokens"), [(1, 2), pytest.param(4, 8, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_a_decoder_with_its_cache_on_the_board(layers, tokens, tmp_path, monkeypatch):
    from types import SimpleNamespace

    from mlsdk.workflows.llama_tiny import Generate

    monkeypatch.setenv("MLSDK_STORE", str(tmp_path / "store"))
    step = Generate(layers=layers, width=32, prompt=4, generate=tokens, options={"float_dtype": "mixed"})
    found = json.loads(step.compute({}, SimpleNamespace(status=lambda words: None))["generated.json"])
    assert found["board"] == found["torch"] and max(found["relative_error"]) < 1e-2
