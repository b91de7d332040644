"""Operators that only we take apart: values, indices and gradients against eager torch, and random ones by their statistics."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from agreement import agree
from test_gradients import gradients
from test_state import Program
from torch.distributions import Bernoulli, Categorical, Normal, kl_divergence

from mlsdk.errors import UnsupportedOperator
from mlsdk.pipeline.trace import trace

inf, nan = float("inf"), float("nan")
numbers = torch.tensor([[1.5, -2, 3, 0.5, 2.25], [0.25, 4, -1, 4, 2], [-1, -3, -2.5, -4, -0.5]], dtype=torch.float64)
odd_ones = torch.tensor([[1.0, nan, 3, nan, 2], [-inf, -inf, 4, inf, 2]], dtype=torch.float64)
whole = torch.tensor([[3, 3, 1, 5], [-2, 7, 7, 0]])
image = torch.sin(torch.arange(2 * 3 * 7 * 5, dtype=torch.float64) * 1.7).reshape(2, 3, 7, 5)
words = torch.tensor([[1, 4, 4, 0], [2, 1, 1, 1], [1, 1, 1, 1]])
table = torch.cos(torch.arange(15.0).double() * 2.1).reshape(5, 3)
shares = torch.linspace(-0.5, 2, 12, dtype=torch.float64)
offsets = torch.tensor([0, 5, 5, 9])
grid = torch.sin(torch.arange(2 * 4 * 3 * 2, dtype=torch.float64)).reshape(2, 4, 3, 2) * 1.1


sounds = torch.sin(torch.arange(9 * 3 * 5, dtype=torch.float64) * 2.3).reshape(9, 3, 5)
letters = torch.tensor([[1, 1, 2, 3], [3, 2, 1, 2], [2, 2, 3, 3]])
# no matrix needs its rows as they are: pivots lie elsewhere
matrices = torch.sin(torch.arange(2 * 4 * 4, dtype=torch.float64) ** 2).reshape(2, 4, 4)
positive = matrices @ matrices.mT + torch.eye(4).double()
sides = torch.cos(torch.arange(2 * 4 * 3, dtype=torch.float64) ** 2).reshape(2, 4, 3)
places = torch.linspace(0, 0.99, 12, dtype=torch.float64).reshape(2, 3, 2)


def spoken(sounds):
    return F.log_softmax(2 * sounds, -1)


def bag(mode, flat=False, starts=offsets, **settings):
    def function(weight, *rest):
        indices = words.flatten() if flat else words
        return F.embedding_bag(indices, weight, starts if flat else None, mode=mode, **settings)

    return function


CASES = {
    "cummax": (lambda a: (*a.cummax(1), *a.cummax(0)), numbers),
    "cummin": (lambda a: (*a.cummin(1), *a.cummin(0)), numbers),
    "logcumsumexp": (lambda a: (a.logcumsumexp(1), a.logcumsumexp(0)), numbers),
    "median": (lambda a: (a.median(), *a.median(1), *a[:, :4].median(1, keepdim=True), a.median(0).values), numbers),
    "nanmedian": (lambda a: (a.nanmedian(), *a.nanmedian(1), a[:, :4].nanmedian(1, keepdim=True).values), numbers),
    "adaptive_max": (lambda a: F.adaptive_max_pool2d(a, (3, 4), return_indices=True), image),
    "adaptive_max_larger": (lambda a: F.adaptive_max_pool2d(a, (9, 5)), image),
    "adaptive_max_1d": (lambda a: F.adaptive_max_pool1d(a.flatten(2), 11, return_indices=True), image),
    "adaptive_max_3d": (lambda a: F.adaptive_max_pool3d(a, (2, 4, 3), return_indices=True), image),
    "bag_sum": (bag("sum"), table),
    "bag_mean": (bag("mean", padding_idx=1), table),
    "bag_max": (bag("max"), table),
    "bag_sum_offsets": (bag("sum", True, padding_idx=4), table),
    "bag_mean_offsets": (bag("mean", True), table),
    "bag_max_offsets": (bag("max", True, padding_idx=1), table),
    "bag_last_offset": (bag("sum", True, torch.tensor([0, 5, 5, 12]), include_last_offset=True), table),
    "bag_weights": (
        lambda t, w: F.embedding_bag(words, t, mode="sum", per_sample_weights=w.reshape(3, 4), padding_idx=4),
        table,
        shares,
    ),
    "bag_unknown_offsets": (lambda t, i, o: F.embedding_bag(i, t, o, mode="mean"), table, words.flatten(), offsets),
    "grid_sample": (lambda a, g: F.grid_sample(a, g, align_corners=False), image, grid),
    "grid_sample_border": (lambda a, g: F.grid_sample(a, g, "bilinear", "border", True), image, grid),
    "multi_margin": (
        lambda a: (
            F.multi_margin_loss(a, torch.tensor([2, 1, 0]), weight=shares[:5], reduction="sum"),
            F.multi_margin_loss(a, torch.tensor([0, 1, 4]), p=2, margin=1.5, reduction="none"),
            F.multi_margin_loss(a[1], torch.tensor(3)),
        ),
        numbers,
    ),
    "multilabel_margin": (
        lambda a: (
            F.multilabel_margin_loss(a[:, :4], torch.tensor([[1, 0, -1, 2], [3, -1, -1, 0], [-1, 0, 0, 0]])),
            F.multilabel_margin_loss(a[:2, :2], torch.tensor([[1, 0], [0, -1]]), reduction="none"),
            F.multilabel_margin_loss(a[2], torch.tensor([1, 0, 4, -1, -1])),
        ),
        numbers,
    ),
    "weight_norm": (
        lambda v, g: (torch._weight_norm(v, g), torch._weight_norm(v.t(), g.t(), 1)),
        numbers,
        numbers[:, :1],
    ),
    "pdist": (lambda a: (F.pdist(a), F.pdist(a, 1.5)), numbers),
    "embedding_shortened": (lambda w: F.embedding(words, w.clone(), max_norm=1.2, norm_type=1.0), table),
    "rrelu": (lambda a: F.rrelu(a), numbers),
    "gaussian_nll": (lambda a: F.gaussian_nll_loss(a, a * 2, torch.exp(a), full=True), numbers),
    "distributions": (
        lambda a: (
            Normal(a, a.exp()).log_prob(a * 0.9),
            kl_divergence(Normal(a, a.exp()), Normal(torch.zeros(5).double(), torch.ones(5).double())),
            Categorical(logits=a).entropy(),
            Bernoulli(logits=a).log_prob((a > 0).double()),
        ),
        numbers,
    ),
    "ctc": (lambda a: F.ctc_loss(spoken(a), letters, (9, 7, 8), (3, 2, 4), reduction="none"), sounds),
    "ctc_joined": (lambda a: F.ctc_loss(spoken(a), letters.flatten()[:9], (9, 7, 8), (3, 2, 4)), sounds),
    "ctc_known": (lambda a: F.ctc_loss(spoken(a), letters, torch.tensor([9, 9, 9]), torch.tensor([4, 0, 1])), sounds),
    "ctc_unknown": (
        lambda a, g, n: F.ctc_loss(spoken(a), letters, g, n, blank=4, zero_infinity=True),
        sounds,
        torch.tensor([9, 2, 8]),
        torch.tensor([3, 4, 2]),
    ),
    "cdist": (lambda a, b: torch.cdist(a, b, p=1.5), numbers, numbers + 0.3),
    "cdist_2": (lambda a, b: torch.cdist(a, b), numbers, numbers[:2] * 1.3),
    "det": (lambda a: (torch.linalg.det(a), torch.linalg.det(a.mT)), matrices),
    "slogdet": (lambda a: (*torch.linalg.slogdet(a), torch.linalg.slogdet(a.mT)[1]), matrices),
    "inverse": (lambda a: torch.linalg.inv(a), matrices),
    "solve": (
        lambda a, b: (
            torch.linalg.solve(a, b),
            torch.linalg.solve(a.mT, b),
            torch.linalg.solve(a, b.mT, left=False),
            torch.linalg.solve(a, b[..., 0]),
            torch.linalg.solve(a[0], b),
        ),
        matrices,
        sides,
    ),
    "lu": (lambda a: torch.linalg.lu(a), matrices),
    "lu_solve": (lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b), matrices, sides),
    "lu_wide": (lambda a: torch.linalg.lu(a.mT), sides),
    "triangles": (
        lambda a, b: (
            torch.linalg.solve_triangular(a.tril(), b, upper=False),
            torch.linalg.solve_triangular(a.triu(), b, upper=True, unitriangular=True),
            torch.linalg.solve_triangular(a.triu(), b.mT, upper=True, left=False),
        ),
        matrices + 3 * torch.eye(4).double(),
        sides,
    ),
    "cholesky": (
        lambda a, b: (
            torch.linalg.cholesky(a),
            torch.linalg.cholesky(a, upper=True),
            torch.cholesky_solve(b, torch.linalg.cholesky(a)),
            torch.cholesky_inverse(torch.linalg.cholesky(a, upper=True), upper=True),
        ),
        positive,
        sides,
    ),
    "qr": (lambda a, b: (*torch.linalg.qr(a), *torch.linalg.qr(b)), matrices, sides),
    "matrix_exp": (lambda a: (torch.matrix_exp(a), torch.matrix_exp(a * 1e-6), torch.matrix_exp(a * 4)), matrices),
    "lgamma": (lambda a: (torch.lgamma(3 * a), torch.lgamma(a.abs() * 9 + 0.01), torch.digamma(3 * a)), numbers + 0.01),
    "polygamma": (lambda a: (torch.polygamma(1, a.abs()), torch.polygamma(2, a.abs() * 9)), numbers + 0.01),
    "erfinv": (lambda a: torch.erfinv(a / 4.2), numbers),
    "angle": (lambda a: torch.angle(a), numbers),
    "fractional": (
        lambda a: (
            *F.fractional_max_pool2d(a, (2, 3), (4, 2), return_indices=True, _random_samples=places),
            *F.fractional_max_pool2d(a, 3, (1, 3), return_indices=True, _random_samples=places * 0 + 0.4),
        ),
        image,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    agree(CASES[name][0], *CASES[name][1:])


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    agree(gradients(CASES[name][0]), *CASES[name][1:])


@pytest.mark.parametrize(
    "function",
    [
        lambda a: (*a.cummax(1), *a.cummin(1)),
        lambda a: a.logcumsumexp(1),
        lambda a: (a.median(), *a.median(1), *a[:, :4].median(1)),
        lambda a: (a.nanmedian(), *a.nanmedian(1), *a[1:].nanmedian(1, keepdim=True)),
    ],
    ids=["running", "sums", "median", "nanmedian"],
)
def test_infinities_and_nan(function):
    agree(function, odd_ones)


# operators without gradients, and forms of those above that torch has none for
PLAIN = {
    "mode": (lambda a: (*a.mode(1), *a.mode(0, keepdim=True), *a[0, 0].mode()), torch.tensor([[3, 1, 1, 5, 3], [2, 2, 0, 2, 7]])),
    "mode_of_floats": (lambda a: a.round().mode(1).values, numbers),
    "histc": (lambda a: (torch.histc(a, 5, -2, 2), torch.histc(a, 7), torch.histc(a * 0 + 2.5, 4)), numbers),
    "qr_modes": (lambda a: (*torch.linalg.qr(a, "complete"), torch.linalg.qr(a, "r").R), sides),
    "householder": (lambda a, t: torch.linalg.householder_product(a, t), sides, sides[:, 0]),
    "singular": (lambda a: (torch.linalg.det(a), torch.linalg.slogdet(a).logabsdet), torch.ones(3, 3).double()),
    "combinations": (lambda a: torch.combinations(a.flatten()[:5]), numbers),
    "trigamma": (lambda a: torch.polygamma(1, 3 * a), numbers + 0.01),
    "poles": (lambda a: (torch.lgamma(a), torch.erfinv(a)), torch.tensor([-3.0, -1, 0, 1, 2, -0.5]).double()),
    "single": (
        lambda a, b: (torch.linalg.solve(a, b), torch.lgamma(a), torch.digamma(a), torch.erfinv(a / 2), torch.matrix_exp(a)),
        matrices.float(),
        sides.float(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_values_alone(name):
    agree(PLAIN[name][0], *PLAIN[name][1:])


def test_integers_and_scalars():
    agree(lambda a: (*a.cummax(1), *a.cummin(0), a.median(), *a[:, :3].median(1)), whole)
    agree(lambda a: (*a[0, 0].cummax(0), a[0, 0].logcumsumexp(0), *a[0, 0].median(0)), numbers)


def test_refused_by_name():
    def function(inputs):
        weight = inputs["w"].clone().requires_grad_()
        F.embedding_bag(words, weight, mode="sum", scale_grad_by_freq=True).sum().backward()
        return {"g": weight.grad}

    with pytest.raises(UnsupportedOperator, match=r"_embedding_bag_backward at test_decompositions.py:\d+"):
        trace(function, {"w": table})


def test_permutations():
    program = Program(lambda d: {"p": torch.randperm(50), "q": d["x"][torch.randperm(50)]}, {"x": torch.arange(50)}, {})
    results = [program(x=torch.arange(50)) for _ in range(2)]
    found = [result[key] for result in results for key in "pq"]
    assert all(sorted(each.tolist()) == list(range(50)) for each in found)
    assert len({tuple(each.tolist()) for each in found}) == 4


def test_random_slopes():
    def function(inputs):
        a = inputs["x"].clone().requires_grad_()
        y = F.rrelu(a, 0.1, 0.3, training=True)
        return {"y": y, "g": torch.autograd.grad(y.sum(), a)[0]}

    x = torch.linspace(-1, 1, 2001)
    result = Program(function, {"x": x}, {})(x=x)
    slopes = result["g"][x < 0]
    assert torch.equal(result["g"][x > 0], torch.ones(1000)) and torch.equal(result["y"], x * result["g"])
    assert slopes.min() >= 0.1 and slopes.max() <= 0.3 and abs(slopes.mean() - 0.2) < 0.01 and slopes.std() > 0.05


@pytest.mark.parametrize("replacement", [True, False])
def test_draws_by_weight(replacement):
    weights = torch.tensor([1.0, 0, 3, 4])
    program = Program(lambda d: {"y": torch.multinomial(d["w"].expand(4000, 4), 2, replacement)}, {"w": weights}, {})
    drawn = program(w=weights)["y"]
    shares = np.bincount(drawn[:, 0], minlength=4) / 4000
    assert np.abs(shares - weights.numpy() / 8).max() < 0.03 and shares[1] == 0
    assert (drawn[:, 0] == drawn[:, 1]).any() == replacement
