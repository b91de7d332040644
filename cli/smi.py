"""`gpfn3-smi`: list, reset, clear, load, save, configure and test the emulated boards.

Options look like those of Go programs: one or two dashes, `-name value` or `-name=value`, before or after the
device. Everything heavy
is imported by the command that needs it; `list` needs nothing.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mlsdk.device.board import names
from mlsdk.device.board.files import CLOCKS, BoardFiles
from mlsdk.device.errors import DeviceBusy, DeviceStateError
from mlsdk.errors import DeviceError

if TYPE_CHECKING:
    import numpy as np

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
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
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


def board_of(rest: list[str], command: str) -> BoardFiles:
    """The board that the arguments name: an index, a name, or a line of `list`."""
    if len(rest) == 2 and rest[0].endswith(":"):  # `gpfn3-smi reset $(gpfn3-smi list | head -1)`
        rest = rest[1:]
    if len(rest) != 1:
        raise UsageError(f"{command}: name one device (an index or a name of `gpfn3-smi list`)")
    _, name = names.find(rest[0])
    return BoardFiles(names.state_directory(), name)


_INTEGER = re.compile(r"[+-]?(0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO]?[0-7_]*|[1-9][0-9_]*)\Z", re.ASCII)


def integer(text: str, option: str, low: int, high: int) -> int:
    """A number as Go writes them: decimal, 0x, 0b, 0o or 0 (octal), with underscores between digits."""
    if not _INTEGER.match(text) or len(text) > 100 or "__" in text or text.endswith("_"):
        raise UsageError(f"-{option}: {text[:60]!r} is not an integer")
    sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("", text)
    octal = len(digits) > 1 and digits[0] == "0" and digits[1] in "01234567_"
    value = int(sign + digits, 8 if octal else 0)
    if not low <= value <= high:
        raise UsageError(f"-{option}: {text} is outside {low}..{high if high < 10**6 else hex(high)}")
    return value


# --- list ------------------------------------------------------------------------------------------------------------------
def run_list(options: dict[str, str], rest: list[str]) -> int:
    if rest:
        raise UsageError(f"list: takes no arguments, got {rest[0]!r}")
    known = names.board_names()
    if "json" not in options:
        for index, name in enumerate(known):  # scripts read `<index>: <name>`; people see more
            note = _note(BoardFiles(names.state_directory(), name)) if sys.stdout.isatty() else ""
            print(f"{index}: {name}{note}")
        return DONE
    rows = [{"index": index, "name": name, **_facts(name)} for index, name in enumerate(known)]
    print(json.dumps(rows, indent=2))
    return DONE


def _facts(name: str) -> dict[str, object]:
    """What `list --json` says about a board; of a damaged one only that."""
    files = BoardFiles(names.state_directory(), name)
    try:
        locked = files.locked()
        holder = files.holder() if locked else None
        told = holder and holder.alive and {"pid": holder.pid, "command": holder.command, "since": holder.since}
        return {
            "locked": locked,
            "holder": told or None,
            "memory_in_use": files.memory_in_use(),
            "fill": files.fill()["kind"],
            "generation": files.epoch(),
        }
    except DeviceError as error:
        return {"error": str(error)}


def _note(files: BoardFiles) -> str:
    """Behind a board's name in the list: who holds it, or what is wrong with it."""
    try:
        if not files.locked():
            files.fill()
            return ""
    except DeviceError as error:
        return f"  {error}"
    holder = files.holder()
    if holder is None or not holder.alive:
        return "  held by a process that did not leave its name"
    return f"  held by process {holder.pid} ({holder.command:.60})"


# --- reset, clear ----------------------------------------------------------------------------------------------------------
def run_reset(options: dict[str, str], rest: list[str]) -> int:
    files = board_of(rest, "reset")
    lock = None
    try:
        lock, _ = files.hold()
    except DeviceBusy:
        holder = files.holder()
        who = str(holder) if holder and holder.alive else "a process that did not leave its name"
        print(f"warning: {files.name} is locked by {who}; a reset voids its data", file=sys.stderr)
        if "force" not in options and not _confirmed(f"reset {files.name} anyway?"):
            print(f"gpfn3-smi: {files.name} was not reset", file=sys.stderr)
            return FAILED
    except DeviceStateError:  # damage, which a reset mends, or what the reset will say itself
        pass
    try:
        files.begin_generation({"kind": "zero", "value": 0, "on_chip": False})
    finally:
        if lock is not None:
            lock.release()
    return DONE


