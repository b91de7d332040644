"""DRAM and PDM of a group: pages of LW that exist once they are written, over a fill record that says what the others hold.

A fill of 4 GiB is a record, not a write: a page takes its contents from the record when it is first touched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

PAGE_LW = 8192  # 64 KiB


@dataclass(frozen=True, slots=True)
class Fill:
    """What memory holds that was never written: kind zero, pattern (value in every LW) or random (by seed)."""

    kind: str = "zero"
    value: int = 0

    def page(self, space: int, number: int) -> np.ndarray:
        """The contents of a page. `space` tells memories with the same seed apart."""
        if self.kind == "random":
            generator = np.random.Generator(
                np.random.Philox(key=np.array([self.value & (2**64 - 1), space << 32 | number], np.uint64))
            )
            return generator.integers(0, 2**64, PAGE_LW, dtype=np.uint64)
        return np.full(PAGE_LW, self.value if self.kind == "pattern" else 0, np.uint64)


class PagedMemory:
    """`size` LW. Ranges wrap modulo the size."""

    def __init__(
        self, size: int, space: int = 0, fill: Fill = Fill(), allocate: Callable[[int], np.ndarray] | None = None
    ) -> None:
        self.size, self.space, self.fill = size, space, fill
        self.pages: dict[int, np.ndarray] = {}
        self._allocate = allocate

    def page(self, number: int) -> np.ndarray:
        """The page, materialised."""
        found = self.pages.get(number)
        if found is None:
            contents = self.fill.page(self.space, number)
            if self._allocate is not None:
                found = self._allocate(number)
                found[:] = contents
            else:
                found = contents
            self.pages[number] = found
        return found

    def peek(self, number: int) -> np.ndarray:
        """The page's contents without materialising it."""
        found = self.pages.get(number)
        return self.fill.page(self.space, number) if found is None else found

    def clear(self, fill: Fill) -> None:
        self.pages.clear()
        self.fill = fill

    def _ranges(self, start: int, count: int):
        """(page, offset in the page, offset in the data, length)"""
        done = 0
        start %= self.size
        while done < count:
            at = (start + done) % self.size
            number, offset = divmod(at, PAGE_LW)
            length = min(PAGE_LW - offset, count - done, self.size - at)
            yield number, offset, done, length
            done += length

    def read(self, start: int, count: int) -> np.ndarray:
        """A copy of `count` LW."""
        number, offset = divmod(start % self.size, PAGE_LW)
        if offset + count <= PAGE_LW:
            page = self.pages.get(number)
            if page is not None:
                return page[offset : offset + count].copy()
            if self.fill.kind == "zero":
                return np.zeros(count, np.uint64)
        out = np.empty(count, np.uint64)
        for number, offset, done, length in self._ranges(start, count):
            out[done : done + length] = self.peek(number)[offset : offset + length]
        return out

    def write(self, start: int, data: np.ndarray) -> None:
        for number, offset, done, length in self._ranges(start, len(data)):
            self.page(number)[offset : offset + length] = data[done : done + length]

    @property
    def touched(self) -> int:
        """Bytes that are materialised."""
        return len(self.pages) * PAGE_LW * 8
