"""Advice: what to look at first, ranked by the steps that it could save, each with the numbers that it rests on.

A saving is an upper limit: the steps that would go if the limit named were the only one. Nothing is simulated here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mlsdk.cli.dashboard.index import Index
from mlsdk.cli.dashboard.layers import COMPUTE, DRAM_LW_PER_STEP
from mlsdk.cli.dashboard.problems import Missing
from mlsdk.cli.dashboard.view import View, attempt

LIMIT = 20
#: a saving under this share of the program is not worth a line
WORTH = 0.01
#: reads of intermediate values; the cross join keeps SQLite from going through all values for each of them
_READS = "usage CROSS JOIN value ON value.name = usage.value WHERE usage.role = 'input' AND value.segment = 'work'"


@dataclass(frozen=True)
class Advice:
    """`saves`: steps, at most. `evidence`: the numbers it rests on."""

    title: str
    what: str
    evidence: str
    saves: float
    node: str = ""


@dataclass(frozen=True)
class Facts:
    index: Index
    options: Mapping[str, Any]
    scheduler: str
    steps: float
    report: Mapping[str, Any]


def advice(view: View) -> dict[str, Any]:
    troubles: list[str] = []
    index = view.index
    report = attempt(troubles, lambda: view.document("report.json"))
    if report is None or not isinstance(report.get("steps"), (int, float)) or not report["steps"]:
        raise Missing("no advice without report.json and simulation_result.json: the phase Simulate writes them")
    options = attempt([], lambda: view.document("option.json")["options"]) or {}
    plan = attempt([], lambda: view.document("plan.json")) or {}
    facts = Facts(index, options, str(plan.get("scheduler", "")), report["steps"], report)
    found = [one for rule in RULES for one in rule(facts) if one.saves >= WORTH * facts.steps]
    found.sort(key=lambda one: -one.saves)
    return {
        "troubles": troubles,
        "steps": facts.steps,
        "advice": [{**asdict(one), "share": one.saves / facts.steps} for one in found[:LIMIT]],
        "more": max(0, len(found) - LIMIT),
        "bounds": index.rows(
            "SELECT bound, count(*) AS nodes, sum(steps) AS steps, sum(share) AS share FROM layer WHERE bound IS NOT NULL "
            "GROUP BY bound ORDER BY 3 DESC"
        ),
    }


def keep_on_chip(facts: Facts) -> Iterator[Advice]:
    """Intermediate values that go to DRAM and come back."""
    if facts.scheduler != "always_from_dram":
        return
    made = facts.index.row(
        "SELECT count(*) AS n, sum(size) AS words FROM value WHERE segment = 'work' AND last IS NOT NULL"
    )
    read = facts.index.row(f"SELECT count(*) AS n, sum(value.size) AS words FROM {_READS}")
    if not made or not read or not made["words"]:
        return
    words = made["words"] + (read["words"] or 0)
    waiting = facts.report.get("stall_steps", 0)
    yield Advice(
        "Keep intermediate values on the chip",
        "Another scheduler (option scheduler) that lets a layer take its operand from where the layer before left it.",
        f"{made['n']:,} intermediate values are written to DRAM and read {read['n']:,} times: {words * 8 * 4:,} bytes, "
        f"{words * 4 / DRAM_LW_PER_STEP:,.0f} steps at DRAM's full rate; in all {waiting:,} steps wait for moves",
        min(float(waiting), _flight(facts.index)),
    )


def _flight(index: Index) -> float:
    return float(
        index.number(
            "SELECT sum(max(0, steps - pe_steps)) FROM layer WHERE steps IS NOT NULL "
            f"AND seq IN (SELECT usage.layer FROM {_READS})"
        )
        or 0
    )


def waiting_layers(facts: Facts) -> Iterator[Advice]:
    """Single layers that wait for moves."""
    rows = facts.index.rows(
        "SELECT name, op, steps, pe_steps, moves, dram_bytes, bound, limits, share FROM layer "
        "WHERE steps - pe_steps > 0 AND bound != ? ORDER BY steps - pe_steps DESC LIMIT 10",
        (COMPUTE,),
    )
    for row in rows:
        limits = json.loads(row["limits"])
        if row["bound"] == "DRAM":
            yield Advice(
                f"{row['name']} is bound by DRAM's bandwidth",
                "Fewer bytes: a narrower float_dtype, a larger share of reuse in its layout, or its operand kept on the chip.",
                f"{row['dram_bytes']:,} bytes take {limits['DRAM']:,.0f} steps at DRAM's full rate, "
                f"the layer {row['steps']:,.0f}",
                row["steps"] - row["pe_steps"],
                row["name"],
            )
        else:
            yield Advice(
                f"{row['name']} waits for its moves",
                "Fewer, larger moves, or moves that start while the layer before still computes.",
                f"{row['moves']:,} moves are in flight for {limits['moves']:,.0f} of {row['steps']:,.0f} steps, at DRAM's full "
                f"rate their bytes take {limits['DRAM']:,.0f}; instructions take {row['pe_steps']:,}",
                max(0.0, row["steps"] - max(row["pe_steps"], limits["DRAM"])),
                row["name"],
            )


def busy_layers(facts: Facts) -> Iterator[Advice]:
    """Layers whose instructions take most of the time although few of them do the graph's arithmetic."""
    from mlsdk.device import spec

    per_step = 2 * spec.MATRIX_MACS["h"] * spec.MABS * spec.CYCLES_PER_STEP
    rows = facts.index.rows(
        "SELECT name, op, steps, pe_steps, flops, kind, dtype FROM layer WHERE bound = ? ORDER BY steps DESC LIMIT 10",
        (COMPUTE,),
    )
    for row in rows:
        matrix = row["op"] in ("Gemm", "MatMul", "Conv", "ConvTranspose")
        if not matrix or not row["flops"]:
            continue
        ideal = row["flops"] / per_step
        advised = (
            ""
            if facts.options.get("float_dtype") in ("half", "mixed")
            else " float_dtype=mixed uses the fast matrix form."
        )
        yield Advice(
            f"{row['name']} is bound by its instructions",
            f"A layout that fills more of the chip, or a batch that does.{advised}",
            f"{row['flops']:,} operations take {ideal:,.1f} steps at the chip's peak in half, its instructions "
            f"{row['pe_steps']:,} ({100 * ideal / row['pe_steps']:.1f} % of the peak)",
            max(0.0, row["pe_steps"] - ideal),
            row["name"],
        )


