"""What differs between two compiles: totals, options, and layer by layer. The page Compare and `mlsdk compare` show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsdk.cli.dashboard.index import Index

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


def totals(left: Index, right: Index) -> list[dict[str, Any]]:
    a, b = _sums(left), _sums(right)
    return [
        {
            "label": label,
            "name": key,
            "kind": kind,
            "a": a[key],
            "b": b[key],
            "ratio": b[key] / a[key] if a[key] and b[key] is not None else None,
        }
        for label, key, kind in TOTALS
    ]


def _sums(index: Index) -> dict[str, Any]:
    return index.row(
        "SELECT sum(steps) AS steps, sum(pe_steps) AS pe_steps, sum(dram_bytes) AS dram_bytes, sum(flops) AS flops, "
        "count(*) AS layers, max(lm_bytes) AS lm_bytes, sum(kind = 'host') AS host, "
        "(SELECT count(*) FROM stay) AS stays FROM layer"
    ) or {}  # fmt: skip


def layers(left: Index, right: Index) -> list[dict[str, Any]]:
    """Layers of both, matched by name; the largest differences first. `changed`: what else, before and after."""
    query = (
        "SELECT name, op, steps, dram_bytes, bound, layout, kind AS emitter, dtype, flops, "
        "iif(location LIKE 'lm%', 'LM', iif(location LIKE 'DRAM%', 'DRAM', '')) AS result FROM layer"
    )
    a = {row["name"]: row for row in left.rows(query)}
    b = {row["name"]: row for row in right.rows(query)}
    rows = []
    for name in dict.fromkeys([*a, *b]):
        x, y = a.get(name), b.get(name)
        steps_a, steps_b = (one["steps"] if one else None for one in (x, y))
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
                "dram_a": x["dram_bytes"] if x else None,
                "dram_b": y["dram_bytes"] if y else None,
                "changed": ", ".join(changed) if x and y else "only in A" if x else "only in B",
            }
        )
    rows.sort(key=lambda row: -abs(row["delta"]))
    return rows


def options(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Options that differ, variables as `envs.NAME`. A build knows those that could change what its phases gave; an option that
    only one side knows is no difference."""
    rows = [{"name": name, "a": left[name], "b": right[name]} for name in sorted(left.keys() & right.keys() - {"envs"})]
    one, other = left.get("envs") or {}, right.get("envs") or {}
    rows += [{"name": f"envs.{name}", "a": one.get(name), "b": other.get(name)} for name in sorted({*one, *other})]
    return [row for row in rows if row["a"] != row["b"]]
