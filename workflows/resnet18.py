"""ResNet-18 inference: compile it, run an image on the board, and compare the logits with torch's in double.

mlsdk run resnet18
mlsdk run resnet18 --param size=64 --option float_dtype=float
luigi --module mlsdk.workflows.resnet18 ResNet --local-scheduler
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import luigi

from mlsdk.tasks.workflow import LARGEST_SEED, Artifact, IntParameter, Program, Step, Workflow, arrays, pack


class Image(Step):
    """A seeded image, and what torch computes of it in double."""

    batch = IntParameter(1, 4096, default=1)
    size = IntParameter(1, 4096, default=224)
    classes = IntParameter(1, 100_000, default=1000)
    seed = IntParameter(0, LARGEST_SEED, default=0)
    artifacts = (Artifact("inputs.npz", "arrays"), Artifact("logits.npz", "arrays"))
    extra_sources = ("mlsdk.workflows.resnet_model",)

    def compute(self, inputs: Mapping[str, bytes], services: Any) -> Mapping[str, bytes]:
        import torch

        from mlsdk.workflows.resnet_model import seeded

        model = seeded(self.seed, self.classes)
        image = torch.randn(self.batch, 3, self.size, self.size)
        with torch.no_grad():
            logits = model.double()(image.double())
        return {"inputs.npz": pack({"x": image[None].numpy()}), "logits.npz": pack({"logits": logits.numpy()})}


class ResNet(Workflow):
    """ResNet-18 on the board, compared with torch."""

    batch = IntParameter(1, 4096, default=1, description="images per call")
    size = IntParameter(1, 4096, default=224, description="edge of the images")
    classes = IntParameter(1, 100_000, default=1000, description="number of classes")
    seed = IntParameter(0, LARGEST_SEED, default=0, description="seed of weights and image")
    default_options = {"float_dtype": "mixed"}
    extra_sources = ("mlsdk.workflows.resnet_model",)

    def program(self, name: str, inputs: Mapping[str, bytes]) -> Program:
        import torch

        from mlsdk.workflows.resnet_model import seeded

        model = seeded(self.seed, self.classes)
        return Program(
            lambda batch: {"logits": model(batch["x"])}, {"x": torch.zeros(self.batch, 3, self.size, self.size)}
        )

    def requires(self) -> list[luigi.Task]:
        return [*self.compiled(), self.executed(self._image())]

    def _image(self) -> Image:
        return Image(batch=self.batch, size=self.size, classes=self.classes, seed=self.seed)

    def summary(self) -> dict[str, Any]:
        import numpy as np

        run, image = self.executed(self._image()), self._image()
        got = arrays(self.read(run, "outputs.npz"))["logits"][0]
        want = arrays(self.read(image, "logits.npz"))["logits"]
        record = json.loads(self.read(run, "run.json"))
        return {
            "relative_error": float(np.linalg.norm(got - want) / np.linalg.norm(want)),
            "same_class": bool((got.argmax(1) == want.argmax(1)).all()),
            "batch": self.batch,
            "steps": round(record["steps_per_run"]),
            "simulated_us": record["steps_per_run"] * 4 / 750,
            "emulated_seconds": record["wall_seconds"],
        }