def float_dtype(facts: Facts) -> Iterator[Advice]:
    """Matrix products in a slow precision."""
    if facts.options.get("float_dtype") not in ("float", "double"):
        return
    rows = facts.index.rows(
        "SELECT count(*) AS nodes, sum(pe_steps) AS steps FROM layer WHERE op IN ('Gemm', 'MatMul', 'Conv', 'ConvTranspose') "
        "AND bound = ?",
        (COMPUTE,),
    )
    steps = rows[0]["steps"] or 0
    if steps:
        yield Advice(
            "Matrix products in half precision",
            "Compile with float_dtype=mixed: products in half, sums in single.",
            f"{rows[0]['nodes']:,} matrix products that are bound by instructions take {steps:,} of them in "
            f"{facts.options['float_dtype']}; half does eight times as many operations in a step as single",
            steps * 7 / 8,
        )


def moved_layouts(facts: Facts) -> Iterator[Advice]:
    """Layers that only move elements."""
    rows = facts.index.rows(
        "SELECT count(*) AS nodes, sum(steps) AS steps, group_concat(DISTINCT op) AS ops FROM layer "
        "WHERE flops = 0 AND steps > 0"
    )
    row = rows[0]
    if row["nodes"]:
        yield Advice(
            "Layers that only move elements",
            "Layouts (option layout_spec) in which neighbours agree need no layer between them.",
            f"{row['nodes']:,} layers without arithmetic ({row['ops'][:120]}) take {row['steps']:,.0f} steps",
            row["steps"],
        )


RULES: tuple[Callable[[Facts], Iterator[Advice]], ...] = (
    keep_on_chip,
    waiting_layers,
    busy_layers,
    float_dtype,
    moved_layouts,
)
