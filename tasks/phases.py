"""The phases of a compile as Luigi tasks: one row each, one class for all.

    Trace -> OptimizeOnnx -> LayoutPlan -> Schedule -> Simulate
                                                    -> Emit -> Load -> Run

A row says what a phase takes and gives; the function stands in adapters.py, works on bytes and imports the phase only
when it is called. A phase's `version` is raised when the same inputs have to give another output.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import luigi
from luigi.freezing import recursively_freeze, recursively_unfreeze

from mlsdk.errors import MLSDKError
from mlsdk.store import digest_of
from mlsdk.tasks import options as option_table
from mlsdk.tasks import variables
from mlsdk.tasks.artifact import Artifact
from mlsdk.tasks.content import ContentTask, InstanceParameter, Upstream, installed
from mlsdk.tasks.errors import Origins, WorkflowError, located

if TYPE_CHECKING:
    from mlsdk.tasks.session import Services

Function = Callable[[Mapping[str, bytes], Mapping[str, Any], "Services"], Mapping[str, bytes]]


@dataclass(frozen=True)
class Phase:
    name: str
    version: int
    function: str  # module:function, imported when the phase runs
    takes: tuple[str, ...]  # artifacts of earlier phases
    gives: tuple[Artifact, ...]
    tools: tuple[str, ...] = ()  # distributions whose version can change the output
    code: tuple[str, ...] = ()  # folders of the code; they enter the key in development only

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options that enter the key."""
        return tuple(name for name, option in option_table.OPTIONS.items() if self.name in option.phases)


_IR = ("pipeline/ir", "pipeline/ops", "device/isa", "device/spec.py", "device/timing.py")

TRACE = Phase(
    name="Trace",
    version=5,
    function="mlsdk.tasks.adapters:trace",
    takes=(),
    gives=(
        Artifact("exported.onnx", "onnx"),
        Artifact("signature.json", "json"),
        Artifact("sources.json", "json"),
        Artifact("state.npz", "arrays", optional=True),
        Artifact("placements.json", "json", optional=True),
    ),
    tools=("torch",),
    code=("pipeline/trace", *_IR),
)

# In the order in which they run. What a phase takes is given by exactly one row above it.
PHASES: dict[str, Phase] = {
    phase.name: phase
    for phase in (
        TRACE,
        Phase(
            name="OptimizeOnnx",
            version=5,
            function="mlsdk.tasks.adapters:optimize_onnx",
            takes=("exported.onnx",),
            gives=(Artifact("model.onnx", "onnx"),),
            tools=("onnx", "numpy"),
            code=("pipeline/optimize", *_IR),
        ),
        Phase(
            name="LayoutPlan",
            version=40,
            function="mlsdk.tasks.adapters:layout_plan",
            takes=("model.onnx", "signature.json", "placements.json"),
            gives=(
                Artifact("placed.json", "json"),
                Artifact("layout.html", "html"),
                Artifact("layout_plan_history.html", "html"),
                Artifact("time_slice.html", "html"),
                Artifact("time_slice.txt", "text"),
            ),
            code=("pipeline/layout", "pipeline/simulate", *_IR),
        ),
        Phase(
            name="Schedule",
            version=23,
            function="mlsdk.tasks.adapters:schedule",
            takes=("placed.json",),
            gives=(
                Artifact("plan.json", "json"),
                Artifact("l3ir.txt", "text"),
                Artifact("l3ir_stripped.onnx", "onnx"),
                Artifact("search.json", "json", optional=True),
            ),
            code=("pipeline/schedule", "pipeline/simulate", *_IR),
        ),
        Phase(
            name="Simulate",
            version=29,
            function="mlsdk.tasks.adapters:simulate",
            takes=("placed.json", "plan.json"),
            gives=(
                Artifact("simulation_result.json", "json"),
                Artifact("profile.json", "json"),
                Artifact("trace.json", "trace"),
                Artifact("report.json", "json"),
            ),
            code=("pipeline/simulate", *_IR),
        ),
        Phase(
            name="Emit",
            version=29,
            function="mlsdk.tasks.adapters:emit",
            takes=("placed.json", "plan.json"),
            gives=(
                Artifact("model.vsm.zst", "vsm"),
                Artifact("program.json.zst", "program"),
                Artifact("tables.npz", "arrays"),
            ),
            code=("pipeline/emit", *_IR),
        ),
        Phase(
            name="Load",
            version=3,
            function="mlsdk.tasks.adapters:load",
            takes=(
                "signature.json",
                "state.npz",
                "model.onnx",
                "placed.json",
                "plan.json",
                "program.json.zst",
                "tables.npz",
            ),
            gives=(Artifact("model.app.zst", "application"),),
            code=("pipeline/load", *_IR),
        ),
        Phase(
            name="Run",
            version=1,
            function="mlsdk.tasks.adapters:run",
            takes=("model.app.zst",),
            gives=(Artifact("outputs.npz", "arrays"), Artifact("run.json", "json", volatile=True)),
            code=("pipeline/load", "device"),
        ),
    )
}

