"""Modules and whole networks in evaluation mode: the traced graph gives what eager torch gives."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from agreement import agree


def image(n=2, c=3, h=9, w=8):
    return torch.sin(torch.arange(n * c * h * w).float()).reshape(n, c, h, w)


def signal(n=2, c=4, length=11):
    return torch.cos(torch.arange(n * c * length).float()).reshape(n, c, length)


def tokens(n=2, length=5, width=8):
    return torch.sin(torch.arange(n * length * width).float() * 0.7).reshape(n, length, width)


LAYERS = {
    "linear": (lambda: nn.Linear(8, 5), tokens),
    "linear_no_bias": (lambda: nn.Linear(8, 5, bias=False), tokens),
    "bilinear": (lambda: _Twice(nn.Bilinear(8, 8, 3)), tokens),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2), signal),
    "conv2d": (lambda: nn.Conv2d(3, 5, 3), image),
    "conv2d_all": (lambda: nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 2), (1, 2), groups=2), lambda: image(2, 4)),
    "conv2d_depthwise": (lambda: nn.Conv2d(3, 6, 3, padding="same", groups=3), image),
    "conv2d_circular": (lambda: nn.Conv2d(3, 5, 3, padding=1, padding_mode="circular"), image),
    "conv2d_single": (lambda: nn.Conv2d(3, 5, 3), lambda: image()[0]),
    "conv3d": (lambda: nn.Conv3d(2, 3, 3, padding=1), lambda: image(2, 6).reshape(2, 2, 3, 9, 8)),
    "conv_transpose1d": (lambda: nn.ConvTranspose1d(4, 3, 3, stride=2, padding=1, output_padding=1), signal),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2, dilation=2), lambda: image(2, 4)),
    "max_pool1d": (lambda: nn.MaxPool1d(3, 2), signal),
    "max_pool2d": (lambda: nn.MaxPool2d(3, 2, 1), image),
    "max_pool2d_ceil": (lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True), lambda: image(1, 2, 8, 8)),
    "max_pool2d_dilated": (lambda: nn.MaxPool2d(2, 1, dilation=2), image),
    "max_pool2d_indices": (lambda: nn.MaxPool2d(2, return_indices=True), image),
    "max_pool2d_single": (lambda: nn.MaxPool2d(2), lambda: image()[0]),
    "avg_pool1d": (lambda: nn.AvgPool1d(3, 2, 1), signal),
    "avg_pool2d": (lambda: nn.AvgPool2d(3, 2, 1), image),
    "avg_pool2d_ceil": (lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True), lambda: image(1, 2, 8, 8)),
    "avg_pool2d_exclude": (lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False, ceil_mode=True), image),
    "avg_pool2d_divisor": (lambda: nn.AvgPool2d(3, 2, 1, divisor_override=4), image),
    "avg_pool2d_divisor_ceil": (lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True, divisor_override=2), image),
    "avg_pool3d": (lambda: nn.AvgPool3d(2), lambda: image(2, 6).reshape(2, 2, 3, 9, 8)),
    "adaptive_avg_one": (lambda: nn.AdaptiveAvgPool2d(1), image),
    "adaptive_avg_even": (lambda: nn.AdaptiveAvgPool2d((3, 4)), image),
    "adaptive_avg_odd": (lambda: nn.AdaptiveAvgPool2d((4, 5)), image),
    "adaptive_avg_1d": (lambda: nn.AdaptiveAvgPool1d(3), signal),
    "adaptive_max": (lambda: nn.AdaptiveMaxPool2d((3, 4)), image),
    "lp_pool": (lambda: nn.LPPool2d(2, 2), image),
    "batch_norm1d": (lambda: _warm(nn.BatchNorm1d(4)), signal),
    "batch_norm2d": (lambda: _warm(nn.BatchNorm2d(3)), image),
    "batch_norm_plain": (lambda: nn.BatchNorm2d(3, affine=False, track_running_stats=False), image),
    "layer_norm": (lambda: nn.LayerNorm(8), tokens),
    "layer_norm_two_axes": (lambda: nn.LayerNorm((5, 8)), tokens),
    "layer_norm_plain": (lambda: nn.LayerNorm(8, elementwise_affine=False), tokens),
    "group_norm": (lambda: nn.GroupNorm(2, 4), lambda: image(2, 4)),
    "group_norm_plain": (lambda: nn.GroupNorm(2, 4, affine=False), lambda: image(2, 4)),
    "instance_norm": (lambda: nn.InstanceNorm2d(3, affine=True), image),
    "rms_norm": (lambda: nn.RMSNorm(8), tokens),
    "local_response_norm": (lambda: nn.LocalResponseNorm(2), image),
    "upsample_nearest": (lambda: nn.Upsample(scale_factor=2), image),
    "upsample_nearest_size": (lambda: nn.Upsample(size=(5, 13)), image),
    "upsample_nearest_fraction": (lambda: nn.Upsample(scale_factor=1.7), image),
    "upsample_nearest_exact": (lambda: nn.Upsample(size=(5, 13), mode="nearest-exact"), image),
    "upsample_linear": (lambda: nn.Upsample(scale_factor=1.5, mode="linear"), signal),
    "upsample_bilinear": (lambda: nn.Upsample(size=(5, 13), mode="bilinear"), image),
    "upsample_bilinear_scale": (lambda: nn.Upsample(scale_factor=1.7, mode="bilinear"), image),
    "upsample_bilinear_corners": (lambda: nn.Upsample(size=(5, 13), mode="bilinear", align_corners=True), image),
    "upsample_bicubic": (lambda: nn.Upsample(size=(5, 13), mode="bicubic"), image),
    "dropout_eval": (lambda: nn.Dropout(0.5), tokens),
    "embedding": (lambda: nn.Embedding(7, 4), lambda: torch.tensor([[1, 0, 6], [2, 2, 5]])),
    "lstm": (lambda: nn.LSTM(8, 6, num_layers=2, batch_first=True, bidirectional=True), tokens),
    "gru": (lambda: nn.GRU(8, 6, batch_first=True), tokens),
    "rnn": (lambda: nn.RNN(8, 6), tokens),
    "multihead_attention": (lambda: _Self(nn.MultiheadAttention(8, 2, batch_first=True)), tokens),
    "transformer_encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), tokens),
    "transformer_decoder": (lambda: _Twice(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)), tokens),
}


class _Twice(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x, x * 0.5)


class _Self(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x, x, x)


def _warm(norm):
    with torch.no_grad():
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
        norm.weight.uniform_(0.5, 2)
        norm.bias.uniform_(-1, 1)
    return norm


def registered(module):
    return {name.replace(".", "@"): t for name, t in [*module.named_parameters(), *module.named_buffers()]}


def flat(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [leaf for part in result if part is not None for leaf in flat(part)]


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name):
    torch.manual_seed(0)
    make, sample = LAYERS[name]
    module = make().eval()
    agree(lambda x: flat(module(x)), sample(), state=registered(module))


class Attention(nn.Module):
    """Scaled dot product attention in its variants."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, **self.options)


