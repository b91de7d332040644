"""A workflow whose step fails."""

from __future__ import annotations

from mlsdk.errors import MLSDKError
from mlsdk.tasks.workflow import Artifact, Step, Workflow


class Fails(Step):
    artifacts = (Artifact("never"),)

    def compute(self, inputs, services):
        error = MLSDKError("fc1: it does not fit; make it smaller")
        error.node = "fc1"
        raise error


class Failing(Workflow):
    def requires(self):
        return [Fails()]


class Interrupted(Workflow):
    def requires(self):
        return [Interrupts()]


class Interrupts(Step):
    artifacts = (Artifact("never"),)

    def compute(self, inputs, services):
        raise KeyboardInterrupt
