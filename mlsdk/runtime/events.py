"""What happened when, for trace_scope: spans on named tracks. Costs one comparison while nobody listens."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    """Nanoseconds of the monotonic clock; `track` is where it is shown: a thread of the host, or a part of a device."""

    name: str
    category: str
    track: str
    begin: int
    end: int
    facts: dict[str, Any] = field(default_factory=dict)


class Recording:
    """Events of one trace_scope."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, event: Event) -> None:
        self.events.append(event)  # atomic; called from several threads


_recordings: tuple[Recording, ...] = ()
_changing = threading.Lock()


def start(recording: Recording) -> None:
    global _recordings
    with _changing:
        _recordings = (*_recordings, recording)


def stop(recording: Recording) -> None:
    global _recordings
    with _changing:
        _recordings = tuple(one for one in _recordings if one is not recording)


def listening() -> bool:
    return bool(_recordings)


def add(name: str, category: str, track: str, begin: int, end: int, **facts: Any) -> None:
    event = Event(name, category, track, begin, end, facts)
    for recording in _recordings:
        recording.add(event)


def span(category: str, name: str, track: str = "", **facts: Any) -> AbstractContextManager[None]:
    """Record the time inside of the `with`; without a track, on that of the calling thread."""
    return _span(category, name, track, facts) if _recordings else nullcontext()


@contextmanager
def _span(category: str, name: str, track: str, facts: dict[str, Any]) -> Iterator[None]:
    begin = now()
    try:
        yield
    finally:
        add(name, category, track or thread_track(), begin, now(), **facts)


def thread_track() -> str:
    thread = threading.current_thread()
    return "host" if thread is threading.main_thread() else f"host, {thread.name}"


def now() -> int:
    return time.perf_counter_ns()
