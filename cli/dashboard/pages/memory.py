"""Memory: what lies where and when, in DRAM and in the local memories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsdk.cli.dashboard import charts
from mlsdk.cli.dashboard.index import Index
from mlsdk.cli.dashboard.tables import PAGE, Asked, Column, Table
from mlsdk.cli.dashboard.view import View, attempt
from mlsdk.cli.dashboard.vsm import runs
from mlsdk.device import spec

#: rectangles of one picture; the largest are drawn
DRAWN = 600
WIDTH, HEIGHT, LEFT, BOTTOM = 900, 320, 92, 34

SEGMENTS = (
    Column("name", "Segment", "code"),
    Column("kind", "Kind", "badge"),
    Column("size", "Long words in each group", "int"),
    Column("bytes", "Bytes, all groups", "bytes"),
    Column("share", "Of DRAM", "percent"),
)
VALUES = (
    Column("name", "Value", "code", ("/tools/layout", {"value": "name"})),
    Column("device_dtype", "On the board"),
    Column("segment", "Segment", "code"),
    Column("offset", "Offset", "int"),
    Column("size", "Long words in each group", "int"),
    Column("writer", "Written by", "code"),
    Column("reader", "Last read by", "code"),
    Column("life", "Steps alive", "int"),
)


def memory(view: View) -> dict[str, Any]:
    index = view.index
    troubles = [p["message"] for p in index.problems() if p["file"] in ("plan.json", "placed.json", "model.vsm")]
    plan = attempt(troubles, lambda: view.document("plan.json"))
    times = _times(index)
    live = _live(index, times)
    kept = [v for v in live if v["segment"] == "work"]
    others = index.number("SELECT count(*) FROM layer WHERE note != ''") or 0
    return {
        "troubles": troubles,
        "scheduler": plan.get("scheduler") if plan else None,
        "work": _work_chart(view, kept, times) if kept else None,
        "work_drawn": min(len(kept), DRAWN),
        "work_total": len(kept),
        "banks": [chart for bank in ("lm0", "lm1") if (chart := _lm_chart(view, index, bank, times)) is not None],
        "segments": attempt(troubles, lambda: _segments(plan)) if plan else None,
        "live": _page(live, view.asked("values.")),
        "spills": _spills(index),
        "notes": others,
        "statement": _statement(plan, others),
    }


def _page(live: list[dict[str, Any]], asked: Asked) -> Table:
    """One page of the values."""
    found = [
        value for value in live if asked.q.lower() in f"{value['name']} {value['segment']} {value['writer']}".lower()
    ]
    key = asked.sort.lstrip("-")
    if key in {column.key for column in VALUES}:
        found.sort(
            key=lambda value: (
                value[key] is not None,
                value[key] or 0 if isinstance(value[key], (int, float)) else 0,
                str(value[key]),
            ),
            reverse=asked.sort.startswith("-"),
        )
    start = asked.page * PAGE
    return Table("values", VALUES, found[start : start + PAGE], len(found), True, asked.q, asked.sort, asked.page)


def _statement(plan: Mapping[str, Any] | None, notes: int) -> str:
    if plan is None:
        return "plan.json is missing: without it nothing is known of what was kept or moved."
    if plan.get("scheduler") == "always_from_dram":
        return (
            "The scheduler always_from_dram keeps nothing on the chip between layers: every operand comes from DRAM and every "
            "result goes there. No value was forced out by another; the cost is in the moves of every layer."
        )
    if not notes:
        return "The scheduler left no note on any step: nothing was spilled, or it does not record why."
    return "What the scheduler noted at its steps:"


def _times(index: Index) -> list[tuple[int, int]]:
    """Start and end of each step in cycles; without a simulation, the number of the step."""
    rows = index.rows("SELECT seq, start, end FROM layer ORDER BY seq")
    if any(row["start"] is None for row in rows):
        return [(row["seq"] * 4, row["seq"] * 4 + 4) for row in rows]
    return [(row["start"], row["end"]) for row in rows]


def _live(index: Index, times: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """Values with a place in DRAM, the largest first."""
    if not times:
        return []
    names = {row["seq"]: row["name"] for row in index.rows("SELECT seq, name FROM layer")}
    found = index.rows("SELECT * FROM value WHERE segment IS NOT NULL ORDER BY size DESC, seq")
    for value in found:
        first, last = value["first"], value["last"]
        value["start"] = times[first][0] if first is not None else 0
        value["end"] = times[last][1] if last is not None else times[-1][1]
        value["writer"] = names.get(first)
        value["reader"] = names.get(last)
        value["life"] = (value["end"] - value["start"]) / spec.CYCLES_PER_STEP
    return found


def _segments(plan: Mapping[str, Any]) -> Table:
    rows = [
        {"name": name, "kind": kind, "size": size, "bytes": size * 8 * spec.GROUPS, "share": size / spec.DRAM_LW}
        for name, kind, size in sorted(plan["segments"], key=lambda s: -s[2])
    ]
    total = sum(row["size"] for row in rows)
    rows.insert(
        0, {"name": "ALL", "kind": "", "size": total, "bytes": total * 8 * spec.GROUPS, "share": total / spec.DRAM_LW}
    )
    return Table("segments", SEGMENTS, list(rows[:5000]))


def _work_chart(view: View, values: list[dict[str, Any]], times: list[tuple[int, int]]) -> charts.Chart:
    drawn = values[:DRAWN]
    top = max(v["offset"] + (v["size"] or 0) for v in values)
    boxes = [
        {
            "x0": v["start"], "x1": v["end"], "y0": v["offset"], "y1": v["offset"] + (v["size"] or 0), "name": v["name"],
            "link": v["writer"],
            "told": f"{v['name']}: long words {v['offset']:,} to {v['offset'] + (v['size'] or 0):,} of work, written by "
                    f"{v['writer']}, last read by {v['reader'] or 'the caller'}",
        }
        for v in drawn
    ]  # fmt: skip
    return _picture(view, boxes, times[-1][1], top, "DRAM, segment work", "long word")


def _lm_chart(view: View, index: Index, bank: str, times: list[tuple[int, int]]) -> charts.Chart | None:
    rows = index.rows(
        f"SELECT name, op, start, end, {bank}_touched AS touched FROM layer "
        f"WHERE {bank}_high IS NOT NULL AND start IS NOT NULL ORDER BY steps DESC LIMIT {DRAWN}"
    )
    if not rows:
        return None
    boxes = [
        {
            "x0": row["start"],
            "x1": row["end"],
            "y0": low,
            "y1": min(high, spec.LM_WORDS),
            "name": row["name"],
            "link": row["name"],
            "colour": at,
            "told": f"{row['name']} ({row['op']}): words {low:,} to {min(high, spec.LM_WORDS):,} of {spec.LM_WORDS:,}",
        }
        for at, row in enumerate(rows)
        for low, high in runs(int(row["touched"] or "0", 16))
    ][: 2 * DRAWN]
    if not boxes:
        return None
    return _picture(view, boxes, times[-1][1], spec.LM_WORDS, f"{bank.upper()} of a PE", "word")


def _picture(view: View, boxes: list[dict[str, Any]], time: int, top: int, label: str, unit: str) -> charts.Chart:
    """Address over time. A box is named where its name fits; the rest is told on hover."""
    x_scale = (WIDTH - LEFT - 8) / max(time, 1)
    y_scale = (HEIGHT - BOTTOM - 8) / max(top, 1)
    e, parts = charts.element, []
    for part in range(5):
        y = 8 + (HEIGHT - BOTTOM - 8) * part / 4
        parts.append(e("line", x1=LEFT, x2=WIDTH - 8, y1=f"{y:.1f}", y2=f"{y:.1f}", class_="grid"))
        parts.append(e("text", f"{top * (4 - part) / 4:,.0f}", x=LEFT - 6, y=f"{y + 4:.1f}", class_="end tick"))
        x = LEFT + (WIDTH - LEFT - 8) * part / 4
        steps = f"{time * part / 4 / spec.CYCLES_PER_STEP:,.0f}"
        parts.append(
            e(
                "text",
                steps,
                x=f"{x:.1f}",
                y=HEIGHT - BOTTOM + 15,
                class_="middle tick" if 0 < part < 4 else "tick" if not part else "end tick",
            )
        )
    parts.append(e("text", "step", x=(LEFT + WIDTH) / 2, y=HEIGHT - 4, class_="middle label"))
    parts.append(e("text", unit, x=-(HEIGHT - BOTTOM) / 2, y=14, class_="middle label", transform="rotate(-90)"))
    for at, box in enumerate(boxes):
        x, width = LEFT + box["x0"] * x_scale, max(1.0, (box["x1"] - box["x0"]) * x_scale - 1)
        y = 8 + (top - box["y1"]) * y_scale
        height = max(1.5, (box["y1"] - box["y0"]) * y_scale - 1)
        inner = [
            charts.title(box["told"]),
            e("rect", x=f"{x:.1f}", y=f"{y:.1f}", width=f"{width:.1f}", height=f"{height:.1f}", rx=min(3, height / 3),
              class_=f"box c{box.get('colour', at) % 6}"),
        ]  # fmt: skip
        if width > 40 and height > 13:
            text = charts.short(box["name"], int(width / 7))
            inner.append(
                e("text", text, x=f"{x + width / 2:.1f}", y=f"{y + height / 2 + 4:.1f}", class_="middle tick ink")
            )
        group = e("g", charts.Markup("").join(inner), class_="hover", tabindex=0, data_told=box["told"])
        parts.append(charts.node_link(view.base, box["link"], group) if box["link"] else group)
    return charts.Chart(charts.svg(WIDTH, HEIGHT, parts, label, "chart map"), boxes, label)


def _spills(index: Index) -> Table | None:
    rows = index.rows("SELECT name, op, note, start FROM layer WHERE note != '' ORDER BY seq LIMIT 2000")
    if not rows:
        return None
    columns = (
        Column("name", "Layer", "code", ("/node/view", {"name": "name"})),
        Column("op", "Operator"),
        Column("note", "Note of the scheduler"),
    )
    return Table("notes", columns, list(rows))
