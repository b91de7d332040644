"""The compile options: one row each, with the phases whose output it can change.

A phase's key holds the resolved values of the options whose row names that phase, and no others.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mlsdk.errors import OptionError
from mlsdk.tasks import presets
from mlsdk.tasks import variables as environment


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
    return presets.read_json(name, path(name, value) or "")


def variables(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise OptionError(f"option {name}: {value!r:.80} is not allowed; give a mapping of names to values")
    for key, item in value.items():
        if not isinstance(item, (str, int, float)):
            raise OptionError(f"option {name}: {key} is {type(item).__name__}; give text or a number")
    return {key: item if isinstance(item, str) else json.dumps(item) for key, item in sorted(value.items())}


ALL_BELOW_TRACE = ("OptimizeOnnx", "LayoutPlan", "Schedule", "Simulate", "Emit", "Load")
SCHEDULERS = ("always_from_dram", "reuse_consecutive", "spill_opt", "auto_recompute_sa")
SIMULATIONS = ("fake", "default", "fast", "best", "full")
FLOAT_DTYPES = ("float", "half", "mixed", "double")

_LAYOUT = ("LayoutPlan",)
_SCHEDULE = ("Schedule",)
_BOTH = ("LayoutPlan", "Schedule")


def _threads(name: str, value: Any) -> int | None:
    if value is None or (value == -1 and isinstance(value, int)):
        return value
    return int(count(1, 4096)(name, value))


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
        Option(
            "option_json",
            None,
            path,
            "a preset (O0 to O4, debug) or a JSON file with options; those given directly win",
        ),
    )
}


@dataclass(frozen=True)
class Resolved:
    """All options with their values, and where each comes from: default, option_json, direct, environment.

    The origin of an environment variable stands under `envs.NAME`.
    """

    values: Mapping[str, Any]
    origins: Mapping[str, str]
    preset: str | None = None  # the name of the option_json

    def of_phase(self, phase: str) -> dict[str, Any]:
        """What enters the key of a phase."""
        found = {name: self.values[name] for name, option in OPTIONS.items() if phase in option.phases}
        return {**found, "envs": environment.of_phase(found["envs"], phase)} if "envs" in found else found

    def given(self) -> dict[str, Any]:
        """What differs from the defaults by somebody's wish: resolved again, it gives the same."""
        return {
            name: value
            for name, value in self.values.items()
            if self.origins[name] != "default" and name != "option_json"
        }


def resolve(given: Mapping[str, Any] | None = None) -> Resolved:
    """Check every given option, and fill in the others. Later wins: defaults, the option_json, direct options; of the
    environment variables one that the process has set."""
    given = dict(given or {})
    origins = dict.fromkeys(OPTIONS, "default")
    values = {name: option.default for name, option in OPTIONS.items()}
    named = OPTIONS["option_json"].check("option_json", given.get("option_json"))
    preset = presets.find(named) if named else None
    layers: list[tuple[str, str, Mapping[str, Any]]] = []
    if preset is not None:
        origin = f"option_json {preset.source}"
        layers.append((origin, f"{origin}: ", {**preset.options, **({"envs": preset.envs} if preset.envs else {})}))
    layers.append(("direct", "", given))
    for origin, where, layer in layers:
        for name, value in layer.items():
            if name not in OPTIONS:
                raise OptionError(
                    f"{where}there is no option {name!r}{nearest(name, OPTIONS)}; the options are "
                    f"{', '.join(sorted(OPTIONS))}"
                )
            checked = OPTIONS[name].check(name, value)
            if name == "envs":
                _check_known(where, checked)
                origins.update({f"envs.{key}": origin for key in checked})
                checked = {**values["envs"], **checked}
            values[name] = checked
            origins[name] = origin
    found = environment.of_environment()
    if found:
        values["envs"] = dict(sorted({**values["envs"], **found}.items()))
        origins["envs"] = "environment"
        origins.update({f"envs.{key}": "environment" for key in found})
    return Resolved(values, origins, preset.name if preset else None)


def from_text(text: str) -> Any:
    """A value as it stands on a command line: JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def nearest(name: Any, names: Any) -> str:
    """`, did you mean "x"?` when there is a near one."""
    lower = {str(known).lower(): known for known in names}
    close = difflib.get_close_matches(str(name).lower(), lower, n=1, cutoff=0.6)
    return f"; did you mean {lower[close[0]]!r}?" if close else ""


def _check_known(where: str, envs: Mapping[str, str]) -> None:
    """A misspelt variable must not change nothing in silence."""
    for name in envs:
        if name.startswith(environment.PREFIX) and name not in environment.VARIABLES:
            close = difflib.get_close_matches(name, environment.VARIABLES, n=1)
            near = f"; did you mean {close[0]!r}?" if close else ""
            raise OptionError(f"{where}option envs: there is no variable {name!r}{near}")
