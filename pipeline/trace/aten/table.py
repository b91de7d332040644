"""The table aten operator -> nodes of a Graph.

A row is a function `(b, out, *args, **kwargs)`: `b` is the Builder, `out` the (dtype, shape) of each result as torch
has it (None for one that is not asked for), and the arguments are those of the aten operator with Values in place of
tensors. It returns the Value of the result, or one for each result; None stands for a result that is absent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from mlsdk.pipeline.ir.graph import FLOATS, Value
from mlsdk.pipeline.trace.builder import Builder
from mlsdk.pipeline.trace.dtypes import DTYPE_OF_TORCH, TORCH_OF_DTYPE
from mlsdk.pipeline.trace.registry import Row, registering
from mlsdk.pipeline.trace.shadow import META

aten = torch.ops.aten

Type = tuple[str, tuple[int, ...]]
ATEN: dict[Any, Row] = {}


class Unsupported(Exception):
    """This form of the operator has no row; the message says which form."""


#: registers a function as the row of each of the aten operators
row = registering(ATEN)


# --- helpers for rows ---


def promoted(*operands: Value | float | int | bool) -> str:
    """The dtype in which torch combines operands, Python numbers among them."""
    parts = [
        torch.empty(operand.shape, dtype=TORCH_OF_DTYPE[operand.dtype], device=META)
        if isinstance(operand, Value)
        else operand
        for operand in operands
    ]
    dtype = torch.result_type(parts[0], parts[1]) if len(parts) > 1 else parts[0].dtype  # type: ignore[union-attr]
    for part in parts[2:]:
        dtype = torch.promote_types(dtype, part.dtype if isinstance(part, torch.Tensor) else dtype)
    return DTYPE_OF_TORCH[dtype]


def operand(b: Builder, x: Value | float | int | bool, dtype: str) -> Value:
    """A tensor operand cast to `dtype`, or a Python number as a 0-d constant of it."""
    return b.cast(x, dtype) if isinstance(x, Value) else b.scalar(x, dtype)


def in_range(number: float, dtype: str) -> float | int:
    """A number, or for integers the end of their range in place of an infinity."""
    if dtype in FLOATS or np.isfinite(number):
        return number
    return int(np.iinfo(dtype).min if number < 0 else np.iinfo(dtype).max)


def scaled(b: Builder, x: Value, factor: float | int) -> Value:
    return x if factor == 1 else b.op("Mul", x, b.scalar(factor, x.dtype))


def truth(b: Builder, x: Value) -> Value:
    """x != 0, as bool."""
    return b.cast(x, "bool")


def axis_list(dims: Any, rank: int) -> list[int]:
    """Axes counted from 0; all for None and for an empty list."""
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return list(range(rank))
    named = [dims] if isinstance(dims, int) else dims
    return [axis % rank for axis in named] if rank else []


def pairs(value: Any, rank: int) -> list[int]:
    """A window parameter with one entry for each spatial axis; torch also takes a single one for all."""
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    return items * rank if len(items) == 1 else items
