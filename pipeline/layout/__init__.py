"""The layout phase: a Graph becomes Placed."""

from mlsdk.pipeline.layout.fixed import fixed_from_json, fixed_to_json
from mlsdk.pipeline.layout.pins import pins_of
from mlsdk.pipeline.layout.planner import Fixed, LayoutOptions
from mlsdk.pipeline.layout.products import IMPLEMENTATIONS
from mlsdk.pipeline.layout.search import PLANNERS, TRIALS, plan

__all__ = [
    "IMPLEMENTATIONS",
    "PLANNERS",
    "TRIALS",
    "Fixed",
    "LayoutOptions",
    "fixed_from_json",
    "fixed_to_json",
    "pins_of",
    "plan",
]
