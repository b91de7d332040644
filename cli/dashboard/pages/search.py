"""Search: how the layout planner and the scheduler searched, and what the planner decided.

layout_plan_history.html   what lpz tried: a row for each trial, with the steps that it gave
search.json                {"runs": [{"name": .., "method": .., "points": [[iteration, cost, best], ..], "facts": {..}}, ..]}
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlsdk.cli.dashboard import charts, files
from mlsdk.cli.dashboard.pages.tools import read_table
from mlsdk.cli.dashboard.problems import Missing
from mlsdk.cli.dashboard.tables import Column, Table
from mlsdk.cli.dashboard.view import View, attempt

WIDTH, HEIGHT, LEFT, RIGHT = 900, 250, 74, 12
POINTS = 1000
HISTORY = "layout_plan_history.html"
#: options that steer the searches
OPTIONS = ("layout_planner", "simulation_mode", "scheduler", "sa_expected_run_iters", "sram_budget")

_TRIED = re.compile(r"tried(?:, and not possible: (?P<why>.*)| and kept: (?P<before>\d+) -> (?P<kept>\d+) steps"
                    r"| and dropped: (?P<dropped>\d+) steps, not (?P<best>\d+))", re.S)  # fmt: skip
#: the end of a reason that names one value
_OF_ONE = re.compile(r"^(a view of|along|by) .*$")

TRIALS = (
    Column("number", "#", "int"),
    Column("what", "Tried", "code"),
    Column("outcome", "Outcome", "badge"),
    Column("steps", "Steps", "int", help="sum of the emitted nodes, each with its operands in DRAM"),
    Column("delta", "Difference", "delta", help="against the best until then"),
    Column("why", "Why not", "prose"),
)


@dataclass(frozen=True)
class Trial:
    """A layout that lpz tried. `outcome`: kept, dropped or impossible; `steps` of the graph, `before` the best until then."""

    what: str
    outcome: str
    steps: int | None = None
    before: int | None = None
    why: str = ""


def search(view: View) -> dict[str, Any]:
    troubles: list[str] = []
    history = attempt(troubles, lambda: _history(view)) or []
    tried = [trial for what, why in history if (trial := trial_of(what, why))]
    runs = [_layout_run(tried)] if any(trial.steps is not None for trial in tried) else []
    if files.stored_name(view.source, "search.json") is not None:  # a scheduler that searches nothing records nothing
        runs += attempt(troubles, lambda: [_run(run) for run in view.document("search.json")["runs"]]) or []
    options = attempt([], lambda: view.options) or {}
    return {
        "troubles": troubles,
        "runs": runs,
        "statement": "" if runs else "This compile searched nothing: layouts and order follow from rules alone.",
        "options": {name: options[name] for name in OPTIONS if name in options},
        "trials": _trial_table(tried) if tried else None,
        "decisions": _decisions([why for what, why in history if not trial_of(what, why)]) if history else None,
    }


def trials(view: View) -> list[Trial]:
    """What the layout planner tried, in its order; nothing without its history."""
    return [trial for what, why in attempt([], lambda: _history(view)) or [] if (trial := trial_of(what, why))]


def _history(view: View) -> list[tuple[str, str]]:
    """(value or what was tried, why) of each row of the planner's history."""
    if files.stored_name(view.source, HISTORY) is None:
        raise Missing(f"{HISTORY} is missing: the phase LayoutPlan writes it")
    read = read_table(files.read(view.source, HISTORY).decode("utf-8", "replace"))
    return [(str(row.get("value", "")), str(row.get("why", ""))) for row in read.records()]


def trial_of(what: str, why: str) -> Trial | None:
    """A row of the history as a trial, or None for a decision."""
    found = _TRIED.fullmatch(why)
    if found is None:
        return None
    if found["kept"]:
        return Trial(what, "kept", int(found["kept"]), int(found["before"]))
    if found["dropped"]:
        return Trial(what, "dropped", int(found["dropped"]), int(found["best"]))
    return Trial(what, "impossible", why=found["why"])