COMPILE = tuple(name for name in PHASES if name not in ("Trace", "Run"))


class OptionsParameter(luigi.Parameter[Mapping[str, Any]]):
    """Options as a mapping; as text, JSON."""

    def parse(self, x: str) -> dict[str, Any]:
        try:
            value = json.loads(x or "{}")
        except (ValueError, RecursionError) as error:
            raise WorkflowError(f"options {x!r:.80}: {error}; give a JSON object") from None
        if not isinstance(value, dict):
            raise WorkflowError(f"options {x!r:.80}: give a JSON object")
        return value

    def normalize(self, x: Mapping[str, Any]) -> Any:
        return recursively_freeze(x)  # Luigi wants values that hash

    def serialize(self, x: Mapping[str, Any]) -> str:
        return json.dumps(recursively_unfreeze(x), sort_keys=True)


class PhaseTask(ContentTask):
    """A phase below Trace: the same for every program, so a source and the options say everything."""

    row: ClassVar[Phase]
    source = InstanceParameter(description="the Trace that gives exported.onnx: module:Class?{...}")
    options = OptionsParameter(default={}, description="compile options as JSON")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.phase, cls.version, cls.artifacts = cls.row.name, cls.row.version, cls.row.gives

    def key_options(self) -> Mapping[str, Any]:
        return self._resolved().of_phase(self.row.name)

    def key_tools(self) -> Mapping[str, str]:
        from mlsdk.pipeline.ir import plugins

        return {**installed(self.row.tools), **plugins.versions(), **code_digest(self.row.code)}

    def upstream(self) -> Upstream:
        return {name: (self._giver(name), name) for name in self.row.takes}

    def compute(self, inputs: Mapping[str, bytes], services: Services) -> Mapping[str, bytes]:
        resolved = self._resolved()
        threads = resolved.values["num_threads"]
        services = replace(services, processes=None if threads == -1 else threads)
        from mlsdk.pipeline.ops.garbage import rarely_collected

        try:
            with variables.applied(resolved.values["envs"]), rarely_collected():
                return imported(self.row.function)(inputs, resolved.of_phase(self.row.name), services)
        except MLSDKError as error:
            raise located(error, self._origins()) from None

    def _resolved(self) -> option_table.Resolved:
        """The options; a phase that is asked for by itself has those of its workflow, too."""
        source: Any = self.source
        return option_table.resolve({**source.default_options(), **self.options})

    def _origins(self) -> Origins:
        """Where the nodes come from. The phases below Trace do not know: a moved line of the program rebuilds none of them."""
        from mlsdk.tasks import session

        return json.loads(session.current().read(self.source, "sources.json"))

    def _giver(self, name: str) -> ContentTask:
        giver = GIVERS[name]
        source: ContentTask = self.source
        return source if giver == "Trace" else TASKS[giver](source=source, options=self.options)

    @property
    def label(self) -> str:
        return str(self.source.label)


