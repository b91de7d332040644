"""The compile options: one row each, with the phases whose output it can change.

A phase's key holds the resolved values of the options whose row names that phase, and no others.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlsdk.errors import OptionError


@dataclass(frozen=True)
class Option:
    name: str
    default: Any
    check: Callable[[str, Any], Any]  # (name, value) -> resolved value; raises OptionError
    help: str
    phases: tuple[str, ...] = ()  # whose output it can change


def choice(*values: str) -> Callable[[str, Any], Any]:
    def check(name: str, value: Any) -> str:
        if value in values and isinstance(value, str):
            return value
        near = nearest(value, values)
        raise OptionError(f"option {name}: {value!r} is not allowed{near}; give one of {', '.join(values)}")

    return check


def fraction(name: str, value: Any) -> float:
    """A number from 0 to 1, both included."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise OptionError(f"option {name}: {value!r} is no number; give a number from 0 to 1")
    if not 0 <= value <= 1:
        raise OptionError(f"option {name}: {value!r} is out of range; give a number from 0 to 1")
    return float(value)


def count(lowest: int, highest: int) -> Callable[[str, Any], Any]:
    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise OptionError(
                f"option {name}: {value!r} is not allowed; give a whole number from {lowest} to {highest}"
            )
        return value

    return check


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise OptionError(f"option {name}: {value!r} is not allowed; give true or false")
    return value


def path(name: str, value: Any) -> str | None:
    if value is None or (isinstance(value, str) and value and "\0" not in value):
        return value
    raise OptionError(f"option {name}: {value!r} is no path; give the path of a file")


def json_file(name: str, value: Any) -> Any:
    """The file's content stands for the path: another content is another key, a moved file is not."""
    if value is None or isinstance(value, (list, tuple)):
        return value
    return read_json(name, path(name, value) or "")


def variables(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise OptionError(f"option {name}: {value!r:.80} is not allowed; give a mapping of names to values")
    return {key: item if isinstance(item, str) else json.dumps(item) for key, item in sorted(value.items())}


ALL_BELOW_TRACE = ("OptimizeOnnx", "LayoutPlan", "Schedule", "Simulate", "Emit", "Load")
SCHEDULERS = ("always_from_dram", "reuse_consecutive", "spill_opt", "auto_recompute_sa")
SIMULATIONS = ("fake", "default", "fast", "best", "full")
FLOAT_DTYPES = ("float", "half", "mixed", "double")

_LAYOUT = ("LayoutPlan",)
_SCHEDULE = ("Schedule",)
_BOTH = ("LayoutPlan", "Schedule")


def _threads(name: str, value: Any) -> int | None:
    return None if value is None else int(count(-1, 4096)(name, value))


OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option("float_dtype", "float", choice(*FLOAT_DTYPES), "the precision of floating-point values", _LAYOUT),
        Option("layout_planner", "lpz", choice("lpz"), "which planner chooses the layouts", _LAYOUT),
        Option("layout_spec", None, json_file, "a JSON file with layouts to use", _LAYOUT),
        Option("gemm_layout_spec", None, json_file, "a JSON file with layouts of GEMM operands", _LAYOUT),
        Option("scheduler", "always_from_dram", choice(*SCHEDULERS), "how the order is found", _SCHEDULE),
        Option("sa_expected_run_iters", 1000, count(1, 10**8), "how often the program will run", _SCHEDULE),
        Option("simulation_mode", "default", choice(*SIMULATIONS), "effort of the node simulation", _BOTH),
        Option("sram_budget", 1.0, fraction, "part of the local memory that may be used, 0 to 1", _BOTH),
        Option("envs", {}, variables, "environment variables for this compile", ALL_BELOW_TRACE),
        Option("backprop", False, flag, "training by the older exporter's interface", ("OptimizeOnnx",)),
        Option("num_threads", None, _threads, "compiler threads"),
        Option("out_onnx", None, path, "where to copy the compiled ONNX"),
        Option("option_json", None, path, "a JSON file with options; those given directly win"),
    )
}


@dataclass(frozen=True)
class Resolved:
    """All options with their values, and where each value comes from: default, option_json or direct."""

    values: Mapping[str, Any]
    origins: Mapping[str, str]

    def of_phase(self, phase: str) -> dict[str, Any]:
        """What enters the key of a phase."""
        return {name: self.values[name] for name, option in OPTIONS.items() if phase in option.phases}


def resolve(given: Mapping[str, Any] | None = None) -> Resolved:
    """Check every given option, and fill in the others."""
    given = dict(given or {})
    for name in given:
        if name not in OPTIONS:
            raise OptionError(
                f"there is no option {name!r}{nearest(name, OPTIONS)}; the options are {', '.join(sorted(OPTIONS))}"
            )
    origins = dict.fromkeys(OPTIONS, "default")
    values = {name: option.default for name, option in OPTIONS.items()}
    preset = OPTIONS["option_json"].check("option_json", given.get("option_json"))
    layers = [(f"option_json {preset}", _preset(preset)), ("direct", given)] if preset else [("direct", given)]
    for origin, layer in layers:
        for name, value in layer.items():
            values[name] = OPTIONS[name].check(name, value)
            origins[name] = origin
    return Resolved(values, origins)


def nearest(name: Any, names: Any) -> str:
    """`, did you mean "x"?` when there is a near one."""
    close = difflib.get_close_matches(str(name).lower(), list(names), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def _preset(file: str) -> dict[str, Any]:
    data = read_json("option_json", file)
    if not isinstance(data, dict):
        raise OptionError(f"option_json {file}: it holds {type(data).__name__}; write an object of options")
    data.pop("option_json", None)  # a nested one has no effect
    for name in data:
        if name not in OPTIONS:
            raise OptionError(f"option_json {file}: there is no option {name!r}{nearest(name, OPTIONS)}")
    return data


def read_json(name: str, file: str) -> Any:
    """Strict JSON: duplicate names and NaN are refused, errors say where."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen = dict(pairs)
        if len(seen) != len(pairs):
            twice = next(key for key, _value in pairs if sum(key == other for other, _ in pairs) > 1)
            raise OptionError(f"{name} {file}: the name {twice!r} stands twice; remove one")
        return seen

    def refuse(constant: str) -> Any:
        raise OptionError(f"{name} {file}: {constant} is not JSON; give a finite number")

    try:
        text = Path(file).read_bytes().decode("utf-8-sig")
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise OptionError(f"{name} {file}, line {error.lineno}, column {error.colno}: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise OptionError(f"{name} {file}: it is not UTF-8 text ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise OptionError(f"{name} {file}: {error.strerror}; check the path") from None
