"""Bit casts and a multiply-add for numba code, and the compile options that every kernel shares."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_intrinsic: Any = intrinsic
OPTIONS: dict[str, Any] = {"nogil": True, "boundscheck": False, "fastmath": False, "error_model": "numpy"}


def kernel(function: Any) -> Any:
    """Compiles on first use; cached beside the file, without bounds checks, without the GIL, without reordered float sums."""
    try:
        return njit(cache=True, **OPTIONS)(function)
    except RuntimeError:  # nowhere to put a cache: neither beside the file nor in the user's home
        return njit(**OPTIONS)(function)


PES = 4096


def _cast(source: Any, target: Any, llvm: Any):
    """numba widens uint32 arithmetic to 64 bits, so any integer is accepted and cut to the source width first."""

    def typing(typingctx: Any, value: Any):
        if value != source and not (isinstance(source, types.Integer) and isinstance(value, types.Integer)):
            return None

        def codegen(context: Any, builder: Any, signature: Any, args: Any):
            return builder.bitcast(context.cast(builder, args[0], value, source), llvm)

        return target(value), codegen

    return _intrinsic(typing)


single_of = _cast(types.uint32, types.float32, ir.FloatType())  # uint32 bits -> float32
bits_of = _cast(types.float32, types.uint32, ir.IntType(32))  # float32 -> uint32 bits
double_of = _cast(types.uint64, types.float64, ir.DoubleType())  # uint64 bits -> float64
bits64_of = _cast(types.float64, types.uint64, ir.IntType(64))  # float64 -> uint64 bits


@_intrinsic
def multiply_add(typingctx: Any, a: Any, b: Any, c: Any):
    """a * b + c of doubles, for a * b that are exact: the host may leave out the rounding of the product."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any):
        double = ir.DoubleType()
        function = builder.module.declare_intrinsic("llvm.fmuladd", [double], ir.FunctionType(double, [double] * 3))
        return builder.call(function, args)

    return types.float64(types.float64, types.float64, types.float64), codegen
