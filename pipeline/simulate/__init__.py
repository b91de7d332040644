"""The simulate phase: a Plan becomes a Timeline, by emitting the program and counting its steps."""

from mlsdk.pipeline.simulate.simulate import measure, simulate

__all__ = ["measure", "simulate"]
