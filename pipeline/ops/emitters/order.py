"""In which order a move makes the LM addresses of its result: those that need the same lines of DRAM together.

The addresses that share their lines are found on samples, one L1B in some L2Bs. Where all L2Bs would read the DRAM of one
group, those that read another group's follow, so that all groups' DRAMs are at work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlsdk.pipeline.ir.layout import L2B
from mlsdk.pipeline.ops.emitters.pieces import line_of
from mlsdk.pipeline.ops.emitters.places import BIT, SOURCE, Move

SAMPLED = 4  # L2Bs
MANY = 1 << 20  # elements of a sample
FAR = np.int64(1) << 62
FACTOR = (np.int64(0x1E3779B97F4A7C15), np.int64(0x3F58476D1CE4E5B9))


@dataclass(frozen=True)
class Order:
    """`addresses[i]`: first LM address of the i-th granule to make; `kind[i]`: equal for neighbours that share their lines."""

    addresses: np.ndarray
    kind: np.ndarray


def ordered(move: Move, addresses: np.ndarray) -> Order:
    """An order of the granules of LM addresses."""
    grain = move.result.granule
    starts = addresses[::grain]
    each = max(1, MANY // (SAMPLED * 64 * grain * move.holder.per))
    found = np.concatenate([_sample(move, starts[at : at + each], grain) for at in range(0, len(starts), each)])
    first = found[:, :-2]
    spread = np.array([image.l2b_spread for image in move.sources])[np.where(first < FAR, first >> SOURCE, 0)]
    groups = np.where((first < FAR) & spread, first >> BIT[L2B] + 1 & 3, 4)
    pattern = (groups * 5 ** np.arange(SAMPLED)).sum(axis=1)
    fine, kind = _kinds(found[:, -2]), _kinds(found[:, -1])
    turn = np.empty(len(starts), np.int64)  # which of the kinds of its pattern
    for p in np.unique(pattern):
        mine = np.flatnonzero(pattern == p)
        turn[mine] = np.unique(kind[mine], return_inverse=True)[1]
    order = np.lexsort((starts, fine, kind, pattern, turn))
    return Order(starts[order], kind[order])


def _sample(move: Move, starts: np.ndarray, grain: int) -> np.ndarray:
    """For granules: the first line that each sampled L2B needs, and numbers for the sets of lines, and of addresses, of some."""
    addresses = (starts[:, None] + np.arange(grain)).reshape(-1)
    l2bs, l1bs, mabs, pes = move.holder.held
    l2bs = l2bs[np.linspace(0, len(l2bs) - 1, SAMPLED).astype(np.int64)]
    place, good = move.at(addresses, (l2bs, l1bs[:1], mabs, pes))
    line = line_of(move.sources, np.where(good, place, -1))
    line = line.reshape(SAMPLED, len(mabs) * len(pes), len(starts), -1).transpose(2, 0, 1, 3)
    line = line.reshape(len(starts), SAMPLED, -1)
    first = np.where(line < 0, FAR, line).min(axis=2)
    some = np.sort(line[:, [0, -1]], axis=2)
    return np.column_stack([first, *(_number(some >> shift).sum(axis=1) for shift in (0, 3))])


def _kinds(numbers: np.ndarray) -> np.ndarray:
    """Equal numbers become the position of the first of them."""
    _, earliest, same = np.unique(numbers, return_index=True, return_inverse=True)
    return earliest[same]


def _number(line: np.ndarray) -> np.ndarray:
    """A number for each set of sorted lines (along the last axis)."""
    with np.errstate(over="ignore"):
        x = (line + 1) * FACTOR[0]
        x ^= x >> 29
        x *= FACTOR[1]
    x[..., 1:][line[..., 1:] == line[..., :-1]] = 0
    return x.sum(axis=-1)
