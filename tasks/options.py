"""The compile options: one row each, with the phases whose output it can change.

A phase's key holds the resolved values of the options whose row names that phase, and no others.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlsdk.errors import OptionError
from mlsdk.tasks import presets
from mlsdk.tasks import variables as environment
from mlsdk.tasks.kinds import Choice, Count, Entries, Flag, Fraction, Kind, Path, Variables
from mlsdk.tasks.near import nearest

logger = logging.getLogger("mlsdk.options")


@dataclass(frozen=True)
class Option:
    """`note`: what a reader has to know beside `help`."""

    name: str
    default: Any
    check: Kind  # (name, value) -> resolved value; raises OptionError
    help: str
    phases: tuple[str, ...] = ()  # whose output it can change
    note: str = ""


ALL_BELOW_TRACE = ("OptimizeOnnx", "LayoutPlan", "Schedule", "Simulate", "Emit", "Load")

#: simulation_mode auto, by the scheduler: who searches long for an order may search as long for layouts
AUTO = {
    "always_from_dram": "fast",
    "reuse_consecutive": "fast",
    "spill_opt": "default",
    "auto_recompute_sa": "best",
}

_LAYOUT = ("LayoutPlan",)
_SCHEDULE = ("Schedule",)
#: the schedulers that search: layouts are then judged by what they find
SEARCHING = {"spill_opt", "auto_recompute_sa"}
_BOTH = ("LayoutPlan", "Schedule")
_FLOATS = Choice(("float", "half", "mixed", "double"))
_PLANNERS = Choice(("lpz", "bidi", "legacy"))
_SCHEDULERS = Choice(("always_from_dram", "reuse_consecutive", "spill_opt", "auto_recompute_sa"))
_SIMULATIONS = Choice(("auto", "fake", "default", "fast", "best", "full"))

OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option("float_dtype", "float", _FLOATS, "the precision of floating-point values", _LAYOUT),
        Option("layout_planner", "lpz", _PLANNERS,
               "which planner chooses the layouts: rules alone (legacy), with what readers want (bidi), or a search by exact "
               "steps (lpz)", _LAYOUT),
        Option("layout_spec", None, Entries(), "layouts of operands (SwitchInput) and results (FixOutput), by operator and "
               "shape", _LAYOUT),
        Option("gemm_layout_spec", None, Entries(), "layouts of the operands A, BT and of the result C of matrix products, by "
               "a part of the weights' name", _LAYOUT),
        Option("scheduler", "reuse_consecutive", _SCHEDULERS, "how the order is found, and what stays in local memory",
               _LAYOUT + _SCHEDULE),
        Option("sa_expected_run_iters", 1000, Count(1, 10**8), "rounds of annealing of auto_recompute_sa", _SCHEDULE),
        Option("simulation_mode", "default", _SIMULATIONS,
               "effort of the node simulation: how many layouts lpz tries (fake: none, full: the most; auto: as suits the "
               "scheduler)", _LAYOUT),
        Option("sram_budget", 1.0, Fraction(), "part of each local memory that may be used", _SCHEDULE),
        Option("envs", {}, Variables(), "environment variables for this compile", ALL_BELOW_TRACE,
               "those named CODEGEN_ have a table of their own"),
        Option("backprop", False, Flag(), "training by the older exporter's interface", (),
               "says nothing that `compile(.., optimizers=[..])` does not say: that adds the backward pass"),
        Option("num_threads", None, Count(1, 4096, automatic=True), "processes that count nodes at once; none given, or -1: as "
               "many as there are idle processors. It changes no result"),
        Option("out_onnx", None, Path(), "where to copy the compiled ONNX"),
        Option("option_json", None, Path(), "a preset, or a JSON file with options; those given directly win"),
    )
}  # fmt: skip


#: options of older versions of the official MLSDK, and why there is nothing left for them to do
OLDER = {
    "codegen_dir": "the folder is an argument of compile",
    "pfvm_compatible": "what is compiled for the board runs on pfvm:cpu, too",
    "save_onnx": "exported.onnx and model.onnx stand in every codegen_dir; out_onnx copies model.onnx",
}


@dataclass(frozen=True)
class Resolved:
    """All options with their values, and where each comes from: default, option_json, direct, environment.

    The origin of an environment variable stands under `envs.NAME`.
    """

    values: Mapping[str, Any]
    origins: Mapping[str, str]
    preset: str | None = None  # the name of the option_json
    ignored: tuple[str, ...] = ()  # names of OLDER that were given

    def of_phase(self, phase: str) -> dict[str, Any]:
        """What enters the key of a phase."""
        found = {name: self.values[name] for name, option in OPTIONS.items() if phase in option.phases}
        if found.get("simulation_mode") == "auto":
            found["simulation_mode"] = AUTO[self.values["scheduler"]]
        if phase == "LayoutPlan":  # it asks no more of the scheduler
            found["scheduler"] = "spill_opt" if found["scheduler"] in SEARCHING else "always_from_dram"
        return {**found, "envs": environment.of_phase(found["envs"], phase)} if "envs" in found else found

    def notices(self) -> list[str]:
        """What was given and changes nothing here, with the reason; for the person who gave it."""
        return [f"option {name} has no effect here: {OLDER[name]}" for name in self.ignored] + [
            f"{told} ({self.origins[f'envs.{name}']})" for name, told in environment.notices(self.values["envs"])
        ]

    def given(self) -> dict[str, Any]:
        """What differs from the defaults by somebody's wish: resolved again, it gives the same."""
        return {
            name: value
            for name, value in self.values.items()
            if self.origins[name] != "default" and name != "option_json"
        }


