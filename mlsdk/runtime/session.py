"""An open device: its memory, the order of what happens on it, and who uses it.

Everything that changes device memory is a job of the `runner`, one after the other in the order in which the program
asked for it: executions, and writes of what the host sent. Bringing host data into a layout happens before, on the
caller's thread or on the `loader`, so that it overlaps with an execution.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from mlsdk.errors import ContextError
from mlsdk.runtime.buffers import BoardBuffer, Buffer, HostBuffer
from mlsdk.runtime.counters import Counters
from mlsdk.runtime.iospec import IOSpec
from mlsdk.runtime.memory import Allocator
from mlsdk.runtime.staging import Staging
from mlsdk.runtime.worker import Worker

if TYPE_CHECKING:
    from mlsdk.device.board.board import Board

T = TypeVar("T")

# A program may ask for this many executions before the first of them is done; the next call waits.
CALLS_AHEAD = 64

# How long a device that is being given up may take for it: a board stops at the next stretch of its program.
CLOSING_SECONDS = 60.0


class Session:
    """What boards and `pfvm` have in common. Opened by `MNDevice`, shared by its Contexts with a count."""

    kind = "host"

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid = os.getpid()
        self.users = 0
        self.counters = Counters()
        self.memory_lock = threading.RLock()
        self.runner = Worker(f"{name} runner", stop_at_failure=True)
        self.loader = Worker(f"{name} loader")
        self.staging = Staging()
        self._ahead = threading.Semaphore(CALLS_AHEAD)
        self.closing = False
        self.closed = threading.Event()
        _SESSIONS.add(self)

    # --- state ---

    @property
    def usable(self) -> bool:
        return self.pid == os.getpid() and not self.closing

    def check_open(self) -> None:
        """Raise ContextError in a forked child and after the end, and DeviceReset after a reset."""
        if self.pid != os.getpid():
            raise ContextError(
                f"{self.name} was opened by process {self.pid}, and this is its child {os.getpid()}; "
                "make an MNDevice and a Context in the child, or start it with the method spawn"
            )
        if self.closing:
            raise ContextError(f"{self.name} was given up; make a new Context")

    def check(self) -> None:
        """The same, and the error at which earlier work stopped, if nobody has seen it yet."""
        self.check_open()
        failure = self.runner.take_failure()
        if failure is not None:
            raise failure

    # --- work ---

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """`job` on the runner, behind everything that was submitted before."""
        future: Future[T] = self.runner.submit(job)
        if _synchronous():
            self.wait(future)
        return future

    def submit_call(self, job: Callable[[], T]) -> Future[T]:
        """The same for an execution; waits while the program is too far ahead of the device."""
        self._ahead.acquire()
        try:
            future = self.submit(job)
        except BaseException:
            self._ahead.release()
            raise
        future.add_done_callback(lambda _: self._ahead.release())
        return future

    def wait(self, future: Future[T]) -> T:
        """The result of a job, or its error, which is then known to the program."""
        try:
            return future.result()
        except BaseException as error:
            if self.runner.failure is error:
                self.runner.take_failure()
            raise

    def barrier(self) -> None:
        """Return when everything submitted so far is done; raise the error at which it stopped."""
        self.settle()
        self.check()

    def settle(self) -> None:
        """Return when everything submitted so far is done, also where it fails; what was given up is not waited for."""
        if self.usable:
            self.loader.barrier()
            self.runner.barrier()

    # --- memory ---

    def allocate(self, spec: IOSpec, name: str) -> Buffer:
        """A buffer of its own for a tensor."""
        return HostBuffer(spec)

    # --- end ---

    def cancel(self) -> None:
        """Let what runs now end early; for the end of the process."""

    def release(self) -> None:
        """One user less; the last one closes the device. Safe in a finalizer and in a forked child."""
        if self.pid != os.getpid():
            return
        self.users -= 1
        if self.users <= 0 and not self.closing:
            self.close()

    def close(self) -> None:
        """Stop what runs, and give the device up. Returns at once; `closed` is set when it is done."""
        self.closing = True
        self.loader.stop(_nothing)
        self.runner.stop(self._finish)

    def _finish(self) -> None:
        try:
            self._shut()
        finally:
            self.closed.set()

    def _shut(self) -> None:
        pass


class BoardSession(Session):
    """A board of the emulator: one opener, one allocator."""

    kind = "board"

    def __init__(self, board: Board) -> None:
        super().__init__(board.name)
        self.board = board
        self.memory = Allocator()
        self.given_up: deque[int] = deque()  # addresses of buffers that are gone; finalizers only append here

    @property
    def usable(self) -> bool:
        return super().usable and self.board.is_open

    def check_open(self) -> None:
        super().check_open()
        if not self.board.is_open:
            from mlsdk.device.errors import DeviceReset

            raise DeviceReset(f"{self.name} was reset while this program used it; its data is void, make a new Context")

    def cancel(self) -> None:
        self.board.cancel()

    def allocate(self, spec: IOSpec, name: str) -> BoardBuffer:
        with self.allocating() as memory:
            return BoardBuffer(self, spec, memory.take(spec.image.group_size, name))

    @contextmanager
    def allocating(self) -> Iterator[Allocator]:
        """The allocator, with all that was given up in it."""
        with self.memory_lock:
            while self.given_up:
                self.memory.give(self.given_up.popleft())
            yield self.memory

    def _shut(self) -> None:
        self.board.close()


_SESSIONS: weakref.WeakSet[Session] = weakref.WeakSet()


def open_sessions() -> list[Session]:
    """Sessions of this process that are in use."""
    return [session for session in list(_SESSIONS) if session.usable]


def closing_sessions() -> list[Session]:
    """Sessions of this process that were given up and are not done yet."""
    return [one for one in list(_SESSIONS) if one.pid == os.getpid() and one.closing and not one.closed.is_set()]


def close_all(seconds: float = CLOSING_SECONDS) -> None:
    """At the end of the process: no board stays locked because a thread is still at work."""
    sessions = [session for session in list(_SESSIONS) if session.pid == os.getpid()]
    for session in sessions:
        session.cancel()
        if not session.closing:
            session.close()
    for session in sessions:
        session.closed.wait(seconds)


def _synchronous() -> bool:
    """With MLSDK_SYNCHRONOUS=1 every call returns when its work is done, and errors appear where they are made."""
    return os.environ.get("MLSDK_SYNCHRONOUS") == "1"


def _nothing() -> Any:
    return None
