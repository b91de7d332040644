"""MNDevice: which device to run on, by its name."""

from __future__ import annotations

import atexit
import gc
import os
import threading

from mlsdk.runtime.session import BoardSession, Session, close_all, closing_sessions, open_sessions

__all__ = ["MNDevice"]

NAMES = "mncore2:auto, mncore2:<index>, mncore2:<board>, emu2, pfvm:cpu, pfvm:cuda (pfvm:gpu)"


class MNDevice:
    """A device by name: `mncore2:auto` the first free board, `mncore2:<index>` (or `mncore2:<board name>`) a certain
    one as `gpfn3-smi list` prints it, `emu2` a private board that keeps nothing, `pfvm:cpu` the compiled graph on the
    host by reference functions, `pfvm:cuda` and `pfvm:gpu` the same with results on a GPU.

    The board is opened, and locked against other processes, by the first Context, and given up with the last one;
    several Contexts share it. Comparing a device with text is False, never an error.

    Raises DeviceNotFound for a name that is none of these, and for `pfvm:cuda` where torch finds no GPU.
    """

    def __init__(self, device_name: str) -> None:
        self.device_name = device_name
        self.kind = _kind(device_name)
        self._session: Session | None = None

    def __repr__(self) -> str:
        return f"MNDevice({self.device_name!r})"

    def __str__(self) -> str:
        return self.device_name

    def _acquire(self) -> Session:
        """The open device, with one user more. Raises DeviceBusy with the process that holds the board."""
        with _OPENING:
            session = self._session
            if session is None or not session.usable:
                session = self._session = self._open()
            session.users += 1
            return session

    def _open(self) -> Session:
        if self.kind == "pfvm":
            return Session(self.device_name)
        shared = _shared(self.device_name)
        if shared is not None:
            return shared
        # What this process gave up a moment ago may still be finishing.
        for session in closing_sessions():
            session.closed.wait(5.0)
        from mlsdk.device.board import open_board
        from mlsdk.device.errors import DeviceBusy

        try:
            return BoardSession(open_board(self.device_name))
        except DeviceBusy:
            # perhaps by a Context of this process that nobody uses any more
            gc.collect()
            for session in closing_sessions():
                session.closed.wait(5.0)
            return BoardSession(open_board(self.device_name))


def _kind(name: object) -> str:
    from mlsdk.device.errors import DeviceNotFound

    if not isinstance(name, str):
        raise DeviceNotFound(f"no device {name!r:.60}; the name is text, one of {NAMES}")
    if name == "emu2":
        return "emu2"
    if name == "pfvm:cpu":
        return "pfvm"
    if name in ("pfvm:cuda", "pfvm:gpu"):
        import torch

        if not torch.cuda.is_available():
            raise DeviceNotFound(f"{name}: torch finds no GPU on this machine; use pfvm:cpu")
        return "pfvm"
    family, colon, which = name.partition(":")
    if family != "mncore2" or not which:
        raise DeviceNotFound(f"no device {name!r:.60}; devices are {NAMES}")
    if which != "auto":
        _board_name(which)
    return "mncore2"


def _board_name(which: str) -> str:
    """The name of a board given by index or name. Raises DeviceNotFound with the boards that there are."""
    from mlsdk.device.board import names
    from mlsdk.device.errors import DeviceNotFound

    known = names.board_names()
    if which in known:
        return which
    if which.isascii() and which.isdigit() and int(which) < len(known):
        return known[int(which)]
    raise DeviceNotFound(f"no device 'mncore2:{which:.60}'; boards are {names.listing(known)}, or use mncore2:auto")


def _shared(device_name: str) -> BoardSession | None:
    """A certain board that this process has open already."""
    family, _, which = device_name.partition(":")
    if family != "mncore2" or which == "auto":
        return None
    name = _board_name(which)
    for session in open_sessions():
        if isinstance(session, BoardSession) and session.board.index is not None and session.name == name:
            return session
    return None


_OPENING = threading.RLock()


def _after_fork_in_child() -> None:
    global _OPENING
    _OPENING = threading.RLock()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(close_all)
