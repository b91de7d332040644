"""Leases: what a running process uses, so that the collector leaves it alone.

A lease is a file in `leases/` that its process holds locked and appends keys to, before the thing under the key is
used. It ends with the process, however that ends. Appending happens under the shared collector lock, so the collector,
which holds that lock alone, reads either all of a key or sees the user come later and miss.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from mlsdk.store import files, owner


class Leases(Protocol):
    """The lease of this process on one store, and those of all others."""

    def add(self, keys: Iterable[str]) -> None:
        """Name keys (of recipes or objects) that are about to be used."""

    def close(self) -> None:
        """End this process's lease."""

    def held(self) -> set[str]:
        """Keys of running processes. Needs the collector lock."""

    def drop_ended(self) -> None:
        """Remove what ended processes have left. Needs the collector lock."""


class FileLeases:
    """Leases as locked files."""

    def __init__(self, root: Path) -> None:
        self._folder = root / "leases"
        self._descriptor: int | None = None
        self._pid = 0
        self._keys: set[str] = set()
        self._path: Path | None = None

    def add(self, keys: Iterable[str]) -> None:
        """Name keys (of recipes or objects) that are about to be used."""
        if self._pid != os.getpid():
            # A child starts its own; the file of the parent stays the parent's.
            self._descriptor, self._pid, self._keys = None, os.getpid(), set()
        fresh = [key for key in keys if key not in self._keys]
        if not fresh:
            return
        if self._descriptor is None:
            self._open()
        assert self._descriptor is not None
        os.write(self._descriptor, "".join(key + "\n" for key in fresh).encode())
        self._keys.update(fresh)

    def close(self) -> None:
        """End the lease."""
        if self._descriptor is not None and self._pid == os.getpid() and self._path is not None:
            try:
                os.unlink(self._path)
            except OSError:
                pass  # the collector removes it: it is no longer locked
            os.close(self._descriptor)
        self._descriptor, self._keys = None, set()

    def _open(self) -> None:
        self._path = self._folder / owner.current().file_name()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def held(self) -> set[str]:
        """Keys of running processes. Needs the collector lock."""
        return self._look()[0]

    def drop_ended(self) -> None:
        """Remove the files of ended processes. Needs the collector lock."""
        for path in self._look()[1]:
            files.remove(path)

    def _look(self) -> tuple[set[str], list[Path]]:
        """(keys of running processes, lease files whose process has ended)."""
        keys: set[str] = set()
        ended: list[Path] = []
        for path in sorted(self._folder.iterdir()):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError:
                continue
            with open(descriptor, "rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    ended.append(path)
                except BlockingIOError:
                    keys.update(file.read().decode("ascii", "replace").split())
        return keys, ended