def heads(count=4, length=5, width=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, count, length, width, generator=generator)


ATTENTION = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.3},
    "mask": {"attn_mask": torch.tensor([[True, False, True, True, True]])},
    "float_mask": {"attn_mask": torch.linspace(-1, 1, 25).reshape(5, 5)},
    "masked_row": {"attn_mask": torch.tensor([[False] * 5] + [[True] * 5] * 4)},
}


@pytest.mark.filterwarnings("ignore::mlsdk.errors.UnregisteredTensorWarning")
@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name):
    agree(Attention(**ATTENTION[name]), heads(), heads(seed=1), heads(seed=2))


def test_grouped_attention():
    agree(Attention(enable_gqa=True), heads(4), heads(2, seed=1), heads(2, seed=2))


class ResidualBlock(nn.Module):
    def __init__(self, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 2 * channels, 3, stride, 1, bias=False)
        self.bn1 = _warm(nn.BatchNorm2d(2 * channels))
        self.conv2 = nn.Conv2d(2 * channels, 2 * channels, 3, 1, 1, bias=False)
        self.bn2 = _warm(nn.BatchNorm2d(2 * channels))
        self.down = nn.Conv2d(channels, 2 * channels, 1, stride)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True)))
        y += self.down(x)
        return F.relu(y)


class SmallResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, 1, 1), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.block1, self.block2 = ResidualBlock(4, 1), ResidualBlock(8, 2)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.block2(self.block1(self.stem(x)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class LlamaLayer(nn.Module):
    """A decoder layer with rotary positions, grouped heads and a key-value cache."""

    def __init__(self, width=16, heads=4, groups=2):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, groups * self.size, bias=False)
        self.v = nn.Linear(width, groups * self.size, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.gate, self.up = nn.Linear(width, 32, bias=False), nn.Linear(width, 32, bias=False)
        self.down = nn.Linear(32, width, bias=False)

    def rotate(self, x, positions):
        half = self.size // 2
        frequencies = 1.0 / (100.0 ** (torch.arange(half) / half))
        angles = positions[:, :, None].float() * frequencies
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, x, positions, keys, values):
        n, length, width = x.shape
        h = self.norm1(x)
        q = self.q(h).view(n, length, self.heads, self.size).transpose(1, 2)
        k = self.k(h).view(n, length, self.groups, self.size).transpose(1, 2)
        v = self.v(h).view(n, length, self.groups, self.size).transpose(1, 2)
        q, k = self.rotate(q, positions), self.rotate(k, positions)
        at = positions[:, None, :, None].expand(n, self.groups, length, self.size)
        keys, values = keys.scatter(2, at, k), values.scatter(2, at, v)
        visible = torch.arange(keys.shape[2])[None, None] <= positions[:, :, None]
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=visible[:, None], enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(n, length, width))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)), keys, values


def test_small_resnet():
    torch.manual_seed(1)
    model = SmallResNet().eval()
    traced = agree(model, image(2, 3, 12, 12), state=registered(model))
    scopes = {node.scope for node in traced.graph.nodes}
    assert "SmallResNet.block1.conv1" in scopes


def test_batch_norm_folds_into_convolutions_of_constants():
    torch.manual_seed(1)
    model = SmallResNet().eval()
    from mlsdk.pipeline.optimize import optimize

    with pytest.warns(match="not registered"):
        traced = agree(model, image(1, 3, 12, 12))
    assert "BatchNormalization" not in {node.op for node in optimize(traced.graph).nodes}


def test_llama_layer_with_cache():
    torch.manual_seed(2)
    layer = LlamaLayer()
    cache = torch.zeros(2, 2, 6, 4)
    agree(layer, tokens(2, 3, 16), torch.tensor([[0, 1, 2]] * 2), cache, cache, state=registered(layer))
    agree(layer, tokens(2, 1, 16), torch.tensor([[3]] * 2), cache + 0.1, cache - 0.1, state=registered(layer))


def test_vision_transformer():
    torch.manual_seed(3)

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Conv2d(3, 16, 4, 4)
            self.cls = nn.Parameter(torch.randn(1, 1, 16))
            self.position = nn.Parameter(torch.randn(1, 5, 16))
            layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(16, 10)

        def forward(self, x):
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.position
            return self.head(self.encoder(x)[:, 0])

    model = ViT().eval()
    agree(model, image(2, 3, 8, 8), state=registered(model))


def test_unrolled_recurrence():
    torch.manual_seed(4)
    cell = nn.LSTMCell(8, 6)

    def run(x):
        h = c = torch.zeros(x.shape[0], 6)
        for step in range(x.shape[1]):
            h, c = cell(x[:, step], (h, c))
        return h, c

    agree(run, tokens(), state=registered(cell))


def test_einsum_and_complex_broadcasts():
    def run(a, b):
        y = torch.einsum("bij,bkj->bik", a, b)
        z = torch.einsum("bij,bij->bi", a, b)
        return y / math.sqrt(8), z, torch.matmul(a, b.mT) - y, torch.matmul(a, b[0, 0]), (a @ b.mT)[0] @ a[0]

    agree(run, tokens(), tokens() * 0.3)


