"""`mlsdk build` and `mlsdk run`: complete a workflow, and for `run` print what came out."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from mlsdk.cli import examples, exit_codes, texts

if TYPE_CHECKING:
    from mlsdk.tasks.complete import Completed
    from mlsdk.tasks.preview import Planned
    from mlsdk.tasks.workflow import Workflow

Command = Callable[..., Any]


def arguments(command: Command) -> Command:
    """What both commands take."""
    for decorate in reversed(
        (
            click.argument("workflow"),
            click.option("--param", "parameters", multiple=True, metavar="NAME=VALUE", help="Its parameters."),
            click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="A compile option."),
            click.option("--preset", default="", metavar="NAME", help="A preset: O0 to O4, debug, or a file."),
            click.option(
                "--sweep",
                "sweeps",
                multiple=True,
                metavar="NAME=A,B,C",
                help="Once for each value of a parameter or option, for example preset=O0,O1,O2; several make all "
                "combinations.",
            ),
            click.option("--device", default="", help="The board, for example mncore2:0."),
            click.option("--force", multiple=True, metavar="PHASE", help="Build this phase again."),
            click.option("--dry-run", is_flag=True, help="Only say what would be built, and why. Exits 5 if anything."),
            click.option("--jobs", type=click.IntRange(1, 256), default=1, show_default=True, help="Tasks at once."),
            click.option(
                "--scheduler", metavar="URL", help="A central scheduler (luigid) that several machines share."
            ),
            click.option("--codegen-dir", metavar="DIR", help="Copy the artifacts of the compile into this folder."),
            click.option("--store", "path", metavar="PLACE", help="The store instead of $MLSDK_STORE."),
            click.option("--debug", is_flag=True, help="Show tracebacks."),
            click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        )
    ):
        command = decorate(command)
    return command


@click.command(epilog=examples.of("build"))
@arguments
@click.pass_context
def build(context: click.Context, **given: Any) -> None:
    """Build a workflow; what is in the store is not built again.

    WORKFLOW is a name in mlsdk.workflows, a module, or the path of a .py file.
    """
    _command(context, with_summary=False, **given)


@click.command(epilog=examples.of("run"))
@arguments
@click.pass_context
def run(context: click.Context, **given: Any) -> None:
    """Build a workflow, run it on the board, and print its summary.

    WORKFLOW is a name in mlsdk.workflows, a module, or the path of a .py file.
    """
    _command(context, with_summary=True, **given)


def _command(
    context: click.Context,
    *,
    force: tuple[str, ...],
    dry_run: bool,
    jobs: int,
    scheduler: str | None,
    codegen_dir: str | None,
    path: str | None,
    debug: bool,
    as_json: bool,
    with_summary: bool,
    **which: Any,
) -> None:
    from mlsdk.tasks import complete
    from mlsdk.tasks.engine import Engine

    del debug  # main() looks for it on the command line
    # What a workflow's own code prints must not stand before the one JSON object.
    aside = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    with aside:
        tasks = _tasks(**which)
        if not dry_run:
            completed = complete.workflows(
                tasks,
                store=path,
                force=force,
                codegen_dir=codegen_dir,
                with_summary=with_summary,
                scheduler=Engine(scheduler or "luigi", jobs),
            )
    if dry_run:
        _print_planned(context, complete.preview(tasks, store=path, force=force), as_json)
    elif as_json:
        texts.echo_json(_one_or_many({name: _as_json(one, with_summary) for name, one in completed.items()}))
    else:
        _print_completed(completed, with_summary)


def _tasks(
    workflow: str,
    parameters: tuple[str, ...],
    options: tuple[str, ...],
    preset: str,
    sweeps: tuple[str, ...],
    device: str,
) -> dict[str, Workflow]:
    from mlsdk.tasks import find, sweep
    from mlsdk.tasks.options import from_text

    task = find.instance(
        find.workflow_class(workflow),
        {**pairs("--param", parameters), **({"preset": preset} if preset else {})},
        {name: from_text(value) for name, value in pairs("--option", options).items()},
        device,
    )
    wanted = {name: value.split(",") for name, value in pairs("--sweep", sweeps).items()}
    return sweep.product(task, wanted)


def _as_json(completed: Completed, with_summary: bool) -> dict[str, Any]:
    if with_summary:
        return {**completed.summary, "phases": completed.phases, "steps": completed.steps}
    return {
        "workflow": completed.label,
        "phases": completed.phases,
        "seconds": completed.times,
        "reasons": completed.reasons,
        "steps": completed.steps,
    }


def _print_completed(found: Mapping[str, Completed], with_summary: bool) -> None:
    for name, completed in found.items():
        if name:
            click.echo(f"== {texts.clean(name)}")
        if with_summary:
            click.echo(completed.report)
        click.echo(_closing(completed))
    if len(found) > 1:
        rows = [
            (
                name,
                " ".join(f"{value:,.0f}" for value in one.steps.values()) or "-",
                f"{sum(one.times.values()):.2f} s",
                str(len(one.times)),
            )
            for name, one in found.items()
        ]
        texts.table(("sweep", "steps", "built in", "phases built"), rows, right=(1, 2, 3))


def _print_planned(context: click.Context, found: Mapping[str, list[Planned]], as_json: bool) -> None:
    import dataclasses

    if as_json:
        texts.echo_json(_one_or_many({name: [dataclasses.asdict(one) for one in rows] for name, rows in found.items()}))
    else:
        for name, rows in found.items():
            if name:
                click.echo(f"== {texts.clean(name)}")
            words = {"cached": "from the store", "build": "would be built", "open": "perhaps"}
            texts.table(("phase", "label", "", "why"), [(r.phase, r.label, words[r.state], r.reason) for r in rows])
    if any(one.state != "cached" for rows in found.values() for one in rows):
        context.exit(exit_codes.PENDING)


def _one_or_many(found: dict[str, Any]) -> Any:
    """A workflow alone is itself; a sweep is its variants by name."""
    return found[""] if list(found) == [""] else found


def _closing(completed: Completed) -> str:
    built = [name for name, outcome in completed.phases.items() if outcome == "built"]
    cached = len(completed.phases) - len(built)
    if not built:
        return f"{completed.label}: nothing to build, all {cached} results came from the store"
    return f"{completed.label}: built {', '.join(built)}; {cached} results came from the store"


def pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    """Texts `NAME=VALUE` by their name; one that is given twice is refused."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r}: write NAME=VALUE", param_hint=option)
        if name in found:
            raise click.BadParameter(f"{name} is given twice: {found[name]!r} and {value!r}", param_hint=option)
        found[name] = value
    return found
