"""Training programs as users write them, for our optimizers and for torch's.

A recipe takes a Kit and returns its functions by name, and the calls of them: (name, batch).
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint
from training_nets import Block

from mlsdk import MNCoreAdam, MNCoreAdamW, MNCoreSGD

OURS = {"sgd": MNCoreSGD, "adam": MNCoreAdam, "adamw": MNCoreAdamW}
TORCHS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}

# the calls of a recipe with one function
STEPS = 3


class Kit:
    """What a recipe makes: for the board, or (`given`: the results of the board's call) for eager torch in double."""

    def __init__(self, ours: bool):
        self.ours = ours
        self.modules: list[nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.given: dict[str, torch.Tensor] = {}

    def own(self, module):
        self.modules.append(module if self.ours else module.double())
        return module

    def optimizer(self, kind, modules, **settings):
        parameters = [parameter for module in modules for parameter in module.parameters()]
        made = (OURS if self.ours else TORCHS)[kind](parameters, **settings)
        self.optimizers.append(made)
        return made

    def drawn(self, key, draw):
        """Random numbers: drawn on the board, and given to eager torch, as results of the function."""
        return draw() if self.ours else self.given[key].double()


def numbers(*shape):
    return torch.randn(*shape)


def classes(count, *shape):
    return torch.randint(0, count, shape)


def cross_entropy(model, inputs):
    return F.cross_entropy(model(inputs["x"]), inputs["y"])


def plain(kit, model, batch, loss=cross_entropy, kind="sgd", **settings):
    """zero_grad, loss, backward, step."""
    optimizer = kit.optimizer(kind, [kit.own(model)], **(settings or {"lr": 0.1, "momentum": 0.9}))

    def step(inputs):
        optimizer.zero_grad()
        value = loss(model, inputs)
        value.backward()
        optimizer.step()
        return {"loss": value}

    return {"step": step}, [("step", batch()) for _ in range(STEPS)]


def gan(kit):
    """Two networks, two optimizers, two functions in turns."""
    maker = kit.own(nn.Sequential(nn.Linear(4, 12), nn.LeakyReLU(0.2), nn.Linear(12, 6)))
    judge = kit.own(nn.Sequential(nn.Linear(6, 12), nn.LeakyReLU(0.2), nn.Linear(12, 1)))
    adam = {"lr": 0.01, "betas": (0.5, 0.9), "eps": 1e-3}
    of_maker, of_judge = kit.optimizer("adam", [maker], **adam), kit.optimizer("adam", [judge], **adam)

    def judged(logits, truth):
        return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, truth))

    def train_judge(inputs):
        of_judge.zero_grad()
        loss = judged(judge(inputs["x"]), 1.0) + judged(judge(maker(inputs["z"]).detach()), 0.0)
        loss.backward()
        of_judge.step()
        return {"loss": loss}

    def train_maker(inputs):
        of_maker.zero_grad()
        loss = judged(judge(maker(inputs["z"])), 1.0)
        loss.backward()
        of_maker.step()
        return {"loss": loss}

    turns = [[("judge", {"x": numbers(5, 6), "z": numbers(5, 4)}), ("maker", {"z": numbers(5, 4)})] for _ in range(2)]
    return {"judge": train_judge, "maker": train_maker}, [call for turn in turns for call in turn]


def vae(kit):
    encoder, decoder = kit.own(nn.Linear(8, 6)), kit.own(nn.Linear(3, 8))
    optimizer = kit.optimizer("adam", [encoder, decoder], lr=0.01, eps=1e-3)

    def step(inputs):
        optimizer.zero_grad()
        mean, logvar = encoder(inputs["x"]).chunk(2, 1)
        noise = kit.drawn("noise", lambda: torch.randn_like(mean))
        code = mean + (0.5 * logvar).exp() * noise
        divergence = -0.5 * (1 + logvar - mean**2 - logvar.exp()).sum(1).mean()
        loss = F.binary_cross_entropy_with_logits(decoder(code), inputs["x"], reduction="sum") / 5 + divergence
        loss.backward()
        optimizer.step()
        return {"loss": loss, "noise": noise}

    return {"step": step}, [("step", {"x": torch.rand(5, 8)}) for _ in range(STEPS)]


def recomputed(kit):
    """Dropout in a checkpoint: the backward pass computes it again, with the same mask."""
    layer, head = kit.own(nn.Linear(8, 8)), kit.own(nn.Linear(8, 5))
    optimizer = kit.optimizer("sgd", [layer, head], lr=0.5)

    def step(inputs):
        masks = []

        def block(x):
            y = layer(x)
            masks.append(kit.drawn("mask", lambda: F.dropout(torch.ones_like(y), 0.5)))
            return torch.tanh(y) * masks[-1]

        optimizer.zero_grad()
        loss = F.cross_entropy(head(checkpoint(block, inputs["x"], use_reentrant=False)), inputs["y"])
        loss.backward()
        optimizer.step()
        return {"loss": loss, "mask": masks[0]}

    return {"step": step}, [("step", {"x": numbers(4, 8), "y": classes(5, 4)}) for _ in range(STEPS)]


