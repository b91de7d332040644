"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlsdk.pipeline.ir.graph import FLOATS, INTEGERS, Node
from mlsdk.pipeline.ops.table import (
    Operator,
    Type,
    accumulating,
    attributes,
    broadcast,
    register,
    require,
    require_dtype,
    require_same_dtype,
)

NUMBERS = (*FLOATS, *INTEGERS)
Array = np.ndarray


def _matmul_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    a, b = inputs
    require_dtype(a, NUMBERS)
    dtype = require_same_dtype(inputs)
    require(a.shape and b.shape, "a 0-d operand has no matrix product; use Mul")
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    require(left[-1] == right[-2], f"cannot contract {list(a.shape)} with {list(b.shape)}")
    shape = broadcast(left[:-2], right[:-2])
    if len(a.shape) > 1:
        shape = (*shape, left[-2])
    if len(b.shape) > 1:
        shape = (*shape, right[-1])
    return [(dtype, shape)]


def product(a: Array, b: Array) -> Array:
    """a @ b, halves with single accumulation and one rounding."""
    return np.asarray(np.matmul(accumulating(a), accumulating(b))).astype(a.dtype)


def _gemm_infer(node: Node, inputs: Sequence[Any]) -> list[Type]:
    a, b, c = inputs
    require_dtype(a, NUMBERS)
    dtype = require_same_dtype(inputs)
    require(len(a.shape) == 2 and len(b.shape) == 2, f"takes two matrices, got {list(a.shape)} and {list(b.shape)}")
    attrs = attributes(node)
    rows, depth = reversed(a.shape) if attrs["transA"] else a.shape
    depth_b, columns = reversed(b.shape) if attrs["transB"] else b.shape
    require(depth == depth_b, f"cannot contract {list(a.shape)} with {list(b.shape)}: {depth} is not {depth_b}")
    if c is not None:
        fits = broadcast(c.shape, (rows, columns)) == (rows, columns)
        require(fits, f"the third operand {list(c.shape)} does not broadcast to {[rows, columns]}")
    return [(dtype, (rows, columns))]


def _gemm(node: Node, inputs: Sequence[Any]) -> list[Array]:
    a, b, c = inputs
    attrs = attributes(node)
    wide = accumulating(np.empty(0, a.dtype)).dtype
    left = accumulating(a.T if attrs["transA"] else a)
    right = accumulating(b.T if attrs["transB"] else b)
    out = np.matmul(left, right)
    if attrs["alpha"] != 1:
        out = (out * wide.type(attrs["alpha"]) if wide.kind == "f" else out * attrs["alpha"]).astype(wide)
    if c is not None and attrs["beta"] != 0:
        bias = accumulating(c)
        if attrs["beta"] != 1:
            bias = (bias * wide.type(attrs["beta"]) if wide.kind == "f" else bias * attrs["beta"]).astype(wide)
        out = out + bias
    return [out.astype(a.dtype)]


register(
    Operator(
        "MatMul",
        _matmul_infer,
        lambda node, inputs: [product(*inputs)],
        "The matrix product of the last two axes, with broadcast batch axes.",
        (2, 2),
        {},
        "matmul",
    )
)
register(
    Operator(
        "Gemm",
        _gemm_infer,
        _gemm,
        "alpha * A @ B + beta * C, with A or B transposed on demand.",
        (2, 3),
        {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0},
        "matmul",
    )
)
