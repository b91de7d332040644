"""The model of the digits workflow, and its training: a plain PyTorch program."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn


class MLP(nn.Module):
    """64 pixels -> `hidden` -> 10 digits."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, hidden)
        self.fc2 = nn.Linear(hidden, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(torch.relu(self.fc1(x)))


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(training images, labels, test images, labels): float32 [n, 64] in 0..1 and int64 [n]; every fifth image is a test."""
    data = load_digits()
    images, labels = (data.data / 16.0).astype(np.float32), data.target.astype(np.int64)
    test = np.arange(len(images)) % 5 == 0
    return images[~test], labels[~test], images[test], labels[test]


def train(hidden: int, epochs: int, seed: int) -> MLP:
    """Train on the training images with Adam, on the host."""
    images, labels, _, _ = digits()
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    torch.manual_seed(seed)
    model = MLP(hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
    return model.eval()


def accuracy(model: MLP) -> float:
    """Share of the test images that torch classifies right."""
    _, _, images, labels = digits()
    with torch.no_grad():
        return float((model(torch.from_numpy(images)).argmax(1).numpy() == labels).mean())
