"""Expectations behind `d get` lines, as judge test cases write them: `# expect=[1.0, 2.0] / Float @[0] atol=1e-5`.

`read` says what a note asks for; the engine compares it, and the checks find what is no expectation before the run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_START = re.compile(r"expect\s*=\s*\[")
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


class BadExpectation(ValueError):
    """A note begins like an expectation and is none."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """Elements of a type from `first` on; `texts` are as written, for messages."""

    texts: tuple[str, ...]
    values: tuple[float, ...]
    type: str
    first: int = 0
    atol: float = 0.0
    rtol: float = 0.0


def read(note: str) -> Expectation | None:
    """The expectation in a note; None when there is none. BadExpectation says what is wrong with it."""
    if not _START.search(note):
        return None
    found = _EXPECT.search(note)
    if not found:
        raise BadExpectation("expect: write expect=[1.0, 2.0] / Float")
    if found[2] not in TYPES:
        raise BadExpectation(f"expect: type {found[2]} is not one of {', '.join(TYPES)}")
    texts = tuple(text.strip() for text in found[1].split(",") if text.strip())
    try:
        first = int(found[3].split(",")[0]) if found[3] and found[3].strip() else 0
        tolerances = {name: float(value) for name, value in _TOLERANCE.findall(found[4])}
    except ValueError as error:
        raise BadExpectation(f"expect: {error}") from None
    if first < 0:
        raise BadExpectation(f"expect: element {first} does not exist; the first is 0")
    return Expectation(texts, tuple(map(_number, texts)), found[2], first, **tolerances)


def _number(text: str) -> float:
    try:
        return int(text, 0)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise BadExpectation(f"expect: {text!r:.40} is no number") from None
