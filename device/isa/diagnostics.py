"""One finding about a program: what is wrong, where, which rule says so, and what to do."""

from __future__ import annotations

from dataclasses import dataclass, field

ERROR, UNKNOWN, WARNING = "error", "unknown", "warning"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """severity: error (not a legal program), unknown (the documents do not settle it), warning (legal, but surely not meant)."""

    severity: str
    rule: str
    message: str
    line: int = 0
    column: int = 0
    hint: str = ""
    source: str = ""
    place: tuple[int, int] | None = field(default=None, compare=False)  # (expression of the line, word of it)

    def __str__(self) -> str:
        where = f"{self.source}:" if self.source else ""
        if self.line:
            where += f"{self.line}:"
            if self.column:
                where += f"{self.column}:"
        text = f"{where} " if where else ""
        text += f"{self.severity}: {self.message} [{self.rule}]"
        return f"{text}; {self.hint}" if self.hint else text
