"""Where an operand lies: a memory and the rows of each cycle's words.

Rows come in three kinds, so that straight code, loops that run iteration by iteration and loops that run many iterations in one
kernel call are the same code: STATIC rows are fixed, ITER rows are a table with one line per iteration, LANE rows
are a table with
one line per iteration of a batch (private buffers).
"""

from __future__ import annotations

from typing import Any

import numpy as np

STATIC, ITER, LANE = 0, 1, 2


class Rows:
    """Row numbers: int64 [n], or [iterations, n] for ITER and LANE."""

    __slots__ = ("array", "kind")

    def __init__(self, array: np.ndarray, kind: int = STATIC) -> None:
        self.array, self.kind = array, kind


class View:
    """A 2LW of each cycle: `rows` holds 4 rows per cycle (words 0..3); parts that do not exist point to a row of zeros."""

    __slots__ = ("_cache", "kind", "low_zero", "mem", "rows")

    def __init__(self, mem: np.ndarray, rows: np.ndarray, kind: int = STATIC, low_zero: bool = False) -> None:
        self.mem, self.rows, self.kind, self.low_zero = mem, rows, kind, low_zero
        self._cache: dict[int, Rows] = {}

    def words(self, count: int) -> Rows:
        """Rows of the first `count` words of each cycle."""
        found = self._cache.get(count)
        if found is None:
            rows = self.rows
            part = rows.reshape(*rows.shape[:-1], -1, 4)[..., :count]
            found = self._cache[count] = Rows(np.ascontiguousarray(part.reshape(*rows.shape[:-1], -1)), self.kind)
        return found

    def low(self) -> Rows:
        """Rows of words 2 and 3 of each cycle."""
        found = self._cache.get(-2)
        if found is None:
            rows = self.rows
            part = rows.reshape(*rows.shape[:-1], -1, 4)[..., 2:]
            found = self._cache[-2] = Rows(np.ascontiguousarray(part.reshape(*rows.shape[:-1], -1)), self.kind)
        return found


def same_rows(a: Rows, b: Rows) -> bool:
    return a.kind == b.kind and a.array.shape == b.array.shape and bool((a.array == b.array).all())


def overlap(am: np.ndarray, a: Rows, bm: np.ndarray, b: Rows) -> bool:
    """Whether two row lists of the same iteration share a row."""
    if am is not bm:
        return False
    x, y = a.array, b.array
    if x.ndim == 1 and y.ndim == 1:
        return not set(x.tolist()).isdisjoint(y.tolist())
    x2 = x if x.ndim == 2 else x[None]
    y2 = y if y.ndim == 2 else y[None]
    return bool((x2[:, :, None] == y2[:, None, :]).any())


Arg = Any
