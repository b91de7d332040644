"""Schemes: a tensor seen in another shape lies in the same place, element by element."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mlsdk.pipeline.ir.layout import LEVELS
from mlsdk.pipeline.ir.scheme import LOCAL, Digit, Scheme, local_rows, spread

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 32)
shapes = st.lists(st.sampled_from(SIZES), min_size=1, max_size=5).filter(lambda s: prod(s) <= 20_000)


def places(scheme, shape, dtype):
    layout = scheme.layout(dtype).check(shape, dtype)
    return [layout.positions(tuple(shape), level).reshape(-1) for level in LEVELS]


def shuffled(scheme, random):
    """The LOCAL digits in another order, some of their ranks below zero."""
    digits = [d for axis in scheme.axes for d in axis if d.level == LOCAL]
    ranks = random.sample(range(-len(digits), len(digits) + 1), len(digits))
    fresh = dict(zip(sorted({d.stride for d in digits}), ranks))
    axes = tuple(
        tuple(replace(d, stride=fresh[d.stride]) if d.level == LOCAL else d for d in axis) for axis in scheme.axes
    )
    return replace(scheme, axes=axes)


def cut(shape, random):
    """Another shape of as many elements: neighbours joined, and factors cut off."""
    new = [int(n) for n in shape]
    for _ in range(random.randint(1, 3)):
        i = random.randrange(len(new))
        if random.random() < 0.5 and i + 1 < len(new):
            new[i : i + 2] = [new[i] * new[i + 1]]
        else:
            factor = random.choice([f for f in range(1, new[i] + 1) if new[i] % f == 0])
            new[i : i + 1] = [new[i] // factor, factor]
    return new


@given(shape=shapes, random=st.randoms(use_true_random=False), build=st.sampled_from([spread, local_rows]),
       dtype=st.sampled_from(["half", "single", "double"]))  # fmt: skip
def test_views_lie_in_the_same_place(shape, random, build, dtype):
    scheme = shuffled(build(shape, random.choice([None, *range(len(shape))])), random)
    for _ in range(4):  # views of views, transposed in between
        new = cut(shape, random)
        view = scheme.reshape(shape, new)
        if view is None:
            continue
        assert all(np.array_equal(a, b) for a, b in zip(places(scheme, shape, dtype), places(view, new, dtype)))
        perm = random.sample(range(len(new)), len(new))
        scheme, shape = view.permute(perm), [new[p] for p in perm]


def test_a_digit_of_rank_zero_is_cut():
    """Its outer half came to lie beside the digit of rank 1, in the other order."""
    scheme = Scheme(((Digit(16, LOCAL, 0),), (Digit(4, LOCAL, 1),)))
    view = scheme.reshape((16, 4), (8, 2, 4))
    assert str(view.layout("single")) == "((8:2),(2:1),(4:16);B@[L2B,L1B,MAB,PE,W])"


def test_a_digit_is_cut_twice():
    scheme = Scheme(((Digit(16, LOCAL, 0),), (Digit(4, LOCAL, 1),), (Digit(3, LOCAL, 2),)))
    view = scheme.reshape((16, 4, 3), (4, 2, 2, 4, 3))
    assert str(view.layout("single")) == "((4:4),(2:2),(2:1),(4:16),(3:64);B@[L2B,L1B,MAB,PE,W])"


def test_an_axis_of_any_padding_is_seen_beside_axes_of_size_1():
    scheme = spread((197, 20), 1)
    view = scheme.reshape((197, 20), (1, 197, 1, 20))
    assert view is not None and scheme.extents[0] > 197
    assert str(view.layout("half")) == "((),(8_L2B:1,7_L1B:1,4:2),(),(2:1,4_PE:1,4_W:1);B@[MAB])"
    assert view.reshape((1, 197, 1, 20), (197, 20)).layout("half") == scheme.layout("half")
