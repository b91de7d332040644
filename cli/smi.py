"""`gpfn3-smi`: list, reset, clear, load, save, configure and test the emulated boards.

Options look like those of Go programs: one or two dashes, `-name value` or `-name=value`, before or after the
device. Everything heavy
is imported by the command that needs it; `list` needs nothing.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from mlsdk.device.board import names
from mlsdk.device.board.files import CLOCKS, BoardFiles
from mlsdk.errors import DeviceError

DONE, FAILED, USAGE = 0, 1, 2


class UsageError(Exception):
    """The command line is wrong."""


@dataclass(frozen=True)
class Option:
    """A flag: `kind` is "" for a switch, else what its value is called in the help."""

    name: str
    kind: str
    help: str


@dataclass(frozen=True)
class Command:
    name: str
    usage: str
    summary: str
    run: Callable[[dict[str, str], list[str]], int]
    options: tuple[Option, ...] = ()
    examples: tuple[str, ...] = ()
    details: str = ""


@dataclass
class Arguments:
    values: dict[str, str] = field(default_factory=dict)
    rest: list[str] = field(default_factory=list)


# --- command line ----------------------------------------------------------------------------------------------------------
def parse(command: Command, words: list[str]) -> Arguments | None:
    """Options and the rest; None if help was asked for."""
    known = {option.name: option for option in command.options}
    found = Arguments()
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            found.rest += words[at:]
            break
        if not word.startswith("-") or word == "-" or (word[1:2].isdigit() and not known):
            found.rest.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if name in ("h", "help"):
            return None
        option = known.get(name)
        if option is None:
            import difflib

            close = difflib.get_close_matches(name, known, n=1)
            hint = (
                f"; did you mean -{close[0]}?"
                if close
                else f"; options are {', '.join('-' + n for n in known) or 'none'}"
            )
            raise UsageError(f"{command.name}: unknown option {word}{hint}")
        if not option.kind:
            if equals and value not in ("true", "1", "false", "0"):
                raise UsageError(f"{command.name}: -{name} takes no value")
            if value not in ("false", "0"):
                found.values[name] = "true"
            continue
        if not equals:
            if at >= len(words):
                raise UsageError(f"{command.name}: -{name} needs a value ({option.kind})")
            value = words[at]
            at += 1
        found.values[name] = value
    return found


def help_of(command: Command) -> str:
    lines = [command.summary, ""]
    if command.details:
        lines += [command.details, ""]
    lines.append(f"Usage: gpfn3-smi {command.usage}")
    if command.options:
        lines += ["", "Options:"]
        for option in command.options:
            lines.append(f"  -{option.name}{' ' + option.kind if option.kind else ''}")
            lines.append(f"         {option.help}")
    if command.examples:
        lines += ["", "Examples:", *(f"    gpfn3-smi {example}" for example in command.examples)]
    return "\n".join(lines) + "\n"


def board_of(rest: list[str], command: str, extra: int = 0) -> BoardFiles:
    """The board that the arguments name: an index, a name, or a line of `list`."""
    if len(rest) >= 2 + extra and rest[0].endswith(":"):  # `gpfn3-smi reset $(gpfn3-smi list | head -1)`
        held = rest.index("held") if "held" in rest else len(rest) - extra
        rest = [*rest[1:held], *rest[len(rest) - extra :]]
    if len(rest) != 1 + extra:
        raise UsageError(f"{command}: name one device (an index or a name of `gpfn3-smi list`)")
    _, name = names.find(rest[0])
    return BoardFiles(names.state_directory(), name)


def integer(text: str, option: str, low: int, high: int) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        raise UsageError(f"-{option}: {text!r} is not an integer") from None
    if not low <= value <= high:
        raise UsageError(f"-{option}: {text} is outside {low}..{high:#x}")
    return value


# --- list ------------------------------------------------------------------------------------------------------------------
def run_list(options: dict[str, str], rest: list[str]) -> int:
    if rest:
        raise UsageError(f"list: takes no arguments, got {rest[0]!r}")
    known = names.board_names()
    if "json" not in options:
        for index, name in enumerate(known):
            print(f"{index}: {name}{_held(BoardFiles(names.state_directory(), name))}")
        return DONE
    rows = []
    for index, name in enumerate(known):
        files = BoardFiles(names.state_directory(), name)
        locked = files.locked()
        holder = files.holder() if locked else None
        rows.append(
            {
                "index": index,
                "name": name,
                "locked": locked,
                "holder": {"pid": holder.pid, "command": holder.command, "since": holder.since}
                if holder and holder.alive
                else None,
                "memory_in_use": files.memory_in_use(),
                "fill": files.fill()["kind"],
                "generation": files.epoch(),
            }
        )
    print(json.dumps(rows, indent=2))
    return DONE


def _held(files: BoardFiles) -> str:
    """Behind a board's name in the list: who holds it."""
    if not files.locked():
        return ""
    holder = files.holder()
    if holder is None or not holder.alive:
        return "  held by a process that did not leave its name"
    command = "".join(char if char.isprintable() else "?" for char in holder.command)
    return f"  held by process {holder.pid} ({command:.60})"


