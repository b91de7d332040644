"""Where artifacts are kept: `storage.path("/tmp/add")` is a path for `codegen_dir` and for `torch.save`."""

from __future__ import annotations

import os
from pathlib import Path, PosixPath

from mlsdk.errors import ContextError

__all__ = ["path"]

LONGEST_NAME = 255


class StoragePath(PosixPath):
    """A path whose folder is there when it is opened: `torch.save(x, storage.path(dir) / "x.pt")` needs no mkdir."""

    _joined = False

    def __truediv__(self, key: str | os.PathLike[str]) -> StoragePath:
        below = super().__truediv__(key)
        if isinstance(below, StoragePath):
            below._joined = True
        return below

    def __fspath__(self) -> str:
        text = str(self)
        if self._joined:
            try:
                os.makedirs(os.path.dirname(text), exist_ok=True)
            except OSError:
                pass  # whoever opens the path hears of it, with the name that they asked for
        return text


def path(target: str | os.PathLike[str]) -> Path:
    """A path for artifacts: absolute, or relative to the working directory and inside of it.

    `/ "name"` joins, as for pathlib. Nothing is created here. Raises ContextError for an empty path, one with a NUL, a
    part of more than 255 bytes, a URL, and a relative path that leaves the working directory.
    """
    try:
        text = os.fspath(target)
    except TypeError:
        raise ContextError(f"storage.path takes a path, not {type(target).__name__}") from None
    if isinstance(text, bytes):
        text = os.fsdecode(text)
    shown = repr(text if len(text) <= 60 else f"{text[:57]}...")
    if not text or "\0" in text:
        raise ContextError(f"storage.path: {shown} {'holds a NUL' if text else 'is empty'}; give the path of a folder")
    if "://" in text:
        raise ContextError(f"storage.path: {shown}: only local folders are supported; give a path")
    if any(len(os.fsencode(part)) > LONGEST_NAME for part in text.split("/")):
        raise ContextError(f"storage.path: {shown} has a part of more than {LONGEST_NAME} bytes; give a shorter name")
    if not os.path.isabs(text) and os.path.normpath(text).split("/")[0] == "..":
        raise ContextError(f"storage.path: {shown} leaves the working directory; give an absolute path")
    return StoragePath(text)