def resolve(given: Mapping[str, Any] | None = None) -> Resolved:
    """Check every given option, and fill in the others; None is not given. Later wins: defaults, the option_json, direct
    options; of the environment variables one that the process has set."""
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
    ignored: dict[str, None] = {}
    for origin, where, layer in layers:
        for name, value in layer.items():
            if not isinstance(name, str):
                raise OptionError(f"{where}an option's name is {name!r:.60}; names are texts")
            if name in OLDER:
                ignored[name] = None
                continue
            if name not in OPTIONS:
                raise OptionError(
                    f"{where}there is no option {name!r}{nearest(name, OPTIONS)}; the options are "
                    f"{', '.join(sorted(OPTIONS))}"
                )
            if value is None:
                continue  # what a program gives for an argument that it was not given
            try:
                checked = OPTIONS[name].check(name, value)
            except OptionError as error:
                raise OptionError(f"{where}{error}") from None
            if name == "envs":
                _check_spelling(f"{where}option envs: ", checked)
                origins.update({f"envs.{key}": origin for key in checked})
                checked = {**values["envs"], **checked}
            values[name] = checked
            origins[name] = origin
    found = environment.of_environment()
    _check_spelling("the environment: ", found)
    if found:
        values["envs"] = dict(sorted({**values["envs"], **found}.items()))
        origins["envs"] = "environment"
        origins.update({f"envs.{key}": "environment" for key in found})
    return Resolved(values, origins, preset.name if preset else None, tuple(ignored))


_told: set[str] = set()


def tell(resolved: Resolved) -> None:
    """Say once what has no effect."""
    for notice in resolved.notices():
        if notice not in _told:
            _told.add(notice)
            logger.warning("%s", notice)


def from_text(text: str) -> Any:
    """A value as it stands on a command line: JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _check_spelling(where: str, envs: Mapping[str, str]) -> None:
    """A misspelt variable must not change nothing. One that is like none of ours may be another version's, or another
    program's: there is a notice."""
    for name in envs:
        meant = environment.meant(name)
        if meant is not None:
            raise OptionError(f"{where}there is no variable {name!r}; did you mean {meant!r}?")
