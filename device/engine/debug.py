"""Debug statements: `d set`, `r` presets and `d get` dumps in the documented format."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from .. import spec
from ..errors import ExecutionError
from ..isa import model as m
from ..isa.checks import DEBUG_SIZES
from ..isa.printer import format_statement
from ..memory.state import State

if TYPE_CHECKING:
    from .decoder import Decoder
    from .machine import Machine

NAMES = {
    m.LM0: "LM0",
    m.LM1: "LM1",
    m.GRF0: "GREG0",
    m.GRF1: "GREG1",
    m.T: "TREG",
    m.OMR: "OMR",
    m.MAT_X: "MATX",
    m.MAT_Y: "MATY",
    m.L1BM: "L1BM",
    m.L2BM: "L2BM",
    m.DRAM: "DRAM",
    m.PDM: "PDM",
}
#: coordinates that a memory has
COORDINATES = {m.DRAM: "n", m.PDM: "n", m.L2BM: "nc", m.L1BM: "ncb", m.MAT_X: "ncbmp", m.MAT_Y: "ncbmp"}
LIMITS = {"n": 4, "c": 2, "b": 8, "m": 16, "p": 4}


def decode(machine: Machine, decoder: Decoder, s: m.DebugGet | m.DebugSet | m.Preset) -> None:
    _check_size(s)
    if isinstance(s, m.Preset):
        data = np.array(s.values, np.uint64)
        decoder.call(machine.state.dram[s.group].write, s.addr, data, batchable=False)
    elif isinstance(s, m.DebugSet):
        decoder.call(write_place, machine.state, s.place, s.values, batchable=False)
        if s.place.memory == m.T:
            # what is known of T's low words no longer holds; settled by reading all of them
            decoder.t_low_zero = False
        if s.place.memory in (m.MAT_X, m.MAT_Y):
            decoder.call(machine.decoded(s.place.memory, "h").dirty, batchable=False)
    else:

        def dump() -> None:
            machine.dumps.extend(dump_lines(machine.state, s))
            if machine.expectations is not None and "expect" in s.note:
                from .expect import check

                machine.expectations.append((s, *check(machine.state, s)))

        decoder.call(dump, batchable=False)


def _check_size(s: m.DebugGet | m.DebugSet | m.Preset) -> None:
    """Unchecked programs, too, cannot name what no memory has."""
    if isinstance(s, m.Preset):
        memory, addr, count, (size, unit) = m.DRAM, s.addr, len(s.values), DEBUG_SIZES[m.DRAM]
    else:
        memory, addr, (size, unit) = s.place.memory, s.place.addr, DEBUG_SIZES[s.place.memory]
        count = s.count if isinstance(s, m.DebugGet) else len(s.values)
    if not 0 <= addr < size or addr + count * unit > size:
        raise ExecutionError(f"line {s.line}: {memory} {addr} with {count} LW is outside 0..{size - 1}")


def instances(place: m.Place) -> list[dict[str, int]]:
    """Every instance that a place names, in order n, c, b, m, p."""
    letters = COORDINATES.get(place.memory, "ncbmp")
    ranges = [range(LIMITS[x]) if getattr(place, x) is None else [getattr(place, x)] for x in letters]
    return [dict(zip(letters, values)) for values in itertools.product(*ranges)]


def _pe(at: dict[str, int]) -> int:
    return (((at["n"] * 2 + at["c"]) * 8 + at["b"]) * 16 + at["m"]) * 4 + at["p"]


def write_place(state: State, place: m.Place, values: tuple[int, ...]) -> None:
    data = np.array(values, np.uint64)
    memory = place.memory
    for at in instances(place):
        if memory in (m.DRAM, m.PDM):
            (state.dram if memory == m.DRAM else state.pdm)[at["n"]].write(place.addr, data)
        elif memory == m.L2BM:
            state.l2bm[at["n"] * 2 + at["c"], (place.addr + np.arange(data.size)) % spec.L2BM_LW] = data
        elif memory == m.L1BM:
            state.l1bm[(at["n"] * 2 + at["c"]) * 8 + at["b"], (place.addr + np.arange(data.size)) % spec.L1BM_LW] = data
        elif memory == m.OMR:
            for c in range(4):
                state.masks[4 * place.addr + c, _pe(at)] = int(data[0]) >> (4 * (3 - c)) & 15
        else:
            rows, array = _rows(state, place, data.size)
            array[rows[0::2], _pe(at)] = (data >> np.uint64(32)).astype(np.uint32)
            array[rows[1::2], _pe(at)] = (data & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def _rows(state: State, place: m.Place, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the words of `count` LW, and the array they are in."""
    memory = place.memory
    if memory in (m.MAT_X, m.MAT_Y):
        return 2 * place.addr + np.arange(2 * count), state.matrix[memory]
    if memory == m.T:  # LW i = the MSB LW of cycle i for i < 4, then the LSB LWs
        lws = place.addr + np.arange(count)
        first = 4 * (lws % 4) + 2 * (lws // 4)
        return np.stack([first, first + 1], 1).reshape(-1), state.pe[m.T]
    array = state.pe[memory]
    return (place.addr + np.arange(2 * count)) % (array.shape[0] - 1), array


def read_place(state: State, place: m.Place, count: int, at: dict[str, int]) -> np.ndarray:
    """`count` LW of one instance."""
    memory = place.memory
    if memory in (m.DRAM, m.PDM):
        return (state.dram if memory == m.DRAM else state.pdm)[at["n"]].read(place.addr, count)
    if memory == m.L2BM:
        return state.l2bm[at["n"] * 2 + at["c"], (place.addr + np.arange(count)) % spec.L2BM_LW]
    if memory == m.L1BM:
        return state.l1bm[(at["n"] * 2 + at["c"]) * 8 + at["b"], (place.addr + np.arange(count)) % spec.L1BM_LW]
    rows, array = _rows(state, place, count)
    words = array[rows, _pe(at)].astype(np.uint64)
    return (words[0::2] << np.uint64(32)) | words[1::2]


# --- text ----------------------------------------------------------------------------------------------------------------
def dump_lines(state: State, s: m.DebugGet) -> list[str]:
    place, note = s.place, format_statement(m.DebugGet(s.place, s.count, s.kind))
    lines = []
    unit = 2 if place.memory in (m.LM0, m.LM1, m.GRF0, m.GRF1) else 1
    for at in instances(place):
        where = "".join(f"{letter}{value}" for letter, value in at.items())
        if place.memory == m.OMR:
            for i in range(s.count):
                for c in range(4):
                    value = int(state.masks[4 * (place.addr + i) + c, _pe(at)])
                    lines.append(f"DEBUG-OMR({where},{place.addr + i}):Mask{{{value}}} #{note}")
            continue
        for i, lw in enumerate(read_place(state, place, s.count, at)):
            addr = place.addr + i * unit
            lines.append(f"DEBUG-{NAMES[place.memory]}({where},{addr}):{format_value(int(lw), s.kind)} #{note}")
    return lines


def format_value(lw: int, kind: str) -> str:
    """The value part of a dump line."""
    if kind == "":
        quarters = [f"0x{lw >> shift & 0xFFFF:X}" for shift in (48, 32, 16, 0)]
        number = _general(_double(lw))
        return f"(f:{number}, i:{{{{{quarters[0]},{quarters[1]}}},{{{quarters[2]},{quarters[3]}}}}}, v:0x{lw:X})"
    block, precision = kind.startswith("b"), kind[-1]
    bits = {"d": 64, "f": 32, "g": 32, "h": 16}[precision]
    parts = [lw >> shift & ((1 << bits) - 1) for shift in range(64 - bits, -1, -bits)]
    numbers = ", ".join(_general((_block_value if block else _value)(part, precision)) for part in parts)
    words = ", ".join(f"0x{part:0{bits // 4}x}" for part in parts)
    return f"({numbers}) ({words})"


def _general(x: float) -> str:
    return f"{x:g}"


def _double(bits: int) -> float:
    return _value(bits, "d")


def _value(bits: int, precision: str) -> float:
    from ..numerics.formats import FORMATS

    fmt = FORMATS[precision]
    sign, e, f = fmt.fields(bits)
    if e == 0:
        x = 0.0
    elif e == fmt.ones:
        x = float("inf")
    else:
        x = (1 + f / (1 << fmt.mantissa_bits)) * 2.0 ** (e - fmt.bias)
    return -x if sign else x


def _block_value(bits: int, precision: str) -> float:
    """A block-float element by itself: no hidden bit, the first mantissa bit is worth 2^(exponent - bias)."""
    from ..numerics.formats import FORMATS

    fmt = FORMATS[precision]
    sign, e, f = fmt.fields(bits)
    if precision == "g":
        f &= ~31
    if e == fmt.ones:
        x = float("inf")
    else:
        x = f / (1 << (fmt.mantissa_bits - 1)) * 2.0 ** (e - fmt.bias) if e else 0.0
    return -x if sign else x
