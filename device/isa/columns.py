"""Where in its line a finding points: the column of the expression's or the operand's text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from .diagnostics import Diagnostic

_WORD = re.compile(r'[a-z]*"[^"]*"?|[^\s"]+')


def with_columns(diagnostics: Iterable[Diagnostic], text: str) -> list[Diagnostic]:
    """The findings with their columns, looked up in the program's text."""
    lines = text.split("\n")
    return [
        replace(d, column=column_of(lines[d.line - 1], d.place))
        if d.place is not None and not d.column and 0 < d.line <= len(lines)
        else d
        for d in diagnostics
    ]


def column_of(line: str, place: tuple[int, int]) -> int:
    """Column (from 1) of a word of an expression of the line; of the line's first word if there is no such word."""
    code, at = line.partition("#")[0], 0
    first = len(code) - len(code.lstrip()) + 1
    expression, word = place
    for number, part in enumerate(code.split(";")):
        if number == expression:
            found = list(_WORD.finditer(part))
            return at + found[word].start() + 1 if word < len(found) else first
        at += len(part) + 1
    return first
