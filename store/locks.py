"""File locks (flock).

Unlinking a lock file could let two holders in, so the winner checks that the path still names the file that it locked.
The descriptor is never inherited by another program, and it is closed when the lock was not won. The text in the file
says who holds it; it serves the message only, the lock is the kernel's.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol

from mlsdk.store import owner
from mlsdk.store.errors import StoreBusy, StoreError

Held = AbstractContextManager[None]
OnWait = Callable[[str], None]


class Locks(Protocol):
    """The locks of a store by name: `gc`, `index`, `key-<digest>`."""

    def exclusive(self, name: str, what: str, timeout: float | None = None, on_wait: OnWait | None = None) -> Held:
        """Hold it alone. `what` is the thing in messages; `on_wait` hears once whom this process waits for."""

    def shared(self, name: str, what: str, timeout: float | None = None) -> Held:
        """Hold it together with other shared holders."""

    def usable(self, name: str) -> bool:
        """False when a reader without write permission cannot take it."""

    def sweep(self, keys: Container[str]) -> None:
        """Forget the locks of keys that are not among these, where nobody holds them."""


class FileLocks:
    """Locks as files in a store's folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, name: str) -> Path:
        key = name.removeprefix("key-")
        return self._root / (f"{name}.lock" if key == name else f"locks/{key}.lock")

    def exclusive(self, name: str, what: str, timeout: float | None = None, on_wait: OnWait | None = None) -> Held:
        return exclusive(self.path(name), what, timeout, on_wait)

    def shared(self, name: str, what: str, timeout: float | None = None) -> Held:
        return shared(self.path(name), what, timeout)

    def usable(self, name: str) -> bool:
        return os.access(self.path(name), os.W_OK)

    def sweep(self, keys: Container[str]) -> None:
        for entry in os.scandir(self._root / "locks"):
            if entry.name.removesuffix(".lock") not in keys:
                remove_if_free(Path(entry.path))


_UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


@contextmanager
def exclusive(
    path: Path, what: str, timeout: float | None = None, on_wait: OnWait | None = None, note: bool = True
) -> Iterator[None]:
    """Hold `path` alone. `what` is the thing in messages; `on_wait` hears once whom this process waits for."""
    descriptor = _take(path, fcntl.LOCK_EX, what, timeout, on_wait)
    try:
        if note:
            _write_note(descriptor, what)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def shared(path: Path, what: str, timeout: float | None = None) -> Iterator[None]:
    """Hold `path` together with other shared holders."""
    descriptor = _take(path, fcntl.LOCK_SH, what, timeout, None)
    try:
        yield
    finally:
        os.close(descriptor)


def nothing() -> Held:
    """In place of a lock where none is needed."""
    return nullcontext()


def remove_if_free(path: Path) -> bool:
    """Unlink a lock file that nobody holds; False when somebody does."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _names(path, descriptor):
            os.unlink(path)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


def is_free(path: Path) -> bool:
    """True when nobody holds the lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _take(path: Path, mode: int, what: str, timeout: float | None, on_wait: OnWait | None) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            continue
        try:
            _wait(descriptor, mode, what, timeout, on_wait)
            if _names(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _names(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _wait(descriptor: int, mode: int, what: str, timeout: float | None, on_wait: OnWait | None) -> None:
    def attempt() -> bool:
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                raise StoreError(
                    f"{what}: this file system has no file locks (flock); put the store on a local disk (MLSDK_STORE)"
                ) from error
            raise

    poll(attempt, lambda: _holder(descriptor), what, timeout, on_wait)


def poll(
    attempt: Callable[[], bool],
    holder: Callable[[], str],
    what: str,
    timeout: float | None,
    on_wait: OnWait | None,
) -> None:
    """Try again and again, with growing pauses; StoreBusy when the time is up."""
    started, pause, told = time.monotonic(), 0.001, False
    while not attempt():
        waited = time.monotonic() - started
        if timeout is not None and waited >= timeout:
            raise StoreBusy(f"{what} is held by {holder()} for more than {timeout:g} s; try again later")
        if on_wait is not None and not told and waited > 0.2:
            told = True
            on_wait(holder())
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def _write_note(descriptor: int, what: str) -> None:
    me = owner.current()
    note = {
        "host": me.host,
        "pid": me.pid,
        "start": me.start,
        "command": " ".join(sys.argv)[:200],
        "what": what,
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(note).encode(), 0)
    except OSError:
        pass  # a full disk must not stop a lock; the text is only for messages


def _holder(descriptor: int) -> str:
    try:
        note = json.loads(os.pread(descriptor, 4096, 0))
        who = owner.Owner(note["host"], note["pid"], note["start"])
        if not who.is_gone():
            return f"process {who.pid} on {who.host} ({note['what']}, since {note['since']})"
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        pass
    return "another process"
