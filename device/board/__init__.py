"""Boards: named, numbered, locked, and with memory that outlives the process.

`open_board` opens one. The parts that gpfn3-smi needs (names, lock, files) import nothing heavy; the rest is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .board import Board, open_board

__all__ = ["Board", "open_board"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from . import board

        return getattr(board, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
