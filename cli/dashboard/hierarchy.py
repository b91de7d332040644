"""A layout as a picture of the chip: which L2B, L1B, MAB, PE, word and LM address holds element [i, j].

The notation is read here anew, not by the compiler's own parser: a picture that is drawn by the code that made the layout would
agree with it even if both were wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from mlsdk.cli.dashboard.problems import Problem
from mlsdk.device import spec

L2B, L1B, MAB, PE, ADDR, W, TIME = "L2B", "L1B", "MAB", "PE", "Addr", "W", "Time"
LEVELS = (TIME, L2B, L1B, MAB, PE, ADDR, W)
EXTENT = {L2B: spec.L2BS, L1B: spec.L1B_PER_L2B, MAB: spec.MAB_PER_L1B, PE: spec.PE_PER_MAB}
#: elements in a long word
PER_LW = {"half": 4, "single": 2, "int": 2, "double": 1}

_AXES = re.compile(r"\s*(?:\([^()]*\)\s*(?:,\s*\([^()]*\)\s*)*)?\Z")
_TERM = re.compile(r"(\d+)(?:_([A-Za-z0-9]+))?(?::(\d+))?\Z")


@dataclass(frozen=True)
class Digit:
    """One digit of an index: `n` values at `level`, `stride` apart; `weight` is what one of them adds to the index."""

    axis: int
    n: int
    level: str
    stride: int
    weight: int


@dataclass(frozen=True)
class Spread:
    """A layout: its digits, the axes' padded sizes, and the levels with copies."""

    digits: tuple[Digit, ...]
    sizes: tuple[int, ...]
    copies: tuple[tuple[str, int, int], ...]  # level, how many, stride

    def at(self, level: str) -> list[Digit]:
        return sorted((d for d in self.digits if d.level == level and d.n > 1), key=lambda d: -d.stride)

    def position(self, index: Sequence[int]) -> dict[str, int]:
        """Where an element lies (its first copy)."""
        found = dict.fromkeys(LEVELS, 0)
        for d in self.digits:
            found[d.level] += index[d.axis] // d.weight % d.n * d.stride
        return found

    def span(self, level: str) -> int:
        reach = sum((d.n - 1) * d.stride for d in self.digits if d.level == level)
        return 1 + reach + sum((n - 1) * stride for where, n, stride in self.copies if where == level)

    def held(self, level: str, place: int, shape: Sequence[int]) -> Held:
        """What lies at one place of a level, whatever the other levels say."""
        rest = place
        first = [0] * len(self.sizes)
        terms: list[tuple[int, int, Digit | None]] = [(d.stride, d.n, d) for d in self.at(level)]
        terms += [(stride, n, None) for where, n, stride in self.copies if where == level and n > 1]
        copy = False
        for stride, n, digit in sorted(terms, key=lambda term: -term[0]):
            value = min(rest // stride, n - 1)
            rest -= value * stride
            if digit is None:
                copy = copy or value > 0
            else:
                first[digit.axis] += value * digit.weight
        if rest or any(f >= s for f, s in zip(first, shape)):
            return Held("empty", first, [])
        counts = [size // prod(d.n for d in self.at(level) if d.axis == a) for a, size in enumerate(self.sizes)]
        return Held("copy" if copy else "holds", first, counts)


@dataclass(frozen=True)
class Held:
    """`kind`: holds, copy or empty; `first` the smallest index on each axis, `counts` how many lie there."""

    kind: str
    first: Sequence[int]
    counts: Sequence[int]


def read_layout(text: str) -> Spread:
    """A layout in its notation: `((8_L2B:1,16:1),(4_PE:1);B@[MAB])`, with or without `shape/` in front."""
    body = text.strip()
    if "/" in body:
        body = body.partition("/")[2].strip()
    if not (body.startswith("(") and body.endswith(")")):
        raise Problem("this is not the notation of a layout", 422)
    body, _semi, after = body[1:-1].partition(";")
    if not _AXES.match(body):
        raise Problem("this is not the notation of a layout", 422)
    digits: list[Digit] = []
    sizes: list[int] = []
    for axis, group in enumerate(re.findall(r"\(([^()]*)\)", body)):
        terms = [_term(term) for term in group.split(",") if term.strip()]
        weight = prod(n for n, _level, _stride in terms)
        sizes.append(weight)
        for n, level, stride in terms:
            weight //= max(n, 1)
            digits.append(Digit(axis, n, level, stride, max(weight, 1)))
    spread = Spread(tuple(digits), tuple(sizes), ())
    found = re.match(r"\s*B@\[([^\]]*)\]", after)
    copies = [_copy(item, spread) for item in (found[1].split(",") if found else []) if item.strip()]
    return Spread(spread.digits, spread.sizes, tuple(copies))


def _term(text: str) -> tuple[int, str, int]:
    match = _TERM.match(text.strip())
    if not match or (match[2] or ADDR) not in LEVELS:
        raise Problem(f"{text.strip()[:40]!r} is not a part of a layout", 422)
    return int(match[1]), match[2] or ADDR, int(match[3] or 1)


def _copy(text: str, spread: Spread) -> tuple[str, int, int]:
    name = text.strip()
    if name in LEVELS:
        return name, EXTENT.get(name, 1), 1
    n, level, stride = _term(name)
    return level, n, stride
