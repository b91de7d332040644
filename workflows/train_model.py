"""What the training workflows share: the models, a training loop on a board, and the picture of its losses."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from mlsdk import (
    Context,
    MNCoreOptimizer,
    MNDevice,
    set_buffer_name_in_optimizer,
    set_tensor_name_in_module,
    storage,
)

Status = Callable[[str], None]


def mlp(hidden: int) -> nn.Module:
    """64 pixels -> `hidden` -> 10 digits."""
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def cnn(width: int) -> nn.Module:
    """64 pixels as an 8 x 8 image -> two convolutions with batch normalisation -> 10 digits.

    The running statistics follow fast, since the training is short.
    """
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width, momentum=0.5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
        nn.BatchNorm2d(2 * width, momentum=0.5),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 10),
    )


@dataclass
class Course:
    """What happened: the loss of each step, and the accuracy on the test images after each epoch."""

    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)


def batches_of(count: int, batch: int, epochs: int, seed: int) -> list[list[np.ndarray]]:
    """For each epoch, the indices of its full batches."""
    rng = np.random.default_rng(seed)
    return [np.split(rng.permutation(count)[: count // batch * batch], count // batch) for _ in range(epochs)]


def train(
    model: nn.Module,
    optimizer: MNCoreOptimizer,
    images: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    epochs: Sequence[Sequence[np.ndarray]],
    device: str,
    options: Mapping[str, Any],
    status: Status,
) -> Course:
    """Train on a board. The weights and the optimizer's state stay there; at the end they are in `model` and `optimizer`.

    `images`: training images and labels, test images and labels.
    """
    x, y, test_x, test_y = (torch.from_numpy(array) for array in images)
    course, size = Course(), len(epochs[0][0])
    with Context(MNDevice(device)) as context, tempfile.TemporaryDirectory() as folder:
        set_tensor_name_in_module(model, "model")
        for parameter in model.parameters():
            context.register_param(parameter)
        for buffer in model.buffers():
            context.register_buffer(buffer)
        set_buffer_name_in_optimizer(optimizer, "optimizer")
        context.register_optimizer_buffers(optimizer)

        def train_step(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs["x"]), inputs["y"])
            loss.backward()
            optimizer.step()
            return {"loss": loss}

        def classify(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {"digit": model(inputs["x"]).argmax(1)}

        status("compiling the training step")
        sample = {"x": x[:size], "y": y[:size]}
        step = context.compile(train_step, sample, storage.path(f"{folder}/step"), options=dict(options), quiet=True)
        model.eval()
        sample = {"x": test_x[:size]}
        digits = context.compile(classify, sample, storage.path(f"{folder}/digits"), options=dict(options), quiet=True)
        total = sum(len(epoch) for epoch in epochs)
        for epoch in epochs:
            for chosen in epoch:
                course.losses.append(step({"x": x[chosen], "y": y[chosen]})["loss"].item())
                status(f"{bar(len(course.losses), total)} loss {course.losses[-1]:.3f}")
            course.accuracies.append(_accuracy(digits, test_x, test_y, size))
            status(f"{bar(len(course.losses), total)} accuracy {course.accuracies[-1]:.4f}")
        context.synchronize()
    return course


def _accuracy(digits: Any, x: torch.Tensor, y: torch.Tensor, size: int) -> float:
    """The share that a compiled function of `size` images a call classifies right."""
    right = 0
    for start in range(0, len(x), size):
        part = x[start : start + size]
        filled = torch.cat([part, part.new_zeros(size - len(part), *part.shape[1:])])
        right += int((digits({"x": filled})["digit"].cpu()[: len(part)] == y[start : start + size]).sum())
    return right / len(x)


def bar(done: int, total: int, width: int = 24) -> str:
    """A progress bar as text."""
    full = done * width // total
    return f"{'█' * full}{'░' * (width - full)} {done}/{total}"


def curve(course: Course, title: str) -> bytes:
    """The losses, and the accuracies after each epoch, as an SVG picture."""
    width, height, left, top = 720, 360, 56, 36
    right, bottom = width - 56, height - 44
    most = max(course.losses) or 1.0
    steps = len(course.losses)

    def at(step: float, share: float) -> str:
        return f"{left + (right - left) * step / max(steps, 1):.1f},{bottom - (bottom - top) * share:.1f}"

    losses = " ".join(at(i + 1, loss / most) for i, loss in enumerate(course.losses))
    each = steps / max(len(course.accuracies), 1)
    accuracies = " ".join(at((i + 1) * each, share) for i, share in enumerate(course.accuracies))
    labels = [
        f'<text x="{left}" y="22" font-weight="bold">{title}</text>',
        f'<text x="{left - 8}" y="{top + 4}" text-anchor="end">{most:.2f}</text>',
        f'<text x="{left - 8}" y="{bottom + 4}" text-anchor="end">0</text>',
        f'<text x="{right + 8}" y="{top + 4}">1.0</text>',
        f'<text x="{(left + right) / 2}" y="{height - 12}" text-anchor="middle">{steps} steps</text>',
        f'<text x="{right}" y="22" text-anchor="end">'
        '<tspan fill="#1f6feb">loss</tspan>, <tspan fill="#d1572b">accuracy on the test images</tspan></text>',
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            f'<path d="M{left},{top} V{bottom} H{right}" fill="none" stroke="#888"/>',
            f'<polyline points="{losses}" fill="none" stroke="#1f6feb" stroke-width="1.2"/>',
            f'<polyline points="{accuracies}" fill="none" stroke="#d1572b" stroke-width="2"/>',
            *labels,
            "</svg>\n",
        ]
    ).encode()
