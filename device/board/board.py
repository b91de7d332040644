"""A board: a machine whose DRAM outlives the process, with an exclusive lock and a generation that a reset ends.

with open_board("mncore2:auto") as board:
    board.write_dram(0, 0, data)
    stats = board.run(statements, symbols)
    out = board.read_dram(0, 0, n)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from .. import spec
from ..errors import DeviceBusy, DeviceClosed, DeviceError, DeviceReset, ExecutionError
from ..isa import model as m
from ..memory.dram import Fill, PagedMemory
from ..memory.state import State
from . import names
from .files import BoardFiles
from .lock import Lock
from .storage import open_memories

if TYPE_CHECKING:
    from ..engine.machine import Machine, RunStats


class Board:
    """An open board. All calls raise DeviceReset after a reset, DeviceClosed after `close` and in forked children."""

    def __init__(
        self,
        name: str,
        index: int | None,
        state: State,
        files: BoardFiles | None = None,
        lock: Lock | None = None,
        epoch: int = 0,
        clock_hz: float = spec.CLOCK_HZ,
    ) -> None:
        self.name, self.index, self.state, self.clock_hz = name, index, state, clock_hz
        self._files, self._lock, self._epoch = files, lock, epoch
        self._pid, self._open, self._cancelled = os.getpid(), True, False
        self._check()

    # --- life --------------------------------------------------------------------------------------------------------
    def _check(self) -> None:
        if not self.is_open:
            raise DeviceClosed(f"{self.name} is closed; open it again")
        if self._pid != os.getpid():
            raise DeviceClosed(
                f"{self.name} was opened by process {self._pid}, not by this child; open a board in the child"
            )
        if self._files is not None and self._files.epoch() != self._epoch:
            self.close()
            raise DeviceReset(f"{self.name} was reset while this program used it; its data is void, open it again")

    @contextmanager
    def _work(self) -> Iterator[None]:
        """Around every use of the machine: whatever a reset makes of it, it ends with DeviceReset."""
        self._check()
        try:
            yield
        except DeviceError:
            if self.is_open:
                self._check()  # a reset takes the files away under a running program
            raise
        self._check()

    @property
    def is_open(self) -> bool:
        """False after `close`, `cancel`, and once a reset was noticed."""
        return self._open and not self._cancelled

    def cancel(self) -> None:
        """Lets a program that another thread runs end at its next check, with DeviceClosed. The board stays locked
        until `close`."""
        self._cancelled = True

    def close(self) -> None:
        """Gives the board up. Its DRAM and PDM keep their contents."""
        if not self._open:
            return
        self._open = False
        if self._lock is not None and self._lock.held:
            self._lock.release()

    def __enter__(self) -> Board:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @cached_property
    def machine(self) -> Machine:
        """What runs programs, made for the first one: its kernels take a while to load, and who compiles only needs none."""
        from ..engine.machine import Machine

        machine = Machine(state=self.state)
        machine.clock_hz = self.clock_hz
        return machine

    # --- work --------------------------------------------------------------------------------------------------------
    def run(
        self,
        statements: Iterable[m.Statement],
        symbols: Mapping[str, int] | None = None,
        on_marker: Callable[[str], None] | None = None,
        max_steps: int | None = None,
        on_event: Callable[[str, str, int, int, int], None] | None = None,
    ) -> RunStats:
        """Executes a program; see Machine.run."""
        with self._work():
            self.machine.between = self._check
            try:
                return self.machine.run(statements, symbols, on_marker, max_steps, on_event)
            finally:
                self.machine.between = None

    def write_dram(self, group: int, address: int, data: np.ndarray) -> None:
        """Writes uint64 LWs to DRAM of a group, from `address` (LW)."""
        self._write(self.state.dram, "DRAM", spec.DRAM_LW, group, address, data)

    def read_dram(self, group: int, address: int, count: int) -> np.ndarray:
        """uint64 [count]: a copy of DRAM of a group."""
        return self._read(self.state.dram, "DRAM", spec.DRAM_LW, group, address, count)

    def write_pdm(self, group: int, address: int, data: np.ndarray) -> None:
        """Writes uint64 LWs to PDM of a group, from `address` (LW)."""
        self._write(self.state.pdm, "PDM", spec.PDM_LW, group, address, data)

    def read_pdm(self, group: int, address: int, count: int) -> np.ndarray:
        """uint64 [count]: a copy of PDM of a group."""
        return self._read(self.state.pdm, "PDM", spec.PDM_LW, group, address, count)

    def _write(
        self, memories: list[PagedMemory], what: str, size: int, group: int, address: int, data: np.ndarray
    ) -> None:
        self._check()
        data = np.ascontiguousarray(data)
        if data.dtype != np.uint64 or data.ndim != 1:
            raise ExecutionError(
                f"{what} takes a flat uint64 array, one element a long word; got {data.dtype} {data.shape}"
            )
        self._range(what, size, group, address, data.size)
        with self._work():
            memories[group].write(address, data)

    def _read(
        self, memories: list[PagedMemory], what: str, size: int, group: int, address: int, count: int
    ) -> np.ndarray:
        with self._work():
            self._range(what, size, group, address, count)
            return memories[group].read(address, count)

    def _range(self, what: str, size: int, group: int, address: int, count: int) -> None:
        if not 0 <= group < spec.GROUPS:
            raise ExecutionError(f"group {group} is outside 0..{spec.GROUPS - 1}")
        if address < 0 or count < 0 or address + count > size:
            raise ExecutionError(f"{what} {address}..{address + count} of group {group} is outside 0..{size} LW")


def open_board(device: str, timeout: float = 0.0) -> Board:
    """Opens `mncore2:auto`, `mncore2:<index>`, `mncore2:<name>` or `emu2` (a private machine that keeps nothing).

    Raises DeviceNotFound, DeviceBusy (after `timeout` seconds) or DeviceStateError.
    """
    if device == "emu2":
        return Board("emu2", None, State())
    known = names.board_names()
    which = names.check_device(device).partition(":")[2]
    if which != "auto":
        index, name = names.find(which)
        return _open(index, name, timeout)
    busy = []
    for index, name in enumerate(known):
        try:
            return _open(index, name, 0.0)
        except DeviceBusy as error:
            busy.append(str(error))
    raise DeviceBusy("no board is free: " + " | ".join(busy) if busy else "no board is free: MLSDK_BOARDS is empty")


def _open(index: int, name: str, timeout: float) -> Board:
    files = BoardFiles(names.state_directory(), name)
    lock, epoch = files.hold(timeout)
    try:
        record = files.fill()
        fill = Fill(record["kind"], record["value"])
        state = State(*open_memories(files, fill))
        if record["on_chip"]:
            state.fill_on_chip(fill)
            files.write_fill({**record, "on_chip": False})
        return Board(name, index, state, files, lock, epoch, files.clocks()["core"] * 1e6)
    except BaseException:
        lock.release()
        raise
