"""`mlsdk vsm`: check, run, format and measure MN-Core 2 assembly. Starts without torch and without the store."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlsdk.cli import exit_codes
from mlsdk.cli.packed import unpacked

if TYPE_CHECKING:
    from mlsdk.device.isa import model as m
    from mlsdk.device.isa.diagnostics import Diagnostic

FILE = click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
ANYWAY = " (--no-check runs it anyway)"
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
insert = click.option("--insert-nops", is_flag=True, help="Mend hazards with empty steps.")


@click.group()
def vsm() -> None:
    """Check and run MN-Core 2 assembly.

    FILE is a .vsm text, or - for standard input. Exit codes: 0 fine, 1 errors or failed expectations, 2 wrong command line.
    """


# --- reading -------------------------------------------------------------------------------------------------------------
def text_of(file: Path) -> str:
    """The text of a file; a click error that names what is wrong with it."""
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from None
    data = unpacked(data, str(file))
    if b"\0" in data[:65536]:
        raise click.ClickException(f"{file}: this is a binary file, not assembly text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{file}: not UTF-8 text (byte {error.start})") from None


def read(file: Path) -> tuple[tuple[m.Statement, ...], list[Diagnostic]]:
    from mlsdk.device.isa.parser import read as parse

    return parse(text_of(file), str(file))


def findings(file: Path) -> tuple[tuple[m.Statement, ...], list[Diagnostic]]:
    """The statements, and what the parser and the checks say."""
    from mlsdk.device.isa.checks import check
    from mlsdk.device.isa.parser import read as parse

    text = text_of(file)
    statements, problems = parse(text, str(file))
    return statements, _in_order(problems + check(statements, str(file), text))


def _in_order(diagnostics: list[Diagnostic]) -> list[Diagnostic]:
    """As they stand in the file."""
    return sorted(diagnostics, key=lambda d: (d.line, d.column))


def _as_dict(d: Diagnostic) -> dict[str, Any]:
    return {
        "severity": d.severity, "rule": d.rule, "message": d.message, "line": d.line, "column": d.column,
        "hint": d.hint, "file": d.source,
    }  # fmt: skip


def _errors(diagnostics: list[Diagnostic]) -> int:
    return sum(d.severity == "error" for d in diagnostics)


# --- check ---------------------------------------------------------------------------------------------------------------
@vsm.command()
@FILE
@insert
@click.option(
    "-o", "output", type=click.Path(path_type=Path), help="Where the mended program goes (default: standard output)."
)
@as_json
def check(file: Path, insert_nops: bool, output: Path | None, as_json: bool) -> int:
    """Report what is wrong with a program: syntax, parallel issue, ports, hazards, masks, moves.

    With --insert-nops the mended program is written, and only what empty steps cannot mend is reported.
    """
    statements, diagnostics = findings(file)
    if insert_nops:
        from mlsdk.device.isa.checks import check as check_statements
        from mlsdk.device.isa.checks import insert_nops as mend
        from mlsdk.device.isa.printer import format_program

        syntax = [d for d in diagnostics if d.rule in ("syntax", "operand", "mnemonic")]
        if not syntax:
            mended = mend(statements)
            diagnostics = _in_order(check_statements(mended, str(file), text_of(file)))
            _write(output, format_program(mended))
    errors = _errors(diagnostics)
    if as_json:
        click.echo(
            json.dumps({"file": str(file), "errors": errors, "diagnostics": [_as_dict(d) for d in diagnostics]}),
            err=insert_nops and output is None,
        )
    else:
        for d in diagnostics:
            click.echo(str(d), err=insert_nops)
        if not insert_nops:
            click.echo(f"{file}: {_plural(errors, 'error')}, {_plural(len(diagnostics) - errors, 'other finding')}")
    return exit_codes.FAILED if errors else exit_codes.DONE


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _write(output: Path | None, text: str) -> None:
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text)
    except OSError as error:
        raise click.ClickException(f"{output}: {error.strerror}") from None


# --- fmt -----------------------------------------------------------------------------------------------------------------
@vsm.command()
@FILE
@insert
@click.option("-w", "--write", is_flag=True, help="Rewrite the file.")
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit 1 if the file is not formatted.")
def fmt(file: Path, insert_nops: bool, write: bool, only_check: bool) -> int:
    """Print a program in its normal form: one spelling for each operand, comments kept."""
    from mlsdk.device.isa.checks import insert_nops as mend
    from mlsdk.device.isa.printer import format_program

    statements, problems = read(file)
    if problems:
        for d in problems:
            click.echo(str(d), err=True)
        return exit_codes.FAILED
    text = format_program(mend(statements) if insert_nops else statements)
    if only_check:
        if text == text_of(file):
            return exit_codes.DONE
        click.echo(f"{file}: not in its normal form; `mlsdk vsm fmt -w {file}` rewrites it", err=True)
        return exit_codes.FAILED
    if write and str(file) != "-":
        _write(file, text)
    else:
        click.echo(text, nl=False)
    return exit_codes.DONE


# --- stats ---------------------------------------------------------------------------------------------------------------
@vsm.command()
@FILE
@as_json
def stats(file: Path, as_json: bool) -> int:
    """Count steps and MV lines, as the public judge does, and the time that the program takes."""
    from mlsdk.device import spec
    from mlsdk.device.engine.clock import Clock

    statements, problems = read(file)
    if problems:
        for d in problems:
            click.echo(str(d), err=True)
        return exit_codes.FAILED
    clock = Clock()
    clock.run(statements)
    times = clock.finish()
    record = {
        "file": str(file), "steps": times.pe_steps, "moves": times.moves, "score": times.pe_steps + times.moves,
        "stall_steps": times.stall_steps, "total_steps": times.total_steps, "microseconds": times.cycles / spec.CLOCK_HZ * 1e6,
        "units": times.units, "assumed": dict(spec.ASSUMED) if times.moves else {},
    }  # fmt: skip
    if as_json:
        click.echo(json.dumps(record))
        return exit_codes.DONE
    click.echo(f"{file}: {times.pe_steps} PE steps + {_plural(times.moves, 'MV line')} = score {record['score']}")
    click.echo(
        f"time: {times.total_steps} steps ({times.stall_steps} of them stalls), {record['microseconds']:.3f} us at 750 MHz"
    )
    if times.moves:
        click.echo("MV latency and issue rate are assumed: their true numbers are not public")
    for unit, count in sorted(times.units.items(), key=lambda item: -item[1]):
        share = 100 * count / times.pe_steps if times.pe_steps else 0.0
        click.echo(f"  {unit:<10} {count:>10}  {share:5.1f} % of the steps")
    return exit_codes.DONE


# --- run -----------------------------------------------------------------------------------------------------------------
@vsm.command()
@FILE
@insert
@click.option(
    "-d",
    "dump",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the dumps to a file instead of standard output.",
)
@click.option(
    "--dram-image",
    "images",
    multiple=True,
    metavar="[GROUP:ADDRESS:]FILE",
    help="Load raw little-endian long words into DRAM first.",
)
@click.option(
    "--save-dram", "saves", multiple=True, metavar="GROUP:ADDRESS:COUNT:FILE", help="Write DRAM to a file afterwards."
)
@click.option("--steps", "max_steps", type=click.IntRange(min=0), metavar="N", help="Stop after N PE steps.")
@click.option(
    "--trace", type=click.Path(path_type=Path), metavar="FILE", help="Write events per unit as Chrome trace JSON."
)
@click.option("--strict", is_flag=True, help="Stop at what the manual does not promise.")
@click.option("--no-check", is_flag=True, help="Run without the static checks.")
@click.option(
    "--device", default="emu2", show_default=True, help="mncore2:auto, mncore2:N or emu2 (a private machine)."
)
@as_json
def run(file: Path, insert_nops: bool, dump: Path | None, images: tuple[str, ...], saves: tuple[str, ...], max_steps: int | None,
        trace: Path | None, strict: bool, no_check: bool, device: str, as_json: bool) -> int:  # fmt: skip
    """Execute a program and print its dumps in the documented format.

    Notes like `# expect=[1.0] / Float atol=1e-5` behind `d get` lines are compared; a failure gives exit code 1.
    """
    from mlsdk.device.board import open_board
    from mlsdk.device.errors import DeviceError, ExecutionError
    from mlsdk.device.isa.checks import check as check_statements
    from mlsdk.device.isa.checks import insert_nops as mend
    from mlsdk.device.isa.parser import read as parse

    text = text_of(file)
    statements, problems = parse(text, str(file))
    syntax = bool(problems)
    if not problems:
        if insert_nops:
            statements = mend(statements)
        if not no_check:
            problems = check_statements(statements, str(file), text)
    for d in _in_order(problems):
        if d.severity == "error":
            click.echo(str(d), err=True)
    if _errors(problems):
        click.echo(f"mlsdk: {file}: {_plural(_errors(problems), 'error')}; not run{'' if syntax else ANYWAY}", err=True)
        return exit_codes.FAILED
    writer = None
    if trace is not None:
        from mlsdk.device.engine.trace import TraceWriter

        writer = TraceWriter()
    import time

    try:
        with open_board(device) as board:
            board.machine.strict, board.machine.source = strict, text
            board.machine.expectations = []
            for image in images:
                _load(board, image)
            start = time.perf_counter()
            stats = board.run(statements, max_steps=max_steps, on_event=writer)
            seconds = time.perf_counter() - start
            for save in saves:
                _save(board, save)
            outcome = board.machine.expectations
    except ExecutionError as error:
        click.echo(f"mlsdk: {file}: {type(error).__name__}: {error}", err=True)
        return exit_codes.FAILED
    except DeviceError as error:
        click.echo(f"mlsdk: {error}", err=True)
        return exit_codes.FAILED
    except MemoryError:
        click.echo(f"mlsdk: {file}: not enough memory for what the program moves or reads", err=True)
        return exit_codes.FAILED
    if writer is not None and trace is not None:
        try:
            writer.write(trace)
        except OSError as error:
            raise click.ClickException(f"{trace}: {error.strerror}") from None
    dumps = "".join(line + "\n" for line in stats.dumps)
    if dump is not None:
        _write(dump, dumps)
    elif not as_json:
        click.echo(dumps, nl=False)
    for line in _not_run(statements, max_steps, len(stats.dumps)):
        click.echo(f"mlsdk: {file}: {line}", err=True)
    failures = [failure for _, _, found in outcome for failure in found]
    compared = sum(count for _, count, _ in outcome)
    if as_json:
        record = {
            "file": str(file), "device": device, "pe_steps": stats.pe_steps, "stall_steps": stats.stall_steps,
            "total_steps": stats.total_steps, "moves": stats.moves, "simulated_us": stats.seconds * 1e6, "seconds": seconds,
            "dumps": stats.dumps, "compared": compared,
            "failures": [{"line": failure.line, "message": failure.message} for failure in failures],
        }  # fmt: skip
        click.echo(json.dumps(record))
    for failure in failures:
        click.echo(f"{file}:{failure.line}: {failure.message}", err=True)
    if compared and not as_json:
        click.echo(f"{file}: {compared - len(failures)} of {compared} expected values found", err=True)
    return exit_codes.FAILED if failures else exit_codes.DONE


def _not_run(statements: tuple[m.Statement, ...], max_steps: int | None, dumps: int) -> list[str]:
    """What a reader may miss in the output."""
    from mlsdk.device.engine.machine import cut
    from mlsdk.device.isa import model as m
    from mlsdk.device.isa.checks import count_steps

    wanted = _dumps(m.unroll(statements))
    if not wanted:
        return [] if dumps else ["it has no `d get` lines, so there is nothing to print"]
    steps = count_steps(statements)
    if max_steps is None or steps <= max_steps:
        return []
    reached = _dumps(cut(statements, max_steps))
    return [
        f"stopped after {max_steps} of {steps} steps; {wanted - reached} of {wanted} `d get` lines were not reached"
    ]


def _dumps(statements: Any) -> int:
    from mlsdk.device.isa import model as m

    return sum(isinstance(s, m.DebugGet) for s in statements)


def _place(text: str, parts: int) -> tuple[list[int], Path]:
    """The numbers and the file of GROUP:ADDRESS:FILE."""
    *numbers, path = text.split(":", parts)
    try:
        return [int(number, 0) for number in numbers], Path(path)
    except ValueError:
        raise click.UsageError(f"{text}: the numbers before the file are not integers") from None


def _load(board: Any, text: str) -> None:
    import numpy as np

    numbers, path = _place(text, 2) if text.count(":") >= 2 else ([0, 0], Path(text))
    try:
        data = path.read_bytes()
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None
    if len(data) % 8:
        raise click.ClickException(f"{path}: {len(data)} bytes are not whole long words of 8 bytes")
    board.write_dram(numbers[0], numbers[1], np.frombuffer(data, "<u8").astype(np.uint64))


def _save(board: Any, text: str) -> None:
    if text.count(":") < 3:
        raise click.UsageError(f"--save-dram {text}: write GROUP:ADDRESS:COUNT:FILE")
    numbers, path = _place(text, 3)
    data = board.read_dram(numbers[0], numbers[1], numbers[2])
    try:
        path.write_bytes(data.astype("<u8").tobytes())
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None
