"""Names and numbers of the boards, and where their state is kept. Imports nothing heavy: gpfn3-smi starts with it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from ..errors import DeviceNotFound, DeviceStateError

#: The boards of a machine unless MLSDK_BOARDS names others.
DEFAULT_BOARDS = (
    "mnc2p27s0", "mnc2p28s0", "mnc2p42s0", "mnc2p43s0", "mnc2p171s0", "mnc2p172s0", "mnc2p187s0", "mnc2p188s0",
)  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")


def board_names(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Names in the order of their index: MLSDK_BOARDS (separated by commas), or eight like the real ones."""
    text = environ.get("MLSDK_BOARDS")
    if text is None:
        return DEFAULT_BOARDS
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    for name in names:
        if not _NAME.match(name):
            raise DeviceNotFound(f"MLSDK_BOARDS: `{name}` is not a board name; use letters, digits, `_`, `.` and `-`")
        if name.isdigit() or name == "auto":
            raise DeviceNotFound(f"MLSDK_BOARDS: `{name}` means a board already; name it by letters and digits")
    if len(set(names)) != len(names):
        raise DeviceNotFound("MLSDK_BOARDS names a board twice; each name stands once")
    return names


def state_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """$MLSDK_STATE, or ~/.local/state/open-mlsdk."""
    chosen = environ.get("MLSDK_STATE")
    if chosen:
        return Path(chosen).absolute()
    try:
        return Path.home() / ".local" / "state" / "open-mlsdk"
    except RuntimeError:
        raise DeviceStateError(
            "there is no home directory for the boards' state; set MLSDK_STATE to a directory"
        ) from None


def find(name_or_index: str, environ: Mapping[str, str] = os.environ) -> tuple[int, str]:
    """(index, name) of a board given by either; also accepts a line of `gpfn3-smi list` (`0:` or `0: name`)."""
    names = board_names(environ)
    text = str(name_or_index).strip()
    if text in names:
        return names.index(text), text
    index = _index(text.removesuffix(":"), names)
    if index is None:
        raise DeviceNotFound(f"no board `{text:.60}`; boards are {listing(names)}")
    return index, names[index]


def _index(text: str, names: tuple[str, ...]) -> int | None:
    """The number of a board, None if it is none."""
    known = text.isascii() and text.isdigit() and len(text) < 10 and int(text) < len(names)
    return int(text) if known else None


def check_device(device: object, environ: Mapping[str, str] = os.environ) -> str:
    """The device's name, when it is one: `emu2`, `mncore2:auto`, `mncore2:<index>`, `mncore2:<name>`. Nothing is opened."""
    known = board_names(environ)
    if device == "emu2":
        return "emu2"
    kind, _, which = device.partition(":") if isinstance(device, str) else ("", "", "")
    if kind != "mncore2" or not which:
        raise DeviceNotFound(
            f"no device {device!r:.60}; devices are mncore2:auto, mncore2:<index> and emu2, boards {listing(known)}"
        )
    if which != "auto" and which not in known and _index(which, known) is None:
        raise DeviceNotFound(f"no device {device!r:.60}; boards are {listing(known)}")
    return str(device)


def listing(names: tuple[str, ...]) -> str:
    return ", ".join(f"{i}: {name}" for i, name in enumerate(names)) or "none (MLSDK_BOARDS is empty)"
