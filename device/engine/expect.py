"""Expectations behind `d get` lines, as judge test cases write them:

    d getf $lm0n0c0b0m0p0 2 # expect=[1.0, 2.0, 3.0, 4.0] / Float @[0] atol=1e-5 rtol=1e-5

`expect` lists elements of the named type, `@[i]` the element that the list starts at. An element passes when it is
equal, or the absolute difference is at
most atol, or the relative one at most rtol. Zeros of either sign are equal, and infinities of one sign.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from ..isa import model as m
from ..memory.state import State
from .debug import _value, instances, read_place

_EXPECT = re.compile(r"expect\s*=\s*\[([^\]]*)\]\s*/\s*(\w+)\s*(?:@\s*\[([^\]]*)\])?(.*)")
_TOLERANCE = re.compile(r"(atol|rtol)\s*=\s*([0-9.eE+-]+)")
#: type -> (bits, how the bits are read)
TYPES = {
    "Double": (64, "d"),
    "Float": (32, "f"),
    "Half": (16, "h"),
    "UInt": (32, "u"),
    "Int": (32, "i"),
    "ULong": (64, "u"),
}


@dataclass(frozen=True, slots=True)
class Failure:
    line: int
    message: str


def check(state: State, s: m.DebugGet) -> tuple[int, list[Failure]]:
    """(elements compared, failures) of the expectation in a statement's note."""
    found = _EXPECT.search(s.note)
    if not found:
        return 0, []
    kind = TYPES.get(found[2])
    if kind is None:
        return 0, [Failure(s.line, f"expect: type {found[2]} is not one of {', '.join(TYPES)}")]
    bits, reading = kind
    wanted = [text.strip() for text in found[1].split(",") if text.strip()]
    first = int(found[3].split(",")[0]) if found[3] and found[3].strip() else 0
    tolerance = {name: float(value) for name, value in _TOLERANCE.findall(found[4])}
    lws = np.concatenate([read_place(state, s.place, s.count, at) for at in instances(s.place)])
    parts = [int(lw) >> shift & ((1 << bits) - 1) for lw in lws for shift in range(64 - bits, -1, -bits)]
    failures = []
    for i, text in enumerate(wanted):
        if first + i >= len(parts):
            failures.append(
                Failure(s.line, f"expect: element {first + i} is not among the {len(parts)} that were read")
            )
            break
        got = _read(parts[first + i], bits, reading)
        if not _agrees(got, _number(text), tolerance.get("atol", 0.0), tolerance.get("rtol", 0.0)):
            failures.append(Failure(s.line, f"element {first + i} is {got:g}, expected {text}"))
    return len(wanted), failures


def _number(text: str) -> float:
    try:
        return int(text, 0)
    except ValueError:
        return float(text)


def _read(part: int, bits: int, reading: str) -> float:
    if reading == "u":
        return part
    if reading == "i":
        return part - (1 << bits) if part >> (bits - 1) else part
    return _value(part, reading)


def _agrees(got: float, wanted: float, atol: float, rtol: float) -> bool:
    if got == wanted:
        return True
    if math.isinf(got) or math.isinf(wanted) or math.isnan(wanted):
        return False
    difference = abs(got - wanted)
    return difference <= atol or (wanted != 0 and difference / abs(wanted) <= rtol)
