"""From a Python function to a Graph: `trace(function, sample, state=...)`."""

from mlsdk.pipeline.trace.compare import Comparison, check_against_eager
from mlsdk.pipeline.trace.trace import Traced, trace, trace_call

__all__ = ["Comparison", "Traced", "check_against_eager", "trace", "trace_call"]
