"""The layout phase: a Graph becomes Placed."""

from mlsdk.pipeline.layout.fixed import fixed_from_json, fixed_to_json
from mlsdk.pipeline.layout.planner import Fixed, LayoutOptions, plan

__all__ = ["Fixed", "LayoutOptions", "fixed_from_json", "fixed_to_json", "plan"]
