"""Sets of options: the built-in ones by name, and files in the format of option_json.

    {"envs": {"CODEGEN_SA_STEPS": 100, ...}, "args": ["--float_dtype=mixed", ...], "name": "mine"}

`envs` are environment variables of the compile; `args` apply in their order; `name` is for people. An option may also
stand as a member of its own. A file with the options of a codegen_dir (`option.json`) is such a file.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import PurePath
from typing import Any, NoReturn

from mlsdk.errors import OptionError

logger = logging.getLogger("mlsdk.options")

# From quick to thorough.
BUILT_IN: dict[str, dict[str, Any]] = {
    "debug": {"args": ["--scheduler=always_from_dram", "--simulation_mode=fake"]},
    "O0": {"args": ["--scheduler=always_from_dram", "--simulation_mode=fake"]},
    "O1": {
        "args": ["--scheduler=spill_opt", "--simulation_mode=fast"],
        "envs": {
            "CODEGEN_USE_MERGE": "1",
            "CODEGEN_SCHEDULE_PP_BEAM_WIDTH": "2",
            "CODEGEN_SCHEDULE_PP_BEAM_MAX_TURN": "4",
        },
    },
    "O2": {
        "args": ["--scheduler=auto_recompute_sa", "--simulation_mode=default"],
        "envs": {"CODEGEN_USE_MERGE": "1"},
    },
    "O3": {
        "args": ["--scheduler=auto_recompute_sa", "--simulation_mode=best", "--sa_expected_run_iters=4000"],
        "envs": {"CODEGEN_USE_MERGE": "1", "CODEGEN_SCHEDULE_PP_BEAM_WIDTH": "8"},
    },
    "O4": {
        "args": ["--scheduler=auto_recompute_sa", "--simulation_mode=best", "--sa_expected_run_iters=16000"],
        "envs": {
            "CODEGEN_USE_MERGE": "1",
            "CODEGEN_SCHEDULE_PP_BEAM_WIDTH": "16",
            "CODEGEN_SCHEDULE_PP_BEAM_MAX_TURN": "64",
            "CODEGEN_SCHEDULE_PP_BEAM_TURN_PRUNE_LIMIT": "8",
        },
    },
}

# Members that a codegen_dir's option.json has beside the format: what was resolved, and from where.
_FOR_PEOPLE = ("options", "origins")
_LARGEST = 1 << 20


@dataclass(frozen=True)
class Preset:
    """What a file or a built-in set asks for; values are not yet checked."""

    source: str  # in messages
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    envs: Mapping[str, Any] = field(default_factory=dict)


def find(text: str) -> Preset:
    """A preset by its name (`O1`), by a path that ends in `preset_options/O1.json`, or the file at a path."""
    try:
        facts = os.stat(text)
    except OSError as error:
        name = _built_in(text)
        if name is None:
            raise OptionError(
                f"option_json {text}: {error.strerror}; give a file, or one of {', '.join(BUILT_IN)}"
            ) from None
        return _preset(BUILT_IN[name], name, name)
    return _of_file(text, facts.st_mtime_ns, facts.st_size)


def _built_in(text: str) -> str | None:
    path = PurePath(text)
    name = path.name.removesuffix(".json")
    alone = path.parent == PurePath() or path.parent.name == "preset_options"
    return name if alone and name in BUILT_IN else None


@lru_cache(maxsize=16)  # asked for each phase of a compile; a changed file has another time or size
def _of_file(file: str, _changed: int, size: int) -> Preset:
    if size > _LARGEST:
        raise OptionError(f"option_json {file}: it has {size:,} bytes; a file of options has at most {_LARGEST:,}")
    data = read_json("option_json", file)
    return _preset(data, file, PurePath(file).name.removesuffix(".json"))


def _preset(data: Any, source: str, default_name: str) -> Preset:
    if not isinstance(data, dict):
        _refuse(source, f'it holds {type(data).__name__}; write an object {{"envs": {{}}, "args": []}}')
    rest = {name: value for name, value in data.items() if name not in ("envs", "args", "name", *_FOR_PEOPLE)}
    envs, args, name = data.get("envs", {}), data.get("args", []), data.get("name", default_name)
    if not isinstance(envs, dict):
        _refuse(source, f"envs is {type(envs).__name__}; write an object of names and values")
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        _refuse(source, 'args is no list of texts; write ["--float_dtype=float", ...]')
    if not isinstance(name, str):
        _refuse(source, f"name is {type(name).__name__}; write a text")
    options = {**rest, **dict(_argument(source, arg) for arg in args)}
    if options.pop("option_json", None) is not None:
        logger.warning("option_json %s: the option_json inside it is ignored; it cannot be nested", source)
    return Preset(source, name, options, envs)


def _argument(source: str, text: str) -> tuple[str, Any]:
    match = re.fullmatch(r"--([A-Za-z_]\w*)(?:=(.*))?", text, re.DOTALL)
    if match is None:
        _refuse(source, f"args holds {text!r:.80}; write --NAME=VALUE")
    name, value = match.groups()
    if value is None:
        return name, True
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
    except RecursionError:
        _refuse(source, f"args holds --{name}, which is nested too deep; write plain options")


def written(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Resolved options in the format of option_json: given back, they make the same compile."""
    left_out = ("envs", "option_json", "out_onnx")
    args = [
        f"--{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in values.items()
        if key not in left_out and value is not None
    ]
    return {"envs": dict(values.get("envs", {})), "args": args, "name": name}


def _refuse(source: str, told: str) -> NoReturn:
    raise OptionError(f"option_json {source}: {told}")


def read_json(name: str, file: str) -> Any:
    """Strict JSON: duplicate names and NaN are refused, errors say where."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen = dict(pairs)
        if len(seen) != len(pairs):
            twice = next(key for key, _value in pairs if sum(key == other for other, _ in pairs) > 1)
            where = [match.start() for match in re.finditer(re.escape(json.dumps(twice)) + r"\s*:", text)]
            raise OptionError(f"{name} {file}, {_place(text, where[-1:])}: the name {twice!r} stands twice; remove one")
        return seen

    def refuse(constant: str) -> Any:
        where = [match.start() for match in re.finditer(re.escape(constant), text)]
        raise OptionError(f"{name} {file}, {_place(text, where)}: {constant} is not JSON; give a finite number")

    try:
        with open(file, "rb") as source:
            text = source.read().decode("utf-8-sig")
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise OptionError(f"{name} {file}, line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise OptionError(f"{name} {file}: it is nested too deep; write plain options") from None
    except UnicodeDecodeError as error:
        raise OptionError(f"{name} {file}: it is not UTF-8 text ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise OptionError(f"{name} {file}: {error.strerror}; check the path") from None


def _place(text: str, found: list[int]) -> str:
    at = found[0] if found else 0
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"
