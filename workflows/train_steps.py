"""The Luigi side of the training workflows: training on a board as a step, and evaluation of its checkpoint as a program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import luigi

from mlsdk.tasks.errors import WorkflowError
from mlsdk.tasks.phases import OptionsParameter
from mlsdk.tasks.workflow import (
    LARGEST_SEED,
    Artifact,
    FloatParameter,
    IntParameter,
    Program,
    Step,
    Workflow,
    arrays,
    pack,
)
from mlsdk.workflows.digits import TestSet


class Training(Step):
    """A model trained on the emulated board: its checkpoint, the course of the training, and a picture of that."""

    width = IntParameter(1, 4096)
    epochs = IntParameter(1, 10000)
    batch = IntParameter(1, 1437)
    images = IntParameter(0, 1437, default=0, description="training images; 0: all")
    rate = FloatParameter(0, 1000)
    seed = IntParameter(0, LARGEST_SEED, default=0)
    options = OptionsParameter(default={}, description="compile options as JSON")
    device = luigi.Parameter(default="mncore2:auto", significant=False)
    artifacts = (
        Artifact("checkpoint.npz", "arrays"),
        Artifact("course.json", "json"),
        Artifact("curve.svg", "picture"),
    )
    extra_sources = ("mlsdk.workflows.train_model", "mlsdk.workflows.digits_model")

    def model(self) -> tuple[Any, Any]:
        """The module, and its MNCore optimizer."""
        raise NotImplementedError

    def compute(self, inputs: Mapping[str, bytes], services: Any) -> Mapping[str, bytes]:
        import torch

        from mlsdk.workflows.digits_model import digits
        from mlsdk.workflows.train_model import batches_of, curve, train

        x, y, test_x, test_y = digits()
        count = self.images or len(x)
        torch.manual_seed(self.seed)
        model, optimizer = self.model()
        epochs = batches_of(count, self.batch, self.epochs, self.seed)
        data = (x[:count], y[:count], test_x, test_y)
        course = train(model, optimizer, data, epochs, self.device, self.options, services.status)
        state = {name: value.detach().numpy() for name, value in model.state_dict().items()}
        for number, entries in enumerate(optimizer.state.values()):
            state |= {f"optimizer.{number}.{key}": value.numpy() for key, value in entries.items()}
        return {
            "checkpoint.npz": pack(state),
            "course.json": json.dumps({"losses": course.losses, "accuracies": course.accuracies}).encode(),
            "curve.svg": curve(course, f"{type(self).__name__}: {self.epochs} epochs, batches of {self.batch}"),
        }


class TrainWorkflow(Workflow):
    """A training on the board, then its checkpoint compiled for inference and run on the test images."""

    training: ClassVar[type[Training]]
    programs = ("evaluate",)
    extra_sources = ("mlsdk.workflows.train_model", "mlsdk.workflows.digits_model")

    width: int
    epochs: int
    batch: int
    images: int
    rate: float
    seed: int

    def check_parameters(self) -> None:
        if 0 < self.images < self.batch:
            raise WorkflowError(
                f"parameter images of {type(self).__name__}: {self.images} fill no batch of {self.batch}; "
                f"give at least {self.batch}, or 0 for all"
            )

    def steps(self) -> dict[str, Step]:
        return {
            "training": self.training(
                width=self.width,
                epochs=self.epochs,
                batch=self.batch,
                images=self.images,
                rate=self.rate,
                seed=self.seed,
                options=self.compile_options(),
                device=self.device,
            )
        }

    def program(self, name: str, inputs: Mapping[str, bytes]) -> Program:
        import torch

        model, _ = self.steps()["training"].model()  # type: ignore[attr-defined]
        checkpoint = arrays(inputs["training/checkpoint.npz"])
        model.load_state_dict({key: torch.from_numpy(checkpoint[key].copy()) for key in model.state_dict()})
        model.eval()

        def evaluate(batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {"digit": model(batch["x"]).argmax(1)}

        tensors = [*model.named_parameters(), *model.named_buffers()]
        state = {f"model@{key.replace('.', '@')}": value for key, value in tensors}
        return Program(evaluate, {"x": torch.zeros(self.batch, 64)}, {"state": state})

    def requires(self) -> list[luigi.Task]:
        return [*self.compiled("evaluate"), self.evaluation()]

    def test_set(self) -> TestSet:
        return TestSet(batch=self.batch)

    def evaluation(self) -> luigi.Task:
        """The test images through the checkpoint, on the board."""
        return self.executed(self.test_set(), program="evaluate")

    def summary(self) -> dict[str, Any]:
        course = json.loads(self.read(self.steps()["training"], "course.json"))
        labels = arrays(self.read(self.test_set(), "labels.npz"))["labels"]
        digit = arrays(self.read(self.evaluation(), "outputs.npz"))["digit"].reshape(-1)[: len(labels)]  # type: ignore[arg-type]
        return {
            "accuracy": float((digit == labels).mean()),
            "accuracy_by_epoch": [round(share, 4) for share in course["accuracies"]],
            "loss": {"first": course["losses"][0], "last": course["losses"][-1]},
            "steps": len(course["losses"]),
            "batch": self.batch,
        }
