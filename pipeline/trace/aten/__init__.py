"""How each aten operator becomes nodes: one file for each family, all rows in ATEN."""

from mlsdk.pipeline.trace.aten import (  # noqa: F401  (importing a family registers its rows)
    backward,
    convolution,
    elementwise,
    indexing,
    loss,
    matmul,
    normalization,
    random,
    reduction,
    shape,
)
from mlsdk.pipeline.trace.aten.table import ATEN, Unsupported

__all__ = ["ATEN", "Unsupported"]
