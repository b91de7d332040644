"""Expectations behind `d get` lines, as judge test cases write them:

    d getf $lm0n0c0b0m0p0 2 # expect=[1.0, 2.0, 3.0, 4.0] / Float @[0] atol=1e-5 rtol=1e-5

`expect` lists elements of the named type, `@[i]` the element that the list starts at. An element passes when it is
equal, or the absolute difference is at
most atol, or the relative one at most rtol. Zeros of either sign are equal, and infinities of one sign.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..isa import expectations
from ..isa import model as m
from ..memory.state import State
from .debug import _value, instances, read_place


@dataclass(frozen=True, slots=True)
class Failure:
    line: int
    message: str


def check(state: State, s: m.DebugGet) -> tuple[int, list[Failure]]:
    """(elements compared, failures) of the expectation in a statement's note."""
    try:
        wanted = expectations.read(s.note)
    except expectations.BadExpectation as error:
        return 0, [Failure(s.line, str(error))]
    if wanted is None:
        return 0, []
    bits, reading = expectations.TYPES[wanted.type]
    lws = np.concatenate([read_place(state, s.place, s.count, at) for at in instances(s.place)])
    parts = [int(lw) >> shift & ((1 << bits) - 1) for lw in lws for shift in range(64 - bits, -1, -bits)]
    failures = []
    for i, (text, value) in enumerate(zip(wanted.texts, wanted.values), wanted.first):
        if i >= len(parts):
            failures.append(Failure(s.line, f"expect: element {i} is not among the {len(parts)} that were read"))
            break
        got = _read(parts[i], bits, reading)
        if not _agrees(got, value, wanted.atol, wanted.rtol):
            failures.append(Failure(s.line, f"element {i} is {got:g}, expected {text}"))
    return len(wanted.texts), failures


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
