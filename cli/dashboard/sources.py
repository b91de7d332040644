"""Where the artifacts of a compile come from: a folder, or a build in a store. Both look the same to the pages.

No path of a request is joined to anything before it was compared with the names that the source lists itself.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from mlsdk.cli.dashboard.problems import Problem

if TYPE_CHECKING:
    from mlsdk.store import Output, Store

#: files that a folder lists; a codegen_dir has some thirty
FILE_LIMIT = 5_000
DEPTH = 3
#: builds that are looked at, the newest first
BUILD_LIMIT = 2000


@dataclass(frozen=True)
class Entry:
    """One file: its size as stored, and a stamp that changes when it does."""

    name: str
    size: int
    stamp: str


class Source(Protocol):
    """The artifacts of one compile."""

    spec: str  # what `open_source` takes
    title: str

    def entries(self) -> Mapping[str, Entry]:
        """All files by name."""

    def open(self, name: str) -> BinaryIO:
        """A file for reading, as it is stored. Problem if there is none."""


class Folder:
    """A codegen_dir on disk."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.root = Path(path).resolve()
        self.spec = f"dir:{self.root}"
        self.title = self.root.name or str(self.root)

    def entries(self) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        for name, status in _walk(self.root, "", DEPTH):
            found[name] = Entry(name, status.st_size, f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}")
            if len(found) >= FILE_LIMIT:
                break
        return dict(sorted(found.items()))

    def open(self, name: str) -> BinaryIO:
        """Regular files inside the folder only: no symlink, no device, no way out."""
        if not name or name.startswith("/") or "\\" in name or "\0" in name or {"", ".", ".."} & set(name.split("/")):
            raise Problem("there is no such file in this codegen_dir", 403 if ".." in name else 404)
        path = self.root / name
        try:
            if path.resolve() != path:
                raise Problem("a link is not followed", 403)
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError):
            raise Problem("there is no such file in this codegen_dir") from None
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise Problem("this is not a regular file", 403)
        return os.fdopen(handle, "rb")


def _walk(root: Path, prefix: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
    try:
        items = sorted(os.scandir(root), key=lambda item: item.name)
    except OSError:
        return
    for item in items:
        if item.name.startswith(".") or item.is_symlink():
            continue
        try:
            if item.is_dir(follow_symlinks=False):
                if depth > 1:
                    yield from _walk(Path(item.path), f"{prefix}{item.name}/", depth - 1)
            elif item.is_file(follow_symlinks=False):
                yield prefix + item.name, item.stat(follow_symlinks=False)
        except OSError:
            continue  # it went while we looked


class Build:
    """The artifacts that one build in a store used, read from the store and checked as they are read."""

    def __init__(self, store: Store, row: Mapping[str, Any], at: int) -> None:
        from mlsdk.store import codec, query

        self.store = store
        self.row = row
        self.label = label = labels(row)[at]
        self.spec = f"store:{row['id']}.{at}:{store.where}"
        self.title = f"{label or 'a function'} (build {row['id']})"
        self._outputs: dict[str, Output] = {}
        #: those that stand in the keys of its phases: all that could change what they gave
        self.options: dict[str, Any] = {"envs": {}}
        for event in row["phases"]:
            if event["label"] == label and event["outcome"] != "failed":
                try:
                    action = query.find(store, event["recipe"]).action
                except Exception:  # a result that was collected meanwhile
                    continue
                if action:
                    self._outputs.update(action.outputs)
                    self._take(codec.plain(action.recipe.options))

    def _take(self, options: Mapping[str, Any]) -> None:
        envs = {**self.options["envs"], **options.get("envs", {})}  # each phase has those that concern it
        self.options.update(options, envs=envs)

    def entries(self) -> dict[str, Entry]:
        return {n: Entry(n, o.size, o.digest) for n, o in sorted(self._outputs.items())}

    def open(self, name: str) -> BinaryIO:
        from mlsdk.store import StoreError

        if name not in self._outputs:
            raise Problem("this build has no such artifact")
        try:
            return io.BytesIO(self.store.read(self._outputs[name]))
        except StoreError as error:
            raise Problem(f"{name} cannot be read from the store: {type(error).__name__}", 410) from None


def labels(row: Mapping[str, Any]) -> list[str]:
    """The programs of a build: a workflow may compile several."""
    return list(dict.fromkeys(event["label"] for event in row["phases"]))


def newest_of(store: Store, label: str) -> str | None:
    """The newest build of a program (or of a workflow: its first program), written as `build_of` takes it."""
    from mlsdk.store import query

    for row in query.log(store, label, 1):
        programs = labels(row)
        return f"{row['id']}.{programs.index(label) if label in programs else 0}" if programs else None
    return None


def open_source(spec: str) -> Source:
    """The source that a spec names; for the process that makes an index."""
    kind, _colon, rest = spec.partition(":")
    if kind == "dir":
        return Folder(rest)
    name, _colon, place = rest.partition(":")
    return build_of(open_store(place), name)


def open_store(place: str | None) -> Store:
    """The store for reading only; it is not created by looking."""
    from mlsdk import store as stores
    from mlsdk.store import NotAStore, StoreReadOnly

    where = stores.location(place)
    if not where.is_dir():
        raise NotAStore(f"there is no store at {where}; build something first, or set MLSDK_STORE")
    try:
        return stores.open(where, read_only=True)
    except StoreReadOnly:
        # An index that is lost, empty or of an older version: whoever may write settles it, others are told so.
        stores.open(where).close()
        return stores.open(where, read_only=True)


def build_of(store: Store, name: str) -> Build:
    """A build of the store, written `12`, or `12.1` for the second program of build 12. Problem if there is none."""
    from mlsdk.store import query

    number, _dot, at = name.partition(".")
    if number.isdigit() and len(number) < 12 and (not at or (at.isdigit() and len(at) < 4)):
        row = next((row for row in query.log(store, limit=BUILD_LIMIT) if row["id"] == int(number)), None)
        if row is not None and not labels(row):
            raise Problem(f"build {number} ended before it had a result, or runs; the page Store tells how it ended")
        if row is not None and int(at or 0) < len(labels(row)):
            return Build(store, row, int(at or 0))
    raise Problem("the store has no such build")
