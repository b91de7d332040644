"""Train an MLP on handwritten digits, every step of it on the emulated board, and evaluate the checkpoint there.

mlsdk run train_digits
mlsdk run train_digits --param epochs=4 --option float_dtype=float
luigi --module mlsdk.workflows.train_digits TrainDigits --local-scheduler
"""

from __future__ import annotations

from typing import Any

from mlsdk.tasks.workflow import LARGEST_SEED, FloatParameter, IntParameter
from mlsdk.workflows.train_steps import Training, TrainWorkflow


class TrainMLP(Training):
    """The MLP, with SGD and momentum."""

    def model(self) -> tuple[Any, Any]:
        from mlsdk import MNCoreSGD
        from mlsdk.workflows.train_model import mlp

        model = mlp(self.width)
        return model, MNCoreSGD(model.parameters(), lr=self.rate, momentum=0.9)


class TrainDigits(TrainWorkflow):
    """Train an MLP for handwritten digits on the board."""

    width = IntParameter(1, 4096, default=64, description="width of the hidden layer")
    epochs = IntParameter(1, 10000, default=8, description="epochs of the training")
    batch = IntParameter(1, 1437, default=64, description="images per step")
    images = IntParameter(0, 1437, default=0, description="training images; 0: all")
    rate = FloatParameter(0, 1000, default=0.1, description="learning rate")
    seed = IntParameter(0, LARGEST_SEED, default=0, description="seed of weights and batches")
    default_options = {"float_dtype": "mixed"}
    training = TrainMLP
