"""Memory: what lies where and when, in DRAM and in the local memories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
#: part of the addresses from which on an unused range is left out, and the height that stands for it
EMPTY, CUT = 0.4, 22

SEGMENTS = (
    Column("name", "Segment", "code"),
    Column("kind", "Kind", "badge"),
    Column("size", "LW per group", "int", help="long words in each of the four groups"),
    Column("bytes", "Bytes, all groups", "bytes"),
    Column("share", "Of DRAM", "percent"),
)
VALUES = (
    Column("name", "Value", "code", ("/tools/layout", {"value": "name"})),
    Column("device_dtype", "On the board"),
    Column("segment", "Segment", "code"),
    Column("offset", "Offset", "int"),
    Column("size", "LW per group", "int", help="long words in each of the four groups"),
    Column("writer", "Written by", "code"),
    Column("reader", "Last read by", "code"),
    Column("life", "Steps alive", "int"),
)
STAYS = (
    Column("name", "Value", "code", ("/tools/layout", {"value": "name"})),
    Column("space", "Memory", "code"),
    Column("word", "First word", "int"),
    Column("words", "Words per PE", "int"),
    Column("reads", "Reads", "int", help="operands that layers find there"),
    Column("life", "Steps alive", "int"),
    Column("writer", "Written by", "code"),
    Column("reader", "Last read by", "code"),
    Column("where", "Also in DRAM", "badge"),
)


def memory(view: View) -> dict[str, Any]:
    index = view.index
    troubles = [p["message"] for p in index.problems() if p["file"] in ("plan.json", "placed.json", "model.vsm")]
    plan = attempt(troubles, lambda: view.document("plan.json"))
    turns = _turns(index)
    live = _live(index, turns)
    work = [v for v in live if v["segment"] == "work"]
    stays = _stays(index, turns)
    return {
        "troubles": troubles,
        "scheduler": plan.get("scheduler") if plan else None,
        "work": _work_chart(view, work, turns) if work else None,
        "work_drawn": min(len(work), DRAWN),
        "work_total": len(work),
        "banks": [
            chart for bank in ("lm0", "lm1") if (chart := _lm_chart(view, index, bank, turns, stays)) is not None
        ],
        "segments": attempt(troubles, lambda: _segments(plan)) if plan else None,
        "stays": _page("stays", STAYS, stays, view.asked("stays.")) if stays else None,
        "live": _page("values", VALUES, live, view.asked("values.")),
        "notes": _notes(index),
        "statement": _statement(plan, stays, len(work)),
    }


def _page(name: str, columns: tuple[Column, ...], rows: list[dict[str, Any]], asked: Asked) -> Table:
    """One page of values."""
    texts = [column.key for column in columns if not column.right]
    found = [row for row in rows if asked.q.lower() in " ".join(str(row[key] or "") for key in texts).lower()]
    key = asked.sort.lstrip("-")
    if key in {column.key for column in columns}:
        found.sort(
            key=lambda row: (
                row[key] is not None,
                row[key] or 0 if isinstance(row[key], (int, float)) else 0,
                str(row[key]),
            ),
            reverse=asked.sort.startswith("-"),
        )
    start = asked.page * PAGE
    return Table(name, columns, found[start : start + PAGE], len(found), True, asked.q, asked.sort, asked.page)


def _statement(plan: Mapping[str, Any] | None, stays: list[dict[str, Any]], work: int) -> str:
    if plan is None:
        return "plan.json is missing: without it nothing is known of what was kept or moved."
    scheduler = plan.get("scheduler")
    if stays:
        only = sum(1 for stay in stays if stay["only"])
        reads = sum(stay["reads"] for stay in stays)
        return (
            f"The scheduler {scheduler} keeps {len(stays):,} values in local memory until they are read, {reads:,} times in all; "
            f"{only:,} of them never go to DRAM. {work:,} values have a place in DRAM's segment work."
        )
    told = f"The scheduler {scheduler} keeps nothing in local memory between layers: every operand comes from DRAM and every "
    return told + "result goes there."


def _turns(index: Index) -> list[dict[str, Any]]:
    """The steps of the plan with their layer, start and end in cycles; without a simulation, each takes one step."""
    rows = index.rows(
        "SELECT turn.start, turn.end, layer.name FROM turn JOIN layer ON layer.seq = turn.layer ORDER BY position"
    )
    if any(row["start"] is None for row in rows):
        for at, row in enumerate(rows):
            row.update(start=at * spec.CYCLES_PER_STEP, end=(at + 1) * spec.CYCLES_PER_STEP)
    return rows


def _live(index: Index, turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Values with a place in DRAM, the largest first."""
    if not turns:
        return []
    found = index.rows("SELECT * FROM value WHERE segment IS NOT NULL ORDER BY size DESC, seq")
    for value in found:
        first, last = value["first"], value["last"]
        value["start"] = turns[first]["start"] if first is not None else 0
        value["end"] = turns[last if last is not None else -1]["end"]
        value["writer"] = turns[first]["name"] if first is not None else None
        value["reader"] = turns[last]["name"] if last is not None else None
        value["life"] = (value["end"] - value["start"]) / spec.CYCLES_PER_STEP
    return found