def test_inference_mode_and_no_grad():
    model = nn.Sequential(nn.Linear(8, 4), nn.GELU(), nn.Linear(4, 2))

    def run(x):
        with torch.inference_mode():
            a = model(x)
        with torch.no_grad():
            b = model(x)
        return a, b

    agree(run, tokens(), state=registered(model))


# --- other ways to write a program ---

x34 = torch.linspace(-1.5, 2, 12).reshape(3, 4)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a * 2

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


def custom_gradient(a):
    a = a.detach().requires_grad_()
    return torch.autograd.grad(Doubled.apply(a).sum(), a)[0]


def hooked_gradient(a):
    a = a.detach().requires_grad_()
    a.register_hook(lambda g: g * 5)
    (a**2).sum().backward()
    return a.grad


TRANSFORMS = {
    "vmap": lambda a: torch.vmap(lambda row: row * row.sum())(a),
    "grad": lambda a: torch.func.grad(lambda z: (z**2).sum())(a),
    "vmap of grad": lambda a: torch.func.vmap(torch.func.grad(lambda z: (z**3).sum()))(a),
    "jvp": lambda a: torch.func.jvp(torch.sin, (a,), (a,))[1],
    "cond": lambda a: torch.cond(a.sum() > 0, lambda z: z.sin(), lambda z: z * 2, (a,)),
    "jacfwd": lambda a: torch.func.jacfwd(lambda z: (z @ z.T).sin())(a),
    "hessian": lambda a: torch.func.hessian(lambda z: (z[0] * z[1].exp()).prod())(a),
    "vmap of jacrev": lambda a: torch.vmap(torch.func.jacrev(lambda row: row.softmax(0).cumsum(0)))(a),
    "vjp": lambda a: torch.func.vjp(lambda z: z.logsumexp(1), a)[1](a[:, 0])[0],
    "hvp": lambda a: torch.func.jvp(torch.func.grad(lambda z: (z**3).mean()), (a,), (a,))[1],
    "custom function": custom_gradient,
    "tensor hook": hooked_gradient,
    "checkpoint": lambda a: torch.utils.checkpoint.checkpoint(lambda z: torch.tanh(z) * 2, a, use_reentrant=False),
    "new_tensor": lambda a: a.new_tensor([1.0, 2, 3, 4]) + a,
    "deepcopy": lambda a: __import__("copy").deepcopy(a) * 2,
    "iteration": lambda a: sum(row for row in a) / len(a),
    "parameter": lambda a: nn.Parameter(a) * 2,
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transform(name):
    agree(TRANSFORMS[name], x34)


class Sizes(nn.Module):
    def forward(self, a):
        rows, columns = a.shape
        return a.reshape(rows * columns // 2, -1) * columns**0.5 + torch.arange(rows * columns // 2)[:, None] / rows


MODULES = {
    "script of sizes": lambda: torch.jit.trace(Sizes(), x34),
    "script of attention": lambda: torch.jit.trace(nn.TransformerEncoderLayer(4, 2, 8).eval(), x34, check_trace=False),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)).eval(),
    "script": lambda: torch.jit.trace(
        nn.Sequential(
            nn.Linear(4, 4), nn.Unflatten(1, (2, 2)), nn.Conv1d(2, 3, 2), nn.ReLU(), nn.ConvTranspose1d(3, 1, 2)
        ),
        x34,
    ),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", MODULES)
def test_other_kinds_of_modules(name):
    module = MODULES[name]()
    agree(module, x34, state=registered(module))


def test_forward_hooks_and_functional_calls():
    module = nn.Linear(4, 4)
    handle = module.register_forward_hook(lambda module, args, result: result * 3)
    agree(module, x34, state=registered(module))
    handle.remove()
    swapped = {"weight": module.weight * 2}
    with pytest.warns(match="not registered"):
        agree(lambda a: torch.func.functional_call(module, swapped, (a,)), x34, state=registered(module))
