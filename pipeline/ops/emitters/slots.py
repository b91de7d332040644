"""Slots of L2BM and how they are filled from DRAM.

A slot has one place in all L2BMs, and each L2B wants a piece of its own in it. Where each reads its own group's DRAM at one
address, all groups move at once; where all want the same piece, it is broadcast; else each piece is moved alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mlsdk.device.isa import model as m
from mlsdk.pipeline.ops.emitters.asm import Asm

#: L2B -> (group whose DRAM holds the piece, address in LW, symbol); L2Bs that want nothing are left out
Slot = Mapping[int, tuple[int, int, str]]

#: moves in flight; more are waited for in turn
MOST = 24


def fill_slots(asm: Asm, slots: Sequence[Slot], size: int, lc: int, most: int = MOST) -> list[int]:
    """Start the moves that fill slots of `size` LW from `lc` on; neighbours that continue each other become one move."""
    runs: list[list] = []  # [kind, key, address, slot, count, symbol]
    for number, slot in enumerate(slots):
        for kind, key, address, symbol in _fills(slot):
            last = next((r for r in reversed(runs) if r[0] == kind and r[1] == key and r[5] == symbol), None)
            if last and last[3] + last[4] == number and last[2] + size * last[4] == address:
                last[4] += 1
            else:
                runs.append([kind, key, address, number, 1, symbol])
    # Moves between two groups hold a port of each: in this order four of them are under way at a time.
    runs.sort(key=lambda run: ((run[1][1] >> 1) - run[1][0]) % 4 if run[0] == "one" else -1)
    tags: list[int] = []
    for kind, key, address, number, count, symbol in runs:
        at = lc + size * number
        group = key[0] if kind in ("mvb", "one") else None
        src = m.Operand(m.DRAM, address, m.LW, group=group, symbol=symbol)
        if kind == "one":
            dst = m.Operand(m.L2BM, at, m.LW, group=key[1] >> 1, block=key[1] & 1)
        elif kind == "half":
            dst = m.Operand(m.L2BM, at, m.LW, block=key[0])
        else:
            dst = m.Operand(m.L2BM, at, m.LW)
        if len(tags) >= most:
            asm.wait(tags.pop(0))
        tags.append(asm.move({"mvb": "mvb", "mvb2": "mvb2"}.get(kind, "mvp"), src, dst, size * count))
    return tags


def _fills(where: Slot) -> Iterator[tuple[str, tuple, int, str]]:
    """Moves that fill one slot: (kind, key, DRAM address, symbol)."""
    if not where:
        return
    own = all(group == l2b >> 1 for l2b, (group, _, _) in where.items())
    spots = {(address, symbol) for _, address, symbol in where.values()}
    if own and len(spots) == 1 and len(where) > 1:
        yield "mvb2", (), *spots.pop()
        return
    if own:
        for half in (0, 1):
            mine = {(address, symbol) for l2b, (_, address, symbol) in where.items() if l2b & 1 == half}
            if len(mine) == 1:
                yield "half", (half,), *mine.pop()
            else:
                for l2b, (group, address, symbol) in where.items():
                    if l2b & 1 == half:
                        yield "one", (group, l2b), address, symbol
        return
    if len(set(where.values())) == 1 and len(where) > 1:
        group, address, symbol = next(iter(where.values()))
        yield "mvb", (group,), address, symbol
        return
    for l2b, (group, address, symbol) in where.items():
        yield "one", (group, l2b), address, symbol
