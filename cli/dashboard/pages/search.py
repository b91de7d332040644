"""Search: how annealing and beam search went, from search.json, and what the planner decided.

search.json: {"runs": [{"name": .., "method": .., "points": [[iteration, cost, best], ..], "facts": {..}}, ..]}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from mlsdk.cli.dashboard import charts, files
from mlsdk.cli.dashboard.pages.tools import _table
from mlsdk.cli.dashboard.problems import Missing
from mlsdk.cli.dashboard.tables import Column, Table
from mlsdk.cli.dashboard.view import View, attempt

WIDTH, HEIGHT, LEFT = 700, 240, 80
POINTS = 1000


def search(view: View) -> dict[str, Any]:
    troubles: list[str] = []
    runs = None
    statement = ""
    try:
        runs = [_run(run) for run in view.document("search.json")["runs"]]
    except Missing:
        statement = (
            "This compile recorded no search: there is no search.json, so there is no progress to draw. What the layout planner "
            "decided stands below."
        )
    decisions = attempt(troubles, lambda: _decisions(view))
    options = attempt([], lambda: view.document("option.json")["options"]) or {}
    used = {
        k: options[k]
        for k in ("layout_planner", "scheduler", "simulation_mode", "sa_expected_run_iters")
        if k in options
    }
    return {
        "troubles": troubles,
        "runs": runs,
        "statement": statement,
        "options": used,
        "decisions": decisions,
    }


def _run(run: dict[str, Any]) -> dict[str, Any]:
    points = [(float(i), float(cost), float(best)) for i, cost, best in run["points"]]
    return {
        "name": str(run.get("name", "")),
        "method": str(run.get("method", "")),
        "facts": run.get("facts", {}),
        "chart": _curve(points) if len(points) > 1 else None,
        "first": points[0][1] if points else None,
        "best": min(p[2] for p in points) if points else None,
    }


def _curve(points: Sequence[tuple[float, float, float]]) -> charts.Chart:
    step = max(1, len(points) // POINTS)
    drawn = [*points[::step], points[-1]]
    low = min(min(p[1], p[2]) for p in drawn)
    high = max(max(p[1], p[2]) for p in drawn)
    x0, x1 = drawn[0][0], drawn[-1][0]

    def place(x: float, y: float) -> str:
        right = LEFT + (x - x0) / ((x1 - x0) or 1) * (WIDTH - LEFT - 10)
        down = 10 + (high - y) / ((high - low) or 1) * (HEIGHT - 50)
        return f"{right:.1f},{down:.1f}"

    e = charts.element
    parts = []
    for part in range(3):
        y = 10 + part * (HEIGHT - 50) / 2
        parts.append(e("line", x1=LEFT, x2=WIDTH - 10, y1=y, y2=y, class_="grid"))
        parts.append(e("text", f"{high - part * (high - low) / 2:,.0f}", x=LEFT - 6, y=y + 4, class_="end tick"))
    parts += [
        e("polyline", points=" ".join(place(x, cost) for x, cost, _best in drawn), class_="curve faint"),
        e("polyline", points=" ".join(place(x, best) for x, _cost, best in drawn), class_="curve"),
        e("text", f"iteration {x0:,.0f}", x=LEFT, y=HEIGHT - 22, class_="tick"),
        e("text", f"{x1:,.0f}", x=WIDTH - 10, y=HEIGHT - 22, class_="end tick"),
    ]
    return charts.Chart(charts.svg(WIDTH, HEIGHT, parts, "Cost over iterations"), drawn)


def _decisions(view: View) -> Table:
    """How often the planner gave which reason."""
    if files.stored_name(view.source, "layout_plan_history.html") is None:
        raise Missing("layout_plan_history.html is missing: the phase LayoutPlan writes it")
    page = _table(
        "layout_plan_history.html", files.read(view.source, "layout_plan_history.html").decode("utf-8", "replace")
    )
    counts = Counter(str(row.get("why", "")) for row in page["sheet"].rows)
    columns = (Column("why", "Reason of the layout planner"), Column("count", "Decisions", "int"))
    return Table("decisions", columns, [{"why": why, "count": count} for why, count in counts.most_common(500)])
