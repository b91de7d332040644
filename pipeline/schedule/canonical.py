"""Addresses by exhaustive search, cut short: for what first fit has no room for although it might fit.

Every packing can be pushed down until each value lies on what is below it; so it is enough to place values by rising address,
each as low as it goes, which leaves few choices. A branch ends where a value or the sum of those that wait at some turn cannot
fit any more, and where a value would leave a hole that another fits into. Which of the values that could lie equally low comes
first is drawn anew for each attempt, those first that are large, long or where it is crowded.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

#: attempts, and how many placements the first of them tries; that grows by GROWTH every EACH attempts
ATTEMPTS, PLACEMENTS, GROWTH, EACH = 100, 2000, 1.3, 10
BLAME = 10.0  # how much more what crosses a section weighs in which most attempts failed
FAR = 1 << 60


def packed(
    spans: Sequence[tuple[int, int]], sizes: Sequence[int], room: Sequence[int], attempts: int = ATTEMPTS
) -> list[int] | None:
    """An address for each value, which lives in turns first .. last (`spans`) and may use `room[t]` grains of turn t, from 0 on.
    None where none was found."""
    first, last, rooms = _sections(spans, room)
    size = np.array(sizes, np.int64)
    crowd = np.zeros(len(rooms))
    for f, l, s in zip(first, last, sizes):
        crowd[f : l + 1] += s
    rng, search = random.Random(0), _compiled()
    limit, found = float(PLACEMENTS), np.zeros(len(sizes), np.int64)
    blame = np.zeros(len(rooms))
    for attempt in range(1, attempts + 1):
        by_size, by_time, by_crowd = rng.uniform(0, 1.5), rng.uniform(0, 1.5), rng.uniform(0, 2)
        hard = crowd**by_crowd * (1 + BLAME * rng.random() * blame / max(1.0, blame.max()))
        most = np.array([hard[f : l + 1].max() for f, l in zip(first, last)])
        weight = size**by_size * (last - first + 1.0) ** by_time * most
        weight *= [rng.uniform(0.9, 1.1) for _ in sizes]
        rank = np.empty(len(sizes), np.int64)
        rank[np.argsort(-weight, kind="stable")] = np.arange(len(sizes))
        told = search(first, last, size, rooms, rank, int(limit), found, blame)
        if told:
            return [int(a) for a in found] if told > 0 else None
        if attempt % EACH == 0:
            limit *= GROWTH
    return None


def _sections(spans: Sequence[tuple[int, int]], room: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First and last section of each value, and the room of each section: turns between which nothing begins or ends."""
    starts = sorted({f for f, _ in spans} | {l + 1 for _, l in spans})
    at = {turn: i for i, turn in enumerate(starts)}
    rooms = [min(room[a:b]) for a, b in zip(starts, starts[1:])]
    first, last = ([at[x] for x in ends] for ends in ([f for f, _ in spans], [l + 1 for _, l in spans]))
    return np.array(first, np.int64), np.array(last, np.int64) - 1, np.array(rooms, np.int64)


@cache
def _compiled() -> Callable[..., int]:
    from numba import njit

    try:
        found: Any = njit(cache=True)(_search)
    except RuntimeError:  # no folder to keep it in
        found = njit(_search)
    return found


def _search(first, last, size, room, rank, limit, found, blame):
    """1: everything has its address in `found`; 0: `limit` placements were tried; -1: there is no packing."""
    n, sections = len(size), len(room)
    low = np.zeros((n + 1, n), np.int64)  # by depth: the lowest address that each value may have
    placed = np.zeros(n, np.bool_)
    waits = np.zeros(sections, np.int64)  # grains of those that have no place yet
    for i in range(n):
        for s in range(first[i], last[i] + 1):
            waits[s] += size[i]
    choices, count, at = np.zeros((n, n), np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    chosen = np.zeros(n, np.int64)
    floor, keys = np.zeros(sections, np.int64), np.zeros(n, np.int64)
    depth, tried, fresh = 0, 0, True
    while True:
        if fresh:
            fresh = False
            tried += 1
            if tried > limit:
                return 0
            mine, top = low[depth], FAR
            floor[:] = FAR
            for j in range(n):
                if not placed[j]:
                    top = min(top, mine[j] + size[j])
                    for s in range(first[j], last[j] + 1):
                        floor[s] = min(floor[s], mine[j])
            fits = True
            for s in range(sections):
                if waits[s] and floor[s] + waits[s] > room[s]:
                    fits = False
                    blame[s] += 1
                    break
            many = 0
            for j in range(n):
                if fits and not placed[j] and mine[j] < top:
                    choices[depth, many], keys[many] = j, mine[j] * n + rank[j]
                    many += 1
            order = np.argsort(keys[:many])
            choices[depth, :many] = choices[depth, :many][order]
            count[depth], at[depth] = many, 0
        if at[depth] >= count[depth]:
            depth -= 1
            if depth < 0:
                return -1
            i = chosen[depth]
            placed[i] = False
            for s in range(first[i], last[i] + 1):
                waits[s] += size[i]
            at[depth] += 1
            continue
        i = choices[depth, at[depth]]
        mine, after = low[depth], low[depth + 1]
        here = mine[i]
        chosen[depth], found[i] = i, here
        if depth + 1 == n:
            return 1
        placed[i] = True
        for s in range(first[i], last[i] + 1):
            waits[s] -= size[i]
        for j in range(n):
            after[j] = max(mine[j], here)  # others come by rising address
            if not placed[j] and first[j] <= last[i] and first[i] <= last[j]:
                after[j] = max(after[j], here + size[i])
        depth += 1
        fresh = True
