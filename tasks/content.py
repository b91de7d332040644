"""The base of all tasks: what a task depends on is hashed, and the hash is where its results are.

Luigi's own id is 40 bits over parameters, and 1, 1.0 and True are the same task to it. Here the id is 256 bits over
typed values, and completeness is asked of the store, under a recipe that holds the digests of the inputs' contents.
"""

from __future__ import annotations

import datetime
import enum
import importlib
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import luigi
from luigi.task import flatten
from luigi.task_register import Register

from mlsdk.store import Action, BadName, Recipe, canonical
from mlsdk.store.digest import of_value
from mlsdk.tasks import parameters
from mlsdk.tasks.artifact import Artifact
from mlsdk.tasks.errors import WorkflowError
from mlsdk.tasks.tools import version_of

if TYPE_CHECKING:
    from mlsdk.tasks.session import Services

Upstream = Mapping[str, "tuple[ContentTask, str]"]


class ContentRegister(Register):
    """Luigi's instance cache compares parameters with ==, which takes 1, 1.0 and True for one; so there is none."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return type.__call__(cls, *args, **kwargs)


class ContentTask(luigi.Task, metaclass=ContentRegister):
    """A task whose results lie in the store under a key of everything that they depend on.

    A subclass says what it takes (`upstream`), what else enters its key (`key_options`, `key_tools`), what it gives
    (`artifacts`), and how (`compute`).
    """

    phase: ClassVar[str] = ""  # in keys and reports; the name of the class if empty
    version: ClassVar[int] = 1  # raised when the same key has to give another result
    artifacts: ClassVar[tuple[Artifact, ...]] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        parameters.check(self)
        family = self.get_task_family()
        values = {name: key_value(value) for name, value in self.significant_values().items()}
        self.task_id = f"{family.rpartition('.')[2]}_{of_value('task', [type(self).__module__, family, values])}"
        self._Task__hash = hash(self.task_id)

    # -- what a subclass says ----------------------------------------------------------------------------------------

    def upstream(self) -> Upstream:
        """Name in the key and in compute's inputs -> (task, artifact of it)."""
        return {}

    def key_options(self) -> Mapping[str, Any]:
        """What enters the key beside the inputs. Default: all significant parameters."""
        return {name: key_value(value) for name, value in self.significant_values().items()}

    def key_inputs(self) -> Mapping[str, str]:
        """Digests that enter the key beside those of the artifacts: sources and files."""
        return {}

    def key_tools(self) -> Mapping[str, str]:
        """Versions that enter the key."""
        return {}

    def compute(self, inputs: Mapping[str, bytes], services: Services) -> Mapping[str, bytes]:
        """The results by name. Called only when they are in no store yet."""
        raise NotImplementedError(f"{type(self).__name__} has no compute()")

    @property
    def label(self) -> str:
        """What is being built, for people: it is in the history and never in a key."""
        return ""

    # -- what Luigi asks ---------------------------------------------------------------------------------------------

    @property
    def phase_name(self) -> str:
        return self.phase or type(self).__name__

    def requires(self) -> list[luigi.Task]:
        tasks = {task.task_id: task for task, _artifact in self.upstream().values()}
        return list(tasks.values())

    def output(self) -> ArtifactTarget:
        return ArtifactTarget(self)

    def complete(self) -> bool:
        from mlsdk.tasks import session

        return session.current().resolve(self) is not None

    def run(self) -> None:
        from mlsdk.tasks import session

        session.current().produce(self)

    # -- keys --------------------------------------------------------------------------------------------------------

    def recipe(self, digests: Mapping[str, str]) -> Recipe:
        """The recipe, given the digests of the upstream artifacts by name."""
        gives = " ".join(sorted(artifact.name for artifact in self.artifacts))
        try:
            return Recipe(
                self.phase_name,
                self.version,
                dict(self.key_options()),
                {**digests, **self.key_inputs()},
                {**self.key_tools(), "artifacts": gives},
            )
        except BadName as error:
            raise WorkflowError(f"{self.phase_name}: {error}") from None

    def gives(self, action: Action) -> bool:
        """True when an action has all artifacts that this task promises."""
        return all(artifact.optional or artifact.name in action.outputs for artifact in self.artifacts)

    def significant_values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name, parameter in self.get_params() if parameter.significant}

    def __repr__(self) -> str:
        return f"{self.phase_name}({self.label})" if self.label else f"{self.phase_name}()"


class ArtifactTarget(luigi.Target):
    """The results of a task, as Luigi sees them."""

    def __init__(self, task: ContentTask) -> None:
        self.task = task

    def exists(self) -> bool:
        return self.task.complete()

    def open(self, name: str) -> bytes:
        """The bytes of one artifact."""
        from mlsdk.tasks import session

        return session.current().read(self.task, name)

    def __str__(self) -> str:
        return f"{self.task!r}: {', '.join(artifact.name for artifact in self.task.artifacts)}"


class InstanceParameter(luigi.Parameter[Any]):
    """A parameter whose value is a task. As text: `module:Class?{"parameter": "text", ...}`."""

    def parse(self, x: str) -> ContentTask:
        head, _mark, parameters = x.partition("?")
        module, _colon, name = head.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
            values = json.loads(parameters or "{}")
            return found.from_str_params(values)
        except (ImportError, AttributeError, ValueError, RecursionError) as error:
            raise WorkflowError(f"{x!r:.120} is no task: {error}; write module:Class?{{...}}") from error

    def serialize(self, x: luigi.Task) -> str:
        head = f"{type(x).__module__}:{type(x).__qualname__}"
        texts = x.to_str_params(only_significant=False)
        parameters = {
            name: texts[name] for name, parameter in x.get_params() if texts[name] != _default_text(parameter)
        }
        return f"{head}?{json.dumps(parameters, sort_keys=True)}" if parameters else head


def _default_text(parameter: luigi.Parameter[Any]) -> str | None:
    """A default as text, so that a task's text names only what is not."""
    default = parameter._default
    if default is luigi.parameter._no_value:
        return None
    return str(parameter.serialize(parameter.normalize(default)))


def key_value(value: Any) -> Any:
    """A parameter's value as it enters keys: typed, and with nothing that depends on the process."""
    if isinstance(value, luigi.Task):
        return ("task", value.task_id)
    if isinstance(value, enum.Enum):
        return ("enum", type(value).__name__, value.name)
    if isinstance(value, (datetime.date, datetime.time)):
        return (type(value).__name__, value.isoformat())
    if isinstance(value, datetime.timedelta):
        return ("timedelta", value.days, value.seconds, value.microseconds)
    if isinstance(value, Mapping):
        return {str(name): key_value(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [key_value(item) for item in value]
    canonical(value)  # refuses what has no canonical form, with the reason
    return value


def installed(distributions: Iterable[str]) -> dict[str, str]:
    """Names and versions for key_tools."""
    return {name: version_of(name) for name in distributions}


def in_order(goals: list[Any]) -> list[luigi.Task]:
    """All tasks under the goals, each after what it requires."""
    seen: dict[str, luigi.Task] = {}

    def visit(task: luigi.Task) -> None:
        if task.task_id in seen:
            return
        for required in flatten(task.requires()):
            visit(required)
        seen[task.task_id] = task

    for goal in goals:
        visit(goal)
    return list(seen.values())
