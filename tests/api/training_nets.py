"""Networks, optimizers and steps for the tests of training."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from mlsdk import MNCoreAdam, MNCoreAdamW, MNCoreSGD, set_buffer_name_in_optimizer, set_tensor_name_in_module

# Adam divides a gradient by its own size, so that where it is zero but for rounding, the rounding decides: the networks have no
# bias that another layer takes away again, and `eps` is above the rounding.


def mlp():
    return nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 10))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8, momentum=0.3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        n, length, width = x.shape
        parts = self.query_key_value(self.before(x)).reshape(n, length, 3, self.heads, width // self.heads)
        attended = F.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(n, length, width))
        return x + self.narrow(F.gelu(self.wide(self.after(x))))


class Transformer(nn.Module):
    """Two layers; the last one's weights are tied to the embedding."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.blocks = nn.Sequential(Block(16, 2), Block(16, 2))
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        return self.head(self.blocks(self.embedding(ids))).flatten(0, 1)


NETS = {
    "mlp": (mlp, lambda: {"x": torch.randn(4, 12), "y": torch.randint(0, 10, (4,))}),
    "cnn": (cnn, lambda: {"x": torch.randn(3, 1, 8, 8), "y": torch.randint(0, 10, (3,))}),
    "transformer": (Transformer, lambda: {"x": torch.randint(0, 20, (2, 5)), "y": torch.randint(0, 20, (10,))}),
}

OPTIMIZERS = {
    "sgd": (MNCoreSGD, torch.optim.SGD, {"lr": 0.1}),
    "momentum": (MNCoreSGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "dampening": (MNCoreSGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    "adam": (MNCoreAdam, torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1, "eps": 1e-3}),
    "amsgrad": (MNCoreAdam, torch.optim.Adam, {"lr": 0.01, "amsgrad": True, "eps": 1e-3}),
    "adamw": (MNCoreAdamW, torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1, "eps": 1e-3}),
}


def register(context, model, optimizer=None):
    set_tensor_name_in_module(model, "model")
    for parameter in model.parameters():
        context.register_param(parameter)
    for buffer in model.buffers():
        context.register_buffer(buffer)
    if optimizer is not None:
        set_buffer_name_in_optimizer(optimizer, "optimizer")
        context.register_optimizer_buffers(optimizer)


def register_gradients(context, model):
    """A gradient of zeros for each parameter, registered."""
    from mlsdk import set_tensor_name

    for name, parameter in model.named_parameters():
        parameter.grad = torch.zeros_like(parameter)
        set_tensor_name(parameter.grad, f"{name.replace('.', '@')}@grad")
        context.register_param(parameter.grad)


def step_of(model, optimizer, loss=F.cross_entropy):
    def train_step(inputs):
        optimizer.zero_grad()
        value = loss(model(inputs["x"]), inputs["y"])
        value.backward()
        optimizer.step()
        return {"loss": value}

    return train_step


def pair(net, kind):
    """(model and our optimizer), (a copy and torch's)."""
    model = NETS[net][0]()
    other = copy.deepcopy(model)
    ours, theirs, settings = OPTIMIZERS[kind]
    return (model, ours(model.parameters(), **settings)), (other, theirs(other.parameters(), **settings))


def agree(mine, theirs, tolerance):
    """Within `tolerance` of the largest element."""
    mine, theirs = torch.as_tensor(mine).double(), torch.as_tensor(theirs).double()
    assert mine.shape == theirs.shape
    error = (mine - theirs).abs().max().item() if mine.numel() else 0.0
    assert error <= tolerance * (theirs.abs().max().item() + 1e-6), error


def all_agree(ours, theirs, tolerance):
    """Parameters, buffers and optimizer state of two (model, optimizer)."""
    (model, optimizer), (other, torchs) = ours, theirs
    for mine, other_one in zip((*model.parameters(), *model.buffers()), (*other.parameters(), *other.buffers())):
        agree(mine.detach(), other_one.detach(), tolerance)
    for parameter, twin in zip(model.parameters(), other.parameters()):
        for key, value in torchs.state[twin].items():
            if isinstance(value, torch.Tensor):
                agree(optimizer.state[parameter][key], value, tolerance)