# --- reset, clear ----------------------------------------------------------------------------------------------------------
def run_reset(options: dict[str, str], rest: list[str]) -> int:
    files = board_of(rest, "reset")
    if files.locked():
        holder = files.holder()
        who = str(holder) if holder and holder.alive else "a process that did not leave its name"
        print(f"warning: {files.name} is locked by {who}; a reset voids its data", file=sys.stderr)
        if "force" not in options and not _confirmed(f"reset {files.name} anyway?"):
            print(f"gpfn3-smi: {files.name} was not reset; --force resets it", file=sys.stderr)
            return FAILED
    files.begin_generation({"kind": "zero", "value": 0, "on_chip": False})
    return DONE


def _confirmed(question: str) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def run_clear(options: dict[str, str], rest: list[str]) -> int:
    chosen = [name for name in ("pattern", "seed", "zero") if name in options]
    if len(chosen) > 1:
        raise UsageError(f"clear: -{chosen[0]} and -{chosen[1]} exclude each other")
    if "pattern" in options:
        fill = {"kind": "pattern", "value": integer(options["pattern"], "pattern", 0, 2**64 - 1)}
    elif "zero" in options:
        fill = {"kind": "zero", "value": 0}
    elif "seed" in options:
        fill = {"kind": "random", "value": integer(options["seed"], "seed", -(2**63), 2**63 - 1)}
    else:
        fill = {"kind": "random", "value": int.from_bytes(os.urandom(7), "little")}
    files = board_of(rest, "clear")
    from mlsdk.device.board.lock import acquire

    files.prepare()
    lock = acquire(files.lock_path(), files.name)
    try:
        parts = ["DRAM", "PDM", "L2BM", "L1BM", "LM", "GRF", "masks"]
        for done, part in enumerate(parts, 1):
            _progress(done, len(parts), part)
        files.begin_generation({**fill, "on_chip": fill["kind"] != "zero"})
    finally:
        lock.release()
    return DONE


def _progress(done: int, total: int, what: str) -> None:
    """A bar on standard error. A clear is a record, so that the bar is short."""
    width = 32 * done // total
    end = "\n" if done == total else ""
    if sys.stderr.isatty():
        print(
            f"\r[{'=' * width}{' ' * (32 - width)}] {100 * done // total:3d} % {what:<6}",
            end=end,
            file=sys.stderr,
            flush=True,
        )
    elif done == total:
        print(f"[{'=' * 32}] 100 %", file=sys.stderr)


# --- load, save ------------------------------------------------------------------------------------------------------------
def _regions(options: dict[str, str], key: str) -> list[tuple[list[tuple[str, int]], int, int]]:
    """[(memories, offset, length)] of a configuration file."""
    for name in ("config", "file"):
        if name not in options:
            raise UsageError(f"{key}: -{name} is missing")
    path = options["config"]
    try:
        with open(path, encoding="utf-8") as stream:
            config = json.load(stream)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: not JSON: {error}") from None
    entries = config.get(key) if isinstance(config, dict) else None
    if not isinstance(entries, list):
        raise UsageError(
            f'{path}: no list "{key}"; write {{"{key}": [{{"region": "dram0", "offset": 0, "length": 64}}]}}'
        )
    from mlsdk.device import spec

    found = []
    for number, entry in enumerate(entries):
        where = f'{path}: "{key}"[{number}]'
        if (
            not isinstance(entry, dict)
            or not all(isinstance(entry.get(n), int) for n in ("offset", "length"))
            or not isinstance(entry.get("region"), str)
        ):
            raise UsageError(f"{where}: region (text), offset and length (LW) are needed")
        memories = []
        for part in entry["region"].split(","):
            kind, digits = part.strip().rstrip("0123456789"), part.strip().lstrip("abcdefghijklmnopqrstuvwxyz")
            if kind not in ("dram", "pdm") or not digits.isdigit() or int(digits) >= spec.GROUPS:
                raise UsageError(f"{where}: region {part.strip()!r} is not dram0..dram3 or pdm0..pdm3")
            size = spec.DRAM_LW if kind == "dram" else spec.PDM_LW
            if entry["offset"] < 0 or entry["length"] < 0 or entry["offset"] + entry["length"] > size:
                raise UsageError(
                    f"{where}: {entry['offset']} + {entry['length']} LW is outside {part.strip()} ({size} LW)"
                )
            memories.append((kind, int(digits)))
        found.append((memories, entry["offset"], entry["length"]))
    return found


