"""Handwritten digits: train a small MLP with torch, compile its inference, and run the whole test set on the board.

mlsdk run digits
mlsdk run digits --param batch=32 --option float_dtype=float
luigi --module mlsdk.workflows.digits Digits --local-scheduler
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import luigi

from mlsdk.tasks.workflow import LARGEST_SEED, Artifact, IntParameter, Program, Step, Workflow, arrays, pack


class Train(Step):
    """Weights of the MLP, and the accuracy that torch reaches with them."""

    hidden = IntParameter(1, 4096, default=64)
    epochs = IntParameter(0, 10_000, default=20)
    seed = IntParameter(0, LARGEST_SEED, default=0)
    artifacts = (Artifact("weights.npz", "arrays"), Artifact("torch.json", "json"))
    extra_sources = ("mlsdk.workflows.digits_model",)

    def compute(self, inputs: Mapping[str, bytes], services: Any) -> Mapping[str, bytes]:
        from mlsdk.workflows.digits_model import accuracy, train

        services.status(f"training for {self.epochs} epochs")
        model = train(self.hidden, self.epochs, self.seed)
        weights = {name: value.detach().numpy() for name, value in model.state_dict().items()}
        return {"weights.npz": pack(weights), "torch.json": json.dumps({"accuracy": accuracy(model)}).encode()}


class TestSet(Step):
    """The test images in batches (the last one filled up with zeros), and their labels."""

    batch = IntParameter(1, 4096, default=64)
    artifacts = (Artifact("inputs.npz", "arrays"), Artifact("labels.npz", "arrays"))
    extra_sources = ("mlsdk.workflows.digits_model",)

    def compute(self, inputs: Mapping[str, bytes], services: Any) -> Mapping[str, bytes]:
        import numpy as np

        from mlsdk.workflows.digits_model import digits

        _, _, images, labels = digits()
        filled = np.zeros((-(-len(images) // self.batch) * self.batch, 64), np.float32)
        filled[: len(images)] = images
        return {"inputs.npz": pack({"x": filled.reshape(-1, self.batch, 64)}), "labels.npz": pack({"labels": labels})}


class Digits(Workflow):
    """Classify handwritten digits on the board and compare with torch."""

    batch = IntParameter(1, 4096, default=64, description="images per call")
    hidden = IntParameter(1, 4096, default=64, description="width of the hidden layer")
    epochs = IntParameter(0, 10_000, default=20, description="epochs of the training on the host")
    seed = IntParameter(0, LARGEST_SEED, default=0, description="seed of the training")
    default_options = {"float_dtype": "mixed"}
    extra_sources = ("mlsdk.workflows.digits_model",)

    def steps(self) -> dict[str, Step]:
        return {"train": Train(hidden=self.hidden, epochs=self.epochs, seed=self.seed)}

    def program(self, name: str, inputs: Mapping[str, bytes]) -> Program:
        import torch

        from mlsdk.workflows.digits_model import MLP

        model = MLP(self.hidden).eval()
        weights = arrays(inputs["train/weights.npz"])
        model.load_state_dict({key: torch.from_numpy(value.copy()) for key, value in weights.items()})

        def classify(batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            logits = model(batch["x"])
            return {"digit": logits.argmax(1), "probability": torch.softmax(logits, 1)}

        registered = {f"model@{key.replace('.', '@')}": value for key, value in model.named_parameters()}
        return Program(classify, {"x": torch.zeros(self.batch, 64)}, {"state": registered})

    def requires(self) -> list[luigi.Task]:
        return [*self.compiled(), self.executed(self.test_set())]

    def test_set(self) -> TestSet:
        return TestSet(batch=self.batch)

    def summary(self) -> dict[str, Any]:
        run = self.executed(self.test_set())
        labels = arrays(self.read(self.test_set(), "labels.npz"))["labels"]
        digit = arrays(self.read(run, "outputs.npz"))["digit"].reshape(-1)[: len(labels)]
        record = json.loads(self.read(run, "run.json"))
        torch_accuracy = json.loads(self.read(self.steps()["train"], "torch.json"))["accuracy"]
        return {
            "accuracy": {"torch": torch_accuracy, "board": float((digit == labels).mean())},
            "batch": self.batch,
            "steps_per_batch": round(record["steps_per_run"]),
            "simulated_us": record["steps_per_run"] * 4 / 750,
            # A speed is a fact of the run that was measured, and says nothing about one that was not.
            "steps_per_second": round(record["steps_per_second"]) if self.was_built(run) else None,
        }

    def report(self, summary: Mapping[str, Any]) -> str:
        accuracy = summary["accuracy"]
        lines = [f"accuracy         torch {accuracy['torch']:.4f}, board {accuracy['board']:.4f}"]
        if summary["steps_per_batch"]:  # the reference functions take none
            lines += [
                f"steps per batch  {summary['steps_per_batch']} ({self.batch} images)",
                f"simulated time   {summary['simulated_us']:.2f} us per batch at 750 MHz",
            ]
        if summary["steps_per_second"]:
            lines.append(f"emulation speed  {summary['steps_per_second']:,} steps/s")
        return "\n".join(lines)
