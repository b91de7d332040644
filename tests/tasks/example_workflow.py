"""The protocol of a workflow in one page: train, compile, run. torch is imported when the program is traced.

mlsdk run tests/tasks/example_workflow.py
"""

from __future__ import annotations

import json

import numpy as np

from mlsdk.tasks.workflow import Artifact, IntParameter, Program, Step, Workflow, pack


class Train(Step):
    """What the program needs before it can be traced."""

    epochs = IntParameter(1, 4096, default=3)
    artifacts = (Artifact("weights.json", "json"),)

    def compute(self, inputs, services):
        services.status("training")
        print("epoch 1")
        return {"weights.json": json.dumps([epoch / 2 for epoch in range(self.epochs)]).encode()}


class Data(Step):
    """What the board is fed: two calls."""

    batch = IntParameter(1, 4096, default=4)
    width = IntParameter(1, 4096, default=3)
    artifacts = (Artifact("inputs.npz", "arrays"),)

    def compute(self, inputs, services):
        rows = np.arange(2 * self.batch * self.width, dtype=np.float32)
        return {"inputs.npz": pack({"x": rows.reshape(2, self.batch, self.width)})}


def double(inputs):
    return {"y": inputs["x"] * 2}


class Example(Workflow):
    """Train, compile, run."""

    batch = IntParameter(1, 4096, default=4)
    epochs = IntParameter(1, 4096, default=3)
    default_options = {"float_dtype": "mixed"}

    def steps(self):
        return {"train": Train(epochs=self.epochs)}

    def program(self, name, inputs):
        import torch

        weights = json.loads(inputs["train/weights.json"])
        return Program(double, {"x": torch.zeros(self.batch, len(weights))})

    def requires(self):
        return [*self.compiled(), self.executed(self.data())]

    def data(self):
        return Data(batch=self.batch, width=self.epochs)

    def summary(self):
        outputs = self.read(self.executed(self.data()), "outputs.npz")
        return {"batch": self.batch, "accuracy": {"torch": 0.975, "board": 0.97}, "bytes": len(outputs)}
