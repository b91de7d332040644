"""The exclusive lock of a board: flock on a file and on its directory, held by an open descriptor.

The kernel drops the lock when the holder dies, however it dies; what is written in the file only serves the message
that names the
holder. The directory is locked too, so that deleting the file does not admit a second holder. Nothing is ever unlinked.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import sys
import time
import weakref
from dataclasses import dataclass
from pathlib import Path

from ..errors import DeviceBusy, DeviceStateError

POLL_SECONDS = 0.02
#: `gpfn3-smi list` holds a lock for a moment to see whether it is free; an opener without a timeout tries this often.
QUICK_TRIES = 4


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a board, as far as it can be told. `alive` is False when what the file says is out of date."""

    pid: int
    command: str
    since: float
    alive: bool

    def __str__(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        who = f"process {self.pid}" + (" (this process)" if self.pid == os.getpid() else "")
        return f"{who} ({self.command or 'unknown command'}) since {when}"


class Lock:
    """An acquired lock. `release` gives it up; so does the end of the process. A forked child has no part in it."""

    def __init__(self, path: Path, file: int, directory: int) -> None:
        self.path, self._descriptors = path, [file, directory]
        self.pid = os.getpid()
        _HELD.add(self)

    @property
    def held(self) -> bool:
        return bool(self._descriptors) and self.pid == os.getpid()

    def release(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []
        _HELD.discard(self)


_HELD: weakref.WeakSet[Lock] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # Closing the child's copies leaves the parent's lock alone: a flock belongs to the open file, which the parent still has.
    for lock in list(_HELD):
        lock.release()


os.register_at_fork(after_in_child=_after_fork_in_child)


def acquire(path: Path, device: str, timeout: float = 0.0) -> Lock:
    """Waits up to `timeout` seconds; raises DeviceBusy that names the holder."""
    end = time.monotonic() + timeout
    tries = 0
    while True:
        file = _open(path)
        directory = -1
        try:
            directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _same_file(path, file):
                _write_holder(file)
                return Lock(path, file, directory)
            os.close(file)
            os.close(directory)
        except OSError as error:
            os.close(file)
            if directory >= 0:
                os.close(directory)
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN):
                raise DeviceStateError(
                    f"{device}: cannot lock {path}: {error.strerror}; set MLSDK_STATE to a local directory"
                ) from None
        tries += 1
        if time.monotonic() >= end and tries >= QUICK_TRIES:
            holder = read_holder(path)
            who = f"held by {holder}" if holder and holder.alive else "held by a process that did not leave its name"
            raise DeviceBusy(f"{device} is busy: {who}; wait for it, use another board, or `gpfn3-smi reset {device}`")
        time.sleep(POLL_SECONDS)


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock now."""
    for target, flags in ((path, os.O_RDONLY), (path.parent, os.O_RDONLY | os.O_DIRECTORY)):
        try:
            descriptor = os.open(target, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
    return False


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file")
    except OSError as error:
        raise DeviceStateError(
            f"cannot open the lock file {path}: {error.strerror}; check its owner and permissions, or set "
            f"MLSDK_STATE to a directory of yours"
        ) from None


def _same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _write_holder(descriptor: int) -> None:
    """Leaves this process' name, which only serves messages: a full disk does not take the lock away."""
    record = {
        "pid": os.getpid(), "start": _start_time(os.getpid()), "boot": _boot_id(),
        "command": " ".join(sys.argv)[:200] or sys.executable,
        "since": time.time(),
    }  # fmt: skip
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(record).encode(), 0)
    except OSError:
        pass


def read_holder(path: Path) -> Holder | None:
    """What the lock file says; `alive` only if a process with that id started when the file says, in this boot."""
    try:
        record = json.loads(_read(path))
        pid, since = int(record["pid"]), float(record["since"])
        time.localtime(since)  # it can be told
        start = _start_time(pid)
        alive = bool(start) and record.get("boot") == _boot_id() and record.get("start") == start
        command = "".join(char if char.isprintable() else "?" for char in str(record.get("command", ""))[:200])
        return Holder(pid, command, since, alive)
    except (OSError, OverflowError, ValueError, RecursionError, KeyError, TypeError):
        return None


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return os.read(descriptor, 1 << 16)
    finally:
        os.close(descriptor)


def _start_time(pid: int) -> str:
    """Start time of a process in clock ticks since boot; empty if it does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return ""


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
