"""The command `mlsdk`. Subcommands are imported when they are called, so that `--help` stays fast."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from mlsdk.cli import examples, exit_codes

# name -> (module:command, help)
COMMANDS: dict[str, tuple[str, str]] = {
    "bisect": ("mlsdk.cli.bisect:bisect", "Find the first node of a compiled function that goes wrong on the board."),
    "build": ("mlsdk.cli.build:build", "Build a workflow; what is in the store is not built again."),
    "compare": (
        "mlsdk.cli.compare:compare",
        "Compare two compiles: options, steps, DRAM bytes, and the nodes that differ.",
    ),
    "dashboard": ("mlsdk.cli.dashboard.command:dashboard", "Show a codegen_dir, or a store, in the browser."),
    "options": ("mlsdk.cli.options:options", "List the compile options with their values."),
    "run": ("mlsdk.cli.build:run", "Build a workflow, run it on the board, and print its summary."),
    "store": ("mlsdk.cli.store:store", "Look into the artifact store, check it, clean it."),
    "vsm": ("mlsdk.cli.vsm:vsm", "Check and run MN-Core 2 assembly."),
}


class LazyGroup(click.Group):
    """A group that knows its commands' names and help texts without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _colon, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"no command {args[0]!r}{_nearest(args[0])}; the commands are {', '.join(COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


def _nearest(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, COMMANDS, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        import importlib.metadata

        click.echo(f"mlsdk {importlib.metadata.version('open-mlsdk')} (Open MLSDK, unofficial)")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=examples.BEGINNING)
@click.option("--version", is_flag=True, callback=_version, expose_value=False, is_eager=True, help="Show the version.")
@click.option("--debug", is_flag=True, help="Show tracebacks, and Luigi's log.")
def cli(debug: bool) -> None:
    """Open MLSDK: PyTorch functions to MN-Core 2 assembly, and an emulated board that runs it."""
    if debug:
        import logging

        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point: run, and exit with one of the codes of exit_codes.py."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run a command line; the exit code."""
    try:
        code = cli.main(args=arguments, prog_name="mlsdk", standalone_mode=False)
        return code if isinstance(code, int) else exit_codes.DONE
    except click.ClickException as error:
        if isinstance(error, click.UsageError):
            error.show()
        else:
            click.echo(f"mlsdk: {error.format_message()}", err=True)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has left. Keep the interpreter from complaining when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.DONE
    except Exception as error:
        return _failed(error, "--debug" in arguments)


def _failed(error: Exception, debug: bool) -> int:
    """One line on standard error; the traceback only on demand."""
    from mlsdk.errors import MLSDKError, StoreError

    if debug:
        import traceback

        traceback.print_exception(getattr(error, "shown", error))
    line = " ".join(part.strip() for part in str(error).splitlines() if part.strip())
    if isinstance(error, StoreError):
        click.echo(f"mlsdk: {line}", err=True)
        return exit_codes.STORE
    if isinstance(error, MLSDKError):
        click.echo(f"mlsdk: {line}", err=True)
        return exit_codes.FAILED
    if isinstance(error, OSError) and error.strerror:  # a full disk behind standard output, for instance
        name = f"{error.filename}: " if error.filename else ""
        click.echo(f"mlsdk: {name}{error.strerror}", err=True)
        return exit_codes.FAILED
    if isinstance(error, MemoryError):
        click.echo(f"mlsdk: not enough memory{f' ({line})' if line else ''}; ask for less at once", err=True)
        return exit_codes.FAILED
    click.echo(f"mlsdk: {type(error).__name__}: {line} (a bug of Open MLSDK? see it with --debug)", err=True)
    return exit_codes.BUG


if __name__ == "__main__":
    main()
