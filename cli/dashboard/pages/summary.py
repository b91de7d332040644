"""Summary: what was compiled and how, what each phase said, every layer, and the sums by attribute."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlsdk.cli.dashboard import charts, files, sums
from mlsdk.cli.dashboard.index import Index
from mlsdk.cli.dashboard.tables import PAGE, Asked, Column, Table
from mlsdk.cli.dashboard.view import View, attempt
from mlsdk.device import spec

_PHASE = re.compile(r"^\S+ \S+ (\w+): (built|cached|failed)(?: ([\d.]+) s)?(?: \((.*)\))? key ([0-9a-f]{8,})$", re.M)

LAYERS = (
    Column("name", "Layer", "code", ("/node/view", {"name": "name"})),
    Column("seq", "#", "int", help="in the order of the program"),
    Column("steps", "Steps", "int", help="simulated; a step is four cycles"),
    Column("us", "Time", "us"),
    Column("share", "Share", "percent", help="of all steps of the program"),
    Column("bound", "Bound by", "badge", help="what limits the layer: instructions, DRAM's bandwidth, or moves"),
    Column("op", "Operator"),
    Column("kind", "Emitter", "code"),
    Column("dtype", "Dtype"),
    Column("achieved", "Of the bound", "percent", help="steps that the bound alone takes, of the steps that it took"),
    Column("flops", "Operations", "scaled", help="of the graph; a multiply-add counts as two"),
    Column("dram_bytes", "DRAM", "bytes"),
    Column(
        "lm_bytes", "LM high water", "bytes", help="highest words of LM0 and LM1 that its instructions name, per PE"
    ),
    Column("moves", "Moves", "int"),
    Column("stage", "Stage"),
    Column("location", "Location", "code"),
    Column("layout", "Layout", "code"),
    Column("scope", "Module", "code"),
    Column("source", "Source", "code"),
)
SORTABLE = tuple(c.key for c in LAYERS)
SEARCHED = (
    "name || ' ' || op || ' ' || kind || ' ' || scope || ' ' || source || ' ' || dtype || ' ' || ifnull(bound, '')"
)
_SELECT = ", ".join(c.key for c in LAYERS)

STATS = (
    Column("value", "Value", "code"),
    Column("nodes", "Layers", "int"),
    Column("steps", "Steps", "int"),
    Column("share", "Share", "percent"),
    Column("us", "Time", "us"),
    Column("pe_steps", "Instruction steps", "int"),
    Column("dram_bytes", "DRAM", "bytes"),
    Column("flops", "Operations", "scaled"),
)


def summary(view: View) -> dict[str, Any]:
    troubles: list[str] = []
    index = view.index
    troubles += [problem["message"] for problem in index.problems()]
    report = attempt(troubles, lambda: view.document("report.json")) or {}
    sums_of = index.fact("stats")
    totals = sums_of["ALL"] if sums_of else {}
    options = attempt(troubles, lambda: _options(view))
    layers = layer_table(index, view.asked("layers."))
    bars = index.rows(
        "SELECT name, op, steps, share, bound FROM layer WHERE steps > 0 ORDER BY steps DESC, seq LIMIT 15"
    )
    dots = index.rows(
        "SELECT name, op, flops, dram_bytes, us, bound FROM layer WHERE us > 0 AND dram_bytes > 0 AND flops > 0 "
        "ORDER BY steps DESC LIMIT 300"
    )
    return {
        "troubles": troubles,
        "graph": index.fact("graph"),
        "tiles": attempt(troubles, lambda: _tiles(report, totals)) or _tiles({}, totals),
        "command": _command(view),
        "phases": attempt(troubles, lambda: _phases(view)),
        "options": options,
        "hardware": _hardware(),
        "assumed": report["assumed"] if isinstance(report.get("assumed"), dict) else {},
        "layers": layers,
        "bars": charts.bars(bars, view.base) if bars else None,
        "roofline": charts.roofline(dots, view.base) if dots else None,
        "stats": {attribute: stats(sums_of, attribute) for attribute in sums.ATTRIBUTES} if sums_of else {},
        "attributes": sums.ATTRIBUTES,
    }


def layer_table(index: Index, asked: Asked, limit: int = PAGE) -> Table:
    """One page of the layers."""
    where, values = "", tuple[str, ...]()
    if asked.q:
        where, values = f"WHERE {SEARCHED} LIKE ? ESCAPE '!'", (asked.pattern,)
    total = index.number(f"SELECT count(*) FROM layer {where}", values)
    rows = index.rows(
        f"SELECT {_SELECT} FROM layer {where} ORDER BY {asked.order(SORTABLE, '-steps')} LIMIT ? OFFSET ?",
        (*values, limit, asked.page * PAGE if limit == PAGE else 0),
    )
    return Table("layers", LAYERS, list(rows), total, True, asked.q, asked.sort or "-steps", asked.page, "/layers.csv")


def layers_csv(view: View) -> tuple[Any, Any]:
    """All layers that match, for /layers.csv."""
    return LAYERS, layer_table(view.index, view.asked("layers."), 10**7).rows


def stats(found: Mapping[str, Any], attribute: str) -> Table:
    """Sums by one attribute, with ALL on top."""
    return Table(f"stats-{attribute}", STATS, [found["ALL"], *found[attribute]])


def _tiles(report: Mapping[str, Any], totals: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The numbers on top, each with what it is."""
    us = report.get("simulated_us")
    flops = totals.get("flops")
    rate = flops / us * 1e6 if us and flops else None
    steps = report.get("steps")
    rows = (
        ("Steps", steps, "int", "simulated, the whole program"),
        ("Time", us, "us", f"at {spec.CLOCK_HZ // 10**6} MHz"),
        ("Layers", totals.get("nodes"), "int", "nodes of the compiled graph"),
        ("Operations", flops, "scaled", "floating-point operations of the graph"),
        ("Operations per second", rate, "scaled", "achieved"),
        ("DRAM", report.get("dram_bytes"), "bytes", "moved from and to DRAM"),
        (
            "Instructions",
            report["pe_steps"] / steps if steps and "pe_steps" in report else None,
            "percent",
            "of the steps; the rest waits for moves",
        ),
        ("LM high water", totals.get("lm_bytes"), "bytes", f"per PE, of {2 * spec.LM_WORDS * 4 // 1024} KiB"),
    )
    return [{"label": label, "value": value, "kind": kind, "note": note} for label, value, kind, note in rows]