GIVERS: dict[str, str] = {artifact.name: phase.name for phase in PHASES.values() for artifact in phase.gives}


class OptimizeOnnx(PhaseTask):
    """Exported ONNX -> compiled ONNX."""

    row = PHASES["OptimizeOnnx"]


class LayoutPlan(PhaseTask):
    """Compiled ONNX -> where each element lies."""

    row = PHASES["LayoutPlan"]


class Schedule(PhaseTask):
    """Placed graph -> in which order, at which addresses."""

    row = PHASES["Schedule"]


class Simulate(PhaseTask):
    """Plan -> how many steps each part costs."""

    row = PHASES["Simulate"]


class Emit(PhaseTask):
    """Plan -> instructions."""

    row = PHASES["Emit"]


class Load(PhaseTask):
    """Program -> application, complete in itself."""

    row = PHASES["Load"]


HOST = "pfvm:cpu"
HOST_MACHINE = "pfvm"
_GRAPH = ("model.onnx", "signature.json", "state.npz")  # what the reference functions take


class Run(PhaseTask):
    """The application executed once for each row of the inputs; deterministic, so a result like any other."""

    row = PHASES["Run"]
    inputs = InstanceParameter(description="the task that gives the inputs: module:Class?{...}")
    artifact = luigi.Parameter(default="inputs.npz", description="which of its artifacts holds them")
    device = luigi.Parameter(default="mncore2:auto", significant=False, description="the board to run on")

    def key_options(self) -> Mapping[str, Any]:
        # All boards compute the same bits. The reference functions do not.
        return {"machine": machine_of(self.device)}

    def upstream(self) -> Upstream:
        # The reference functions execute the graph, and need nothing that was made for a board.
        takes = _GRAPH if machine_of(self.device) == HOST_MACHINE else self.row.takes
        return {**{name: (self._giver(name), name) for name in takes}, "inputs.npz": (self.inputs, self.artifact)}

    def compute(self, inputs: Mapping[str, bytes], services: Services) -> Mapping[str, bytes]:
        return imported(self.row.function)(inputs, {"device": self.device}, services)


def machine_of(device: str) -> str:
    """What computes the bits of a run on this device. DeviceNotFound for a device that there is not: the store may have
    the result, and would never ask."""
    from mlsdk.device.board import names
    from mlsdk.device.errors import DeviceNotFound

    if device == HOST:
        return HOST_MACHINE
    try:
        names.check_device(device)
    except DeviceNotFound as error:
        raise DeviceNotFound(f"{error}; or {HOST}, the graph on the host by reference functions") from None
    return "mncore2"


TASKS: dict[str, type[PhaseTask]] = {
    task.row.name: task for task in (OptimizeOnnx, LayoutPlan, Schedule, Simulate, Emit, Load, Run)
}


def imported(function: str) -> Function:
    """`module:function` as a function."""
    module, _colon, name = function.partition(":")
    return getattr(importlib.import_module(module), name)


def code_digest(paths: tuple[str, ...]) -> dict[str, str]:
    """With MLSDK_KEY_CODE=1, the digest of the phase's source: while a phase is being written, its version stays."""
    if os.environ.get("MLSDK_KEY_CODE") != "1":
        return {}
    return {"code": _digest_of_code(paths)}


@cache
def _digest_of_code(paths: tuple[str, ...]) -> str:
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    digests = []
    for path in paths:
        full = os.path.join(root, path)
        files = [full] if full.endswith(".py") else _python_files(full)
        for file in files:
            with open(file, "rb") as source:
                digests.append(f"{os.path.relpath(file, root)} {digest_of(source.read())}")
    return digest_of("\n".join(digests).encode())


def _python_files(folder: str) -> list[str]:
    found = []
    for where, folders, names in os.walk(folder):
        folders.sort()
        found += [os.path.join(where, name) for name in sorted(names) if name.endswith(".py")]
    return found
