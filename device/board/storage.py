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
from .files import BoardFiles, beside

RESERVED_PAGES = 16  # pages reserved at a time


class FileMemory(PagedMemory):
    """A PagedMemory whose pages lie in a file."""

    def __init__(self, files: BoardFiles, directory: Path, name: str, size: int, space: int, fill: Fill) -> None:
        super().__init__(size, space, fill, self._allocate_page)
        self._files = files
        self.path, self._pages_path = directory / f"{name}.bin", directory / f"{name}.pages"
        self._count = size // PAGE_LW
        self._data: np.memmap | None = None
        self._table: np.memmap | None = None
        self._reserved: set[int] = set()
        if self._pages_path.exists():
            self._map()
            assert self._table is not None
            if self._table.max() > 1:
                raise files.damaged(self._pages_path, "it holds other bytes than 0 and 1")
            for number in np.flatnonzero(np.asarray(self._table)).tolist():
                self.pages[number] = self._slice(number)

    def _map(self) -> None:
        try:
            if not self._pages_path.exists():
                self._make(self.path, 8 * self.size, reserve=False)
                self._make(self._pages_path, self._count, reserve=True)
            for path, length in ((self.path, 8 * self.size), (self._pages_path, self._count)):
                found = path.stat().st_size
                if found != length:
                    raise self._files.damaged(path, f"it has {found} bytes, not {length}")
            self._data = np.memmap(self.path, np.uint64, "r+", shape=(self.size,))
            self._table = np.memmap(self._pages_path, np.uint8, "r+", shape=(self._count,))
        except FileNotFoundError as error:
            raise self._files.damaged(Path(error.filename), "it is missing") from None
        except OSError as error:
            raise self._trouble(f"cannot map it: {error.strerror}") from None

    @staticmethod
    def _make(path: Path, length: int, reserve: bool) -> None:
        """A file of zeros that appears with its full length. `reserve`: its space cannot run out."""
        aside = beside(path)
        descriptor = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            os.ftruncate(descriptor, length)
            if reserve:
                os.posix_fallocate(descriptor, 0, length)
            os.replace(aside, path)
        finally:
            os.close(descriptor)

    def _trouble(self, fact: str) -> DeviceStateError:
        return DeviceStateError(f"{self.path}: {fact}; free space or set MLSDK_STATE to another directory")

    def _slice(self, number: int) -> np.ndarray:
        assert self._data is not None
        return np.asarray(self._data[number * PAGE_LW : (number + 1) * PAGE_LW])

    def _allocate_page(self, number: int) -> np.ndarray:
        if self._data is None:
            self._map()
        chunk = number // RESERVED_PAGES
        if chunk not in self._reserved:
            length = 8 * PAGE_LW * RESERVED_PAGES
            try:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    os.posix_fallocate(descriptor, chunk * length, length)
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise self._trouble(f"cannot reserve {length} bytes: {error.strerror}") from None
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

    def memories(kind: str, size: int, space: int) -> list[PagedMemory]:
        return [FileMemory(files, directory, f"{kind}{g}", size, space + g, fill) for g in range(spec.GROUPS)]

    return memories("dram", spec.DRAM_LW, 0), memories("pdm", spec.PDM_LW, 16)