def _command(view: View) -> dict[str, Any]:
    from mlsdk.cli.dashboard.sources import Build

    if isinstance(view.source, Build):
        row = view.source.row
        return {k: row[k] for k in ("label", "command", "status", "error", "host", "started", "seconds")}
    manifest = attempt([], lambda: view.document("manifest.json")) or {}
    files_of = manifest.get("files")
    return {
        "label": manifest.get("label", ""),
        "command": manifest.get("command"),
        "format": manifest.get("format"),
        "files": len(files_of) if isinstance(files_of, dict) else None,
    }


def _options(view: View) -> Table:
    columns = (
        Column("name", "Option", "code"),
        Column("value", "Value", "code"),
        Column("origin", "Origin", "badge"),
    )
    origins = {} if view.is_build else view.document("option.json").get("origins", {})
    rows = [{"name": n, "value": v, "origin": origins.get(n, "")} for n, v in sorted(view.options.items())]
    return Table("options", columns, list(rows))


def _phases(view: View) -> Table:
    """Compile statuses: from the build's events, or from the lines of CLOG.log."""
    from mlsdk.cli.dashboard.sources import Build

    columns = (
        Column("phase", "Phase"),
        Column("outcome", "Status", "badge"),
        Column("seconds", "Time", "seconds"),
        Column("reason", "Why"),
        Column("key", "Key", "code"),
    )
    if isinstance(view.source, Build):
        rows = [
            {
                "phase": e["phase"],
                "outcome": e["outcome"],
                "seconds": e["seconds"],
                "reason": e["reason"],
                "key": e["recipe"],
            }
            for e in view.source.row["phases"]
            if e["label"] == view.source.label
        ]
    else:
        log = files.read(view.source, "CLOG.log", 1 << 20).decode("utf-8", "replace")
        rows = [
            {"phase": p, "outcome": o, "seconds": float(s) if s else None, "reason": r, "key": k}
            for p, o, s, r, k in _PHASE.findall(log)
        ]
    for row in rows:
        row["key"] = row["key"][:12]
    return Table("phases", columns, list(rows))


def _hardware() -> Table:
    rows = (
        ("clock", f"{spec.CLOCK_HZ // 10**6} MHz, a step is {spec.CYCLES_PER_STEP} cycles"),
        ("PEs", f"{spec.PES:,} ({spec.GROUPS} groups of {spec.L2B_PER_GROUP} L2B, {spec.L1B_PER_L2B} L1B each, "
                f"{spec.MAB_PER_L1B} MAB each, {spec.PE_PER_MAB} PE each)"),
        ("peak, half", charts.rate_text("h")),
        ("peak, single in matrix form (f)", charts.rate_text("f")),
        ("peak, double", charts.rate_text("d")),
        ("DRAM", f"{spec.DRAM_LW * 8 * spec.GROUPS >> 30} GiB, {charts.DRAM_RATE / 1e9:.0f} GB/s"),
        ("PDM", f"{spec.PDM_LW * 8 * spec.GROUPS >> 20} MiB"),
        ("L2BM", f"{spec.L2BM_LW * 8 // 1024} KiB for each L2B"),
        ("L1BM", f"{spec.L1BM_LW * 8 // 1024} KiB for each L1B"),
        ("LM0, LM1", f"{spec.LM_WORDS * 4 // 1024} KiB each for each PE"),
    )  # fmt: skip
    columns = (Column("name", "Setting"), Column("value", "Value"))
    return Table("hardware", columns, [{"name": name, "value": value} for name, value in rows])
