"""Where each element of a tensor lies: layouts in PFN's notation.

    layout   := [ shape "/" ] "(" axis { "," axis } [ ";" "B@[" item { "," item } "]" ] ")"
    axis     := "(" [ subaxis { "," subaxis } ] ")"
    subaxis  := N [ "_" level ] [ ":" stride ]          no level = Addr, no stride = 1
    item     := level | N "_" level [ ":" stride ]

An index of an axis is written in mixed radix, leftmost subaxis most significant. The position of an element at a level is
the sum over all subaxes of that level of digit * stride. A level that is named in no subaxis holds copies when it stands in
`B@[...]`, otherwise only its index 0 holds the value. The product of an axis may exceed its size: the rest is padding.

The unit of a stride is the level's own index; for Addr it is one long word (64 bit) of LM or DRAM, for W the element's
position in the long word (4 halves, 2 singles or integers, 1 double).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Protocol, TypeVar

import numpy as np

from mlsdk.device import spec
from mlsdk.errors import LayoutError

ADDR, W, PE, MAB, L1B, L2B, TIME = "Addr", "W", "PE", "MAB", "L1B", "L2B", "Time"
SPATIAL = (L2B, L1B, MAB, PE)
LEVELS = (L2B, L1B, MAB, PE, W, ADDR, TIME)
EXTENT = {L2B: spec.L2BS, L1B: spec.L1B_PER_L2B, MAB: spec.MAB_PER_L1B, PE: spec.PE_PER_MAB}

#: elements of each device dtype in one long word
PER_LW = {"half": 4, "single": 2, "int": 2, "double": 1}


@dataclass(frozen=True, slots=True)
class Sub:
    """One digit of an axis: `n` values at `level`, `stride` apart."""

    n: int
    level: str = ADDR
    stride: int = 1

    def __str__(self) -> str:
        suffix = "" if self.level == ADDR else f"_{self.level}"
        return f"{self.n}{suffix}:{self.stride}"

    @property
    def span(self) -> int:
        return (self.n - 1) * self.stride


class _Counted(Protocol):
    @property
    def n(self) -> int: ...

    @property
    def level(self) -> str: ...

    @property
    def stride(self) -> int: ...


D = TypeVar("D", bound=_Counted)


def merged(digits: Sequence[D], apart: str | None = None) -> list[D]:
    """Neighbouring digits as one where they count on, but for those at the level `apart`."""
    found: list[D] = []
    for d in digits:
        last = found[-1] if found else None
        if last is not None and last.level == d.level != apart and last.stride == d.n * d.stride:
            found[-1] = replace(last, n=last.n * d.n, stride=d.stride)  # type: ignore[type-var]
        else:
            found.append(d)
    return found


@dataclass(frozen=True)
class Layout:
    """`axes[a]` are the subaxes of axis a, most significant first; `broadcast` the levels (or parts of them) with copies."""

    axes: tuple[tuple[Sub, ...], ...]
    broadcast: tuple[Sub, ...] = ()

    # ---- text -------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        axes = ",".join("(" + ",".join(map(str, axis)) + ")" for axis in self.axes)
        copies = ",".join(s.level if s.n == 0 else str(s) for s in self.broadcast)
        return f"({axes};B@[{copies}])" if copies else f"({axes})"

    @classmethod
    def parse(cls, text: str) -> Layout:
        """The layout that `text` writes; a leading `shape/` is checked against the axes. LayoutError names the place."""
        return _Parser(text).layout()

    # ---- structure --------------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        return len(self.axes)

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """Padded size of each axis."""
        return tuple(reduce(lambda a, s: a * s.n, axis, 1) for axis in self.axes)

    def subs(self, level: str) -> list[Sub]:
        return [s for axis in self.axes for s in axis if s.level == level]

    def copies(self, level: str) -> list[Sub]:
        """The broadcast terms of a level; a bare level name counts as the whole level when no axis uses it."""
        terms = []
        for s in self.broadcast:
            if s.level == level:
                terms.append(s if s.n else Sub(EXTENT.get(level, 1), level, 1))
        return terms

    def span(self, level: str) -> int:
        """1 + the largest index that the layout uses at a level."""
        return 1 + sum(s.span for s in self.subs(level)) + sum(s.span for s in self.copies(level))

    @cached_property
    def addresses(self) -> int:
        """Long words of LM that a PE needs (per time slice)."""
        return 1 + sum(s.span for s in self.subs(ADDR))

    def check(self, shape: Iterable[int], dtype: str, name: str = "layout") -> Layout:
        """Raise LayoutError unless the layout holds `shape` in `dtype` without overlap and within each level."""
        shape = tuple(shape)
        if len(shape) != self.rank:
            raise LayoutError(
                f"{name}: {self} has {self.rank} axes, the tensor has shape {shape}; write one axis for each"
            )
        for axis, (size, extent) in enumerate(zip(shape, self.extents)):
            if size > extent:
                raise LayoutError(
                    f"{name}: axis {axis} has {size} elements, {self} holds {extent}; pad to a layout of at least {size}"
                )
        extent_of = dict(EXTENT, W=PER_LW[dtype])
        for level in LEVELS:
            terms = [s for s in self.subs(level) + self.copies(level) if s.n > 1]
            reach = 0
            for term in sorted(terms, key=lambda s: s.stride):
                if term.stride <= reach:
                    raise LayoutError(
                        f"{name}: two elements meet at {level}: {term} overlaps smaller strides of {self}; "
                        f"use a stride of at least {reach + 1}"
                    )
                reach += term.span
            limit = extent_of.get(level)
            if limit is not None and reach >= limit:
                raise LayoutError(f"{name}: {self} needs {reach + 1} of {level}, the chip has {limit}")
        return self

    # ---- relations --------------------------------------------------------------------------------------------

    def transpose(self, perm: Iterable[int]) -> Layout:
        """The layout of the transposed tensor in the same place: nothing moves."""
        return Layout(tuple(self.axes[p] for p in perm), self.broadcast)

    # ---- numbers ----------------------------------------------------------------------------------------------

    def digits(self, axis: int, level: str) -> np.ndarray:
        """For each index of the padded axis, its contribution to the position at `level`."""
        index = np.arange(self.extents[axis])
        total = np.zeros(self.extents[axis], np.int64)
        for sub in reversed(self.axes[axis]):
            index, digit = np.divmod(index, sub.n)
            if sub.level == level:
                total += digit * sub.stride
        return total

    def positions(self, shape: tuple[int, ...], level: str) -> np.ndarray:
        """Position at `level` of every element of a tensor of `shape` (same shape, int64)."""
        total = np.zeros((), np.int64)
        for axis, size in enumerate(shape):
            part = self.digits(axis, level)[:size]
            total = np.add.outer(total, part)
        return total.reshape(shape)


_TOKEN = re.compile(r"\s*(?:(?P<num>\d+)|(?P<name>[A-Za-z][A-Za-z0-9]*)|(?P<sym>B@\[|[()\[\],;:/_]))")


class _Parser:
    def __init__(self, text: str):
        self.text, self.at, self.tokens = text, 0, []
        at = 0
        stripped = text.rstrip()
        while at < len(stripped):
            if stripped.startswith("B@[", at) or re.match(r"\s*B@\[", stripped[at:]):
                match = re.match(r"\s*B@\[", stripped[at:])
                self.tokens.append(("B@[", at))
                assert match is not None
                at += match.end()
                continue
            match = _TOKEN.match(stripped, at)
            if not match:
                raise LayoutError(f"layout {text!r}: column {at + 1}: {stripped[at]!r} is not part of the notation")
            self.tokens.append(
                (match.group().strip(), match.start() + len(match.group()) - len(match.group().lstrip()))
            )
            at = match.end()

    def fail(self, wanted: str) -> LayoutError:
        found, column = self.tokens[self.at] if self.at < len(self.tokens) else ("the end", len(self.text))
        return LayoutError(f"layout {self.text!r}: column {column + 1}: expected {wanted}, found {found!r}")

    def peek(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def take(self, wanted: str) -> None:
        if self.peek() != wanted:
            raise self.fail(repr(wanted))
        self.at += 1

    def accept(self, wanted: str) -> bool:
        if self.peek() == wanted:
            self.at += 1
            return True
        return False

    def number(self, what: str = "a number") -> int:
        if not self.peek().isdigit():
            raise self.fail(what)
        self.at += 1
        return int(self.tokens[self.at - 1][0])

    def layout(self) -> Layout:
        shape = self.shape()
        self.take("(")
        axes = [self.axis()] if self.peek() == "(" else []
        while self.accept(","):
            axes.append(self.axis())
        broadcast: list[Sub] = []
        if self.accept(";"):
            self.take("B@[")
            if self.peek() != "]":
                broadcast.append(self.item())
                while self.accept(","):
                    broadcast.append(self.item())
            self.take("]")
        self.take(")")
        if self.at != len(self.tokens):
            raise self.fail("the end")
        layout = Layout(tuple(axes), tuple(broadcast))
        if shape is not None and (
            len(shape) != layout.rank or any(size > extent for size, extent in zip(shape, layout.extents))
        ):
            raise LayoutError(f"layout {self.text!r}: shape {shape} does not fit axes of sizes {layout.extents}")
        return layout

    def shape(self) -> tuple[int, ...] | None:
        start = self.at
        slash = next((i for i, (token, _) in enumerate(self.tokens) if token == "/"), None)
        if slash is None:
            return None
        self.take("(")
        sizes = []
        while self.peek() != ")":
            sizes.append(self.number("a size"))
            if not self.accept(","):
                break
        self.take(")")
        self.take("/")
        assert self.at > start
        return tuple(sizes)

    def axis(self) -> tuple[Sub, ...]:
        self.take("(")
        subs = []
        if self.peek() != ")":
            subs.append(self.sub())
            while self.accept(","):
                subs.append(self.sub())
        self.take(")")
        return tuple(subs)

    def level(self) -> str:
        name = self.peek()
        if name not in LEVELS:
            raise self.fail("one of " + ", ".join(LEVELS))
        self.at += 1
        return name

    def sub(self) -> Sub:
        n = self.number("the number of a subaxis")
        if n < 1:
            self.at -= 1
            raise self.fail("a number of at least 1")
        level = self.level() if self.accept("_") else ADDR
        stride = self.number("a stride") if self.accept(":") else 1
        return Sub(n, level, stride)

    def item(self) -> Sub:
        if self.peek().isdigit():
            return self.sub()
        return Sub(0, self.level(), 1)
