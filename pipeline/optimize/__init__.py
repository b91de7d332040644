"""Graph to graph: `optimize(graph)` runs named passes, each verified."""

from mlsdk.pipeline.optimize.driver import PASSES, optimize

__all__ = ["PASSES", "optimize"]
