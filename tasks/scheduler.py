"""What Luigi's visualiser shows of a running task: a message, a percentage, and where to look further."""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import quote

DASHBOARD = "http://127.0.0.1:8327"  # or $MLSDK_DASHBOARD

_PART = re.compile(r"\b(\d+) of (\d+)\b")


def tell(task: Any, message: str, percentage: int | None = None, dashboard: bool = False) -> None:
    """Nothing where no scheduler runs the task: Luigi puts these methods on a task while it runs it."""
    told = {"set_status_message": message, "set_progress_percentage": percentage}
    if dashboard:
        told["set_tracking_url"] = f"{os.environ.get('MLSDK_DASHBOARD', DASHBOARD)}/?label={quote(task.label)}"
    for name, value in told.items():
        method = getattr(task, name, None)
        if method is not None and value is not None:
            method(value)


def percentage(words: str) -> int | None:
    """How far `run 3 of 8` is; 100 is for what is published."""
    match = _PART.search(words)
    if match is None or int(match[2]) == 0:
        return None
    return min(98, 100 * int(match[1]) // int(match[2]))
