'''Workflows: PyTorch programs as pipelines. This module is all that a workflow imports.

A workflow is a module with one subclass of `Workflow`. Its steps (subclasses of `Step`) make what the programs need,
such as trained weights; its programs are PyTorch functions to compile; `summary()` tells a reader what came out.

    from mlsdk.tasks.workflow import Artifact, IntParameter, Program, Step, Workflow, arrays, pack

    class Train(Step):
        """Weights of the model."""

        epochs = IntParameter(1, 10_000, default=20)
        artifacts = (Artifact("weights.npz", "arrays"),)

        def compute(self, inputs, services):
            import torch                                   # here, not at the top of the module
            ...
            return {"weights.npz": pack({"w": w.numpy()})}

    class Data(Step):
        """What the board is fed: one row of each array for each call."""

        artifacts = (Artifact("inputs.npz", "arrays"),)

        def compute(self, inputs, services):
            return {"inputs.npz": pack({"x": x})}          # x: [calls, batch, features]

    class Digits(Workflow):
        """Classify handwritten digits."""

        batch = IntParameter(1, 4096, default=64)      # what is outside of the range is refused
        default_options = {"float_dtype": "mixed"}

        def steps(self):
            return {"train": Train(), "data": Data()}

        def program(self, name, inputs):
            import torch
            weights = arrays(inputs["train/weights.npz"])
            ...
            return Program(function, {"x": torch.zeros(self.batch, 64)}, {"registered": {...}})

        def requires(self):
            return [*self.compiled(), self.executed(self.steps()["data"])]

        def summary(self):
            outputs = arrays(self.read(self.executed(self.steps()["data"]), "outputs.npz"))
            ...
            return {"accuracy": ...}

`mlsdk build digits` completes it, `mlsdk run digits --json` also prints the summary, and
`luigi --module mlsdk.workflows.digits Digits --Digits-batch 32 --local-scheduler` does the same under Luigi's scheduler
(`--batch` alone is ambiguous to Luigi, which has options of its own that begin so).

What enters a key: the significant parameters (make one `significant=False` when it cannot change a result), the source
of the module and of the modules of the same project that it imports, the versions of installed packages that it
imports, `version`, and the contents of the earlier artifacts. A file that is read has to be named in `files`.
Nothing is asked of torch to know whether something is there: import it inside the functions that need it, and keep
`class Model(torch.nn.Module)` in a module of its own, which those functions import.
'''

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import luigi

from mlsdk.store import digest_of
from mlsdk.store.digest import of_value
from mlsdk.tasks import luigi_settings
from mlsdk.tasks.artifact import Artifact
from mlsdk.tasks.content import ContentRegister, ContentTask, Upstream, key_value
from mlsdk.tasks.errors import WorkflowError
from mlsdk.tasks.parameters import LARGEST_SEED, FloatParameter, IntParameter, check
from mlsdk.tasks.phases import Load, OptionsParameter, Run, Simulate
from mlsdk.tasks.traced import Program, TraceProgram, artifacts_of, source_digests

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "LARGEST_SEED",
    "Artifact",
    "FloatParameter",
    "IntParameter",
    "Program",
    "Step",
    "Workflow",
    "arrays",
    "pack",
]

luigi_settings.apply()


class Step(ContentTask):
    """A computation of the workflow's own, whose artifacts are kept like those of a phase."""

    files: ClassVar[tuple[str, ...]] = ()  # paths of files that compute() reads, relative to the module's folder
    extra_sources: ClassVar[tuple[str, ...]] = ()  # modules that no import statement names

    def steps(self) -> Mapping[str, ContentTask]:
        """Earlier steps by a name of this step's own; their artifacts arrive in compute() as `name/artifact`."""
        return {}

    def upstream(self) -> Upstream:
        return artifacts_of(self.steps())

    def key_inputs(self) -> Mapping[str, str]:
        found = dict(source_digests(type(self), self.extra_sources)[0])
        for name in self.files:
            found[f"file {name}"] = _digest_of_file(type(self), name)
        return found

    def key_tools(self) -> Mapping[str, str]:
        return source_digests(type(self), self.extra_sources)[1]

    @property
    def label(self) -> str:
        return _module_name(type(self))


