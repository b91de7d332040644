"""Operators: one row each, with shape and dtype rule and reference function.

`OPERATORS` is the table; `lookup(name)` finds a row or raises UnknownOperator with the nearest name.
"""

from mlsdk.pipeline.ir import plugins
from mlsdk.pipeline.ops import (  # noqa: F401  (importing a family registers its rows)
    convolution,
    elementwise,
    indexing,
    loss,
    matmul,
    normalization,
    pooling,
    random,
    reduce,
    resize,
    shape,
)
from mlsdk.pipeline.ops.table import REQUIRED, Operand, Operator, infer, lookup, register, run, table

for _row in plugins.registry().operators:
    register(_row)
OPERATORS = table()

__all__ = ["OPERATORS", "REQUIRED", "Operand", "Operator", "infer", "lookup", "register", "run"]
