"""Addresses in LM: nothing overlaps, and the search finds room where first fit does not."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.allocation import COUNTS, pieces
from bench.allocation import HEIGHT as MIB
from mlsdk.pipeline.schedule.canonical import packed
from mlsdk.pipeline.schedule.local import Rect, crowded, first_fit, search

HEIGHT = 64


@st.composite
def problems(draw):
    turns = draw(st.integers(1, 12))
    taken = draw(st.lists(st.integers(0, 2**16 - 1), min_size=turns, max_size=turns))
    rects = []
    for _ in range(draw(st.integers(0, 20))):
        first = draw(st.integers(0, turns - 1))
        rects.append(Rect(first, draw(st.integers(first, turns - 1)), draw(st.integers(1, HEIGHT + 1))))
    return rects, taken


@given(problems(), st.sampled_from((first_fit, search)))
def test_nothing_overlaps(problem, pack):
    rects, taken = problem
    busy = [{at for at in range(HEIGHT) if bits >> at & 1} for bits in taken]
    for rect, address in zip(rects, pack(rects, HEIGHT, taken)):
        if address is None:
            continue
        mine = set(range(address, address + rect.size))
        assert mine <= set(range(HEIGHT))
        for t in range(rect.first, rect.last + 1):
            assert not mine & busy[t]
            busy[t] |= mine


@given(problems())
def test_what_is_left_out_has_no_room(problem):
    """First fit leaves out only what has no place beside the others."""
    rects, taken = problem
    found = first_fit(rects, HEIGHT, taken)
    for rect, address in zip(rects, found):
        if address is not None:
            continue
        used = set()
        for t in range(rect.first, rect.last + 1):
            used |= {at for at in range(HEIGHT) if taken[t] >> at & 1}
        for other, there in zip(rects, found):
            if there is not None and other.first <= rect.last and rect.first <= other.last:
                used |= set(range(there, there + other.size))
        assert all(set(range(a, a + rect.size)) & used for a in range(HEIGHT - rect.size + 1))


def shapes(seed, count):
    """Values as a training step has them: many that are read soon, some that wait for the backward pass, of repeated sizes."""
    rng, turns = random.Random(seed), count // 2
    sizes = [rng.choice((4, 8, 12, 16, 24, 32, 48, 64, 96, 128)) for _ in range(14)]
    rects = []
    for _ in range(count):
        first, kind = rng.randrange(turns), rng.random()
        if kind < 0.25 and first < turns // 2:
            last = 2 * (turns // 2) - first + rng.randrange(3)
        else:
            last = first + (rng.randrange(3, 12) if kind < 0.5 else rng.randrange(1, 4))
        rects.append(Rect(first, min(turns - 1, last), rng.choice(sizes)))
    return rects, turns


def least(rects, turns):
    return max(sum(r.size for r in rects if r.first <= t <= r.last) for t in range(turns))


@pytest.mark.parametrize("count", [154, 203, 250, 307, 350, 398, 454])
def test_many_values_in_hardly_more_than_they_need(count):
    rects, turns = shapes(count, count)
    height = int(1.005 * least(rects, turns))
    started = time.process_time()
    assert None not in search(rects, height, [0] * turns, attempts=400)
    assert time.process_time() - started < 10


@pytest.mark.parametrize("number", range(len(COUNTS)))
def test_pieces_of_a_full_rectangle_find_their_places_again(number):
    rects, turns = pieces(number, COUNTS[number])
    assert len(rects) == COUNTS[number] and None in first_fit(rects, MIB, [0] * turns)
    found = search(rects, MIB, [0] * turns)
    assert None not in found
    for i, (r, a) in enumerate(zip(rects, found)):
        assert 0 <= a <= MIB - r.size
        for other, there in zip(rects[:i], found):
            if other.first <= r.last and r.first <= other.last:
                assert a + r.size <= there or there + other.size <= a


def test_what_a_turn_writes_for_itself_is_in_the_way():
    """Three of size 3 and 2 in 8 grains of which a turn uses the lowest: as full as can be."""
    rects = [Rect(0, 1, 3), Rect(1, 2, 4), Rect(2, 2, 3), Rect(0, 0, 4)]
    assert packed([(r.first, r.last) for r in rects], [r.size for r in rects], [7, 7, 7]) is not None
    assert packed([(r.first, r.last) for r in rects], [r.size for r in rects], [7, 6, 7]) is None
    assert None not in search(rects, 8, [1, 1, 1])
    assert None in search(rects, 8, [1, 3, 1])


def test_the_search_finds_room_where_first_fit_does_not():
    better = 0
    for seed in range(12):
        rects, turns = shapes(seed, 120)
        height = least(rects, turns)
        first, found = (pack(rects, height, [0] * turns).count(None) for pack in (first_fit, search))
        assert found <= first
        better += found < first
    assert better >= 3


def test_what_cannot_be_is_known_at_once():
    rects, turns = shapes(1, 454)
    height = least(rects, turns)
    assert crowded(rects, height, [0] * turns) is None
    assert crowded(rects, height - 1, [0] * turns) is not None
    started = time.process_time()
    assert None in search(rects, height - 1, [0] * turns, attempts=10**9)
    assert time.process_time() - started < 1
