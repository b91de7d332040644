"""Accuracy: the board against the reference, value by value, the worst first, when `mlsdk bisect` measured it.

accuracy.json: {"reference": .., "rows": [{"node": .., "max_abs": .., "max_rel": .., "mean_abs": .., "elements": .., "op": ..,
"value": .., "allowed": ..}, ..]}; the last three may be missing. `max_rel` is what `allowed` limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsdk.cli.dashboard import files
from mlsdk.cli.dashboard.problems import Missing
from mlsdk.cli.dashboard.tables import Column, Table
from mlsdk.cli.dashboard.view import View

COLUMNS = (
    Column("node", "Node", "code", ("/node/view", {"name": "node"})),
    Column("op", "Operator"),
    Column("verdict", "Verdict", "badge"),
    Column("used", "Of the allowed", "percent", help="largest relative error, of what is allowed"),
    Column("max_rel", "Max relative", "number", help="relative to the scale of the node"),
    Column("allowed", "Allowed", "number"),
    Column("max_abs", "Max absolute", "number"),
    Column("mean_abs", "Mean absolute", "number"),
    Column("elements", "Elements", "int"),
    Column("value", "Value", "code"),
)


def accuracy(view: View) -> dict[str, Any]:
    try:
        document = view.document("accuracy.json")
    except Missing:
        return {
            "troubles": [],
            "reference": None,
            "sheet": None,
            "statement": (
                "Nobody measured yet how far the board is from the reference. `mlsdk bisect` on this codegen_dir compares every "
                "node with its reference function and writes accuracy.json; it is shown here then, worst first."
            ),
        }
    rows = [_row(row) for row in document["rows"]]
    rows.sort(key=lambda row: (-(row["used"] or 0), -(row.get("max_rel") or 0)))
    return {
        "troubles": [],
        "reference": str(document.get("reference", "")),
        "sheet": Table("accuracy", COLUMNS, rows[:20_000]),
        "statement": _statement(rows),
    }


def of_node(view: View, node: str) -> dict[str, Any] | None:
    """The worst value of a node, or None if nobody measured it."""
    if files.stored_name(view.source, "accuracy.json") is None:
        return None
    rows = [_row(row) for row in view.document("accuracy.json")["rows"] if row["node"] == node]
    return max(rows, key=lambda row: row["used"] or row.get("max_rel") or 0, default=None)


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """`used`: the largest relative error by what is allowed; None where nothing says what is."""
    error, allowed = row.get("max_rel"), row.get("allowed")
    if error is None or allowed is None:
        return {**row, "allowed": allowed, "used": None, "verdict": None}
    verdict = "within" if error <= allowed else "beyond"
    return {**row, "used": error / allowed if allowed else None, "verdict": verdict}


def _statement(rows: list[dict[str, Any]]) -> str:
    judged = [row for row in rows if row["verdict"]]
    if not judged:
        return ""
    beyond = sum(row["verdict"] == "beyond" for row in judged)
    equal = sum(row.get("max_abs") == 0 for row in judged)
    told = f"{beyond:,} of {len(judged):,} values are farther from the reference than is allowed" if beyond else (
        f"All {len(judged):,} values are as near to the reference as is allowed"
    )  # fmt: skip
    return f"{told}; {equal:,} are equal to the last bit."
