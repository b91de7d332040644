"""Losses: of unaligned sequences, and of classes by a margin."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from mlsdk.pipeline.trace.decompositions.table import aten, decomposes, gradients

# --- the loss of unaligned sequences ---

# Logarithms of no chance: far below every sum of logarithms, and within the range of a half of the board.
NEVER = -1e9


@decomposes(aten._ctc_loss.Tensor)
def _ctc_loss(
    log_probs: Tensor, targets: Tensor, given: Tensor, lengths: Tensor, blank: int = 0, zero_infinity: bool = False
) -> tuple[Tensor, Tensor]:
    """For targets [sequence, label]: the losses, and log_alpha[sequence, time, label], what all ways to a label have together."""
    steps, count, most = *log_probs.shape[:2], targets.shape[1]
    given, lengths = given[:, None], lengths[:, None]
    blanks = torch.full_like(targets, blank)
    labels = torch.stack([blanks, targets.clamp(min=0)], 2).flatten(1)
    labels = torch.cat([labels, torch.full_like(labels[:, :1], blank)], 1).long()
    skips = torch.cat([torch.zeros_like(labels[:, :2], dtype=torch.bool), labels[:, 2:] != labels[:, :-2]], 1)
    skips = (skips & (labels != blank))[:, : 2 * most + 1]
    emitted = log_probs.gather(2, labels.expand(steps, count, 2 * most + 1))
    alpha = torch.where(torch.arange(2 * most + 1) < 2, emitted[0], NEVER)
    alphas = [alpha]
    for step in range(1, steps):
        before = torch.nn.functional.pad(alpha, (2, 0), value=NEVER)
        ways = torch.stack([alpha, before[:, 1:-1], torch.where(skips, before[:, :-2], NEVER)])
        alpha = torch.where(step < given, ways.logsumexp(0) + emitted[step], alpha)
        alphas.append(alpha)
    ends = [alpha.gather(1, 2 * lengths), alpha.gather(1, (2 * lengths - 1).clamp(min=0))]
    ends[1] = torch.where(lengths > 0, ends[1], NEVER)
    loss = -torch.cat(ends, 1).logsumexp(1)
    return torch.where(loss > -NEVER / 2, math.inf, loss), torch.stack(alphas, 1)


@decomposes(aten._ctc_loss_backward.Tensor)
def _ctc_loss_backward(
    grad: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    given: Tensor,
    lengths: Tensor,
    losses: Tensor,
    alphas: Tensor,
    blank: int,
    zero_infinity: bool = False,
) -> Tensor:
    """NaN (or 0) for what cannot be aligned. torch adds exp(log_probs), which log_softmax takes away again."""
    lost = losses.isinf()
    grad = grad.masked_fill(lost, 0)
    (found,) = gradients(lambda x: _ctc_loss(x, targets, given, lengths, blank)[0], [log_probs], grad)
    return found.masked_fill(lost[None, :, None], 0 if zero_infinity else math.nan)


# --- margins ---


@decomposes(aten.multi_margin_loss.default)
def _multi_margin(
    x: Tensor, target: Tensor, p: Any = 1, margin: Any = 1, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    """A class as high as its label less the margin has no gradient, other than in torch's own decomposition."""
    places = target.unsqueeze(-1)
    short = torch.relu(margin - x.gather(-1, places) + x) ** p
    if weight is not None:
        short = short * weight[places]
    loss = short.scatter(-1, places, 0).sum(-1) / x.shape[-1]
    return (loss, loss.mean(), loss.sum())[reduction]


@decomposes(aten.multi_margin_loss_backward.default)
def _multi_margin_backward(grad: Tensor, x: Tensor, *args: Any) -> Tensor:
    return gradients(lambda a: _multi_margin(a, *args), [x], grad)[0]


@decomposes(aten.multilabel_margin_loss_forward.default)
def _multilabel_margin(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Each label of a row, up to the first below 0, against each class that is none. torch's own decomposition is wrong."""
    labels = (target >= 0).to(torch.int64).cumprod(-1)
    places = target.clamp(min=0)
    is_target = torch.zeros_like(x).scatter_add(-1, places, labels.to(x.dtype)).clamp(max=1)
    short = torch.relu(1 - x.gather(-1, places)[..., :, None] + x[..., None, :])
    counts = labels.to(x.dtype)[..., :, None] * (1 - is_target)[..., None, :]
    loss = (short * counts).sum((-2, -1)) / x.shape[-1]
    return (loss, loss.mean(), loss.sum())[reduction], is_target


@decomposes(aten.multilabel_margin_loss_backward.default)
def _multilabel_margin_backward(grad: Tensor, x: Tensor, target: Tensor, reduction: int, is_target: Tensor) -> Tensor:
    return gradients(lambda a: _multilabel_margin(a, target, reduction)[0], [x], grad)[0]