def run_load(options: dict[str, str], rest: list[str]) -> int:
    regions = _regions(options, "load")
    files = board_of(rest, "load")
    import numpy as np

    from mlsdk.device.board import open_board

    try:
        data = np.fromfile(options["file"], ">u8").astype(np.uint64)
    except OSError as error:
        raise UsageError(f"{options['file']}: {error.strerror}") from None
    needed = sum(length for _, _, length in regions)
    if data.size < needed:
        raise UsageError(f"{options['file']}: {data.size} LW, the configuration asks for {needed}")
    with open_board(f"mncore2:{files.name}") as board:
        at = 0
        for memories, offset, length in regions:
            for kind, group in memories:
                (board.write_dram if kind == "dram" else board.write_pdm)(group, offset, data[at : at + length])
            at += length
    return DONE


def run_save(options: dict[str, str], rest: list[str]) -> int:
    regions = _regions(options, "save")
    files = board_of(rest, "save")
    from mlsdk.device.board import open_board

    try:
        with open_board(f"mncore2:{files.name}") as board, open(options["file"], "wb") as out:
            for memories, offset, length in regions:
                for kind, group in memories:
                    data = (board.read_dram if kind == "dram" else board.read_pdm)(group, offset, length)
                    out.write(data.astype(">u8").tobytes())
    except OSError as error:
        raise UsageError(f"{options['file']}: {error.strerror}") from None
    return DONE


# --- config, mtest ---------------------------------------------------------------------------------------------------------
def run_config(options: dict[str, str], rest: list[str]) -> int:
    if len(rest) >= 2 and rest[-1] in ("clock", "mab"):
        what = rest[-1]
        files = board_of(rest[:-1], "config")
    else:
        raise UsageError("config: write `config <device> clock` or `config <device> mab`")
    if what == "mab":
        from mlsdk.device import spec

        print(f"MABs: {spec.MABS} of {spec.MABS} enabled ({spec.L1BS} L1Bs of {spec.MAB_PER_L1B})")
        return DONE
    clocks = files.clocks()
    chosen = {
        name: integer(options[name], name, low, high) for name, (_, _, low, high) in CLOCKS.items() if name in options
    }
    if chosen:
        clocks |= chosen
        files.set_clocks(clocks)
    for name, (unit, _, _, _) in CLOCKS.items():
        print(f"{name}: {clocks[name]} {unit}")
    return DONE


def run_mtest(options: dict[str, str], rest: list[str]) -> int:
    sizes = {
        name: integer(options.get(name, default), name, 1, limit)
        for name, default, limit in (
            ("l1", "64", 8192),
            ("l2", "2048", 32768),
            ("l3", "64", 524288),
            ("dram", "3968", 1 << 20),
        )
    }
    mode = options.get("dmode", "h")
    if mode not in ("h", "f", "d"):
        raise UsageError(f"-dmode: {mode!r} is not h, f or d")
    files = board_of(rest, "mtest")
    from mlsdk.device.board import open_board
    from mlsdk.device.board.selftest import self_test

    failed = 0
    with open_board(f"mncore2:{files.name}") as board:
        for name, good, detail in self_test(board, sizes, mode):
            print(f"{name:<28} {'ok' if good else 'FAILED'}{'  ' + detail if detail else ''}", flush=True)
            failed += not good
    print(f"{files.name}: {'all tests passed' if not failed else f'{failed} tests failed'}")
    return FAILED if failed else DONE


