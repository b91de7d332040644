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
#: characters from which on a piece is compressed
WORTH = 1000
#: words of LM0 or LM1 that one bit of `touched` stands for
BLOCK = 16
_LM = re.compile(r"\$(ll|l|)([mn])(t?)(?:(\d+)|\[(\d+),(\d+),(\d+),(\d+)\])(v?)(-?\d*)")
_WIDTH = {"": 1, "l": 2, "ll": 4}


@dataclass
class Part:
    """A node's turn in the program. `high`: behind the last word of LM0 and LM1 that it names."""

    node: str
    first_line: int
    lines: int = 0
    high: dict[str, int] = field(default_factory=dict)
    touched: dict[str, int] = field(default_factory=dict)  # a bit for each BLOCK words that are named
    indirect: bool = False
    mix: Counter[str] = field(default_factory=Counter)
    pieces: list[bytes | str] = field(default_factory=list)


def parts(texts: Iterable[bytes]) -> Iterator[Part]:
    """The parts of a program in order. Lines before the first mark belong to the node ''."""
    part, pending = Part("", 1), list[str]()
    for number, line in enumerate(_lines(texts), 1):
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
    part.pieces.append(zlib.compress(text.encode(), 1) if len(text) > WORTH else text)
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
        addresses = [int(addr) + cycle * step for cycle in range(4)]
    else:
        addresses = [int(a) for a in flat if a]
    part.high[letter] = max(part.high.get(letter, 0), max(addresses) + width)
    bits = part.touched.get(letter, 0)
    for address in addresses:
        bits |= 1 << max(address, 0) // BLOCK | 1 << max(address + width - 1, 0) // BLOCK
    part.touched[letter] = bits


def unpacked(piece: bytes | str) -> str:
    """The text of a piece."""
    return piece if isinstance(piece, str) else zlib.decompress(piece).decode()


def runs(bits: int) -> Iterator[tuple[int, int]]:
    """The words that the bits of `touched` stand for, as (first, behind the last)."""
    at = 0
    while bits:
        gap = (bits & -bits).bit_length() - 1
        bits >>= gap
        length = (~bits & (bits + 1)).bit_length() - 1
        yield (at + gap) * BLOCK, (at + gap + length) * BLOCK
        bits >>= length
        at += gap + length
