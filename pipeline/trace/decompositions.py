"""Operators without a row that torch cannot take apart either, written with smaller ones.

Each function has the arguments of its aten operator. It runs on Shadows, on every dtype that the operator has, and returns
NotImplemented for a form that is refused. Backward operators are the gradient of the forward one, by autograd.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mlsdk.errors import DataDependentControlFlow

aten = torch.ops.aten

Decomposition = Callable[..., Any]

DECOMPOSITIONS: dict[Any, Decomposition] = {}


def decomposes(*funcs: Any) -> Callable[[Decomposition], Decomposition]:
    """Register a function as the decomposition of each of the aten operators."""

    def add(function: Decomposition) -> Decomposition:
        for func in funcs:
            assert func not in DECOMPOSITIONS, func
            DECOMPOSITIONS[func] = function
        return function

    return add


def gradients(function: Callable[..., Tensor], operands: Sequence[Tensor], grad: Tensor) -> tuple[Tensor, ...]:
    """The gradients of `function(*operands)` by each of its operands."""
    with torch.enable_grad():
        leaves = [operand.detach().requires_grad_() for operand in operands]
        return torch.autograd.grad(function(*leaves), leaves, grad)


# --- running along an axis, by doubling: after a step of s each element knows the 2s elements that end in it ---


def _running_extremum(at_least: Callable[[Tensor, Tensor], Tensor]) -> Decomposition:
    """Values and indices; of equal elements the last, and NaN from the first NaN on."""

    def running(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        if not x.ndim:
            return x.clone(), torch.zeros_like(x, dtype=torch.int64)
        extent = x.shape[dim]
        places = torch.arange(extent).reshape(extent, *(1,) * (x.ndim - 1 - dim % x.ndim)).expand(x.shape)

        def earlier(item: Tensor, step: int) -> Tensor:
            return torch.cat([item.narrow(dim, 0, step), item.narrow(dim, 0, extent - step)], dim)

        for step in (2**n for n in range(max(extent - 1, 0).bit_length())):
            other = earlier(x, step)
            stays = at_least(x, other)
            if x.is_floating_point():
                stays = stays | x.isnan()
            places = torch.where(stays, places, earlier(places, step))
            x = torch.where(stays, x, other)
        return x.clone(), places.clone()

    return running


decomposes(aten.cummax.default)(_running_extremum(torch.ge))
decomposes(aten.cummin.default)(_running_extremum(torch.le))


@decomposes(aten.logcumsumexp.default)
def _logcumsumexp(x: Tensor, dim: int) -> Tensor:
    if not x.ndim:
        return x.clone()
    extent = x.shape[dim]
    for step in (2**n for n in range(max(extent - 1, 0).bit_length())):
        nothing = torch.full_like(x.narrow(dim, 0, step), -math.inf)
        x = torch.logaddexp(x, torch.cat([nothing, x.narrow(dim, 0, extent - step)], dim))
    return x.clone()


# --- medians: of an even number of elements the lower one ---


@decomposes(aten.median.dim)
def _median(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """NaN, and the place of the first one, where there is one."""
    if not x.ndim:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, places = x.kthvalue((x.shape[dim] + 1) // 2, dim, keepdim)
    if not x.is_floating_point():
        return values, places
    missing = x.isnan()
    lost = missing.any(dim, keepdim)
    first = missing.to(torch.uint8).argmax(dim, keepdim)
    return values.masked_fill(lost, math.nan), torch.where(lost, first, places)


@decomposes(aten.nanmedian.dim)
def _nanmedian(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Among what is not NaN."""
    if not x.ndim or not x.is_floating_point():
        return _median(x, dim, keepdim)
    missing = x.isnan()
    ordered, places = x.masked_fill(missing, math.inf).sort(stable=True, dim=dim)
    last = missing.logical_not().sum(dim, keepdim=True) - 1
    middle = torch.clamp(last, min=0) // 2
    value = torch.where(last < 0, math.nan, ordered.gather(dim, middle))
    place = places.gather(dim, middle)
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


