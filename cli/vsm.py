"""`mlsdk vsm`: check, run, format and measure MN-Core 2 assembly. Starts without torch and without the store."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlsdk.cli import examples, exit_codes
from mlsdk.cli.packed import LARGEST, is_packed, unpacked

if TYPE_CHECKING:
    from mlsdk.device.isa import model as m
    from mlsdk.device.isa.diagnostics import Diagnostic

FILE = click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
ANYWAY = " (--no-check runs it anyway)"
MENDED = " (--insert-nops mends them, --no-check runs it anyway)"
CHUNK_BYTES = 1 << 23  # files are read, and DRAM is saved, in pieces of this size
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
insert = click.option("--insert-nops", is_flag=True, help="Mend hazards with empty steps.")


@click.group(epilog=examples.of("vsm"))
def vsm() -> None:
    """Check and run MN-Core 2 assembly.

    FILE is a .vsm text, or - for standard input. Exit codes: 0 fine, 1 errors or failed expectations, 2 wrong command line.
    """


# --- reading -------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Source:
    """A file that was read once, since it may be a pipe. `packed`: it is a zstd frame on the disk."""

    file: Path
    text: str
    packed: bool

    @property
    def name(self) -> str:
        return str(self.file)

    def read(self) -> tuple[tuple[m.Statement, ...], list[Diagnostic]]:
        """The statements, and what the parser says."""
        from mlsdk.device.isa.parser import read as parse

        return parse(self.text, self.name)

    def check(self, statements: tuple[m.Statement, ...]) -> list[Diagnostic]:
        """What the checks say about them, or about what became of them."""
        from mlsdk.device.isa.checks import check

        return check(statements, self.name, self.text)


def source_of(file: Path) -> Source:
    """A file or standard input; a click error that names what is wrong with it."""
    try:
        data = b"".join(_pieces(file))
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from None
    packed = is_packed(data)
    data = unpacked(data, str(file))
    _not_binary(data, file)
    try:
        return Source(file, data.decode("utf-8"), packed)
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{file}: not UTF-8 text (byte {error.start})") from None


def _pieces(file: Path) -> Iterator[bytes]:
    """The bytes of a file, which may be a device without an end."""
    if str(file) == "-" and sys.stdin is None:
        raise click.ClickException("-: standard input is closed")
    size = 0
    with nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as stream:
        while piece := stream.read(CHUNK_BYTES):
            if not size and not is_packed(piece):
                _not_binary(piece, file)
            size += len(piece)
            if size > LARGEST:
                raise click.ClickException(f"{file}: it has more than {LARGEST:,} bytes; split the program")
            yield piece


def _not_binary(data: bytes, file: Path) -> None:
    if b"\0" in data[:65536]:
        raise click.ClickException(f"{file}: this is a binary file, not assembly text")


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
@vsm.command(epilog=examples.of("vsm check"))
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
    source = source_of(file)
    statements, problems = source.read()
    if insert_nops and not problems:
        from mlsdk.device.isa.checks import insert_nops as mend
        from mlsdk.device.isa.printer import format_program

        statements = mend(statements)
        _write(output, format_program(statements))
    diagnostics = _in_order(problems + source.check(statements))
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
@vsm.command(epilog=examples.of("vsm fmt"))
@FILE
@insert
@click.option("-w", "--write", is_flag=True, help="Rewrite the file.")
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit 1 if the file is not formatted.")
def fmt(file: Path, insert_nops: bool, write: bool, only_check: bool) -> int:
    """Print a program in its normal form: one spelling for each operand, comments kept."""
    from mlsdk.device.isa.checks import insert_nops as mend
    from mlsdk.device.isa.printer import format_program

    if write and only_check:
        raise click.UsageError("--write and --check exclude each other")
    if write and not file.is_file() and (str(file) == "-" or file.exists()):
        raise click.UsageError(f"--write: {file} is no regular file; leave --write out to print the program")
    source = source_of(file)
    if write and source.packed:
        raise click.UsageError(f"--write: {file} is packed; leave --write out, or unpack it with `zstd -d`")
    statements, problems = source.read()
    if problems:
        for d in problems:
            click.echo(str(d), err=True)
        return exit_codes.FAILED
    text = format_program(mend(statements) if insert_nops else statements)
    if only_check:
        if text == source.text:
            return exit_codes.DONE
        click.echo(f"{file}: not in its normal form; `mlsdk vsm fmt -w` rewrites a file", err=True)
        return exit_codes.FAILED
    if not write:
        click.echo(text, nl=False)
    elif text != source.text:
        _rewrite(file, text)
    return exit_codes.DONE


def _rewrite(file: Path, text: str) -> None:
    """Gives a file new contents, or leaves it as it is."""
    target = Path(os.path.realpath(file))
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        try:
            aside.write_text(text, encoding="utf-8", newline="")
            shutil.copymode(target, aside)
            os.replace(aside, target)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise click.ClickException(f"{file}: it was not rewritten: {error.strerror}") from None


# --- stats ---------------------------------------------------------------------------------------------------------------
@vsm.command(epilog=examples.of("vsm stats"))
@FILE
@as_json
def stats(file: Path, as_json: bool) -> int:
    """Count steps and MV lines, as the public judge does, and the time that the program takes."""
    from mlsdk.device import spec
    from mlsdk.device.engine.clock import Clock
    from mlsdk.device.errors import ExecutionError

    statements, problems = source_of(file).read()
    if problems:
        for d in problems:
            click.echo(str(d), err=True)
        return exit_codes.FAILED
    clock = Clock()
    try:
        clock.run(statements)
    except ExecutionError as error:
        click.echo(f"mlsdk: {file}: {error}", err=True)
        return exit_codes.FAILED
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
@vsm.command(epilog=examples.of("vsm run"))
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
    from mlsdk.device.isa.checks import insert_nops as mend

    loads, wanted = [Span.to_load(text) for text in images], [Span.to_save(text) for text in saves]
    for path in (dump, trace, *(span.path for span in wanted)):
        if path is not None:
            _writable(path)
    source = source_of(file)
    statements, problems = source.read()
    what_now = ""
    if not problems:
        if insert_nops:
            statements = mend(statements)
        if not no_check:
            problems = source.check(statements)
        hazards = all(d.rule.startswith("hazard") for d in problems if d.severity == "error")
        what_now = MENDED if hazards else ANYWAY
    for d in _in_order(problems):
        if d.severity == "error":
            click.echo(str(d), err=True)
    if _errors(problems):
        click.echo(f"mlsdk: {file}: {_plural(_errors(problems), 'error')}; not run{what_now}", err=True)
        return exit_codes.FAILED
    writer = None
    if trace is not None:
        from mlsdk.device.engine.trace import TraceWriter

        writer = TraceWriter()
    import time

    try:
        with open_board(device) as board:
            board.machine.strict, board.machine.source = strict, source.text
            board.machine.expectations = []
            for span in loads:
                span.load(board)
            start = time.perf_counter()
            stats = board.run(statements, max_steps=max_steps, on_event=writer)
            seconds = time.perf_counter() - start
            outcome = board.machine.expectations
            dumps = "".join(line + "\n" for line in stats.dumps)
            if dump is not None:
                _write(dump, dumps)
            elif not as_json:
                click.echo(dumps, nl=False)
            for span in wanted:
                span.save(board)
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


def _writable(path: Path) -> None:
    """A run of hours does not end with a file that cannot be written."""
    if path.is_dir():
        raise click.ClickException(f"{path}: Is a directory")
    if not path.parent.is_dir():
        raise click.ClickException(f"{path}: there is no directory {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.ClickException(f"{path}: Permission denied")


@dataclass(frozen=True)
class Span:
    """`count` LW of DRAM of a group from `address` on, and the file that they come from or go to."""

    option: str
    group: int
    address: int
    count: int
    path: Path

    def __post_init__(self) -> None:
        from mlsdk.device import spec

        if not 0 <= self.group < spec.GROUPS:
            raise click.UsageError(f"{self.option}: group {self.group} is outside 0..{spec.GROUPS - 1}")
        if self.address < 0 or self.count < 0 or self.address + self.count > spec.DRAM_LW:
            end = self.address + self.count
            raise click.UsageError(f"{self.option}: DRAM {self.address}..{end} is outside 0..{spec.DRAM_LW} LW")

    @classmethod
    def to_load(cls, text: str) -> Span:
        """From [GROUP:ADDRESS:]FILE; the file says how much."""
        option = f"--dram-image {text}"
        (group, address), path = _numbers(option, text, 2) if text.count(":") >= 2 else ([0, 0], Path(text))
        try:
            with path.open("rb") as stream:
                size = stream.seek(0, os.SEEK_END)
        except OSError as error:
            raise click.ClickException(f"{path}: {error.strerror}") from None
        if size % 8:
            raise click.ClickException(f"{path}: {size} bytes are not whole long words of 8 bytes")
        return cls(option, group, address, size // 8, path)

    @classmethod
    def to_save(cls, text: str) -> Span:
        """From GROUP:ADDRESS:COUNT:FILE."""
        option = f"--save-dram {text}"
        if text.count(":") < 3:
            raise click.UsageError(f"{option}: write GROUP:ADDRESS:COUNT:FILE")
        (group, address, count), path = _numbers(option, text, 3)
        return cls(option, group, address, count, path)

    def _chunks(self) -> Iterator[tuple[int, int]]:
        """(address, count) of each piece."""
        for start in range(0, self.count, CHUNK_BYTES // 8):
            yield self.address + start, min(CHUNK_BYTES // 8, self.count - start)

    def load(self, board: Any) -> None:
        import numpy as np

        try:
            with self.path.open("rb") as stream:
                for address, count in self._chunks():
                    board.write_dram(self.group, address, np.fromfile(stream, "<u8", count).astype(np.uint64))
        except OSError as error:
            raise click.ClickException(f"{self.path}: {error.strerror}") from None

    def save(self, board: Any) -> None:
        try:
            with self.path.open("wb") as stream:
                for address, count in self._chunks():
                    stream.write(board.read_dram(self.group, address, count).astype("<u8").tobytes())
        except OSError as error:
            raise click.ClickException(f"{self.path}: {error.strerror}") from None


def _numbers(option: str, text: str, parts: int) -> tuple[list[int], Path]:
    """The numbers and the file of GROUP:ADDRESS:FILE."""
    *numbers, path = text.split(":", parts)
    try:
        return [int(number, 0) for number in numbers], Path(path)
    except ValueError:
        raise click.UsageError(f"{option}: the numbers before the file are not integers") from None
