"""The files of a store, by their names inside it: `objects/aa/…`, `manifests/aa/…`, `quarantine/…`, `tmp/…`.

Two kinds: a folder on a disk here, and anything that fsspec reaches (see remote.py). Both give a file with all its bytes
or none; neither follows a symbolic link.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from mlsdk.store import files

Stat = tuple[Any, ...]  # equal while the file is the same; the second is its size in bytes

FOLDERS = ("objects", "manifests", "tmp", "locks", "leases", "quarantine")

# A file that changed less than this ago could change again without a new time stamp, so its stat proves nothing.
SETTLED_NS = 1_000_000_000


class Tree(Protocol):
    where: str  # for messages

    def write(
        self, items: Iterable[tuple[str, Sequence[files.Buffer]]], point: str, also: Collection[str] = ()
    ) -> None:
        """Put files on the disk, and the names of `also`; `point` is the fail points' prefix."""

    def read(self, name: str, count: int | None = None) -> bytes:
        """All bytes, or the first `count`. FileNotFoundError, or another OSError."""

    def stat(self, name: str) -> Stat | None: ...

    def settled(self, known: Stat) -> bool:
        """True when a changed file is sure to have another stat."""

    def names(self, folder: str) -> Iterator[tuple[str, str]]:
        """(name inside the store, "file", "folder" or "other") of what lies in a folder, sorted."""

    def remove(self, name: str) -> None: ...

    def move(self, name: str, target: str) -> bool:
        """False when there is no such file."""

    def keep_copy(self, name: str, target: str) -> None: ...

    def size_of(self, folder: str) -> int: ...

    def explain(self, error: OSError, need: int = 0) -> Exception:
        """The error of ours for one of the operating system's."""

    def path(self, name: str) -> Path: ...


class FolderTree:
    """Files in a folder, put on the disk with fsync."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.where = str(root)

    def path(self, name: str) -> Path:
        return self.root / name

    def write(
        self, items: Iterable[tuple[str, Sequence[files.Buffer]]], point: str, also: Collection[str] = ()
    ) -> None:
        waiting: dict[Path, Path] = {}
        try:
            for name, chunks in items:
                waiting[self.path(name)] = files.write_aside(self.root / "tmp", chunks, point)
            for target, temporary in waiting.items():
                self._clear(target)
                files.place(temporary, target, point)
            # Also for files that were there: who renamed them may not have come to its own fsync.
            files.fsync_folders({path.parent for path in (*waiting, *map(self.path, also))}, point)
        finally:
            for temporary in waiting.values():
                files.remove(temporary)

    def read(self, name: str, count: int | None = None) -> bytes:
        if count is None:
            return files.read_regular(self.path(name))
        return files.read_start(self.path(name), count)

    def stat(self, name: str) -> Stat | None:
        try:
            facts = os.lstat(self.path(name))
        except FileNotFoundError:
            return None
        return (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)

    def settled(self, known: Stat) -> bool:
        return time.time_ns() - int(max(known[2], known[3])) > SETTLED_NS

    def names(self, folder: str) -> Iterator[tuple[str, str]]:
        prefix = f"{folder}/" if folder else ""
        for entry in sorted(os.scandir(self.root / folder), key=lambda entry: entry.name):
            plain, is_folder = entry.is_file(follow_symlinks=False), entry.is_dir(follow_symlinks=False)
            yield prefix + entry.name, "file" if plain else "folder" if is_folder else "other"

    def remove(self, name: str) -> None:
        self._clear(self.path(name))
        files.remove(self.path(name))

    def _clear(self, path: Path) -> None:
        """A folder where a file has to be cannot be replaced or unlinked: it moves to quarantine as it is."""
        try:
            is_folder = stat.S_ISDIR(os.lstat(path).st_mode)
        except OSError:
            return
        if is_folder:
            number = 0
            while os.path.lexists(target := self.root / "quarantine" / f"{path.parent.name}{path.name}.{number}"):
                number += 1
            os.rename(path, target)

    def move(self, name: str, target: str) -> bool:
        try:
            os.rename(self.path(name), self.path(target))
        except FileNotFoundError:
            return False
        return True

    def keep_copy(self, name: str, target: str) -> None:
        """A second name, or a copy where the file system has no hard links; what is no file is moved."""
        try:
            os.link(self.path(name), self.path(target), follow_symlinks=False)
        except FileNotFoundError:
            pass
        except OSError:
            try:
                data = files.read_regular(self.path(name))
            except OSError:
                self.move(name, target)
            else:
                self.path(target).write_bytes(data)

    def size_of(self, folder: str) -> int:
        return sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(self.root / folder))

    def explain(self, error: OSError, need: int = 0) -> Exception:
        return files.explain(error, self.root, need)


def plain_files(tree: Tree, folder: str) -> Iterator[tuple[str, str | None]]:
    """(name, `aabb…` when it is a plain file two levels down) of everything in `objects` or `manifests`."""
    for name, kind in tree.names(folder):
        if kind != "folder":
            yield name, None
            continue
        for file, inner in tree.names(name):
            yield file, file.removeprefix(f"{folder}/").replace("/", "") if inner == "file" else None


#: errors of the operating system that mean: the file is there, and it is bad
BAD_FILE = (errno.ELOOP, errno.EIO, errno.EISDIR)