class Workflow(luigi.WrapperTask, metaclass=ContentRegister):
    """A PyTorch program as a pipeline: steps, then Trace to Load for each of its programs, then Run."""

    programs: ClassVar[tuple[str, ...]] = ("main",)
    default_options: ClassVar[Mapping[str, Any]] = {}
    extra_sources: ClassVar[tuple[str, ...]] = ()  # modules that no import statement names

    options = OptionsParameter(default={}, significant=False, description="compile options as JSON")
    device = luigi.Parameter(default="mncore2:auto", significant=False, description="the board to run on")
    preset = luigi.Parameter(default="", significant=False, description="O0 to O4, debug, or a file of options")
    float_dtype = luigi.Parameter(default="", significant=False, description="the precision, instead of the default")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check(self)
        values = {name: key_value(getattr(self, name)) for name, _parameter in self.get_params()}
        family = self.get_task_family()
        self.task_id = f"{family.rpartition('.')[2]}_{of_value('task', [type(self).__module__, family, values])}"
        self._Task__hash = hash(self.task_id)
        self.check_parameters()

    # -- what a workflow says ----------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        """Raise WorkflowError for parameters that do not fit together. Each alone is checked by its range."""

    def steps(self) -> Mapping[str, ContentTask]:
        """Steps that the programs need; their artifacts arrive in program() as `name/artifact`.

        For a program they are made with the significant parameters alone, the others at their defaults.
        """
        return {}

    def program(self, name: str, inputs: Mapping[str, bytes]) -> Program:
        """The PyTorch function `name` and its sample. Called only when the trace is not in the store."""
        raise NotImplementedError(f"{type(self).__name__} has no program()")

    def requires(self) -> list[luigi.Task]:
        """Everything that the workflow completes. Default: each program compiled."""
        return [task for name in self.programs for task in self.compiled(name)]

    def summary(self) -> dict[str, Any]:
        """What came out, as JSON data. Called when the workflow is complete."""
        return {}

    def report(self, summary: Mapping[str, Any]) -> str:
        """The summary for a reader. Default: a line for each name."""
        return "\n".join(f"{name}: {_line(value)}" for name, value in summary.items())

    def program_parameters(self, program: str) -> dict[str, Any]:
        """What enters the key of a program's trace: the significant parameters."""
        values = {name: getattr(self, name) for name, parameter in self.get_params() if parameter.significant}
        return {name: key_value(value) for name, value in values.items()}

    # -- what it can use ---------------------------------------------------------------------------------------------

    def traced(self, program: str = "main") -> TraceProgram:
        """The Trace of a program."""
        if program not in self.programs:
            raise WorkflowError(f"{self!r} has no program {program!r}; it has {', '.join(self.programs)}")
        return TraceProgram(workflow=self._plain(), program=program)

    def compiled(self, program: str = "main") -> list[ContentTask]:
        """Everything of a compile: the application, and the simulation beside it."""
        source, options = self.traced(program), self.compile_options()
        return [Simulate(source=source, options=options), Load(source=source, options=options)]

    def executed(self, inputs: ContentTask, artifact: str = "inputs.npz", program: str = "main") -> Run:
        """The run of a program on `inputs`, a task that gives an artifact of arrays: one call for each row."""
        return Run(
            source=self.traced(program),
            options=self.compile_options(),
            inputs=inputs,
            artifact=artifact,
            device=self.device,
        )

    def compile_options(self) -> dict[str, Any]:
        """The options of the compiles: the workflow's own, and over them those that the caller gives."""
        named = {"option_json": self.preset, "float_dtype": self.float_dtype}
        return {**self.default_options, **{name: text for name, text in named.items() if text}, **self.options}

    def was_built(self, task: ContentTask) -> bool:
        """True when the task was computed by this build, and did not come from the store: its times are of now."""
        from mlsdk.tasks import session

        done = session.current().done.get(task.task_id)
        return done is not None and done.outcome == "built"

    def read(self, task: ContentTask, name: str) -> bytes:
        """An artifact of a task of this workflow."""
        from mlsdk.tasks import session

        return session.current().read(task, name)

    @property
    def label(self) -> str:
        return _module_name(type(self))

    def label_of(self, program: str) -> str:
        """What the history calls a program."""
        return self.label if self.programs == (program,) else f"{self.label}/{program}"

    def _plain(self) -> Workflow:
        """The same workflow without what cannot change a trace, so that equal traces are equal tasks."""
        values = {name: getattr(self, name) for name, parameter in self.get_params() if parameter.significant}
        return type(self)(**values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label})"


def pack(named: Mapping[str, np.ndarray]) -> bytes:
    """Arrays by name as the bytes of an .npz file: equal arrays give equal bytes, and no object is pickled."""
    import numpy as np

    buffer = io.BytesIO()
    # Not numpy.savez: it takes the names as keywords, so `file` could not be one.
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(named):
            member = zipfile.ZipInfo(f"{name}.npy")  # dated 1980, always
            with archive.open(member, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(named[name], order="C"), allow_pickle=False)
    return buffer.getvalue()


def arrays(data: bytes) -> dict[str, np.ndarray]:
    """The arrays of `pack`."""
    import numpy as np

    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _line(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_line(item)}" for name, item in value.items())
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _module_name(of: type) -> str:
    if of.__module__ == "__main__":
        return of.__name__
    return of.__module__.rpartition(".")[2]


def _digest_of_file(of: type, name: str) -> str:
    import sys

    module = sys.modules.get(of.__module__)
    folder = Path(getattr(module, "__file__", None) or ".").parent
    path = folder / name
    try:
        return digest_of(path.read_bytes())
    except OSError as error:
        raise WorkflowError(f"{of.__name__}: the file {path}: {error.strerror}; correct `files`") from None
