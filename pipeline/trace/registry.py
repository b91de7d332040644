"""Tables of functions by aten operator, filled by a decorator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = Callable[..., Any]


def registering(table: dict[Any, Row]) -> Callable[..., Callable[[Row], Row]]:
    """The decorator `@row(*funcs)`: the function is the row of each of the operators, which have none yet."""

    def row(*funcs: Any) -> Callable[[Row], Row]:
        def add(function: Row) -> Row:
            for func in funcs:
                assert func not in table, func
                table[func] = function
            return function

        return add

    return row
