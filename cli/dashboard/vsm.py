"""The program's text by node: which lines belong to which, how much of LM0 and LM1 they name, and what they are made of.

A line `#@ name` opens the part of a node. The reach in LM is the highest word that an operand names over the four cycles of a
step; addresses through T or BAR are only known when the program runs and are counted apart.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MARK = "#@ "
#: lines of one piece in the index
PIECE = 1000
_LM = re.compile(r"\$(ll|l|)([mn])(t?)(?:(\d+)|\[(\d+),(\d+),(\d+),(\d+)\])(v?)(-?\d*)")
_WIDTH = {"": 1, "l": 2, "ll": 4}


@dataclass
class Part:
    """A node's turn in the program. `low`, `high`: the words of LM0 and LM1 that it names, high excluded."""

    node: str
    first_line: int
    lines: int = 0
    low: dict[str, int] = field(default_factory=dict)
    high: dict[str, int] = field(default_factory=dict)
    indirect: bool = False
    mix: Counter[str] = field(default_factory=Counter)
    pieces: list[bytes] = field(default_factory=list)


def parts(texts: Iterable[bytes]) -> Iterator[Part]:
    """The parts of a program in order. Lines before the first mark belong to the node ''."""
    part, pending, number = Part("", 1), [], 0
    for line in _lines(texts):
        number += 1
        if line.startswith(MARK):
            _flush(part, pending)
            if part.lines:
                yield part
            part = Part(line[len(MARK) :].strip(), number)
        pending.append(line)
        part.lines += 1
        if len(pending) >= PIECE:
            _flush(part, pending)
    _flush(part, pending)
    if part.lines:
        yield part


def _lines(texts: Iterable[bytes]) -> Iterator[str]:
    rest = b""
    for text in texts:
        *whole, rest = (rest + text).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")


def _flush(part: Part, pending: list[str]) -> None:
    if not pending:
        return
    text = "\n".join(pending)
    part.pieces.append(zlib.compress(text.encode(), 1))
    for groups in set(_LM.findall(text)):
        _reach(part, groups)
    for line in pending:
        if not line.startswith("#"):
            for instruction in line.split("#", 1)[0].split(";"):
                word = instruction.split(None, 1)
                if word:
                    part.mix[word[0].split("/")[0].split("@")[0]] += 1
    pending.clear()


def _reach(part: Part, groups: tuple[str, ...]) -> None:
    prefix, letter, indirect, addr, *flat, steps, by = groups
    if indirect:
        part.indirect = True
        return
    width = _WIDTH[prefix]
    if addr:
        step = (int(by) if by not in ("", "-") else width) if steps else 0
        addresses = [int(addr), int(addr) + 3 * step]
    else:
        addresses = [int(a) for a in flat if a]
    part.low[letter] = min(part.low.get(letter, 1 << 30), *addresses)
    part.high[letter] = max(part.high.get(letter, 0), max(addresses) + width)
