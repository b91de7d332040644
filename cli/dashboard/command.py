"""The commands: `codegen-dashboard-external serve DIR` and `mlsdk dashboard DIR`, the same thing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import click

from mlsdk.cli import examples, exit_codes

PORT = 8327


def arguments(command: Callable[..., Any]) -> Callable[..., Any]:
    """What both commands take."""
    for decorate in reversed(
        (
            click.argument("codegen_dir", required=False, type=click.Path(exists=True, file_okay=False)),
            click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0: any free one."),
            click.option("--host", default="127.0.0.1", show_default=True, help="The address to bind; others can read then."),
            click.option(
                "--compare", "others", multiple=True, type=click.Path(exists=True, file_okay=False), metavar="DIR",
                help="A further codegen_dir for the page Compare.",
            ),
            click.option("--store", "store", is_flag=False, flag_value="", metavar="[DIR]",
                         help="Browse the builds of a store too; without DIR that of $MLSDK_STORE."),
        )
    ):  # fmt: skip
        command = decorate(command)
    return command


def start(codegen_dir: str | None, port: int, host: str, others: tuple[str, ...], store: str | None) -> None:
    if codegen_dir is None and store is None:
        raise click.UsageError("give a codegen_dir, or --store to browse the builds of a store")
    from mlsdk.cli.dashboard.server import serve
    from mlsdk.cli.dashboard.sources import Folder
    from mlsdk.cli.dashboard.view import Site

    site = Site(
        Folder(codegen_dir) if codegen_dir else None,
        tuple(Folder(other) for other in others),
        _store_place(store) if store is not None else None,
    )
    if host not in ("127.0.0.1", "localhost", "::1"):
        click.echo(f"warning: {host} is not loopback; whoever reaches it can read these files", err=True)
    serve(site, host, port, _ready)


def _store_place(store: str) -> str:
    """The place of the store, opened once to say at the start what is wrong with it."""
    from mlsdk.cli.dashboard.sources import open_store

    with open_store(store or None) as found:
        return found.where


def _ready(address: str) -> None:
    click.echo(f"Codegen Dashboard at {address} (Ctrl-C ends it)")
    sys.stdout.flush()


@click.command(epilog=examples.of("dashboard"))
@arguments
def dashboard(**given: Any) -> None:
    """Show a codegen_dir in the browser: layers, graph, instructions, traces, memory, advice."""
    start(**given)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def external() -> None:
    """The Codegen Dashboard of Open MLSDK."""


@external.command("serve")
@arguments
def serve_command(**given: Any) -> None:
    """Show a codegen_dir in the browser until Ctrl-C."""
    start(**given)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point of codegen-dashboard-external."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run the command line; the exit code."""
    from mlsdk.errors import MLSDKError, StoreError

    try:
        external.main(args=arguments, prog_name="codegen-dashboard-external", standalone_mode=False)
        return exit_codes.DONE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return exit_codes.INTERRUPTED
    except StoreError as error:
        click.echo(f"codegen-dashboard-external: {error}", err=True)
        return exit_codes.STORE
    except MLSDKError as error:
        click.echo(f"codegen-dashboard-external: {error}", err=True)
        return exit_codes.FAILED
