"""Write a file so that it is either there and whole, or not there.

Write aside, fsync the file, rename, fsync the folder, in this order. The temporary file lies inside the store, so the
rename never crosses a file system. Nothing here follows a symbolic link.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from mlsdk.store import owner
from mlsdk.store.errors import StoreFull, StoreReadOnly
from mlsdk.store.failpoints import hit

_FULL = {
    errno.ENOSPC: "no space left in",
    errno.EDQUOT: "the disk quota is used up for",
    errno.EFBIG: "a file would be larger than the limit of this process allows (ulimit -f) in",
}
_MORE = {
    errno.ENOSPC: "free some, for example with `mlsdk store gc`, and run the same command again",
    errno.EDQUOT: "free some, for example with `mlsdk store gc`, and run the same command again",
    errno.EFBIG: "raise the limit, and run the same command again",
}
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)

Buffer = bytes | memoryview


def write_aside(folder: Path, chunks: Sequence[Buffer], point: str) -> Path:
    """A new temporary file in `folder` with these bytes, on the disk. `point` is the fail points' prefix."""
    path = folder / owner.current().file_name()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        try:
            hit(f"{point}.temp_created")
            _write_halves(descriptor, chunks, f"{point}.half_written")
            hit(f"{point}.written")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        hit(f"{point}.fsynced")
    except BaseException:
        remove(path)
        raise
    return path


def write_aside_plain(folder: Path, data: bytes) -> Path:
    """A new hidden file beside its target, outside of the store; its content is proved by a manifest, not by fsync."""
    path = folder / f".{owner.current().file_name()}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
    except BaseException:
        remove(path)
        raise
    return path


def place(temporary: Path, target: Path, point: str) -> None:
    """Give a temporary file its final name. The folder's fsync is the caller's: one for many files."""
    try:
        try:
            os.rename(temporary, target)
        except FileNotFoundError:
            make_folder(target.parent)
            os.rename(temporary, target)
    except BaseException:
        remove(temporary)
        raise
    hit(f"{point}.renamed")


def make_folder(folder: Path) -> None:
    """Create a folder, and put its name on the disk."""
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        fsync_folder(folder.parent)


def fsync_folders(folders: Iterable[Path], point: str) -> None:
    for folder in sorted(set(folders)):
        fsync_folder(folder)
        hit(f"{point}.directory_fsynced")


def fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file if it is there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def read_regular(path: Path) -> bytes:
    """All bytes of a regular file; a symbolic link is not followed, and a pipe not waited for."""
    descriptor = _open_regular(path)
    with open(descriptor, "rb", buffering=0) as file:
        return file.read()


def read_start(path: Path, count: int) -> bytes:
    """The first bytes of a regular file."""
    descriptor = _open_regular(path)
    try:
        return os.read(descriptor, count)
    finally:
        os.close(descriptor)


def _open_regular(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EISDIR, "it is no regular file", str(path))
    return descriptor


def explain(error: OSError, root: Path, need: int = 0) -> Exception:
    """The error of ours for an error of the operating system that the environment caused; else the same error."""
    if error.errno in _FULL:
        return StoreFull(f"{_FULL[error.errno]} {root}{_numbers(root, need)}; {_MORE[error.errno]}")
    if error.errno in _READ_ONLY:
        return StoreReadOnly(
            f"the store {root} is read-only: {error.strerror}; set MLSDK_STORE to a folder that you can write"
        )
    return error


def free_bytes(root: Path) -> int | None:
    """Bytes that can be written; None when the system does not say."""
    for place in (root, *root.parents):
        try:
            facts = os.statvfs(place)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        return facts.f_bavail * facts.f_frsize
    return None


def _numbers(root: Path, need: int) -> str:
    free = free_bytes(root)
    known = [f"need {need:,} bytes"] * bool(need) + [f"free {free:,} bytes"] * (free is not None)
    return f" ({', '.join(known)})" if known else ""


def _write_halves(descriptor: int, chunks: Sequence[Buffer], point: str) -> None:
    half = sum(len(chunk) for chunk in chunks) // 2
    written, told = 0, False
    for chunk in chunks:
        view = memoryview(chunk)
        while view:
            # Up to the middle first, so that the fail point sees a half-written file.
            limit = len(view) if told else max(1, min(len(view), half - written))
            count = os.write(descriptor, view[:limit])
            view = view[count:]
            written += count
            if not told and written >= half:
                told = True
                hit(point)
    if not told:
        hit(point)
