"""`mlsdk build` and `mlsdk run`: complete a workflow, and for `run` print what came out."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from mlsdk.cli import texts

if TYPE_CHECKING:
    from mlsdk.tasks.complete import Completed

Command = Callable[..., Any]


def arguments(command: Command) -> Command:
    """What both commands take."""
    for decorate in reversed(
        (
            click.argument("workflow"),
            click.option("--param", "parameters", multiple=True, metavar="NAME=VALUE", help="Its parameters."),
            click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="A compile option."),
            click.option("--device", default="", help="The board, for example mncore2:0."),
            click.option("--force", multiple=True, metavar="PHASE", help="Build this phase again."),
            click.option("--codegen-dir", metavar="DIR", help="Copy the artifacts of the compile into this folder."),
            click.option("--store", "path", metavar="DIR", help="The store instead of $MLSDK_STORE."),
            click.option("--debug", is_flag=True, help="Show tracebacks."),
            click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        )
    ):
        command = decorate(command)
    return command


@click.command()
@arguments
def build(as_json: bool, **given: Any) -> None:
    """Build a workflow; what is in the store is not built again.

    WORKFLOW is a name in mlsdk.workflows, a module, or the path of a .py file.
    """
    completed = _complete(as_json=as_json, with_summary=False, **given)
    if as_json:
        texts.echo_json(
            {
                "workflow": completed.label,
                "phases": completed.phases,
                "seconds": completed.times,
                "reasons": completed.reasons,
            }
        )
    else:
        click.echo(_closing(completed))


@click.command()
@arguments
def run(as_json: bool, **given: Any) -> None:
    """Build a workflow, run it on the board, and print its summary.

    WORKFLOW is a name in mlsdk.workflows, a module, or the path of a .py file.
    """
    completed = _complete(as_json=as_json, with_summary=True, **given)
    if as_json:
        texts.echo_json({**completed.summary, "phases": completed.phases})
        return
    click.echo(completed.report)
    click.echo(_closing(completed))


def _complete(
    workflow: str,
    parameters: tuple[str, ...],
    options: tuple[str, ...],
    device: str,
    force: tuple[str, ...],
    codegen_dir: str | None,
    path: str | None,
    debug: bool,
    as_json: bool,
    with_summary: bool,
) -> Completed:
    from mlsdk.tasks import complete, find

    del debug  # main() looks for it on the command line
    # What a workflow's own code prints must not stand before the one JSON object.
    aside = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    with aside:
        task = find.instance(
            find.workflow_class(workflow),
            dict(_pair("--param", text) for text in parameters),
            {name: _json(value) for name, value in (_pair("--option", text) for text in options)},
            device,
        )
        return complete.workflow(
            task, store=path, force=force, codegen_dir=codegen_dir, with_summary=with_summary, scheduler="luigi"
        )


def _closing(completed: Completed) -> str:
    built = [name for name, outcome in completed.phases.items() if outcome == "built"]
    cached = len(completed.phases) - len(built)
    if not built:
        return f"{completed.label}: nothing to build, all {cached} results came from the store"
    return f"{completed.label}: built {', '.join(built)}; {cached} results came from the store"


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r}: write NAME=VALUE", param_hint=option)
    return name, value


def _json(text: str) -> Any:
    """A value of an option: JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
