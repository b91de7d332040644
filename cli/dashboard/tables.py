"""Tables as data: columns with kinds, rows, and for long ones sorting, filtering and paging by the server."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: kinds that stand on the right
NUMBERS = frozenset({"int", "number", "scaled", "bytes", "percent", "us", "seconds", "delta"})
#: rows of one page of a long table
PAGE = 100


@dataclass(frozen=True)
class Column:
    """`kind` says how a value is written; `link` is a page and the keys of the row that its query takes."""

    key: str
    label: str
    kind: str = "text"
    link: tuple[str, Mapping[str, str]] | None = None
    help: str = ""

    @property
    def right(self) -> bool:
        return self.kind in NUMBERS


@dataclass
class Table:
    """`total` rows match; `rows` are those of this page. `server`: sorted and filtered by requests to this page."""

    name: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    total: int = -1
    server: bool = False
    q: str = ""
    sort: str = ""
    page: int = 0
    csv: str = ""

    def __post_init__(self) -> None:
        if self.total < 0:
            self.total = len(self.rows)

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // PAGE)) if self.server else 1

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"total": self.total, "rows": [dict(row) for row in self.rows]}
        if self.server:
            found.update(page=self.page, pages=self.pages, sort=self.sort, q=self.q)
        return found


@dataclass(frozen=True)
class Asked:
    """What a request wants of a long table."""

    q: str = ""
    sort: str = ""
    page: int = 0

    @classmethod
    def of(cls, query: Mapping[str, str], prefix: str = "") -> Asked:
        page = query.get(prefix + "page", "0")
        return cls(
            query.get(prefix + "q", "")[:200],
            query.get(prefix + "sort", "")[:40],
            min(int(page), 10**6) if page.isdigit() and len(page) < 8 else 0,
        )

    def order(self, columns: Iterable[str], default: str) -> str:
        """ORDER BY for one of the known columns; a minus in front reverses."""
        name = self.sort.lstrip("-")
        chosen = self.sort if name in set(columns) else default
        name = chosen.lstrip("-")
        if name == "seq":
            return f"seq {'DESC' if chosen.startswith('-') else 'ASC'}"
        return f"{name} IS NULL, {name} {'DESC' if chosen.startswith('-') else 'ASC'}, seq"

    @property
    def pattern(self) -> str:
        """For LIKE with ESCAPE '!'."""
        return "%" + self.q.replace("!", "!!").replace("%", "!%").replace("_", "!_") + "%"


def as_csv(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> str:
    """CSV that a spreadsheet does not take for formulas."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([column.label for column in columns])
    for row in rows:
        writer.writerow([_cell(row.get(column.key)) for column in columns])
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value
