"""Errors of the tasks, and how any error becomes one line."""

from __future__ import annotations

from dataclasses import dataclass

from mlsdk.errors import MLSDKError


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


def cause(error: BaseException) -> str:
    """One line for any error: ours speak for themselves, others begin with their class."""
    text = "; ".join(line.strip().rstrip(";") for line in str(error).splitlines() if line.strip())
    if isinstance(error, MLSDKError):
        return text or type(error).__name__
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
