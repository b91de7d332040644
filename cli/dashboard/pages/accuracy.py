"""Accuracy: the board against the reference, node by node, worst first, when `mlsdk bisect` measured it.

accuracy.json: {"reference": .., "rows": [{"node": .., "max_abs": .., "max_rel": .., "mean_abs": .., "elements": ..}, ..]}
"""

from __future__ import annotations

from typing import Any

from mlsdk.cli.dashboard.problems import Missing
from mlsdk.cli.dashboard.tables import Column, Table
from mlsdk.cli.dashboard.view import View

COLUMNS = (
    Column("node", "Node", "code", ("/node/view", {"name": "node"})),
    Column("op", "Operator"),
    Column("max_rel", "Largest relative error", "number"),
    Column("max_abs", "Largest absolute error", "number"),
    Column("mean_abs", "Mean absolute error", "number"),
    Column("elements", "Elements", "int"),
    Column("dtype", "On the board"),
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
    known = {row["name"]: row for row in view.index.rows("SELECT name, op, dtype FROM layer")}
    rows = [{**known.get(row["node"], {}), **row} for row in document["rows"]]
    rows.sort(key=lambda row: -(row.get("max_rel") or 0))
    return {
        "troubles": [],
        "reference": str(document.get("reference", "")),
        "sheet": Table("accuracy", COLUMNS, rows[:20_000]),
        "statement": "",
    }
