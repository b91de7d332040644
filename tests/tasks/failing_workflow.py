"""A workflow whose step fails."""

from __future__ import annotations

import time
from pathlib import Path

import luigi

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


class Divides(Step):
    artifacts = (Artifact("never"),)

    def compute(self, inputs, services):
        return {"never": bytes(1 // 0)}


class Buggy(Workflow):
    def requires(self):
        return [Divides()]


class Interrupted(Workflow):
    def requires(self):
        return [Interrupts()]


class Slow(Workflow):
    mark = luigi.Parameter()

    def requires(self):
        return [Sleeps(mark=self.mark)]


class Sleeps(Step):
    mark = luigi.Parameter()
    artifacts = (Artifact("never"),)

    def compute(self, inputs, services):
        Path(self.mark).touch()
        time.sleep(60)
        return {}


class Interrupts(Step):
    artifacts = (Artifact("never"),)

    def compute(self, inputs, services):
        raise KeyboardInterrupt
