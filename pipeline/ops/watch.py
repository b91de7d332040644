"""Who watches a search: is told how it goes, and says whether it may go on. A search that may not returns the best so far."""

from __future__ import annotations

from collections.abc import Callable

#: what is being done, in a few words -> whether to go on
Watch = Callable[[str], bool]


def unwatched(_words: str) -> bool:
    """Nobody watches: go on."""
    return True
