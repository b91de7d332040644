"""Python's garbage collector while a compile runs.

A compile makes millions of small values that live for long and form no cycles. The collector looks through all of them, and
through what torch has loaded, again and again: a sixth of a compile's time, and it finds nothing.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

RARELY = (50_000, 20, 20)  # thresholds: cycles that a compile leaves behind are still found

_lock = threading.Lock()
_open = 0  # compiles that run
_before = (0, 0, 0)


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Collect rarely; where the collector is off or rarer already, leave it so. Several may be open, in several threads."""
    global _open, _before
    with _lock:
        if not _open:
            _before = gc.get_threshold()
            if 0 < _before[0] < RARELY[0]:
                gc.set_threshold(*map(max, _before, RARELY))
        _open += 1
    try:
        yield
    finally:
        with _lock:
            _open -= 1
            if not _open:
                gc.set_threshold(*_before)
