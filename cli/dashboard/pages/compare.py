"""Compare: two compiles side by side, layer by layer. Folders are named on the command line, never by a request."""

from __future__ import annotations

from typing import Any

from mlsdk.cli.dashboard.index import Index
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
    Column("changed", "What else differs", "prose"),
)
#: what is told of a layer, before and after; `result`: where its result lies
CHANGES = ("op", "bound", "emitter", "dtype", "result")
TOTALS = (
    ("Steps", "steps", "int"),
    ("Instruction steps", "pe_steps", "int"),
    ("DRAM bytes", "dram_bytes", "bytes"),
    ("Operations", "flops", "scaled"),
    ("Layers", "layers", "int"),
    ("Values in LM", "stays", "int"),
    ("Layers on the host", "host", "int"),
    ("LM high water", "lm_bytes", "bytes"),
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
    rows = _layers(left, right)
    shown = [row for row in rows if row["steps_a"] or row["steps_b"]]
    return {
        "troubles": troubles,
        "choices": found,
        "a": first,
        "b": second,
        "title_a": a.title,
        "title_b": b.title,
        "totals": _totals(left, right),
        "options": attempt(troubles, lambda: _options(a, b)),
        "layers": Table("layers", LAYERS, shown[:ROW_LIMIT]),
        "same": sum(not row["delta"] and not row["changed"] for row in rows),
        "total": len(rows),
        "without": len(rows) - len(shown),
    }


def _sums(index: Index) -> dict[str, Any]:
    return index.row(
        "SELECT sum(steps) AS steps, sum(pe_steps) AS pe_steps, sum(dram_bytes) AS dram_bytes, sum(flops) AS flops, "
        "count(*) AS layers, max(lm_bytes) AS lm_bytes, sum(kind = 'host') AS host, "
        "(SELECT count(*) FROM stay) AS stays FROM layer"
    ) or {}  # fmt: skip


def _totals(left: Index, right: Index) -> list[dict[str, Any]]:
    a, b = _sums(left), _sums(right)
    return [
        {
            "label": label,
            "kind": kind,
            "a": a[key],
            "b": b[key],
            "ratio": b[key] / a[key] if a[key] and b[key] is not None else None,
        }
        for label, key, kind in TOTALS
    ]


def _layers(left: Index, right: Index) -> list[dict[str, Any]]:
    """Layers of both, matched by name; the largest differences first. `changed`: what else, before and after."""
    query = (
        "SELECT name, op, steps, bound, layout, kind AS emitter, dtype, flops, "
        "iif(location LIKE 'lm%', 'LM', iif(location LIKE 'DRAM%', 'DRAM', '')) AS result FROM layer"
    )
    a = {row["name"]: row for row in left.rows(query)}
    b = {row["name"]: row for row in right.rows(query)}
    rows = []
    for name in dict.fromkeys([*a, *b]):
        x, y = a.get(name), b.get(name)
        steps_a, steps_b = (one["steps"] if one else None for one in (x, y))
        both = x is not None and y is not None
        changed = [f"{k} {x[k] or '–'} → {y[k] or '–'}" for k in CHANGES if x and y and x[k] != y[k]]
        changed += [k for k in ("layout", "flops") if x and y and x[k] != y[k]]
        rows.append(
            {
                "name": name,
                "op": (x or y or {})["op"],
                "steps_a": steps_a,
                "steps_b": steps_b,
                "delta": (steps_b or 0) - (steps_a or 0),
                "ratio": steps_b / steps_a if steps_a and steps_b is not None else None,
                "changed": ", ".join(changed) if both else "only in A" if x else "only in B",
            }
        )
    rows.sort(key=lambda row: -abs(row["delta"]))
    return rows


def _options(a: Source, b: Source) -> Table:
    """A build knows those that could change what its phases gave; what only one side knows is no difference."""
    left, right = options_of(a), options_of(b)
    rows = [
        {"name": name, "a": left.get(name), "b": right.get(name)}
        for name in sorted(left.keys() & right.keys())
        if left.get(name) != right.get(name)
    ]
    columns = (Column("name", "Option", "code"), Column("a", "A", "code"), Column("b", "B", "code"))
    return Table("options", columns, list(rows))
