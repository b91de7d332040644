"""The files of a store behind a URL of fsspec: `s3://bucket/folder`, `gcs://…`, `abfs://…`, `file:///…`.

A write is one request, which an object store does as a whole or not at all, so nothing is written aside. A new file
system object is made in each process: connections do not survive a fork.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from mlsdk.store import files
from mlsdk.store.errors import StoreError, StoreReadOnly
from mlsdk.store.failpoints import hit
from mlsdk.store.tree import Stat


class RemoteTree:
    def __init__(self, url: str) -> None:
        self.where = url.rstrip("/")
        self._pid = 0
        self._fs: Any = None
        self._prefix = ""

    @property
    def fs(self) -> Any:
        if self._pid != os.getpid():
            import fsspec

            with self._told():
                # Without a cache of listings: other machines write, too.
                self._fs, prefix = fsspec.core.url_to_fs(self.where, skip_instance_cache=True, use_listings_cache=False)
            self._prefix, self._pid = prefix.rstrip("/"), os.getpid()
        return self._fs

    def path(self, name: str) -> Path:
        """The path here, for a URL that has one."""
        if not self._on_disk:
            raise StoreError(f"{self.where} is no folder on this machine")
        return Path(self._name(name))

    def write(
        self, items: Iterable[tuple[str, Sequence[files.Buffer]]], point: str, also: Collection[str] = ()
    ) -> None:
        for name, chunks in items:
            hit(f"{point}.temp_created")
            with self._told():
                path = self._name(name)
                if self._on_disk:
                    self.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
                self.fs.pipe_file(path, b"".join(chunks))
            hit(f"{point}.renamed")

    def read(self, name: str, count: int | None = None) -> bytes:
        with self._told():
            return bytes(self.fs.cat_file(self._name(name), end=count))

    def stat(self, name: str) -> Stat | None:
        try:
            with self._told():
                facts = self.fs.info(self._name(name))
        except FileNotFoundError:
            return None
        mark = facts.get("ETag") or facts.get("etag") or facts.get("ino", "")
        times = (facts.get("LastModified") or facts.get("mtime"), facts.get("created"))
        return (mark, facts["size"], *map(_seconds, times))

    def settled(self, known: Stat) -> bool:
        # An ETag is made of the content; without one, as on a disk. Where there is no time either, nothing proves anything.
        if known[0] and isinstance(known[0], str):
            return True
        return known[2] > 0 and time.time() - max(known[2], known[3]) > 2

    def names(self, folder: str) -> Iterator[tuple[str, str]]:
        path = self._name(folder)
        try:
            with self._told():
                found = self.fs.ls(path, detail=True, refresh=True)
        except FileNotFoundError:
            return
        for entry in sorted(found, key=lambda entry: str(entry["name"])):
            name, kind = entry["name"].rstrip("/"), {"file": "file", "directory": "folder"}.get(entry["type"], "other")
            if name != path.rstrip("/"):
                yield name.removeprefix(f"{self._prefix}/"), "other" if entry.get("islink") else kind

    def remove(self, name: str) -> None:
        try:
            with self._told():
                self.fs.rm_file(self._name(name))
        except FileNotFoundError:
            pass

    def move(self, name: str, target: str) -> bool:
        if self.stat(name) is None:
            return False
        self.keep_copy(name, target)
        self.remove(name)
        return True

    def keep_copy(self, name: str, target: str) -> None:
        try:
            with self._told():
                if self._on_disk:
                    self.fs.makedirs(self._name(target).rpartition("/")[0], exist_ok=True)
                self.fs.cp_file(self._name(name), self._name(target))
        except FileNotFoundError:
            pass

    def size_of(self, folder: str) -> int:
        return sum((self.stat(name) or (0, 0))[1] for name, kind in self.names(folder) if kind == "file")

    def explain(self, error: OSError, need: int = 0) -> Exception:
        if isinstance(error, PermissionError):
            return StoreReadOnly(f"the objects at {self.where} cannot be written: {error}; check the credentials")
        return StoreError(f"the objects at {self.where}: {error}; run the same command again")

    @property
    def _on_disk(self) -> bool:
        return "file" in self.fs.protocol

    def _name(self, name: str) -> str:
        assert self.fs is not None  # which finds the prefix
        return f"{self._prefix}/{name}" if name else self._prefix

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the libraries below fsspec have classes of their own."""
        try:
            yield
        except (OSError, StoreError):
            raise
        except ImportError as error:
            raise StoreError(f"{self.where}: {error}; install what fsspec needs for this kind of URL") from None
        except Exception as error:
            raise StoreError(f"{self.where} cannot be reached ({error}); check the URL and the credentials") from error


def _seconds(moment: Any) -> float:
    """A time as fsspec's file systems give it; 0 where they give none."""
    return moment.timestamp() if isinstance(moment, datetime) else float(moment or 0)