COMMANDS = {
    command.name: command
    for command in (
        Command(
            "list",
            "list [options...]",
            "Lists the available devices.",
            run_list,
            (Option("json", "", "Prints name, lock holder, since when, and memory in use as JSON"),),
        ),
        Command(
            "reset",
            "reset [options...] <device>",
            "Resets a device.",
            run_reset,
            (Option("force", "", "Resets a device that another program has locked"),),
            ("reset 0",),
            "A program that uses the device loses its progress: its next call fails. The device's memory is zero afterwards.",
        ),
        Command(
            "clear",
            "clear [options...] <device>",
            "Clears all memory on the device. Mask registers are set to all ones regardless of the options.",
            run_clear,
            (
                Option("pattern", "uint", "Fills the memory with the specified uint64 value instead of random bytes"),
                Option("seed", "int", "Seed value for random byte generation"),
                Option("zero", "", "Fills the memory with zeros instead of random bytes"),
            ),
            ("clear --seed 1234 0", "clear --zero 0", "clear --pattern 0x5555555555555555 0"),
        ),
        Command(
            "load",
            "load -config cfg.json -file data.bin <device>",
            "Loads a file into memory of the device.",
            run_load,
            (
                Option(
                    "config",
                    "file",
                    'JSON: {"load": [{"region": "dram0", "offset": LW, "length": LW}]}; a list of regions gets the same data',
                ),
                Option("file", "file", "Long words, big-endian"),
            ),
        ),
        Command(
            "save",
            "save -config cfg.json -file data.bin <device>",
            "Saves memory of the device to a file.",
            run_save,
            (
                Option(
                    "config",
                    "file",
                    'JSON: {"save": [{"region": "dram0", "offset": LW, "length": LW}]}; a list of regions is saved '
                    "one after the other",
                ),
                Option("file", "file", "Long words, big-endian"),
            ),
        ),
        Command(
            "config",
            "config <device> clock [options...] | config <device> mab",
            "Shows or sets clocks; shows the MABs.",
            run_config,
            (Option("core", "MHz", "Core clock"), Option("gddr6", "Mbps", "DRAM data rate")),
            ("config 0 clock --core 750 --gddr6 15000",),
        ),
        Command(
            "mtest",
            "mtest [options...] <device>",
            "Tests memories, network and arithmetic of the device.",
            run_mtest,
            (
                Option("forward", "", "Accepted for compatibility: data is always tested on its way in and out"),
                Option("dmode", "mode", "Precision of the arithmetic test: h, f or d (default h)"),
                Option("l1", "LW", "Long words of L1BM to test (default 64)"),
                Option("l2", "LW", "Long words of L2BM to test (default 2048)"),
                Option("l3", "LW", "Long words of PDM to test (default 64)"),
                Option("dram", "LW", "Long words of DRAM to test (default 3968)"),
            ),
            ("mtest --forward --dmode h --l1 64 --l2 2048 --l3 64 --dram 3968 0",),
            "What lies in the tested areas is put back.",
        ),
    )
}


def overview() -> str:
    width = max(map(len, COMMANDS))
    return (
        "gpfn3-smi manages the emulated MN-Core 2 boards (Open MLSDK, unofficial).\n\n"
        "Usage: gpfn3-smi <command> [options...]\n\nCommands:\n"
        + "".join(f"  {command.name:<{width}}  {command.summary}\n" for command in COMMANDS.values())
        + "\n`gpfn3-smi <command> --help` shows the options of a command.\n"
    )


def run(words: list[str]) -> int:
    """Runs a command line; the exit code."""
    if not words or words[0] in ("-h", "--help", "-help", "help"):
        print(overview(), end="")
        return DONE if words else USAGE
    command = COMMANDS.get(words[0])
    try:
        if command is None:
            import difflib

            close = difflib.get_close_matches(words[0], COMMANDS, n=1)
            raise UsageError(
                f"no command {words[0]!r}"
                + (f"; did you mean {close[0]}?" if close else f"; commands are {', '.join(COMMANDS)}")
            )
        arguments = parse(command, words[1:])
        if arguments is None:
            print(help_of(command), end="")
            return DONE
        return command.run(arguments.values, arguments.rest)
    except UsageError as error:
        print(f"gpfn3-smi: {error}", file=sys.stderr)
        return USAGE
    except DeviceError as error:
        print(f"gpfn3-smi: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
