"""A thread that does jobs in the order in which they were submitted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any


class Worker:
    """Jobs, one after the other, on a thread of their own, which starts with the first one.

    With `stop_at_failure` the jobs behind one that failed fail with the same error, without being started, until
    somebody takes the error with `take_failure`: what they would have built on is not there.
    """

    def __init__(self, name: str, stop_at_failure: bool = False) -> None:
        self.name = name
        self.stop_at_failure = stop_at_failure
        self.failure: BaseException | None = None
        self._jobs: SimpleQueue[tuple[Callable[[], Any] | None, Future[Any]]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._last: Callable[[], Any] = _nothing

    @property
    def started(self) -> bool:
        return self._thread is not None

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        """The job's result, in time. A job's exception is in the Future."""
        future: Future[Any] = Future()
        self._jobs.put((job, future))
        self._start()
        return future

    def barrier(self) -> None:
        """Return when everything submitted so far is done; raise nothing."""
        if self.started and threading.current_thread() is not self._thread:
            self._pass().result()

    def take_failure(self) -> BaseException | None:
        """The error at which the jobs stopped; they go on."""
        failure, self.failure = self.failure, None
        return failure

    def stop(self, last: Callable[[], Any]) -> None:
        """Do `last` after everything else, and end. Returns at once; safe in a finalizer."""
        if self.started:
            self._last = last
            self._jobs.put((None, Future()))
        else:
            last()

    def _pass(self) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.put((_nothing, future))
        return future

    def _start(self) -> None:
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name=self.name, daemon=True)
                    thread.start()
                    self._thread = thread

    def _run(self) -> None:
        while True:
            job, future = self._jobs.get()
            if job is None:
                self._last()
                return
            if self.failure is not None and job is not _nothing:
                future.set_exception(self.failure)
            else:
                try:
                    future.set_result(job())
                except BaseException as error:  # noqa: B036  it goes to whoever waits for the job
                    if self.stop_at_failure:
                        self.failure = error
                    future.set_exception(error)
            del job, future  # what a job holds must not live until the next one comes


def _nothing() -> None:
    return None
