"""The emit phase: a Plan becomes a Program, and the data of the tables that its instructions need."""

from __future__ import annotations

import numpy as np

from mlsdk.pipeline.ir.placed import Placed
from mlsdk.pipeline.ir.plan import Plan
from mlsdk.pipeline.ir.program import Program
from mlsdk.pipeline.ops.link import link

__all__ = ["emit"]


def emit(placed: Placed, plan: Plan) -> tuple[Program, dict[str, np.ndarray]]:
    """The program, and for each table segment its data (uint64[4][LW])."""
    return link(placed, plan)
