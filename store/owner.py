"""Who wrote a temporary file or a lease: host, process, and when that process started.

The start time tells a process from a later one with the same number.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from dataclasses import dataclass
from functools import lru_cache

_NAME = re.compile(r"(?P<host>[A-Za-z0-9_.]+)-(?P<pid>\d+)-(?P<start>\d+)-(?P<random>[0-9a-f]{16})")


@dataclass(frozen=True)
class Owner:
    host: str
    pid: int
    start: int

    def file_name(self) -> str:
        """A new name that no other process will choose."""
        return f"{self.host}-{self.pid}-{self.start}-{secrets.token_hex(8)}"

    def is_gone(self) -> bool:
        """True only when this host can tell that the process has ended."""
        return self.host == host_name() and _start_of(self.pid) != self.start


def current() -> Owner:
    return of_process(os.getpid())


@lru_cache(maxsize=4)
def of_process(pid: int) -> Owner:
    """A running process of this host: this one, or the one that it works for."""
    # Remembered for this process; a child asks with its own number.
    return Owner(host_name(), pid, _start_of(pid) or 0)


def of_file(name: str) -> Owner | None:
    """The owner in a file name, or None when the name is not of ours."""
    match = _NAME.fullmatch(name)
    return Owner(match["host"], int(match["pid"]), int(match["start"])) if match else None


@lru_cache(maxsize=1)
def host_name() -> str:
    return re.sub(r"[^A-Za-z0-9_.]", "_", socket.gethostname())[:64] or "localhost"


def _start_of(pid: int) -> int | None:
    """Start time in clock ticks after boot; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command in parentheses may hold anything, so count from the last one.
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None if _no_process(pid) else 0


def _no_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
