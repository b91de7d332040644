"""A workflow that needs neither torch nor a real phase: the protocol in one page."""

from __future__ import annotations

import json

import luigi

from mlsdk.tasks.workflow import Artifact, Program, Step, Workflow


class Train(Step):
    """What the program needs before it can be traced."""

    epochs = luigi.IntParameter(default=3)
    artifacts = (Artifact("weights.json", "json"),)

    def compute(self, inputs, services):
        services.status("training")
        print("epoch 1")
        return {"weights.json": json.dumps([epoch / 2 for epoch in range(self.epochs)]).encode()}


class Data(Step):
    """What the board is fed."""

    artifacts = (Artifact("inputs.npz", "arrays"),)

    def compute(self, inputs, services):
        return {"inputs.npz": b"rows"}


def double(inputs):
    return {"y": inputs["x"] * 2}


class Example(Workflow):
    """Train, compile, run."""

    batch = luigi.IntParameter(default=4)
    epochs = luigi.IntParameter(default=3)
    default_options = {"float_dtype": "mixed"}

    def steps(self):
        return {"train": Train(epochs=self.epochs)}

    def program(self, name, inputs):
        weights = json.loads(inputs["train/weights.json"])
        return Program(double, {"x": (self.batch, len(weights))})

    def requires(self):
        return [*self.compiled(), self.executed(Data())]

    def summary(self):
        outputs = self.read(self.executed(Data()), "outputs.npz")
        return {"batch": self.batch, "accuracy": {"torch": 0.975, "board": 0.97}, "bytes": len(outputs)}
