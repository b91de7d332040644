"""Reductions of the on-chip network on arrays of LW: one call reduces the last axis (SDM 3.3, 4.2).

Elements of an LW lie most significant first. `unit` gives the value that stands for a source outside the set.
"""

from __future__ import annotations

import numpy as np

from .fast_convert import halves_to_singles, singles_to_halves
from .formats import FORMATS, HALF, SINGLE

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


_OPERATIONS = {"max": "MAX", "min": "MIN", "iadd": "IADD", "band": "BAND", "bor": "BOR", "and": "AND", "or": "OR"}


def reduce_lw(
    reduction: str, lws: np.ndarray, stages: int = 1, short: bool = False, single_circuit: bool = False
) -> np.ndarray:
    """Reduction of uint64 LWs over the last axis.

    stages          2: the sixteen sources go through two stages of 4-input adders
    short           result suffix r of single operations: the elements come out as halves, uint64 [..., 2]
    single_circuit  half sums of L1BM: elements are widened to single, summed there, and rounded to half at the end
    """
    from .fast import network

    precision, op = reduction[0], reduction[1:]
    values = np.ascontiguousarray(lws).reshape(-1, lws.shape[-1])
    if op == "fadd":
        return _add(precision, values, stages, short, single_circuit, lws.shape[:-1])
    out: np.ndarray = np.empty(values.shape[0], np.uint64)
    network.reduce(getattr(network, _OPERATIONS[op]), WIDTH[precision], values, out)
    out = out.reshape(lws.shape[:-1])
    return singles_to_halves(split(out, 32)).astype(np.uint64) if short else out


def _add(
    precision: str, values: np.ndarray, stages: int, short: bool, single_circuit: bool, shape: tuple[int, ...]
) -> np.ndarray:
    from .fast import network

    if precision == "f":
        out = np.empty((values.shape[0], 2), np.uint64)
        network.add_singles(values, stages, short, out)
        return out.reshape(*shape, 2) if short else (out[:, 0] << np.uint64(32) | out[:, 1]).reshape(shape)
    bits = WIDTH[precision]
    elements = np.moveaxis(split(values, bits), -1, -2)  # [value, element, source]
    source, target = FORMATS[precision], FORMATS[precision]
    if single_circuit:
        elements, source, target = halves_to_singles(elements), SINGLE, HALF
    flat = np.ascontiguousarray(elements.reshape(-1, elements.shape[-1]).astype(np.uint64))
    sums = np.empty(flat.shape[0], np.uint64)
    network.add_elements(
        flat, stages, source.mantissa_bits, source.exponent_bits, target.mantissa_bits, target.exponent_bits, sums
    )
    return join(sums.reshape(values.shape[0], -1), bits).reshape(shape)
