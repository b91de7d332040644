"""Train a CNN with batch normalisation on handwritten digits with Adam, on the emulated board, and evaluate it there.

mlsdk run train_cnn
mlsdk run train_cnn --param epochs=1 --param images=320
"""

from __future__ import annotations

from typing import Any

from mlsdk.tasks.workflow import LARGEST_SEED, FloatParameter, IntParameter
from mlsdk.workflows.train_steps import Training, TrainWorkflow


class TrainConvolutions(Training):
    """The CNN, with Adam."""

    def model(self) -> tuple[Any, Any]:
        from mlsdk import MNCoreAdam
        from mlsdk.workflows.train_model import cnn

        model = cnn(self.width)
        return model, MNCoreAdam(model.parameters(), lr=self.rate)


class TrainCNN(TrainWorkflow):
    """Train a CNN for handwritten digits on the board."""

    width = IntParameter(1, 4096, default=16, description="channels of the first convolution")
    epochs = IntParameter(1, 10000, default=2, description="epochs of the training")
    batch = IntParameter(1, 1437, default=32, description="images per step")
    images = IntParameter(0, 1437, default=0, description="training images; 0: all")
    rate = FloatParameter(0, 1000, default=0.03, description="learning rate")
    seed = IntParameter(0, LARGEST_SEED, default=0, description="seed of weights and batches")
    default_options = {"float_dtype": "mixed"}
    training = TrainConvolutions