def _layout_run(tried: Sequence[Trial]) -> dict[str, Any]:
    """The planner's search as a run like those of search.json."""
    best = next(trial.before for trial in tried if trial.before is not None)
    points: list[list[float]] = [[0, best, best]]
    for number, trial in enumerate(tried, 1):
        if trial.steps is not None:
            best = min(best, trial.steps)
            points.append([number, trial.steps, best])
    outcomes = Counter(trial.outcome for trial in tried)
    last = max((number for number, trial in enumerate(tried, 1) if trial.outcome == "kept"), default=None)
    facts = {"tried": len(tried), **outcomes, **({"last kept": last} if last else {})}
    return _run({"name": "layouts", "method": "lpz, steps of the emitted nodes", "points": points, "facts": facts})


def _trial_table(tried: Sequence[Trial]) -> Table:
    rows = [
        {
            "number": number,
            "what": trial.what,
            "outcome": trial.outcome,
            "steps": trial.steps,
            "delta": trial.steps - trial.before if trial.steps is not None and trial.before is not None else None,
            "why": trial.why,
        }
        for number, trial in enumerate(tried, 1)
    ]
    return Table("trials", TRIALS, rows)


def _run(run: dict[str, Any]) -> dict[str, Any]:
    points = [(float(i), float(cost), float(best)) for i, cost, best in run["points"]]
    first = points[0][1] if points else None
    best = min(p[2] for p in points) if points else None
    return {
        "name": str(run.get("name", "")),
        "method": str(run.get("method", "")),
        "facts": run.get("facts", {}),
        "chart": _curve(points) if len({cost for _i, cost, _best in points}) > 1 else None,
        "first": first,
        "best": best,
        "gain": (best - first) / first if first and best is not None else None,
    }


def _curve(points: Sequence[tuple[float, float, float]]) -> charts.Chart:
    """Cost tried, faint, and the best so far, over iterations."""
    step = max(1, len(points) // POINTS)
    drawn = [*points[::step], points[-1]]
    low = min(min(p[1], p[2]) for p in drawn)
    high = max(max(p[1], p[2]) for p in drawn)
    x0, x1 = drawn[0][0], drawn[-1][0]
    bottom = HEIGHT - 34

    def place(x: float, y: float) -> tuple[float, float]:
        right = LEFT + (x - x0) / ((x1 - x0) or 1) * (WIDTH - LEFT - RIGHT)
        return round(right, 1), round(10 + (high - y) / (high - low) * (bottom - 10), 1)

    def line(number: int) -> str:
        return " ".join("{},{}".format(*place(p[0], p[number])) for p in drawn)

    e = charts.element
    parts = []
    for part in range(5):
        y = 10 + part * (bottom - 10) / 4
        parts.append(e("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
        parts.append(e("text", f"{high - part * (high - low) / 4:,.0f}", x=LEFT - 6, y=y + 4, class_="end tick"))
    parts += [
        e("polyline", points=line(1), class_="curve faint"),
        e("polyline", points=_stairs([place(p[0], p[2]) for p in drawn]), class_="curve"),
    ]
    before = drawn[0][2]
    for x, _cost, best in drawn[1:]:
        if best < before:
            right, down = place(x, best)
            told = charts.title(f"{x:,.0f}: {before:,.0f} → {best:,.0f}")
            parts.append(e("circle", told, cx=right, cy=down, r=4, class_="dot curve-dot"))
        before = best
    parts += [
        e("text", f"{x0:,.0f}", x=LEFT, y=bottom + 16, class_="tick"),
        e("text", "iteration", x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 4, class_="middle label"),
        e("text", f"{x1:,.0f}", x=WIDTH - RIGHT, y=bottom + 16, class_="end tick"),
    ]
    return charts.Chart(charts.svg(WIDTH, HEIGHT, parts, "Cost over iterations", "chart map"), drawn)


def _stairs(places: Sequence[tuple[float, float]]) -> str:
    """The best so far holds until the next iteration."""
    found = [places[0]]
    for x, y in places[1:]:
        if y != found[-1][1]:
            found.append((x, found[-1][1]))
        found.append((x, y))
    return " ".join(f"{x},{y}" for x, y in found)


def _decisions(reasons: Sequence[str]) -> Table:
    """How often the planner gave which reason."""
    counts = Counter(_OF_ONE.sub(r"\1 ..", why) for why in reasons)
    columns = (Column("why", "Reason of the layout planner"), Column("count", "Decisions", "int"))
    return Table("decisions", columns, [{"why": why, "count": count} for why, count in counts.most_common(500)])
