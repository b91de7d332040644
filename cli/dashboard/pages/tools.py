"""HTML Tools: layout.html, layout_plan_history.html, time_slice.html, l3ir.txt, time_slice.txt, and a layout as a picture."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

from mlsdk.cli.dashboard import files, picture
from mlsdk.cli.dashboard.hierarchy import read_layout
from mlsdk.cli.dashboard.problems import Missing, Problem
from mlsdk.cli.dashboard.tables import Column, Table
from mlsdk.cli.dashboard.view import View

TOOLS = {
    "layout.html": "the layout of every value after planning",
    "layout_plan_history.html": "how each value came to its layout",
    "time_slice.html": "the layouts just before values are cut in time",
    "l3ir.txt": "the nodes in schedule order, with layouts and addresses",
    "time_slice.txt": "the graph just before values are cut in time",
}
ROW_LIMIT = 20_000
LINES = 1000
_NUMBERS = frozenset({"#", "LM LW per PE", "DRAM LW per group", "LM banks"})


def tools(view: View) -> dict[str, Any]:
    entries = view.source.entries()
    found = [
        {"name": name, "what": what, "there": name in entries or name + ".zst" in entries}
        for name, what in TOOLS.items()
    ]
    chosen = view.query.get("file") or next((one["name"] for one in found if one["there"]), "layout.html")
    if chosen not in TOOLS:
        raise Problem("there is no such tool")
    page: dict[str, Any] = {"troubles": [], "files": found, "file": chosen, "what": TOOLS[chosen]}
    try:
        data = files.read(view.source, chosen)
    except Problem as error:
        writer = "Schedule" if chosen == "l3ir.txt" else "LayoutPlan"
        page["troubles"].append(f"{error}: the phase {writer} writes it" if isinstance(error, Missing) else str(error))
        return page
    text = data.decode("utf-8", "replace")
    page.update(_text(view, text) if chosen.endswith(".txt") else _table(chosen, text))
    return page


def _table(name: str, text: str) -> dict[str, Any]:
    """The table of a page that a phase wrote, as data: sorted and filtered like all tables here."""
    reader = read_table(text)
    if not reader.head:
        return {"troubles": [f"{name} holds no table; open the file itself"]}
    link = ("/tools/layout", {"value": "named"})
    columns = [
        Column(h, h[:1].upper() + h[1:], "int" if h in _NUMBERS else "code" if h in ("value", "layout") else "text",
               link if h == "value" else None)
        for h in reader.head
    ]  # fmt: skip
    rows: list[dict[str, Any]] = [
        {h: int(c) if h in _NUMBERS and c.isdigit() else c for h, c in r.items()} for r in reader.records()
    ]
    for row in rows:
        # What was tried, and what is told of it, is no value.
        if row.get("value") and row.get("layout", True) and not str(row.get("why", "")).startswith("tried"):
            row["named"] = row["value"]
    troubles = [f"only the first {ROW_LIMIT:,} of {len(rows):,} rows are shown"] if len(rows) > ROW_LIMIT else []
    return {"intro": reader.intro, "sheet": Table("tool", columns, rows[:ROW_LIMIT]), "troubles": troubles}


def read_table(text: str) -> TableReader:
    """The first table of a page that a phase wrote."""
    reader = TableReader()
    reader.feed(text)
    return reader


class TableReader(HTMLParser):
    """Head and rows of the first table, and the paragraph before it."""

    def __init__(self) -> None:
        super().__init__()
        self.head: list[str] = []
        self.rows: list[list[str]] = []
        self.intro = ""
        self._cell: list[str] | None = None
        self._row: list[str] = []

    def records(self) -> list[dict[str, str]]:
        """The rows by the names of their columns."""
        return [dict(zip(self.head, row)) for row in self.rows]

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag in ("td", "th", "p"):
            self._cell = []
        elif tag == "tr":
            self._row = []

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def handle_endtag(self, tag: str) -> None:
        if self._cell is not None and tag in ("td", "th", "p"):
            text, self._cell = "".join(self._cell), None
            if tag == "p":
                self.intro = self.intro or text
            else:
                self._row.append(text)
        elif tag == "tr" and self._row:
            if self.head:
                self.rows.append(self._row)
            else:
                self.head = self._row


def _text(view: View, text: str) -> dict[str, Any]:
    """A page of lines, each in pieces that the style sheet colours."""
    q = view.query.get("q", "")[:200].lower()
    lines = [
        (number, line) for number, line in enumerate(text.rstrip("\n").split("\n"), 1) if not q or q in line.lower()
    ]
    first = view.query.get("line", "0")
    at = min(int(first), len(lines)) if first.isdigit() and len(first) < 10 else 0
    shown = [{"number": number, "parts": pieces(line)} for number, line in lines[at : at + LINES]]
    return {"lines": shown, "total": len(lines), "first": at, "page_lines": LINES, "q": view.query.get("q", "")[:200]}


def pieces(line: str) -> list[tuple[str, str]]:
    """(class, text): comments, transfers, names before `=`, operators before `(`."""
    line = files.printable(line[:4000])
    code, hash_, comment = line.partition("#") if not line.startswith("#") else ("", "#", line[1:])
    found: list[tuple[str, str]] = []
    if transfer := re.match(r"(MNCore(?:Download|Upload))(\(.*\)\s*)$", code):
        found = [("move", transfer[1]), ("", transfer[2])]
    elif node := re.match(r"(.*?)( = )([A-Za-z_]\w*)(\[[^\]]*\])?(.*)$", code):
        found = [("name", node[1]), ("", node[2]), ("op", node[3]), ("kind", node[4] or ""), ("", node[5])]
    else:
        found = [("", code)]
    if hash_:
        found.append(("comment", hash_ + comment))
    return [piece for piece in found if piece[1]]


def layout(view: View) -> dict[str, Any]:
    """One value's layout as a picture of the chip, with the place of one element."""
    name, text = view.query.get("value", ""), view.query.get("layout", "")
    value = view.index.row("SELECT * FROM value WHERE name = ?", (name,)) if name else None
    if value is None and not text:
        raise Problem("no value of that name is in placed.json")
    if value is not None:
        shape = json.loads(value["shape"])
        spread = read_layout(value["layout"])
    else:
        spread = read_layout(text[:500])
        shape = list(spread.sizes)
    index = _index(view.query.get("index", ""), shape)
    dtype = value["device_dtype"] if value else "single"
    drawn = picture.draw(spread, shape, index, dtype)
    return {
        "troubles": [],
        "value": value,
        "name": name,
        "layout": value["layout"] if value else text[:500],
        "shape": shape,
        "dtype": dtype,
        "index": index,
        "levels": picture.explain(spread, shape),
        **drawn,
    }


def _index(text: str, shape: list[int]) -> list[int]:
    """`3,4` as an element of the shape; what is missing or outside is moved inside."""
    given = [int(part) if part.strip().isdigit() and len(part) < 12 else 0 for part in text.split(",")] if text else []
    given += [0] * (len(shape) - len(given))
    return [max(0, min(i, size - 1)) for i, size in zip(given, shape)]
