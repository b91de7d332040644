"""The name that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def nearest(name: Any, names: Iterable[Any]) -> str:
    """`; did you mean 'x'?` when there is a near one."""
    lower = {str(known).lower(): known for known in names}
    close = difflib.get_close_matches(str(name).lower(), lower, n=1, cutoff=0.6)
    return f"; did you mean {lower[close[0]]!r}?" if close else ""
