"""Operators without a row that torch cannot take apart either, written with smaller ones: one file for each family."""

from mlsdk.pipeline.trace.decompositions import (  # noqa: F401  (importing a family registers its functions)
    bags,
    gradients,
    grouped,
    linalg,
    losses,
    order,
    pooling,
    random,
    sampling,
    special,
)
from mlsdk.pipeline.trace.decompositions.table import DECOMPOSITIONS

__all__ = ["DECOMPOSITIONS"]
