"""Reductions of the on-chip network on arrays of LW: one call reduces the last axis (SDM 3.3, 4.2).

Elements of an LW lie most significant first. `unit` gives the value that stands for a source outside the set.
"""

from __future__ import annotations

import numpy as np

from .formats import FORMATS, HALF, Format

WIDTH = {"l": 64, "d": 64, "i": 32, "f": 32, "s": 16, "h": 16}
_DTYPE = {64: np.uint64, 32: np.uint32, 16: np.uint16}
ONES = 0xFFFFFFFFFFFFFFFF


def unit(reduction: str) -> int:
    """The LW of unit values: fadd iadd bor or -> 0; max band and -> all ones; min -> largest signed integer."""
    op, bits = reduction[1:], WIDTH[reduction[0]]
    if op in ("max", "band", "and"):
        return ONES
    if op == "min":
        return sum(((1 << (bits - 1)) - 1) << shift for shift in range(0, 64, bits))
    return 0


def split(lws: np.ndarray, bits: int) -> np.ndarray:
    """uint64 [...] -> elements [..., 64 // bits], most significant first."""
    shifts = np.arange(64 - bits, -1, -bits, dtype=np.uint64)
    return (lws[..., None] >> shifts).astype(_DTYPE[bits])


def join(elements: np.ndarray, bits: int) -> np.ndarray:
    """The inverse of `split`."""
    shifts = np.arange(64 - bits, -1, -bits, dtype=np.uint64)
    return np.bitwise_or.reduce(elements.astype(np.uint64) << shifts, axis=-1)


def reduce_lw(
    reduction: str, lws: np.ndarray, stages: int = 1, short: bool = False, single_circuit: bool = False
) -> np.ndarray:
    """Reduction of uint64 LWs over the last axis.

    stages          2: the sixteen sources go through two stages of 4-input adders
    short           result suffix r: the elements come out as halves in the low bits of each element (uint64 [..., elements])
    single_circuit  half sums of L1BM: elements are widened to single, summed there, and rounded to half at the end
    """
    precision, op = reduction[0], reduction[1:]
    bits = WIDTH[precision]
    elements = np.moveaxis(split(lws, bits), -1, -2)  # [..., element, source]
    if op == "fadd":
        out = _add(precision, elements, stages, short, single_circuit)
    else:
        out = _simple(op, elements, bits)
        if short:
            out = _short(out, FORMATS[precision])
    if short:
        return out.astype(np.uint64)
    return join(out, bits)


def _simple(op: str, e: np.ndarray, bits: int) -> np.ndarray:
    if op in ("max", "min"):
        # Sign-magnitude order as integers: +0 above -0. The key orders like the number, and is undone afterwards.
        signed = e.astype(np.int64) if bits < 64 else e.view(np.int64)
        if bits < 64:
            negative = (signed >> (bits - 1)) & 1
            magnitude = signed & ((1 << (bits - 1)) - 1)
            key = np.where(negative == 1, ~magnitude, magnitude)
        else:
            key = np.where(signed < 0, ~(signed & np.int64(0x7FFFFFFFFFFFFFFF)), signed)
        best = key.max(axis=-1) if op == "max" else key.min(axis=-1)
        if bits < 64:
            restored = np.where(best < 0, ~best | (1 << (bits - 1)), best)
            return restored.astype(_DTYPE[bits])
        return np.where(best < 0, ~best | np.int64(-0x8000000000000000), best).astype(np.int64).view(np.uint64)
    if op == "iadd":
        return np.add.reduce(e, axis=-1, dtype=e.dtype)
    if op == "band":
        return np.bitwise_and.reduce(e, axis=-1)
    if op == "bor":
        return np.bitwise_or.reduce(e, axis=-1)
    logical = np.all(e != 0, axis=-1) if op == "and" else np.any(e != 0, axis=-1)
    return logical.astype(e.dtype)


def _add(precision: str, e: np.ndarray, stages: int, short: bool, single_circuit: bool) -> np.ndarray:
    from .fast.network import add_elements

    source = FORMATS[precision]
    target = HALF if short or single_circuit else source
    if single_circuit:
        from .fast_convert import halves_to_singles

        e, source = halves_to_singles(e), FORMATS["f"]
    flat = np.ascontiguousarray(e.reshape(-1, e.shape[-1]).astype(np.uint64))
    out = np.empty(flat.shape[0], np.uint64)
    add_elements(
        flat, stages, source.mantissa_bits, source.exponent_bits, target.mantissa_bits, target.exponent_bits, out
    )
    return out.reshape(e.shape[:-1]).astype(_DTYPE[WIDTH[precision]] if not short else np.uint64)


def _short(e: np.ndarray, fmt: Format) -> np.ndarray:
    from .fast_convert import singles_to_halves

    return singles_to_halves(e)
