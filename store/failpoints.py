"""Named places where a test can stop, kill or fail the process.

`MLSDK_FAILPOINT=name[:n]:kill|raise|enospc|pause:<fifo>` acts on the n-th pass (1 when absent) of the place `name`.
`pause` opens the fifo for reading and goes on when its writer closes it: the test's own `open(fifo, "w")` returns
exactly when the process has arrived. Every place stands in NAMES, so that a test can loop over all of them.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from dataclasses import dataclass

ACTIONS = ("kill", "raise", "enospc", "pause")

_WRITE_STEPS = {
    "temp_created": "the temporary file exists and is empty",
    "half_written": "half of the bytes are in the temporary file",
    "written": "all bytes are in the temporary file, not yet on the disk",
    "fsynced": "the temporary file is on the disk",
    "renamed": "the file has its final name",
    "directory_fsynced": "the name is on the disk",
}

NAMES: dict[str, str] = {
    **{f"object.{step}": f"object: {text}" for step, text in _WRITE_STEPS.items()},
    **{f"manifest.{step}": f"manifest: {text}" for step, text in _WRITE_STEPS.items()},
    "publish.leased": "the lease names the key; nothing is written",
    "publish.objects": "all objects are published, no row yet",
    "index.begin": "a write transaction has begun",
    "index.inserted": "the rows of a phase are inserted, not committed",
    "index.committed": "a write transaction is committed",
    "hit.leased": "a hit is leased and not yet looked up",
    "lock.taken": "the lock of a key is held",
    "damage.rows_deleted": "the rows of a damaged object are gone, the object is still in place",
    "damage.quarantined": "the damaged object is in quarantine",
    "gc.marked": "the collector knows what to delete",
    "gc.rows_deleted": "rows are deleted, not committed",
    "gc.committed": "rows are gone, files are still there",
    "gc.unlinked": "one file is unlinked",
    "rebuild.begin": "the index is about to be filled from the manifests",
    "directory.file_written": "one file of a codegen_dir is written aside",
    "directory.file_renamed": "one file of a codegen_dir has its name",
    "directory.stale_removed": "files of an earlier compile are removed, the manifest still names them",
    "directory.done": "the manifest of the codegen_dir is written",
    "task.inputs_read": "a task has read its inputs",
    "task.computed": "a task has its results, nothing is published",
}


class FailPoint(RuntimeError):
    """Raised by the action `raise`."""


@dataclass(frozen=True)
class Setting:
    name: str
    pass_number: int
    action: str
    fifo: str = ""


def parse(text: str) -> Setting:
    """`name[:n]:action` as a Setting."""
    parts = text.split(":")
    name, rest = parts[0], parts[1:]
    if name not in NAMES:
        raise ValueError(f"MLSDK_FAILPOINT: no fail point is named {name!r}")
    number = 1
    if rest and rest[0].isdigit():
        number, rest = int(rest[0]), rest[1:]
    if not rest or rest[0] not in ACTIONS:
        raise ValueError(f"MLSDK_FAILPOINT={text!r}: the action is one of {', '.join(ACTIONS)}")
    if rest[0] == "pause" and len(rest) < 2:
        raise ValueError(f"MLSDK_FAILPOINT={text!r}: pause needs the path of a fifo")
    return Setting(name, number, rest[0], ":".join(rest[1:]))


_setting: Setting | None = None
_passes = 0
_guard = threading.Lock()
passed: set[str] | None = None  # a test sets this to a set, to learn which places a scenario reaches


def configure(text: str | None) -> None:
    """Take a setting, or none. The pass counter starts again."""
    global _setting, _passes
    _setting = parse(text) if text else None
    _passes = 0


def hit(name: str) -> None:
    """The process passes the place `name`."""
    if _setting is None and passed is None:
        return
    if name not in NAMES:
        raise KeyError(name)
    if passed is not None:
        passed.add(name)
    if _setting is None or _setting.name != name:
        return
    global _passes
    with _guard:
        _passes += 1
        if _passes != _setting.pass_number:
            return
    _act(_setting)


def _act(setting: Setting) -> None:
    if setting.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif setting.action == "raise":
        raise FailPoint(f"fail point {setting.name}")
    elif setting.action == "enospc":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    else:
        descriptor = os.open(setting.fifo, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while os.read(descriptor, 4096):
                pass
        finally:
            os.close(descriptor)


configure(os.environ.get("MLSDK_FAILPOINT"))
