"""The layout phase: a Graph becomes Placed."""

from mlsdk.pipeline.layout.planner import LayoutOptions, plan

__all__ = ["LayoutOptions", "plan"]