def _confirmed(question: str) -> bool:
    """What a person at a terminal says; a script means what it says, as with rm."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
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
    lock, _ = files.hold()
    try:  # a clear is a record: memory takes its contents from it when it is touched
        files.begin_generation({**fill, "on_chip": fill["kind"] != "zero"})
    finally:
        lock.release()
    return DONE


# --- load, save ------------------------------------------------------------------------------------------------------------
GROUPS = ("0", "1", "2", "3")
CHUNK_LW = 1 << 20  # memory is loaded and saved in pieces of this size


def _regions(options: dict[str, str], key: str) -> list[tuple[list[tuple[str, int]], int, int]]:
    """[(memories, offset, length)] of a configuration file."""
    for name in ("config", "file"):
        if name not in options:
            raise UsageError(f"{key}: -{name} is missing")
    path = options["config"]
    try:
        with open(path, encoding="utf-8-sig") as stream:
            config = json.load(stream)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
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
            or not all(type(entry.get(n)) is int for n in ("offset", "length"))
            or not isinstance(entry.get("region"), str)
        ):
            raise UsageError(f"{where}: region (text), offset and length (LW) are needed")
        memories = []
        for part in entry["region"].split(","):
            kind, digits = part.strip()[:-1], part.strip()[-1:]
            if kind not in ("dram", "pdm") or digits not in GROUPS:
                raise UsageError(f"{where}: region {part.strip()!r:.60} is not dram0..dram3 or pdm0..pdm3")
            size = spec.DRAM_LW if kind == "dram" else spec.PDM_LW
            if entry["offset"] < 0 or entry["length"] < 0 or entry["offset"] + entry["length"] > size:
                raise UsageError(
                    f"{where}: {entry['offset']} + {entry['length']} LW is outside {part.strip()} ({size} LW)"
                )
            memories.append((kind, GROUPS.index(digits)))
        found.append((memories, entry["offset"], entry["length"]))
    return found


def run_load(options: dict[str, str], rest: list[str]) -> int:
    regions = _regions(options, "load")
    files = board_of(rest, "load")
    from mlsdk.device.board import open_board

    data = _data(options["file"], sum(length for _, _, length in regions))
    with open_board(f"mncore2:{files.name}") as board:
        at = 0
        for memories, offset, length in regions:
            for start in range(0, length, CHUNK_LW):
                piece = data[at + start : at + min(start + CHUNK_LW, length)].astype("u8")
                for kind, group in memories:
                    (board.write_dram if kind == "dram" else board.write_pdm)(group, offset + start, piece)
            at += length
    return DONE


def _data(path: str, needed: int) -> np.ndarray:
    """The big-endian long words of a file, which holds at least `needed`; of a pipe that many are read."""
    import numpy as np

    try:
        with open(path, "rb") as stream:
            if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                size = os.fstat(stream.fileno()).st_size
                data = np.memmap(stream, ">u8", "r", shape=(size // 8,)) if size >= 8 else np.zeros(0, ">u8")
            else:
                content = stream.read(8 * needed)
                size = len(content)
                data = np.frombuffer(content[: size // 8 * 8], ">u8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    if size % 8:
        raise UsageError(f"{path}: {size} bytes are not whole long words of 8 bytes")
    if data.size < needed:
        raise UsageError(f"{path}: {data.size} LW, the configuration asks for {needed}")
    return data


def run_save(options: dict[str, str], rest: list[str]) -> int:
    regions = _regions(options, "save")
    files = board_of(rest, "save")
    from mlsdk.device.board import open_board

    path = options["file"]
    plain = os.path.isfile(path) or not os.path.exists(path)  # it appears whole or not at all
    aside = f"{os.path.realpath(path)}.{os.getpid()}" if plain else path
    try:
        with open_board(f"mncore2:{files.name}") as board, open(aside, "wb") as out:
            for memories, offset, length in regions:
                for kind, group in memories:
                    read = board.read_dram if kind == "dram" else board.read_pdm
                    for start in range(0, length, CHUNK_LW):
                        data = read(group, offset + start, min(CHUNK_LW, length - start))
                        out.write(data.astype(">u8").tobytes())
        if plain:
            os.replace(aside, os.path.realpath(path))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    finally:
        if plain and os.path.exists(aside):
            os.unlink(aside)
    return DONE


# --- config, mtest ---------------------------------------------------------------------------------------------------------
def run_config(options: dict[str, str], rest: list[str]) -> int:
    if len(rest) >= 2 and rest[-1] in ("clock", "mab"):
        what = rest[-1]
        files = board_of(rest[:-1], "config")
    else:
        raise UsageError("config: write `config <device> clock` or `config <device> mab`")
    if what == "mab":
        if options:
            raise UsageError("config: `mab` takes no options; clocks are set by `config <device> clock`")
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
            (Option("force", "", "Asks nothing on a terminal when another program has locked the device"),),
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
    if sys.stdout is None:  # it was closed
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            return run(words)
    if words[:1] == ["help"] and words[1:2] and words[1] in COMMANDS:
        words = [words[1], "--help"]
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
        code = command.run(arguments.values, arguments.rest)
        sys.stdout.flush()
        return code
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
    except OSError as error:  # a full disk behind standard output, for instance
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"gpfn3-smi: {error.filename or 'standard output'}: {error.strerror}", file=sys.stderr)
        return FAILED


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
