"""Advice: which options to change, ranked by the steps that they could save, each with the numbers that it rests on.

What another compile of the same function took is measured; every other saving is an upper limit: the steps that would go if
nothing else limited the layers. Nothing is simulated here. Below stand the layers in which most steps wait or are wasted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from mlsdk.cli.dashboard import files
from mlsdk.cli.dashboard.index import Index
from mlsdk.cli.dashboard.layers import COMPUTE, DRAM_LW_PER_STEP
from mlsdk.cli.dashboard.pages import compare
from mlsdk.cli.dashboard.pages.search import Trial, trials
from mlsdk.cli.dashboard.problems import Missing
from mlsdk.cli.dashboard.sources import Build, Source
from mlsdk.cli.dashboard.tables import Column, Table
from mlsdk.cli.dashboard.view import View, attempt, options_of
from mlsdk.device import spec

#: a saving under this share of the program is not worth a line
WORTH = 0.01
LAYERS = 20
MATRIX = "('Gemm', 'MatMul', 'Conv', 'ConvTranspose')"
#: other compiles that are looked at, the newest first, and those that are told
OTHERS, BEST = 24, 3
#: trials of the layout planner by simulation_mode, and the mode that looks farther
TRIALS = {"fake": 0, "fast": 12, "default": 40, "auto": 40, "best": 150}
FARTHER = {"fake": "default", "fast": "default", "default": "best", "auto": "best", "best": "full"}
#: the annealing is not at its end when it still found something in this last part of its rounds
STILL = 0.25
#: reads of intermediate values in DRAM; the cross join keeps SQLite from going through all values for each of them
_READS = (
    "usage CROSS JOIN value ON value.name = usage.value WHERE usage.role = 'input' AND value.segment = 'work' AND NOT EXISTS "
    "(SELECT 1 FROM held WHERE held.layer = usage.layer AND held.role = 'input' AND held.value = usage.value)"
)


@dataclass(frozen=True)
class Advice:
    """`options`: what to compile with. `saves`: steps, at most, or as `measured`; None where the simulation does not count
    them. `evidence`: the numbers it rests on."""

    title: str
    what: str
    evidence: str
    saves: float | None
    options: Mapping[str, Any] = field(default_factory=dict)
    measured: bool = False


@dataclass(frozen=True)
class Facts:
    view: View
    index: Index
    options: Mapping[str, Any]
    scheduler: str
    steps: float
    report: Mapping[str, Any]
    trials: Sequence[Trial]


def advice(view: View) -> dict[str, Any]:
    troubles: list[str] = []
    index = view.index
    report = attempt(troubles, lambda: view.document("report.json"))
    if report is None or not isinstance(report.get("steps"), (int, float)) or not report["steps"]:
        raise Missing("no advice without report.json and simulation_result.json: the phase Simulate writes them")
    options = attempt([], lambda: view.options) or {}
    plan = attempt([], lambda: view.document("plan.json")) or {}
    facts = Facts(view, index, options, str(plan.get("scheduler", "")), report["steps"], report, trials(view))
    given = [one for rule in RULES for one in attempt(troubles, lambda rule=rule: list(rule(facts))) or []]  # type: ignore[misc]
    found = [one for one in given if one.saves is None or one.saves >= WORTH * facts.steps]
    found.sort(key=lambda one: (one.saves is not None, not one.measured, -(one.saves or 0)))
    return {
        "troubles": troubles,
        "steps": facts.steps,
        "advice": [{**asdict(one), "share": one.saves / facts.steps if one.saves else None} for one in found],
        "layers": _layers(facts),
        "bounds": index.rows(
            "SELECT bound, count(*) AS nodes, sum(steps) AS steps, sum(share) AS share FROM layer WHERE bound IS NOT NULL "
            "GROUP BY bound ORDER BY 3 DESC"
        ),
    }


def on_host(facts: Facts) -> Iterator[Advice]:
    """Nodes that the host computes."""
    rows = facts.index.rows("SELECT name, op FROM layer WHERE kind = 'host' ORDER BY seq")
    if rows:
        ops = ", ".join(sorted({row["op"] for row in rows}))
        yield Advice(
            "Nodes that the host computes",
            "Take their operators out of CODEGEN_OPS_ON_HOST: the board stops before each of them, and its operands and results "
            "go through the host.",
            f"{len(rows):,} ({ops}): {', '.join(row['name'] for row in rows[:5])}{', ..' if len(rows) > 5 else ''}; "
            "the simulation does not count their time",
            None,
        )


def other_compiles(facts: Facts) -> Iterator[Advice]:
    """Folders that the server was started with and builds of the store, of the same traced function, with fewer steps."""
    function = _function(facts.view.source)
    site, found = facts.view.site, dict[str, Advice]()
    for choice in compare.choices(site)[:OTHERS] if function else ():
        other = attempt([], lambda name=choice["name"]: site.named(name))  # type: ignore[misc]
        if other is None or _function(other) != function:
            continue
        report = attempt([], lambda other=other: files.mapping(other, "report.json")) or {}  # type: ignore[misc]
        given = attempt([], lambda other=other: options_of(other)) or {}  # type: ignore[misc]
        changed = {k: value for k, value in given.items() if k in facts.options and facts.options[k] != value}
        if (
            not report.get("steps") or not changed or given["envs"].get("CODEGEN_OPS_ON_HOST")
        ):  # its steps are not all there
            continue
        found.setdefault(
            str(changed),
            Advice(
                f"As in {other.title}",
                "The same function, compiled with other options, takes fewer steps.",
                f"Simulated: {report['steps']:,} steps there, {facts.steps:,} here",
                facts.steps - report["steps"],
                changed,
                measured=True,
            ),
        )
    yield from sorted(found.values(), key=lambda one: -(one.saves or 0))[:BEST]


def _function(source: Source) -> str | None:
    """The SHA-256 of the traced function that was compiled."""
    if isinstance(source, Build):
        entry = source.entries().get("exported.onnx")
        return entry.stamp if entry else None
    return attempt([], lambda: str(files.mapping(source, "manifest.json")["files"]["exported.onnx"]))


def keep_on_chip(facts: Facts) -> Iterator[Advice]:
    """Intermediate values that go to DRAM and come back."""
    chosen = _scheduler(facts)
    if chosen is None:
        return
    options, what, told = chosen
    made = facts.index.row(
        "SELECT count(*) AS n, sum(size) AS words FROM value WHERE segment = 'work' AND last IS NOT NULL"
    )
    read = facts.index.row(f"SELECT count(*) AS n, sum(value.size) AS words FROM {_READS}")
    if not made or not read or not read["words"]:
        return
    words = (made["words"] or 0) + read["words"]
    waiting = facts.report.get("stall_steps", 0)
    yield Advice(
        "Keep intermediate values on the chip",
        what,
        f"{told}{made['n']:,} intermediate values are written to DRAM and read {read['n']:,} times: {words * 8 * 4:,} bytes, "
        f"{words * 4 / DRAM_LW_PER_STEP:,.0f} steps at DRAM's full rate; in all {waiting:,} steps wait for moves",
        min(float(waiting), _flight(facts)),
        options,
    )


def _scheduler(facts: Facts) -> tuple[dict[str, Any], str, str] | None:
    """The next better scheduler: options, what it does, and what is known of the one that was used."""
    if facts.scheduler in ("always_from_dram", "reuse_consecutive"):
        what = "Values stay in local memory until they are read; auto_recompute_sa then tries more orders, and takes longer."
        return {"scheduler": "spill_opt"}, what, ""
    runs = (attempt([], lambda: facts.view.document("search.json")) or {}).get("runs", [])
    if facts.scheduler == "spill_opt":
        told = f"{facts.index.number('SELECT count(*) FROM stay'):,} values stay in local memory; "
        return (
            {"scheduler": "auto_recompute_sa"},
            "Annealing from what spill_opt found: other orders, values computed anew.",
            told,
        )
    points: list[Any] = next((run["points"] for run in runs if run.get("method") == "annealing"), [])
    if facts.scheduler != "auto_recompute_sa" or len(points) < 2:
        return None
    rounds, best = points[-1][0], points[-1][2]
    last = next(number for number, _cost, found in points if found == best)
    if last < (1 - STILL) * rounds:
        return None
    told = f"the annealing found its best, {best:,.0f}, in round {last:,} of {rounds:,}; "
    return {"sa_expected_run_iters": 4 * rounds}, "More rounds of annealing: it was still finding better orders.", told


def _flight(facts: Facts) -> float:
    """Steps in which a move of an intermediate value is in flight, at most: what the layers wait that read one, and where the
    simulation kept all moves, those moves."""
    query = (
        f"SELECT sum(max(0, steps - pe_steps)) FROM layer WHERE steps > 0 AND seq IN (SELECT usage.layer FROM {_READS})"
    )
    waits = float(facts.index.number(query) or 0)
    moves = facts.index.fact("moves") or {}
    return min(waits, moves["work"]) if moves.get("kept", 0) >= facts.report.get("moves", 0) > 0 else waits


def float_dtype(facts: Facts) -> Iterator[Advice]:
    """Products in a slow precision, and bytes that half would not need."""
    chosen = facts.options.get("float_dtype")
    products = facts.index.row(
        f"SELECT count(*) AS n, sum(pe_steps) AS steps FROM layer WHERE op IN {MATRIX} AND bound = ?", (COMPUTE,)
    )
    if chosen in ("float", "double") and products and products["steps"]:
        macs = spec.MATRIX_MACS["h"] // spec.MATRIX_MACS["f" if chosen == "float" else "d"]
        yield Advice(
            "Matrix products in half precision",
            "Operands of products in half, their sums in single.",
            f"Matrix products in {chosen} that are bound by their instructions: {products['n']:,}, with "
            f"{products['steps']:,} steps of them; half does {macs} times as many operations in a step",
            products["steps"] * (1 - 1 / macs),
            {"float_dtype": "mixed"},
        )
    wide = facts.index.row(
        "SELECT count(*) AS n, sum(dram_bytes) AS bytes FROM layer WHERE bound = 'DRAM' AND dtype IN ('single', 'double')"
    )
    if chosen in ("float", "mixed") and wide and wide["bytes"]:
        yield Advice(
            "Values in half precision",
            "Every value in half: half of the bytes. `mlsdk bisect` then says how far the board is from the reference.",
            f"Layers in single that are bound by DRAM: {wide['n']:,}, which move {wide['bytes']:,} bytes, "
            f"{wide['bytes'] / 8 / DRAM_LW_PER_STEP:,.0f} steps at its full rate",
            wide["bytes"] / 2 / 8 / DRAM_LW_PER_STEP,
            {"float_dtype": "half"},
        )


def layouts(facts: Facts) -> Iterator[Advice]:
    """Layers that only move elements, because those around them want other layouts."""
    row = facts.index.row(
        "SELECT count(*) AS nodes, sum(steps) AS steps, group_concat(DISTINCT op) AS ops FROM layer "
        "WHERE flops = 0 AND steps > 0"
    )
    if not row or not row["nodes"]:
        return
    told = f"{row['nodes']:,} layers without arithmetic ({', '.join(row['ops'][:120].split(','))}) take {row['steps']:,.0f} steps"
    mode = facts.options.get("simulation_mode", "default")
    options: dict[str, Any] = {}
    what = "Layouts in which neighbours agree need no layer between them: layout_spec takes them from a file."
    if facts.options.get("layout_planner", "lpz") != "lpz":
        options = {"layout_planner": "lpz"}
        what = "The planner lpz tries other layouts on the whole graph and keeps those that take fewer steps."
    elif mode in FARTHER and len(facts.trials) >= TRIALS[mode]:
        options = {"simulation_mode": FARTHER[mode]}
        what = "The layout planner tries more layouts before it ends."
        told += f"; the planner ended after {len(facts.trials):,} layouts, as many as simulation_mode={mode} tries"
        told += _last(facts.trials)
    elif facts.trials:
        told += f"; the planner tried all of its {len(facts.trials):,} layouts{_last(facts.trials)}"
    yield Advice("Layers that only move elements", what, told, row["steps"], options)


def _last(tried: Sequence[Trial]) -> str:
    kept = [(number, trial) for number, trial in enumerate(tried, 1) if trial.outcome == "kept"]
    if not kept:
        return ", and kept none"
    number, trial = kept[-1]
    return f"; the last that it kept was number {number:,} ({trial.before:,} → {trial.steps:,} steps)"


RULES: tuple[Callable[[Facts], Iterator[Advice]], ...] = (on_host, other_compiles, keep_on_chip, float_dtype, layouts)

COLUMNS = (
    Column("name", "Layer", "code", ("/node/view", {"name": "name"})),
    Column("op", "Operator"),
    Column("bound", "Bound by", "badge"),
    Column("steps", "Steps", "int"),
    Column("saves", "At most saved", "int", help="steps beyond the limit that no option changes"),
    Column("why", "Why", "prose"),
)


def _layers(facts: Facts) -> Table:
    """The layers in which most steps wait, or are instructions that do little of the graph's arithmetic."""
    rows = [
        {**row, "saves": saves, "why": why}
        for row in facts.index.rows(
            "SELECT name, op, steps, pe_steps, moves, dram_bytes, bound, limits, flops FROM layer WHERE steps > 0 "
            f"AND (bound != ? OR op IN {MATRIX}) ORDER BY steps DESC LIMIT 200",
            (COMPUTE,),
        )
        for saves, why in [_waste(row, json.loads(row["limits"]))]
    ]
    rows.sort(key=lambda row: -row["saves"])
    rows = [
        {key: row[key] for key in ("name", "op", "bound", "steps", "saves", "why")} for row in rows if row["saves"] >= 1
    ]
    return Table("waste", COLUMNS, rows[:LAYERS])


def _waste(row: Mapping[str, Any], limits: Mapping[str, float]) -> tuple[float, str]:
    """Steps over what the layer needs, and what they go into."""
    if row["bound"] == COMPUTE:
        ideal = row["flops"] / (2 * spec.MATRIX_MACS["h"] * spec.MABS * spec.CYCLES_PER_STEP)
        share = 100 * ideal / row["pe_steps"]
        return row["pe_steps"] - ideal, (
            f"Its instructions do {share:.1f} % of the operations of the chip's peak in half: a layout or a batch that fills "
            "more of the chip"
        )
    if row["bound"] == "DRAM":
        return row["steps"] - row[
            "pe_steps"
        ], f"{row['dram_bytes']:,} bytes take {limits['DRAM']:,.0f} steps at DRAM's full rate"
    floor = max(row["pe_steps"], limits["DRAM"])
    return row["steps"] - floor, (
        f"{row['moves']:,} moves are in flight for {limits['moves']:,.0f} steps; at the full rate {limits['DRAM']:,.0f}, "
        f"instructions {row['pe_steps']:,}"
    )