@decomposes(aten.median.default)
def _median_of_all(x: Tensor) -> Tensor:
    return _median(x.flatten(), 0)[0]


@decomposes(aten.nanmedian.default)
def _nanmedian_of_all(x: Tensor) -> Tensor:
    return _nanmedian(x.flatten(), 0)[0]


# --- random permutations ---


@decomposes(aten.randperm.default, aten.randperm.generator)
def _randperm(n: int, *, dtype: Any = torch.int64, **ignored: Any) -> Tensor:
    return torch.rand(n).argsort(stable=True).to(dtype or torch.int64)


@decomposes(aten.multinomial.default)
def _multinomial(weights: Tensor, count: int, replacement: bool = False, **ignored: Any) -> Tensor:
    """With replacement: where a uniform number falls among the sums. Without: those that come first in a race."""
    if replacement:
        sums = weights.cumsum(-1)
        points = torch.rand(*weights.shape[:-1], count, 1, dtype=weights.dtype) * sums[..., None, -1:]
        return (sums[..., None, :] <= points).sum(-1).clamp(max=weights.shape[-1] - 1)
    return (torch.empty_like(weights).exponential_() / weights).topk(count, -1, largest=False).indices


@decomposes(aten.rrelu_with_noise_functional.default)
def _rrelu(
    x: Tensor, noise: Tensor, lower: Any = 0.125, upper: Any = 1 / 3, training: bool = False, generator: Any = None
) -> tuple[Tensor, Tensor]:
    """The result, and the slopes of a training step."""
    if not training:
        return torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise.clone()
    slopes = torch.where(x <= 0, torch.empty_like(x).uniform_(lower, upper), 1.0)
    return x * slopes, slopes


# --- bags of embeddings ---

SUM, MEAN, MAX = range(3)


class Bags:
    """What is in each bag: `places` int64[bags, most] into the indices, `rows` of the table at them, and which are `there`.

    Offsets that are known give bags as long as the longest; with others, any index may be in any bag.
    """

    def __init__(self, indices: Tensor, offsets: Tensor, ends_given: bool, padding: int):
        flat, count = indices.flatten(), indices.numel()
        starts = offsets[:-1] if ends_given else offsets
        ends = offsets[1:] if ends_given else torch.cat([offsets[1:], offsets.new_full((1,), count)])
        try:
            sizes = (ends - starts).numpy()
        except DataDependentControlFlow:
            self.places = torch.arange(count).expand(starts.numel(), count)
            self.there = (self.places >= starts[:, None]) & (self.places < ends[:, None])
        else:
            taps = torch.arange(sizes.max(initial=0))
            self.places = (starts[:, None] + taps).clamp(max=max(count - 1, 0))
            self.there = taps < (ends - starts)[:, None]
        self.rows = flat[self.places]
        if padding >= 0:
            self.there = self.there & (self.rows != padding)
        self.sizes = self.there.sum(1)

    def summed(self, weight: Tensor, weights: Tensor | None, mode: int) -> Tensor:
        """The sum or mean of each bag: [bags, features]."""
        share = self.there.to(weight.dtype)
        if weights is not None:
            share = share * weights[self.places]
        if mode == MEAN:
            share = share / self.sizes.clamp(min=1)[:, None].to(weight.dtype)
        return (torch.nn.functional.embedding(self.rows, weight) * share[..., None]).sum(1)


@decomposes(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    by_frequency: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    weights: Tensor | None = None,
    ends_given: bool = False,
    padding: int = -1,
) -> Any:
    """The result, the bag of each index, the size of each bag, and for MAX the row that gave each feature."""
    bags = Bags(indices, offsets, ends_given, padding)
    starts = offsets[:-1] if ends_given else offsets
    of_index = (starts <= torch.arange(indices.numel())[:, None]).sum(1) - 1
    sizes = bags.sizes.to(indices.dtype)
    if mode != MAX:
        return bags.summed(weight, weights, mode), of_index.to(indices.dtype), sizes, sizes.clone()
    found = torch.where(bags.there[..., None], weight[bags.rows], -math.inf)
    value, tap = found.max(1)
    rows = bags.rows.gather(1, tap)
    empty = bags.sizes[:, None] == 0
    return value.masked_fill(empty, 0), of_index.to(indices.dtype), sizes, rows.to(indices.dtype)


