"""How long the search of a phase may take: until CODEGEN_ALARM seconds are over, or somebody presses Ctrl-C. Then the best so
far is the result.

What Ctrl-C cut short is used by the compile that was interrupted, and not kept for later ones. Pressed again, it ends the
compile.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mlsdk.errors import OptionError

if TYPE_CHECKING:
    from mlsdk.tasks.session import Services

logger = logging.getLogger("mlsdk.search")

ALARM = "CODEGEN_ALARM"
#: seconds between two words about how it goes
OFTEN = 0.2


class Patience:
    """`patience("round 3 of 100: 1,234 steps")` tells that, and whether the search may go on. `seconds`: None for any number."""

    def __init__(self, seconds: float | None = None, tell: Callable[[str], None] | None = None) -> None:
        self.end = None if seconds is None else time.monotonic() + seconds
        self.interrupted = False
        self._tell, self._told = tell, time.monotonic()

    def __call__(self, words: str) -> bool:
        now = time.monotonic()
        if self._tell is not None and now - self._told > OFTEN:
            self._told = now
            self._tell(words)
        return not self.interrupted and (self.end is None or now < self.end)

    def interrupt(self, _number: int = 0, _frame: Any = None) -> None:
        """Ctrl-C: the search ends, and the next one is an interrupt as always."""
        self.interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        logger.warning("interrupted: the search ends with the best so far; Ctrl-C again ends the compile")


@contextmanager
def patience(envs: Mapping[str, str], services: Services | None) -> Iterator[Patience]:
    """Of the search of a phase."""
    found = Patience(_seconds(envs), services.status if services is not None else None)
    with _interrupts(found, services is not None and services.cut_short is not None):
        yield found
    if found.interrupted and services is not None and services.cut_short is not None:
        services.cut_short()


@contextmanager
def _interrupts(patience: Patience, wanted: bool) -> Iterator[None]:
    """Ctrl-C is for the search, where this is the thread that gets it and the program has no handler of its own."""
    mine = wanted and threading.current_thread() is threading.main_thread()
    if not mine or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, patience.interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _seconds(envs: Mapping[str, str]) -> float | None:
    text = envs.get(ALARM, "").strip()
    if text in ("", "0"):
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise OptionError(f"{ALARM} is {text!r:.40}; give a number of seconds, or 0 for any")
    return seconds
