"""What weaving gives: lines that issue together, step by step, over operands that have no address yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Room:
    """What a kernel may use: `inputs` and `out` are memories (m n r s), `constants` those that may hold constants, `slots` the
    temporaries in each GRF."""

    inputs: tuple[str, ...]
    out: str
    constants: tuple[str, ...]
    slots: Mapping[str, int] = field(hash=False)


@dataclass(frozen=True)
class Token:
    """An operand of a woven line: kind input, out, constant, slot, t, forward, nowrite or flag."""

    kind: str
    memory: str = ""
    index: int = 0  # input, constant, slot or mask entry
    group: int = 0
    negate: bool = False
    mask: int = 0  # entry that guards a write


@dataclass(frozen=True)
class Line:
    mnemonic: str
    sources: tuple[Token, ...]
    targets: tuple[Token, ...]
    flush: int = 0


@dataclass(frozen=True)
class Woven:
    """`steps[s]`: the lines that issue together in step s. `held`: the memories that must hold each constant. `interval`: the
    steps that a group takes at least, once they follow each other."""

    steps: tuple[tuple[Line, ...], ...]
    held: Mapping[int, tuple[str, ...]]
    groups: int
    interval: int


def behind(first: Woven, second: Woven) -> Woven:
    """Two programs one after the other, with steps between them in which nothing is read that was just written."""

    def moved(token: Token) -> Token:
        return replace(token, group=token.group + first.groups)

    def shifted(line: Line) -> Line:
        return replace(line, sources=tuple(map(moved, line.sources)), targets=tuple(map(moved, line.targets)))

    steps = (*first.steps, (), *(tuple(map(shifted, step)) for step in second.steps))
    held = {w: tuple({*first.held.get(w, ()), *second.held.get(w, ())}) for w in {**first.held, **second.held}}
    return Woven(steps, held, first.groups + second.groups, first.interval)
