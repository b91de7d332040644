"""Compare: two compiles side by side, layer by layer. Folders are named on the command line, never by a request."""

from __future__ import annotations

from typing import Any

from mlsdk.cli.dashboard import differences
from mlsdk.cli.dashboard.problems import Missing
from mlsdk.cli.dashboard.sources import BUILD_LIMIT, Source, labels
from mlsdk.cli.dashboard.tables import Column, Table
from mlsdk.cli.dashboard.view import Site, View, attempt, options_of

ROW_LIMIT = 5000
LAYERS = (
    Column("name", "Layer", "code", ("/node/view", {"name": "name"})),
    Column("op", "Operator"),
    Column("steps_a", "Steps A", "int"),
    Column("steps_b", "Steps B", "int"),
    Column("delta", "Difference", "delta"),
    Column("ratio", "B / A", "percent"),
    Column("dram_a", "DRAM A", "bytes"),
    Column("dram_b", "DRAM B", "bytes"),
    Column("changed", "What else differs", "prose"),
)


def choices(site: Site) -> list[dict[str, str]]:
    """What can be compared, by name."""
    found = []
    if site.folder:
        found.append({"name": "dir", "title": site.folder.title})
    found += [{"name": f"dir{i}", "title": other.title} for i, other in enumerate(site.others, 1)]
    if site.store_place is not None:
        from mlsdk.store import query

        for row in query.log(site.store, limit=min(100, BUILD_LIMIT)):
            for at, label in enumerate(labels(row)):
                if any(e["phase"] == "Simulate" and e["label"] == label for e in row["phases"]):
                    found.append(
                        {"name": f"build:{row['id']}.{at}", "title": f"build {row['id']}: {label or 'a function'}"}
                    )
    return found


def compare(view: View) -> dict[str, Any]:
    found = choices(view.site)
    names = [one["name"] for one in found]
    if len(names) < 2:
        raise Missing("there is nothing to compare with; start with --compare DIR, or with --store and compile twice")
    first = view.query.get("a") or (f"build:{view.base.rpartition('/')[2]}" if view.is_build else names[0])
    second = view.query.get("b") or next(name for name in names if name != first)
    a, b = view.site.named(first), view.site.named(second)
    troubles: list[str] = []
    left, right = view.site.indexes.of(a), view.site.indexes.of(b)
    rows = differences.layers(left, right)
    shown = [row for row in rows if row["steps_a"] or row["steps_b"]]
    return {
        "troubles": troubles,
        "choices": found,
        "a": first,
        "b": second,
        "title_a": a.title,
        "title_b": b.title,
        "totals": differences.totals(left, right),
        "options": attempt(troubles, lambda: _options(a, b)),
        "layers": Table("layers", LAYERS, shown[:ROW_LIMIT]),
        "same": sum(not row["delta"] and not row["changed"] for row in rows),
        "total": len(rows),
        "without": len(rows) - len(shown),
    }


def _options(a: Source, b: Source) -> Table:
    columns = (Column("name", "Option", "code"), Column("a", "A", "code"), Column("b", "B", "code"))
    return Table("options", columns, differences.options(options_of(a), options_of(b)))