def averaged(kit):
    """A second model follows the weights, and is evaluated in the same program."""
    model = kit.own(nn.Linear(6, 3))
    follower = kit.own(copy.deepcopy(model).requires_grad_(False))
    optimizer = kit.optimizer("adamw", [model], lr=0.05, eps=1e-3)

    def step(inputs):
        optimizer.zero_grad()
        loss = F.huber_loss(model(inputs["x"]), inputs["y"])
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for average, parameter in zip(follower.parameters(), model.parameters()):
                average.lerp_(parameter, 0.1)
        return {"loss": loss, "followed": follower(inputs["x"])}

    return {"step": step}, [("step", {"x": numbers(4, 6), "y": numbers(4, 3)}) for _ in range(STEPS)]


def averaged_by_torch(kit):
    """torch's averages, of statistics and of weights, and its scale of the loss."""
    model = kit.own(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5, momentum=None), nn.Tanh(), nn.Linear(5, 3)))
    swa, ema = (kit.own(AveragedModel(model, multi_avg_fn=function)) for function in (None, get_ema_multi_avg_fn(0.9)))
    optimizer, scaler = kit.optimizer("sgd", [model], lr=0.2, momentum=0.9), torch.amp.GradScaler("cpu")

    def step(inputs):
        optimizer.zero_grad()
        loss = cross_entropy(model, inputs)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        swa.update_parameters(model)
        ema.update_parameters(model)
        return {"loss": loss}

    return {"step": step}, [("step", {"x": numbers(4, 6), "y": classes(3, 4)}) for _ in range(STEPS)]


def distilled(kit):
    teacher, student = kit.own(nn.Linear(8, 5)), kit.own(nn.Linear(8, 5))
    optimizer = kit.optimizer("sgd", [student], lr=0.2, momentum=0.9, nesterov=True)

    def step(inputs):
        with torch.no_grad():
            wanted = F.log_softmax(teacher(inputs["x"]) / 2, 1)
        found = student(inputs["x"])
        loss = F.kl_div(F.log_softmax(found / 2, 1), wanted, reduction="batchmean", log_target=True)
        loss = 2.8 * loss + 0.3 * F.cross_entropy(found, inputs["y"], label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    return {"step": step}, [("step", {"x": numbers(4, 8), "y": classes(5, 4)}) for _ in range(STEPS)]


def contrastive(kit):
    model, scale = kit.own(nn.Linear(8, 6)), kit.own(nn.ParameterList([nn.Parameter(torch.tensor(1.0))]))
    optimizer = kit.optimizer("sgd", [model, scale], lr=0.2)

    def step(inputs):
        optimizer.zero_grad()
        left, right = (F.normalize(model(inputs[key]), dim=1) for key in ("a", "b"))
        logits, own = left @ right.T * scale[0].exp(), torch.arange(5)
        loss = (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    return {"step": step}, [("step", {"a": numbers(5, 8), "b": numbers(5, 8)}) for _ in range(STEPS)]


def gradient_penalty(kit):
    """A gradient within the loss."""
    judge = kit.own(nn.Sequential(nn.Linear(6, 8), nn.Softplus(), nn.Linear(8, 1)))
    optimizer = kit.optimizer("adam", [judge], lr=0.01, eps=1e-3)

    def step(inputs):
        optimizer.zero_grad()
        between = (inputs["t"] * inputs["a"] + (1 - inputs["t"]) * inputs["b"]).requires_grad_()
        (slope,) = torch.autograd.grad(judge(between).sum(), between, create_graph=True)
        loss = judge(inputs["a"]).mean() - judge(inputs["b"]).mean() + 10 * (slope.norm(2, 1) - 1).pow(2).mean()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    return {"step": step}, [
        ("step", {"a": numbers(5, 6), "b": numbers(5, 6), "t": torch.rand(5, 1)}) for _ in range(STEPS)
    ]


def edited_gradients(kit):
    model = kit.own(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)))
    optimizer = kit.optimizer("sgd", [model], lr=0.1)

    def step(inputs):
        optimizer.zero_grad()
        loss = cross_entropy(model, inputs)
        loss.backward()
        for number, parameter in enumerate(model.parameters()):
            if number % 2:
                parameter.grad.mul_(0.5)
            else:
                parameter.grad = parameter.grad - parameter.grad.mean()
        optimizer.step()
        return {"loss": loss}

    return {"step": step}, [("step", {"x": numbers(4, 6), "y": classes(3, 4)}) for _ in range(STEPS)]


