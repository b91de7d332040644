"""How a chain starts: with a function that was traced already, or with a program of a workflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import luigi
from luigi.freezing import recursively_freeze

from mlsdk.store import Action, Recipe, Store, digest_of
from mlsdk.tasks import sources
from mlsdk.tasks.content import ContentTask, InstanceParameter, Upstream, installed
from mlsdk.tasks.errors import WorkflowError
from mlsdk.tasks.phases import TRACE, code_digest, imported

if TYPE_CHECKING:
    from mlsdk.tasks.session import Services
    from mlsdk.tasks.workflow import Workflow


class Trace(ContentTask):
    """What both have in common: the artifacts, and their place at the top of the chain."""

    phase = TRACE.name
    version = TRACE.version
    artifacts = TRACE.gives

    def default_options(self) -> Mapping[str, Any]:
        """Compile options that the phases below take where they are given no others."""
        return {}


class DigestsParameter(luigi.Parameter[Mapping[str, str]]):
    """name -> digest; as text `name=digest,name=digest`."""

    def parse(self, x: str) -> dict[str, str]:
        return dict(item.split("=", 1) for item in x.split(",") if item)

    def normalize(self, x: Mapping[str, str]) -> Any:
        return recursively_freeze(x)

    def serialize(self, x: Mapping[str, str]) -> str:
        return ",".join(f"{name}={digest}" for name, digest in sorted(x.items()))


class TracedFunction(Trace):
    """A function that its caller has traced: the artifacts are known by their digests, and published by the caller."""

    contents = DigestsParameter(description="digests of exported.onnx, signature.json, ...")
    name = luigi.Parameter(default="", significant=False, description="for people")

    def key_options(self) -> Mapping[str, Any]:
        return {}

    def key_inputs(self) -> Mapping[str, str]:
        return dict(self.contents)

    def compute(self, inputs: Mapping[str, bytes], services: Services) -> Mapping[str, bytes]:
        raise WorkflowError(
            f"the traced function {self.name or 'given'} is no longer in the store; trace it again with Context.compile"
        )

    @property
    def label(self) -> str:
        return self.name


def publish_traced(store: Store, artifacts: Mapping[str, bytes], label: str) -> tuple[TracedFunction, Action, str]:
    """Publish what the caller traced. The task, its action, and why it is new; empty when the store has it."""
    promised = {artifact.name: artifact for artifact in TRACE.gives}
    missing = [name for name, one in promised.items() if name not in artifacts and not one.optional]
    extra = sorted(artifacts.keys() - promised.keys())
    if missing or extra:
        raise WorkflowError(
            f"a traced function gives {', '.join(promised)}; missing: {missing or 'none'}, unknown: {extra or 'none'}"
        )
    digests = {name: digest_of(data) for name, data in artifacts.items()}
    task = TracedFunction(contents=digests, name=label)
    recipe: Recipe = task.recipe({})
    known = store.get(recipe)
    if known is not None:
        return task, known, ""
    reason = store.reason(recipe, label)
    kinds = {name: one.kind for name, one in promised.items()}
    return task, store.publish(recipe, artifacts, kinds=kinds, label=label), reason


@dataclass(frozen=True)
class Program:
    """A PyTorch function to compile: what it is called with, and what else the tracer has to know.

    `keywords` go to the tracer as they are: for example the registered tensors by name.
    """

    function: Callable[..., Any]
    sample: Any
    keywords: Mapping[str, Any] = field(default_factory=dict)


class TraceProgram(Trace):
    """A program of a workflow. Its key: the workflow's source files, its parameters, the artifacts of earlier steps."""

    workflow = InstanceParameter(description="the workflow: module:Class?{...}")
    program = luigi.Parameter(default="main", description="which of its programs")

    def key_options(self) -> Mapping[str, Any]:
        return {"program": self.program, **self._workflow.program_parameters(self.program)}

    def key_inputs(self) -> Mapping[str, str]:
        return source_digests(type(self._workflow), self._workflow.extra_sources)[0]

    def key_tools(self) -> Mapping[str, str]:
        versions = source_digests(type(self._workflow), self._workflow.extra_sources)[1]
        return {**versions, **installed(TRACE.tools), **code_digest(TRACE.code)}

    def upstream(self) -> Upstream:
        return artifacts_of(self._workflow.steps())

    def compute(self, inputs: Mapping[str, bytes], services: Services) -> Mapping[str, bytes]:
        program = self._workflow.program(self.program, inputs)
        if not isinstance(program, Program):
            raise WorkflowError(
                f"{type(self._workflow).__name__}.program() gave {type(program).__name__}; return a Program"
            )
        trace: Callable[..., Mapping[str, bytes]] = imported(TRACE.function)
        return trace(program, {}, services)

    def default_options(self) -> Mapping[str, Any]:
        return self._workflow.compile_options()

    @property
    def label(self) -> str:
        return self._workflow.label_of(self.program)

    @property
    def _workflow(self) -> Workflow:
        workflow: Workflow = self.workflow
        return workflow


def artifacts_of(steps: Mapping[str, ContentTask]) -> dict[str, tuple[ContentTask, str]]:
    """All artifacts of some tasks, as `step/artifact`."""
    return {
        f"{name}/{artifact.name}": (step, artifact.name) for name, step in steps.items() for artifact in step.artifacts
    }


def source_digests(of: type, extra: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
    """(digests of the source files, versions of the distributions) that a class's module uses, named for keys."""
    found = sources.of_module(of.__module__, extra)
    return {f"source {module}": digest for module, digest in found.modules.items()}, found.distributions
