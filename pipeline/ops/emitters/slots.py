"""Slots of L2BM and how they are filled from DRAM.

A slot has one place in all L2BMs, and each L2B wants a piece of its own in it. Where each reads its own group's DRAM at one
address, all groups move at once; where all want the same piece, it is broadcast; else each piece is moved alone. Slots that
continue each other become one move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.pipeline.ops.emitters.asm import Asm

#: L2B -> (group whose DRAM holds the piece, address in LW, symbol); L2Bs that want nothing are left out
Slot = Mapping[int, tuple[int, int, str]]

#: moves in flight; more are waited for in turn
MOST = 24
#: steps of the PEs' stream for a move: to issue it, and to wait for it
ISSUE = 3
OF_L2B = np.arange(8) >> 1


@dataclass(frozen=True, slots=True)
class Fill:
    """A move into L2BM. `group`: whose DRAM (None: of each its own). `l2b`: the L2BM of the chip, or None: all of them (with a
    group), of each group both (`half` None) or one (`half`)."""

    group: int | None
    address: int
    source: int
    lc: int  # LW from the place of the slots
    size: int
    l2b: int | None = None
    half: int | None = None

    @property
    def mnemonic(self) -> str:
        if self.l2b is not None or self.half is not None:
            return "mvp"
        return "mvb" if self.group is not None else "mvb2"

    @property
    def turn(self) -> int:
        """Moves between two groups hold a port of each: those of one turn do not meet, so that four are under way at a time."""
        return -1 if self.l2b is None or self.group is None else ((self.l2b >> 1) - self.group) % 4


def time_of(moves: Sequence[Fill], beside: float = 1) -> float:
    """Steps for which the busiest DRAM or L2BM works for moves (`device/timing.py`), where there are `beside` times as many that
    use others."""
    ports = np.zeros((2, 8))
    for fill in moves:
        if fill.group is None:
            ports += fill.size / 16
        elif fill.l2b is None:
            ports[1] += fill.size / 8
            ports[0, fill.group] += fill.size / 8
        else:
            cycles = fill.size / (16 if fill.group == fill.l2b >> 1 else 8)
            ports[0, fill.group] += cycles
            ports[1, fill.l2b] += cycles
    return float(ports.max()) / 4 / beside


def fills(
    group: np.ndarray, address: np.ndarray, source: np.ndarray, size: int, lc: int = 0, cut: int = 0
) -> list[Fill]:
    """The moves that fill slots of `size` LW from `lc` on. Arrays [L2B, slot]; `source` is -1 where an L2B wants nothing. `cut`:
    an address that no move goes across."""
    wants = source >= 0
    some = wants.any(axis=0)
    key = np.where(wants, source * (1 << 40) + address, -1)
    own = ((group == OF_L2B[:, None]) | ~wants).all(axis=0)

    def one(key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The largest key of each slot, and whether it is the only one."""
        top = key.max(axis=0)
        return top, ((key == top) | (key < 0)).all(axis=0)

    both, both_same = one(key)
    halves = [one(key[half::2]) for half in (0, 1)]
    spread = wants[0::2].any(axis=0) & wants[1::2].any(axis=0)
    everywhere, all_same = one(np.where(wants, key * 4 + group, -1))
    several = wants.sum(axis=0) > 2
    twice = own & both_same & spread & some
    apart = own & halves[0][1] & halves[1][1] & some & ~twice
    broad = ~own & all_same & several
    alone = some & ~twice & ~apart & ~broad
    found = [Fill(None, a, s, at, n) for a, s, at, n in _runs(both, twice, size, lc, cut)]
    for half, (top, _) in enumerate(halves):
        found += [Fill(None, a, s, at, n, half=half) for a, s, at, n in _runs(top, apart & (top >= 0), size, lc, cut)]
    for g in range(4):
        mine = broad & (everywhere % 4 == g)
        found += [Fill(g, a, s, at, n) for a, s, at, n in _runs(everywhere // 4, mine, size, lc, cut)]
    single: list[Fill] = []
    for l2b in range(8):
        for g in range(4):
            mine = alone & wants[l2b] & (group[l2b] == g)
            single += [Fill(g, a, s, at, n, l2b=l2b) for a, s, at, n in _runs(key[l2b], mine, size, lc, cut)]
    return found + in_order(single)


def in_order(moves: Sequence[Fill]) -> list[Fill]:
    """Moves of one L2B each, those first that do not meet: a DRAM after the other for each L2B, long ones first, since a move
    that waits for one of its ports makes others wait for both."""
    count: dict[tuple[int | None, int | None], int] = {}
    rows = []
    for fill in sorted(moves, key=lambda fill: -fill.size):
        stream = fill.group, fill.l2b
        count[stream] = count.get(stream, -1) + 1
        rows.append((count[stream], fill.turn, fill.l2b or 0, fill))
    return [row[-1] for row in sorted(rows, key=lambda row: row[:3])]


def _runs(key: np.ndarray, mine: np.ndarray, size: int, lc: int, cut: int) -> list[tuple[int, int, int, int]]:
    """(address, source, LW of L2BM, LW) of slots that continue each other, not across `cut`."""
    at = np.flatnonzero(mine)
    if not len(at):
        return []
    keys = key[at]
    begins = (np.diff(at) != 1) | (np.diff(keys) != size)
    if cut:
        begins |= keys[1:] & (1 << 40) - 1 == cut
    starts = np.flatnonzero(np.r_[True, begins])
    ends = np.r_[starts[1:], len(at)]
    return [
        (int(keys[a] & (1 << 40) - 1), int(keys[a] >> 40), lc + size * int(at[a]), size * int(b - a))
        for a, b in zip(starts, ends)
    ]


def start_fills(
    asm: Asm,
    wanted: Iterable[Fill],
    symbols: Sequence[str],
    lc: int = 0,
    shifts: Sequence[int] = (),
    strides: Sequence[tuple[int, ...]] = (),
    tags: Sequence[int] = (),
    most: int = MOST,
) -> list[int]:
    """Start moves; gives the tags of those in flight. `shifts`: LW to add for each source, `strides`: for each enclosing loop.
    `tags`: what an earlier call for as many moves gave, to use them again."""
    wanted = list(wanted)
    turned = len(wanted) % most if len(wanted) > most else 0
    given = [*tags[len(tags) - turned :], *tags[: len(tags) - turned]]  # in the order of the first moves
    flying: list[int] = []
    used: list[int] = []
    for number, fill in enumerate(wanted):
        shift = shifts[fill.source] if shifts else 0
        src = m.Operand(
            m.DRAM,
            fill.address + shift,
            m.LW,
            group=fill.group,
            symbol=symbols[fill.source],
            strides=strides[fill.source] if strides else (),
        )
        if fill.l2b is not None:
            dst = m.Operand(m.L2BM, lc + fill.lc, m.LW, group=fill.l2b >> 1, block=fill.l2b & 1)
        else:
            dst = m.Operand(m.L2BM, lc + fill.lc, m.LW, block=fill.half)
        if number >= most:
            asm.wait(flying.pop(0))
            tag = used[number % most]
        else:
            tag = given[number] if given else asm.tag()
            used.append(tag)
        flying.append(asm.move(fill.mnemonic, src, dst, fill.size, tag))
    return flying


def fill_slots(asm: Asm, slots: Sequence[Slot], size: int, lc: int, cut: int = 0) -> list[int]:
    """Start the moves that fill slots of `size` LW from `lc` on; none goes across the address `cut`."""
    symbols = sorted({symbol for slot in slots for _, _, symbol in slot.values()})
    group, address, source = (np.full((8, len(slots)), -1, np.int64) for _ in range(3))
    for number, slot in enumerate(slots):
        for l2b, (g, a, symbol) in slot.items():
            group[l2b, number], address[l2b, number], source[l2b, number] = g, a, symbols.index(symbol)
    return start_fills(asm, fills(group, address, source, size, cut=cut), symbols, lc)