class Sign(torch.autograd.Function):
    """The sign, with the gradient of a clipped identity."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sign(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * (ctx.saved_tensors[0].abs() < 1)


def own_gradient(kit):
    model = nn.ModuleList([nn.Linear(8, 12), nn.Linear(12, 4)])

    def loss(model, inputs):
        return F.cross_entropy(model[1](Sign.apply(model[0](inputs["x"]))), inputs["y"])

    return plain(kit, model, lambda: {"x": numbers(4, 8), "y": classes(4, 4)}, loss)


class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.max = nn.EmbeddingBag(11, 6, mode="mean", padding_idx=1), nn.EmbeddingBag(11, 6, mode="max")
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.mean(x) + self.max(x))


def bags(kit):
    return plain(kit, Bags(), lambda: {"x": classes(11, 3, 4), "y": classes(3, 3)})


def running(kit):
    """Running maxima and sums, medians."""

    def loss(model, inputs):
        y = model(inputs["x"])
        found = y.cummax(1).values + y.cummin(0).values + y.logcumsumexp(1) + y - y.median(1, keepdim=True).values
        return (found * inputs["w"]).mean() + (y - inputs["w"]).abs().median()

    return plain(kit, nn.Linear(6, 5), lambda: {"x": numbers(4, 6), "w": numbers(4, 5)}, loss, lr=0.1)


def odd_maxima(kit):
    """Maxima over windows that do not divide the image."""
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.AdaptiveMaxPool2d((3, 2)), nn.Flatten(), nn.Linear(18, 3))
    return plain(kit, model, lambda: {"x": numbers(2, 1, 7, 7), "y": classes(3, 2)})


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embedding, self.head = nn.Embedding(12, 6), nn.Linear(14, 12)
        self.inner = kind(6, 7, bidirectional=True)

    def forward(self, x):
        return self.head(self.inner(self.embedding(x))[0])


def recurrent(kind):
    def loss(model, inputs):
        return F.cross_entropy(model(inputs["x"]).flatten(0, 1), inputs["y"].flatten(), ignore_index=0)

    return lambda kit: plain(
        kit, Recurrent(kind), lambda: {"x": classes(12, 4, 2), "y": classes(4, 4, 2)}, loss, lr=0.3, momentum=0.9
    )


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.middle, self.up = self.stage(1, 4), self.stage(4, 8), self.stage(12, 4)
        self.wide, self.head = nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(4, 2, 1)

    @staticmethod
    def stage(inputs, outputs):
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(2, outputs), nn.SiLU())

    def forward(self, x):
        a = self.down(x)
        b = self.middle(F.max_pool2d(a, 2))
        return self.head(self.up(torch.cat([a, self.wide(b) + F.interpolate(b, scale_factor=2)], 1)))


def unet(kit):
    return plain(kit, UNet(), lambda: {"x": numbers(2, 1, 8, 8), "y": classes(2, 2, 8, 8)})


class Vision(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, 12, 4, 4), nn.Parameter(torch.zeros(1, 1, 12))
        self.block, self.norm, self.head = Block(12, 3), nn.LayerNorm(12), nn.Linear(12, 5)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([x, self.token.expand(len(x), -1, -1)], 1)
        return self.head(self.norm(self.block(x))[:, -1])


def vision(kit):
    return plain(kit, Vision(), lambda: {"x": numbers(3, 3, 8, 8), "y": classes(5, 3)})


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 8, padding_idx=0), nn.Linear(8, 9)
        self.inner = nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True)

    def forward(self, x, y):
        mask = nn.Transformer.generate_square_subsequent_mask(y.shape[1]).to(self.head.weight.dtype)
        padded = x == 0
        inner = self.inner(
            self.embedding(x),
            self.embedding(y),
            None,
            mask,
            src_key_padding_mask=padded,
            memory_key_padding_mask=padded,
        )
        return self.head(inner)


def translator(kit):
    def loss(model, inputs):
        return F.cross_entropy(model(inputs["x"], inputs["y"][:, :-1]).flatten(0, 1), inputs["y"][:, 1:].flatten())

    def batch():
        x = F.pad(1 + classes(8, 2, 3), (0, 2))
        return {"x": x, "y": 1 + classes(8, 2, 5)}

    return plain(kit, Translator(), batch, loss, lr=0.1)


def siamese(kit):
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.PReLU(), nn.MaxPool2d(2, ceil_mode=True), nn.Flatten()
    )

    def loss(model, inputs):
        return F.cosine_embedding_loss(model(inputs["a"]), model(inputs["b"]), inputs["y"], margin=0.1)

    alike = torch.tensor([1, -1, 1])
    return plain(kit, model, lambda: {"a": numbers(3, 1, 7, 7), "b": numbers(3, 1, 7, 7), "y": alike}, loss)


RECIPES = {
    recipe.__name__: recipe
    for recipe in (
        gan, recomputed, averaged, averaged_by_torch, distilled, contrastive, gradient_penalty, edited_gradients,
        own_gradient, bags, running,
    )
}  # fmt: skip

#: whose programs take longer to compile
LONG = {
    "vae": vae,
    "odd_maxima": odd_maxima,
    "gru": recurrent(nn.GRU),
    "lstm": recurrent(nn.LSTM),
    "unet": unet,
    "vision": vision,
    "translator": translator,
    "siamese": siamese,
}
