"""Errors of the tasks, and how any error becomes one line."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mlsdk.errors import Misuse, MLSDKError, StoreError, UnsupportedOperator

if TYPE_CHECKING:
    from mlsdk.tasks.channel import Told

Origins = Mapping[str, Mapping[str, str]]  # node -> {"source": "file:line", "scope": module path}: a sources.json


class WorkflowError(MLSDKError):
    """A workflow, a step or a parameter is not what it must be."""


class CodegenDirError(MLSDKError):
    """A codegen_dir is incomplete, was changed, or comes from another version."""


@dataclass(frozen=True)
class Failure:
    """A phase that failed: phase, label of the build, and the error as it was raised."""

    phase: str
    label: str
    error: BaseException

    @property
    def node(self) -> str:
        return str(getattr(self.error, "node", "") or "")

    def __str__(self) -> str:
        """One line: phase, node, cause."""
        where = f"{self.phase} of {self.label}" if self.label else self.phase
        node = f", node {self.node}" if self.node else ""
        return f"{where}{node}: {cause(self.error)}"


class WorkerError(MLSDKError):
    """What failed in a worker process, as far as it can be told in words."""

    def __init__(self, text: str, node: str = "") -> None:
        super().__init__(text)
        self.node = node

    @classmethod
    def of(cls, told: Told) -> BaseException:
        """The error to raise for what a worker told."""
        if told.kind == "interrupted":
            return KeyboardInterrupt()
        return {"store": WorkerStoreError}.get(told.kind, WorkerError)(told.error, told.node)


class WorkerStoreError(WorkerError, StoreError):
    """The store could not be used in a worker process."""


def kind_of(error: BaseException) -> str:
    """Which exit code an error calls for."""
    for kind, of in (("store", StoreError), ("interrupted", KeyboardInterrupt)):
        if isinstance(error, of):
            return kind
    return "error"


def located(error: MLSDKError, origins: Origins) -> MLSDKError:
    """The same error with the user's lines for the nodes that it names."""
    if isinstance(error, UnsupportedOperator) and error.misuses:
        places = [
            replace(misuse, **{key: value for key, value in origins.get(misuse.node, {}).items() if value})
            for misuse in error.misuses
        ]
        found: MLSDKError = UnsupportedOperator.listing(places, error.what_to_do)
        found.phase, found.node = error.phase, error.node
        return found
    origin = origins.get(error.node, {})
    if origin.get("source") and origin["source"] not in str(error):
        error.args = (str(Misuse(str(error), origin["source"], origin.get("scope", ""))), *error.args[1:])
    return error


def place_in(error: BaseException, *files: Path) -> str:
    """`file, line N` where an error passed the user's files, the innermost; empty when it did not."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{error.filename}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename) in files]
    return f"{own[-1].filename}, line {own[-1].lineno}" if own else ""


def cause(error: BaseException) -> str:
    """One line for any error: ours speak for themselves, others begin with their class."""
    text = "; ".join(line.strip().rstrip(";") for line in str(error).splitlines() if line.strip())
    if isinstance(error, MLSDKError):
        return text or type(error).__name__
    if isinstance(error, MemoryError):
        return f"not enough memory{f' ({text})' if text else ''}; make the program smaller, or run fewer jobs at once"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
