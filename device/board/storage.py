"""DRAM and PDM of a board as sparse files that are mapped into memory.

Space for a page is reserved before it is mapped, so that a full disk is an error and not a crash. A page counts as
present once its
byte in the page table is set, which happens after its contents are complete.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from .. import spec
from ..errors import DeviceStateError
from ..memory.dram import PAGE_LW, Fill, PagedMemory
from .files import BoardFiles

RESERVED_PAGES = 16  # pages reserved at a time


class FileMemory(PagedMemory):
    """A PagedMemory whose pages lie in a file."""

    def __init__(self, directory: Path, name: str, size: int, space: int, fill: Fill) -> None:
        super().__init__(size, space, fill, self._allocate_page)
        self.path, self._pages_path = directory / f"{name}.bin", directory / f"{name}.pages"
        self._count = size // PAGE_LW
        self._data: np.memmap | None = None
        self._table: np.memmap | None = None
        self._reserved: set[int] = set()
        if self._pages_path.exists() and self.path.exists():
            self._map()
            assert self._table is not None
            for number in np.flatnonzero(np.asarray(self._table)).tolist():
                self.pages[number] = self._slice(number)

    def _map(self) -> None:
        try:
            for path, length in ((self.path, 8 * self.size), (self._pages_path, self._count)):
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
                if os.fstat(descriptor).st_size < length:
                    os.ftruncate(descriptor, length)
                os.close(descriptor)
            self._data = np.memmap(self.path, np.uint64, "r+", shape=(self.size,))
            self._table = np.memmap(self._pages_path, np.uint8, "r+", shape=(self._count,))
        except (OSError, ValueError) as error:
            raise DeviceStateError(
                f"{self.path}: {error}; free space or set MLSDK_STATE to another directory"
            ) from None

    def _slice(self, number: int) -> np.ndarray:
        assert self._data is not None
        return np.asarray(self._data[number * PAGE_LW : (number + 1) * PAGE_LW])

    def _allocate_page(self, number: int) -> np.ndarray:
        if self._data is None:
            self._map()
        chunk = number // RESERVED_PAGES
        if chunk not in self._reserved:
            length = 8 * PAGE_LW * RESERVED_PAGES
            descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                os.posix_fallocate(descriptor, chunk * length, length)
            except OSError as error:
                raise DeviceStateError(
                    f"{self.path}: cannot reserve {length} bytes: {error.strerror}; free space or set MLSDK_STATE to "
                    f"another directory"
                ) from None
            finally:
                os.close(descriptor)
            self._reserved.add(chunk)
        return self._slice(number)

    def page(self, number: int) -> np.ndarray:
        known = number in self.pages
        found = super().page(number)
        if not known:
            assert self._table is not None
            self._table[number] = 1
        return found


def open_memories(files: BoardFiles, fill: Fill) -> tuple[list[PagedMemory], list[PagedMemory]]:
    """(DRAM, PDM) of the four groups."""
    directory = files.generation()
    dram: list[PagedMemory] = [FileMemory(directory, f"dram{g}", spec.DRAM_LW, g, fill) for g in range(spec.GROUPS)]
    pdm: list[PagedMemory] = [FileMemory(directory, f"pdm{g}", spec.PDM_LW, 16 + g, fill) for g in range(spec.GROUPS)]
    return dram, pdm
