"""Indices of one number that the program computes: reading and writing at them gives what eager torch gives."""

from __future__ import annotations

import pytest
import torch
from agreement import agree

x, wide = torch.arange(24.0).reshape(4, 6), torch.arange(60.0).reshape(3, 4, 5)
one, two = torch.tensor(1), torch.tensor(2, dtype=torch.int32)
table = torch.arange(40.0).reshape(8, 5)
mask = torch.tensor([True, False, True])

READS = {
    "row": lambda a, p, q: a[p],
    "column": lambda a, p, q: (a[:, p], a[..., p]),
    "part": lambda a, p, q: a[:, p, 1:3],
    "two": lambda a, p, q: a[p, q],
    "third": lambda a, p, q: a[p, :, q],
    "known_beside": lambda a, p, q: (a[0, p], a[p, -1], a[p, [2, 0]]),
    "new_axes": lambda a, p, q: (a[None, p, ..., None], a[..., None, p]),
    "behind_a_mask": lambda a, p, q: (a[mask, p], a[mask, ..., p]),
    "with_indices": lambda a, p, q: a[p, :, torch.tensor([1, 4])],
    "of_the_closure": lambda a, p, q: table[p] * a[q, 0],
    "computed": lambda a, p, q: a[p + 1, q - 1],
    "narrow": lambda a, p, q: (a.narrow(1, p, 2), torch.narrow(a, 0, q, 1)),
}
VALUES = {
    "row": lambda b, p, q: b.__setitem__(p, 7.0),
    "column": lambda b, p, q: b.__setitem__((slice(None), p), b[:, 0].clone()),
    "part": lambda b, p, q: b.__setitem__((slice(None), p, slice(1, 3)), 5),
    "two": lambda b, p, q: b.__setitem__((p, q), b[0, 0] * 2),
    "third": lambda b, p, q: b.__setitem__((p, slice(None), q), 3),
    "view": lambda b, p, q: b[1:].mT.__setitem__((Ellipsis, p), -1),
    "view_of_two": lambda b, p, q: b.flatten(1).__setitem__((q, p), -1),
}


@pytest.mark.filterwarnings("ignore:.*not registered")
@pytest.mark.parametrize("name", READS)
def test_reading(name):
    agree(READS[name], wide, one, two)


@pytest.mark.parametrize("name", VALUES)
def test_writing(name):
    def function(a, p, q):
        b = a.clone()
        VALUES[name](b, p, q)
        return b

    agree(function, wide, one, two)


def test_adding_and_the_gradient():
    def function(a, p):
        a = a.clone().requires_grad_()
        b = a * 2
        b[p] += a[:, p].sum()
        b[p, 1] = 0
        return b.detach(), torch.autograd.grad((b**2).sum(), a)[0]

    agree(function, x, one)


def test_places_in_a_cache():
    """As a decoder keeps keys: the place is an input, the cache a state."""
    cache = torch.zeros(2, 8, 3)

    def function(new, at):
        cache[:, at] = new
        return cache.sum(1) + cache[:, at]

    agree(function, torch.ones(2, 3), two, state={"cache": cache})
