"""`mlsdk compare`: two compiles side by side: options, totals, and what differs node by node."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from mlsdk.cli import examples, texts

if TYPE_CHECKING:
    from mlsdk.cli.dashboard.sources import Source

#: rows of the table of nodes; --all and --json have all
SHOWN = 40


@click.command(epilog=examples.of("compare"))
@click.argument("a")
@click.argument("b")
@click.option("--store", "place", metavar="PLACE", help="The store instead of $MLSDK_STORE.")
@click.option("--all", "everything", is_flag=True, help="All nodes, not only the largest differences.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def compare(a: str, b: str, place: str | None, everything: bool, as_json: bool) -> None:
    """Compare two compiles: options, steps, DRAM bytes, and the nodes that differ.

    A and B are codegen_dirs, or builds of the store: @12, @12.1 (the second program of build 12), or a LABEL (its newest).
    """
    from mlsdk.cli.dashboard.problems import Problem

    try:
        found = _compared(a, b, place)
    except Problem as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        texts.echo_json(found)
    else:
        _print(found, everything)


def _compared(a: str, b: str, place: str | None) -> dict[str, Any]:
    from mlsdk.cli.dashboard import differences
    from mlsdk.cli.dashboard.index import TIME_LIMIT, Indexes
    from mlsdk.cli.dashboard.view import options_of

    one, other = _source(a, place), _source(b, place)
    indexes = Indexes()
    try:
        left, right = indexes.of(one, TIME_LIMIT), indexes.of(other, TIME_LIMIT)
        rows = differences.layers(left, right)
        return {
            "a": one.title,
            "b": other.title,
            "options": differences.options(options_of(one), options_of(other)),
            "totals": {
                row["name"]: {key: row[key] for key in ("a", "b", "ratio")} for row in differences.totals(left, right)
            },
            "nodes": [row for row in rows if row["delta"] or row["dram_a"] != row["dram_b"] or row["changed"]],
            "equal": sum(not row["delta"] and row["dram_a"] == row["dram_b"] and not row["changed"] for row in rows),
        }
    finally:
        indexes.close()


def _source(text: str, place: str | None) -> Source:
    """A folder, or a build of the store. Problem for what is neither."""
    from mlsdk.cli.dashboard.problems import Problem
    from mlsdk.cli.dashboard.sources import Folder, build_of, newest_of, open_store
    from mlsdk.tasks.codegen_dir import read_manifest

    if os.path.isdir(text):
        read_manifest(text)
        return Folder(text)
    if os.sep in text or text.startswith("."):
        raise Problem(f"{text} is no folder; give a codegen_dir, @12 for build 12 of the store, or a label")
    with_store = open_store(place)
    name = text[1:] if text.startswith("@") else newest_of(with_store, text)
    if name is None:
        raise Problem(f"{text} is no folder, and no build in {with_store.where} has this label; see `mlsdk store log`")
    found = build_of(with_store, name)
    if "simulation_result.json" not in found.entries():
        raise Problem(f"{text}: this build of {found.label or 'a function'} simulated nothing; see `mlsdk store log`")
    return found


def _print(found: dict[str, Any], everything: bool) -> None:
    click.echo(f"A: {texts.clean(found['a'])}\nB: {texts.clean(found['b'])}")
    if found["options"]:
        click.echo()
        texts.table(
            ("option", "A", "B"), [(row["name"], _shown(row["a"]), _shown(row["b"])) for row in found["options"]]
        )
    click.echo()
    totals = [(name, row["a"], row["b"]) for name, row in found["totals"].items()]
    texts.table(
        ("total", "A", "B", "B / A"),
        [(name.replace("_", " "), _number(a), _number(b), _ratio(a, b)) for name, a, b in totals],
        right=(1, 2, 3),
    )
    steps = [row for row in found["nodes"] if row["steps_a"] or row["steps_b"]]  # the others are views
    nodes = found["nodes"] if everything else steps[:SHOWN]
    if nodes:
        click.echo()
        texts.table(
            ("node", "operator", "steps A", "steps B", "difference", "DRAM bytes A", "DRAM bytes B", "what else"),
            [
                (
                    row["name"],
                    row["op"],
                    _number(row["steps_a"]),
                    _number(row["steps_b"]),
                    f"{row['delta']:+,.0f}",
                    _number(row["dram_a"]),
                    _number(row["dram_b"]),
                    row["changed"],
                )
                for row in nodes
            ],
            right=(2, 3, 4, 5, 6),
        )
    left = len(found["nodes"]) - len(nodes)
    click.echo(f"\n{found['equal']:,} nodes equal, {len(found['nodes']):,} differ"
               + (f" ({left:,} more with --all)" if left else ""))  # fmt: skip


def _shown(value: Any) -> str:
    from mlsdk.tasks.option_page import shown

    return "-" if value is None else shown(value)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _ratio(a: float | None, b: float | None) -> str:
    return f"{b / a:.3f}" if a and b is not None else "-"