def _stays(index: Index, turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Values that stay in LM, those that take most of it for the longest time first."""
    found = index.rows("SELECT *, value AS name FROM stay ORDER BY made")
    for stay in found:
        made, until = turns[stay["made"]], turns[stay["until"]]
        stay["start"], stay["end"] = made["start"], until["end"]
        stay["writer"], stay["reader"] = made["name"], until["name"]
        stay["life"] = (stay["end"] - stay["start"]) / spec.CYCLES_PER_STEP
        stay["where"] = "only in LM" if stay["only"] else "DRAM too"
    return sorted(found, key=lambda stay: -stay["words"] * stay["life"])


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


def _work_chart(view: View, values: list[dict[str, Any]], turns: list[dict[str, Any]]) -> charts.Chart:
    top = max(v["offset"] + (v["size"] or 0) for v in values)
    boxes = [
        {
            "x0": v["start"], "x1": v["end"], "y0": v["offset"], "y1": v["offset"] + (v["size"] or 0), "name": v["name"],
            "link": v["writer"],
            "told": f"{v['name']}: long words {v['offset']:,} to {v['offset'] + (v['size'] or 0):,} of work, written by "
                    f"{v['writer']}, last read by {v['reader'] or 'the caller'}",
        }
        for v in values[:DRAWN]
    ]  # fmt: skip
    return _picture(view, boxes, turns[-1]["end"], top, "DRAM, segment work", "long word")


def _lm_chart(
    view: View, index: Index, bank: str, turns: list[dict[str, Any]], stays: list[dict[str, Any]]
) -> charts.Chart | None:
    """What instructions name, faint, and over it the values that stay."""
    rows = index.rows(
        f"SELECT name, op, turn.start, turn.end, {bank}_touched AS touched FROM turn JOIN layer ON layer.seq = turn.layer "
        f"WHERE {bank}_high IS NOT NULL AND turn.start IS NOT NULL ORDER BY turn.end - turn.start DESC LIMIT {DRAWN}"
    )
    boxes: list[dict[str, Any]] = [
        {
            "x0": row["start"],
            "x1": row["end"],
            "y0": low,
            "y1": min(high, spec.LM_WORDS),
            "name": row["name"],
            "link": row["name"],
            "colour": "scratch",
            "told": f"{row['name']} ({row['op']}) names words {low:,} to {min(high, spec.LM_WORDS):,} of {spec.LM_WORDS:,}",
        }
        for row in rows
        for low, high in runs(int(row["touched"] or "0", 16))
    ][: 2 * DRAWN]
    boxes += [
        {
            "x0": stay["start"],
            "x1": stay["end"],
            "y0": stay["word"],
            "y1": stay["word"] + stay["words"],
            "name": stay["name"],
            "link": stay["writer"],
            "told": f"{stay['name']} stays in words {stay['word']:,} to {stay['word'] + stay['words']:,}, from {stay['writer']} "
            f"to {stay['reader']}, read {stay['reads']:,} times, {stay['where']}",
        }
        for stay in [one for one in stays if one["space"] == bank][:DRAWN]
    ]
    if not boxes:
        return None
    return _picture(view, boxes, turns[-1]["end"], spec.LM_WORDS, f"{bank.upper()} of a PE", "word")


@dataclass(frozen=True)
class Scale:
    """Addresses 0 to `top` from the bottom up, without those between `low` and `high`, which nothing uses."""

    top: int
    low: int
    high: int

    @classmethod
    def of(cls, boxes: Sequence[Mapping[str, Any]], top: int) -> Scale:
        """Leaves out the largest range without a box, if that is most of the picture."""
        reach, gap = 0, (0, 0)
        for low, high in sorted((box["y0"], box["y1"]) for box in boxes):
            gap = max(gap, (reach, low), key=lambda one: one[1] - one[0])
            reach = max(reach, high)
        gap = max(gap, (reach, top), key=lambda one: one[1] - one[0])
        return cls(top, *gap) if gap[1] - gap[0] > EMPTY * top else cls(top, top, top)

    @property
    def cut(self) -> bool:
        return self.high > self.low

    def y(self, address: float) -> float:
        shown = self.top - (self.high - self.low)
        height = HEIGHT - BOTTOM - 8 - (CUT if self.cut else 0)
        below = min(address, self.low) + max(0, address - self.high)
        return HEIGHT - BOTTOM - below * height / max(shown, 1) - (CUT if self.cut and address >= self.high else 0)

    def ticks(self) -> list[int]:
        if not self.cut:
            return [self.top * part // 4 for part in range(5)]
        found = {0, self.low // 2, self.low, self.high, (self.high + self.top) // 2, self.top}
        if self.high == self.top:
            found = {self.low * part // 4 for part in range(5)} | {self.top}
        kept: list[int] = []
        for tick in sorted(found):  # none on another
            if not kept or self.y(kept[-1]) - self.y(tick) > 11:
                kept.append(tick)
        return kept


def _picture(view: View, boxes: list[dict[str, Any]], time: int, top: int, label: str, unit: str) -> charts.Chart:
    """Address over time. A box is named where its name fits; the rest is told on hover."""
    x_scale = (WIDTH - LEFT - 8) / max(time, 1)
    scale = Scale.of(boxes, top)
    e, parts = charts.element, []
    for tick in scale.ticks():
        y = scale.y(tick)
        parts.append(e("line", x1=LEFT, x2=WIDTH - 8, y1=f"{y:.1f}", y2=f"{y:.1f}", class_="grid"))
        parts.append(e("text", f"{tick:,.0f}", x=LEFT - 6, y=f"{y + 4:.1f}", class_="end tick"))
    if scale.cut:
        y = scale.y(scale.high) + CUT / 2
        parts.append(e("line", x1=LEFT, x2=WIDTH - 8, y1=f"{y:.1f}", y2=f"{y:.1f}", class_="cut"))
        told = f"{scale.low:,} to {scale.high:,}: not used"
        parts.append(e("text", told, x=(LEFT + WIDTH) / 2, y=f"{y + 4:.1f}", class_="middle tick cut-label"))
    for part in range(5):
        x = LEFT + (WIDTH - LEFT - 8) * part / 4
        steps = f"{time * part / 4 / spec.CYCLES_PER_STEP:,.0f}"
        place = "middle tick" if 0 < part < 4 else "tick" if not part else "end tick"
        parts.append(e("text", steps, x=f"{x:.1f}", y=HEIGHT - BOTTOM + 15, class_=place))
    parts.append(e("text", "step", x=(LEFT + WIDTH) / 2, y=HEIGHT - 4, class_="middle label"))
    parts.append(e("text", unit, x=-(HEIGHT - BOTTOM) / 2, y=14, class_="middle label", transform="rotate(-90)"))
    for at, box in enumerate(boxes):
        x, width = LEFT + box["x0"] * x_scale, max(1.0, (box["x1"] - box["x0"]) * x_scale - 1)
        y = scale.y(box["y1"])
        height = max(1.5, scale.y(box["y0"]) - y - 1)
        inner = [
            charts.title(box["told"]),
            e("rect", x=f"{x:.1f}", y=f"{y:.1f}", width=f"{width:.1f}", height=f"{height:.1f}", rx=min(3, height / 3),
              class_=f"box {box.get('colour') or f'c{at % 6}'}"),
        ]  # fmt: skip
        if width > 40 and height > 13 and "colour" not in box:
            text = charts.short(box["name"], int(width / 7))
            inner.append(
                e("text", text, x=f"{x + width / 2:.1f}", y=f"{y + height / 2 + 4:.1f}", class_="middle tick ink")
            )
        group = e("g", charts.Markup("").join(inner), class_="hover", tabindex=0, data_told=box["told"])
        parts.append(charts.node_link(view.base, box["link"], group) if box["link"] else group)
    return charts.Chart(charts.svg(WIDTH, HEIGHT, parts, label, "chart map"), boxes, label)


def _notes(index: Index) -> Table | None:
    rows = index.rows("SELECT name, op, turns, note FROM layer WHERE note != '' ORDER BY seq LIMIT 2000")
    if not rows:
        return None
    columns = (
        Column("name", "Layer", "code", ("/node/view", {"name": "name"})),
        Column("op", "Operator"),
        Column("turns", "Turns", "int", help="how often the program runs it"),
        Column("note", "Note of the scheduler"),
    )
    return Table("notes", columns, list(rows))