@decomposes(aten._embedding_bag_backward.default)
def _embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    of_index: Tensor,
    sizes: Tensor,
    winners: Tensor,
    count: int,
    by_frequency: bool,
    mode: int,
    sparse: bool,
    weights: Tensor | None,
    padding: int = -1,
) -> Any:
    if by_frequency or sparse:
        return NotImplemented
    table = grad.new_zeros(count, grad.shape[1])
    if mode == MAX:
        return table.scatter_add(0, winners.long(), grad.masked_fill(sizes[:, None] == 0, 0))
    ends_given = offsets.numel() == grad.shape[0] + 1
    bags = Bags(indices, offsets, ends_given, padding)
    return gradients(lambda weight: bags.summed(weight, weights, mode), [table], grad)[0]


@decomposes(aten._embedding_bag_per_sample_weights_backward.default)
def _embedding_bag_weights_backward(
    grad: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, of_index: Tensor, mode: int, padding: int = -1
) -> Tensor:
    flat = indices.flatten()
    each = (grad[of_index] * weight[flat]).sum(1)
    return each if padding < 0 else each.masked_fill(flat == padding, 0)


@decomposes(aten.embedding_renorm.default)
def _embedding_renorm(weight: Tensor, indices: Tensor, most: float, order: float) -> Tensor:
    """Rows that are looked up, no longer than `most`."""
    norms = torch.linalg.vector_norm(weight, order, 1, keepdim=True)
    wanted = torch.zeros(len(weight), 1, dtype=torch.bool).index_fill(0, indices.flatten(), True)
    return torch.where(wanted & (norms > most), weight * (most / (norms + 1e-7)), weight)


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


# --- gradients of operators that can be taken apart ---


def _forward(func: Any) -> Decomposition:
    """The decomposition of a forward operator; torch's table is read late, as it takes long to make."""

    def call(*args: Any) -> Any:
        from torch._decomp import decomposition_table

        return decomposition_table[func](*args)

    return call


@decomposes(aten.grid_sampler_2d_backward.default)
def _grid_sampler_backward(
    grad: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool, mask: Any
) -> Any:
    forward = _forward(aten.grid_sampler_2d.default)
    found = gradients(lambda a, b: forward(a, b, mode, padding, corners), [x, grid], grad)
    return tuple(gradient if wanted else None for gradient, wanted in zip(found, mask))


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


@decomposes(aten._weight_norm_interface_backward.default)
def _weight_norm_backward(grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> tuple[Tensor, ...]:
    def normed(direction: Tensor, length: Tensor) -> Tensor:
        axes = [axis for axis in range(v.ndim) if axis != dim % v.ndim]
        return direction * (length / torch.linalg.vector_norm(direction, 2, axes, keepdim=True))

    return gradients(normed, [v, g], grad)


@decomposes(aten._cdist_backward.default)
def _cdist_backward(grad: Tensor, a: Tensor, b: Tensor, p: float, distances: Tensor) -> Tensor:
    """By the first operand; autograd asks again for the other."""
    return gradients(lambda x: torch.linalg.vector_norm(x[..., :, None, :] - b[..., None, :, :], p, -1), [a], grad)[0]


@decomposes(aten._pdist_backward.default)
def _pdist_backward(grad: Tensor, x: Tensor, p: float, distances: Tensor) -> Tensor:
    first, second = torch.triu_indices(len(x), len(x), 1).unbind()
    return gradients(lambda a: torch.linalg.vector_norm(a[first] - a[second], p, -1), [x], grad)[0]
