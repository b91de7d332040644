"""Blocks of networks with odd sizes, against torch in double: what has few channels, few rows, indices and loops."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from emulated import run
from torch import nn

from mlsdk.pipeline.optimize import optimize
from mlsdk.pipeline.trace import trace

TOLERANCE = {"float": 3e-6, "mixed": 1e-2, "half": 3e-2, "double": 3e-6}


class SqueezeAndExcite(nn.Module):
    """EfficientNet's block: many channels, one, many."""

    def __init__(self, width=5):
        super().__init__()
        wide = 6 * width
        self.expand = nn.Sequential(nn.Conv2d(width, wide, 1), nn.BatchNorm2d(wide), nn.SiLU())
        self.depthwise = nn.Sequential(nn.Conv2d(wide, wide, 5, 1, 2, groups=wide), nn.BatchNorm2d(wide), nn.SiLU())
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, 1, 1), nn.SiLU(), nn.Conv2d(1, wide, 1))
        self.project = nn.Conv2d(wide, width, 1)

    def forward(self, x):
        y = self.depthwise(self.expand(x))
        return x + self.project(y * torch.sigmoid(self.gate(y)))


class ShiftedWindows(nn.Module):
    """Swin's attention in windows of 4 x 4 that are shifted by 2."""

    def __init__(self, width=12, heads=2):
        super().__init__()
        self.heads, self.qkv = heads, nn.Linear(width, 3 * width)
        self.bias = nn.Parameter(torch.randn(heads, 16, 16))

    def forward(self, x):
        n, h, w, c = x.shape
        y = torch.roll(x, (-2, -2), (1, 2)).view(n, h // 4, 4, w // 4, 4, c).transpose(2, 3).reshape(-1, 16, c)
        q, k, v = self.qkv(y).reshape(-1, 16, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = (((q @ k.mT) / (c // self.heads) ** 0.5 + self.bias).softmax(-1) @ v).transpose(1, 2).reshape(-1, 16, c)
        y = y.view(n, h // 4, w // 4, 4, 4, c).transpose(2, 3).reshape(n, h, w, c)
        return x + torch.roll(y, (2, 2), (1, 2))


class ConvLSTM(nn.Module):
    """A recurrent cell whose gates are convolutions."""

    def __init__(self, width=5):
        super().__init__()
        self.width, self.gates = width, nn.Conv2d(1 + width, 4 * width, 3, padding=1)

    def forward(self, x):
        hidden = cell = x.new_zeros(x.shape[0], self.width, *x.shape[3:])
        for step in range(x.shape[1]):
            i, f, o, g = self.gates(torch.cat([x[:, step], hidden], 1)).chunk(4, 1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * cell.tanh()
        return hidden


class SelectiveScan(nn.Module):
    """Mamba's recurrence, step by step."""

    def __init__(self, width=8, states=4):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 4, groups=width, padding=3)
        self.steps, self.inputs = nn.Linear(width, width), nn.Linear(width, 2 * states)
        self.decay = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(width, 1))

    def forward(self, x):
        x = F.silu(self.conv(x.transpose(1, 2))[..., : x.shape[1]]).transpose(1, 2)
        step, (b, c) = F.softplus(self.steps(x)), self.inputs(x).chunk(2, -1)
        kept = torch.exp(step[..., None] * -self.decay.exp())
        added = torch.einsum("bld,bln,bld->bldn", step, b, x)
        state, results = torch.zeros_like(kept[:, 0]), []
        for t in range(x.shape[1]):
            state = kept[:, t] * state + added[:, t]
            results.append((state * c[:, t, None]).sum(-1))
        return torch.stack(results, 1)


class Experts(nn.Module):
    """A mixture: each token goes to the best two of five."""

    def __init__(self, width=12, experts=5):
        super().__init__()
        self.gate, self.up = nn.Linear(width, experts), nn.Parameter(torch.randn(experts, width, 20) * 0.3)
        self.down = nn.Parameter(torch.randn(experts, 20, width) * 0.3)

    def forward(self, x):
        share, chosen = self.gate(x).softmax(-1).topk(2, -1)
        hidden = F.gelu(torch.einsum("nd,nkdh->nkh", x, self.up[chosen]))
        return torch.einsum("nk,nkh,nkhd->nd", share / share.sum(-1, keepdim=True), hidden, self.down[chosen])


class Warp(nn.Module):
    """A feature map read at places that the network computes."""

    def __init__(self, width=5):
        super().__init__()
        self.flow = nn.Conv2d(width, 2, 3, padding=1)

    def forward(self, x):
        h, w = x.shape[2:]
        rows, columns = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
        grid = torch.stack([columns, rows], -1).to(x.dtype) + 0.1 * torch.tanh(self.flow(x)).permute(0, 2, 3, 1)
        return F.grid_sample(x, grid, align_corners=True, padding_mode="border")


BLOCKS = {
    "squeeze": (SqueezeAndExcite, (1, 5, 9, 12)),
    "windows": (ShiftedWindows, (3, 8, 12, 12)),
    "convlstm": (ConvLSTM, (3, 3, 1, 9, 11)),
    "scan": (SelectiveScan, (3, 7, 8)),
    "experts": (Experts, (21, 12)),
    "warp": (Warp, (3, 5, 7, 9)),
}


def check(name, dtype):
    make, shape = BLOCKS[name]
    torch.manual_seed(0)
    block, x = make().eval(), torch.randn(shape)
    graph = optimize(trace(lambda batch: {"y": block(batch["x"])}, {"x": x}).graph)
    (result,) = run(graph, {graph.inputs[0]: x.numpy()}, dtype)[0].values()
    with torch.no_grad():
        want = block.double()(x.double()).numpy()
    assert np.linalg.norm(result - want) <= TOLERANCE[dtype] * np.linalg.norm(want)


@pytest.mark.filterwarnings("ignore::mlsdk.errors.UnregisteredTensorWarning")
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_match_torch(name):
    check(name, "float")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::mlsdk.errors.UnregisteredTensorWarning")
@pytest.mark.parametrize("dtype", ["mixed", "half", "double"])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_match_torch_in_every_dtype(name, dtype):
    check(name, dtype)
