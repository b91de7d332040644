"""`mlsdk bisect`: the traced and the compiled graph, by the reference functions and on the board; the first node that differs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlsdk.cli import examples, exit_codes, texts

if TYPE_CHECKING:
    from mlsdk.tasks.bisect import Corner, Report, Row


@click.command(epilog=examples.of("bisect"))
@click.argument("directory", metavar="CODEGEN_DIR", type=click.Path(path_type=Path))
@click.option(
    "--inputs", metavar="FILE.npz", type=click.Path(path_type=Path), help="Arrays by input; else random ones."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the random inputs.")
@click.option("--device", default="emu2", show_default=True, help="The board.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def bisect(context: click.Context, directory: Path, inputs: Path | None, seed: int, device: str, as_json: bool) -> int:
    """Find the first node of a compiled function that goes wrong on the board.

    Four checks: the graph as it was traced and as it was compiled, each by the reference functions and on the board; and
    the program itself. Writes accuracy.json into the folder, for the dashboard. Exits 4 if anything differs.
    """
    from mlsdk.tasks import bisect as checks
    from mlsdk.tasks import codegen_dir

    arrays = None if inputs is None else checks.read_inputs(inputs)
    report = checks.bisect(
        directory, arrays, seed=seed, device=device, status=lambda text: click.echo(f"{text} ...", err=True)
    )
    if report.rows:
        codegen_dir.add(directory, checks.ACCURACY, report.accuracy())
    if as_json:
        texts.echo_json(report.document())
    else:
        _show(report)
    return exit_codes.DONE if report.same else exit_codes.FOUND


def _show(report: Report) -> None:
    head = ("graph", "executor", "largest error", "")
    texts.table(head, [("torch", "reference", "-", "what is right"), *map(_line, report.corners)], right=(2,))
    for where, row in report.first.items():
        click.echo(f"\n{where}: " + (_told(row) if row else "no node differs"))
    if not report.same and not any(report.first.values()):
        click.echo(
            "\nNo node differs alone: look at how nodes are fused and moved (l3ir.txt), and at errors that grow."
        )


def _line(corner: Corner) -> tuple[str, ...]:
    if corner.trouble:
        return corner.graph, corner.executor, "-", f"cannot be run: {corner.trouble}"
    wrong = [f"{key} ({one.wrong} of {one.elements} elements)" for key, one in corner.outputs.items() if not one.same]
    verdict = f"differs: {', '.join(wrong)}" if wrong else "same"
    return corner.graph, corner.executor, "-" if corner.worst is None else f"{corner.worst:.2g}", verdict


def _told(row: Row) -> str:
    found = row.deviation
    place = f" at {row.source}" if row.source else ""
    scope = f" in {row.scope}" if row.scope else ""
    return (
        f"the first node that differs is {row.node} ({row.op}){place}{scope}\n"
        f"  {row.value}: {row.type}, {found.wrong} of {found.elements} elements differ\n"
        f"  largest error {found.largest:.6g}, {found.relative:.3g} of its scale where {found.allowed:.3g} is allowed\n"
        f"  at {list(found.place)}: {found.found!r} where {found.wanted!r} is right"
    )
