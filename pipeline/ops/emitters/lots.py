"""Which LM addresses of a move's result are made together, from which pieces, and what every PE picks for them.

A lot is as many granules of addresses as find all their pieces in LM0 at a time. Where that is few, because every granule needs
much of what the others need too, a lot is as large as GRF0 holds, its pieces come in passes, and what a pass does not hold is
picked from a zero and or-ed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest

import numpy as np

from mlsdk.pipeline.ir.layout import PER_LW
from mlsdk.pipeline.ops.emitters.order import Order
from mlsdk.pipeline.ops.emitters.pick import FILL, ZERO, Picking, picking
from mlsdk.pipeline.ops.emitters.pieces import (
    LB_SIZE,
    LC_SIZE,
    LINES,
    NEAREST,
    OWN,
    OWN_SAME,
    SLOTS,
    SPARED,
    Kind,
    Load,
    Pass,
    kinds_of,
    passes,
    room,
)
from mlsdk.pipeline.ops.emitters.places import Move
from mlsdk.pipeline.ops.emitters.slots import ISSUE, Fill, in_order, time_of

MOST = {"half": 96}  # LM addresses of a lot: long words of GRF0, and columns in GRF1
MOST_OTHERS = 192
FEW = 4  # granules of a lot to begin with
WAITING = 12  # lots that wait for another that reads other DRAMs
TRIES = 8  # at the size of a lot
ENOUGH, GROWTH = 0.75, 1.3  # how full LM0 is, and how much larger a lot might be, when it is large enough
ENOUGH_STEPS = 4  # how often the steps that DRAM needs for a lot may be taken, before large ones are looked at
DRAM_LW = 64  # LW from a group's DRAM in a step


@dataclass(frozen=True)
class Pick:
    """What is picked from LM0. `runs`: LM addresses [lo, hi) of the result, in GRF0 one behind the other, which are complete
    with the `last` pick of their lot; `first` is the first. `spares`: zero and the fill keep their place in LM0."""

    picking: Picking
    runs: tuple[tuple[int, int], ...]
    first: bool
    last: bool
    spares: bool


@dataclass(frozen=True)
class Turn:
    """A lot's part of a stage. `place`: 0, or 1 for the second of two lots, which has room of its own in L1BM."""

    loads: tuple[Load, ...]
    pick: Pick | None
    place: int


@dataclass(frozen=True)
class Stage:
    """What is brought at a time, and what is picked when LM0 has all: for one lot, or for two at once."""

    moves: tuple[Fill, ...]
    turns: tuple[Turn, ...]


@dataclass(frozen=True)
class Lot:
    """Granules that are made together. `full`: how often their pieces fill LM0, of which `slots` are free."""

    addresses: np.ndarray
    taken: Taken
    kinds: list[Kind]
    slots: int

    @property
    def full(self) -> float:
        return room(self.kinds, self.slots)

    @cached_property
    def groups(self) -> tuple[int, ...]:
        """The groups whose DRAM is read through lists in L1BM, if that is all, and nothing comes to LM0 before all is there."""
        kind = self.kinds[0] if len(self.kinds) == 1 else None
        if kind is None or kind.given is None or self.full > 1 or kind.rounds * kind.lb > LB_SIZE:
            return ()
        wanted = kind.wanted
        return tuple(np.unique(wanted[wanted >= 0] >> 41 & 3).tolist())

    @property
    def one_sided(self) -> bool:
        """Whether that is the DRAM of some groups only."""
        return 0 < len(self.groups) < 4


@dataclass(frozen=True)
class Taken:
    """What the places [PE, n] of a lot take: `place` in a source (-1: none), by long words, words or halves (`kind`); `filled`
    are those that no source gives, `empty` those that hold no element."""

    kind: str
    place: np.ndarray
    filled: np.ndarray
    empty: np.ndarray


class Lots:
    """Plans a move's lots in an order. `clean`: padding is zero; `filled`: what no source gives is not zero."""

    def __init__(self, move: Move, order: Order, clean: bool, filled: bool):
        self.move, self.order, self.clean, self.filled = move, order, clean, filled
        self.dtype, self.pes = move.result.dtype, move.pes.shape[1]
        self.per, self.grain = PER_LW[self.dtype], move.result.granule
        self.most = max(1, MOST.get(self.dtype, MOST_OTHERS) // self.grain)
        self.near, self.lines, self.large = NEAREST[0], LINES[0], False
        self._read: dict[
            tuple[int, int], tuple[np.ndarray, Taken]
        ] = {}  # what granules take, while others ask for them again
        self.choosing = True
        self._choose()
        self.choosing = False

    def stages(self) -> Iterator[Stage]:
        """Of all lots. Two that read different groups' DRAM only come at once, so that more DRAMs are at work."""
        waiting: list[Lot] = []
        for lot in self._lots():
            if not lot.one_sided:
                yield from self._stages(lot)
                continue
            other = next((i for i, w in enumerate(waiting) if not set(w.groups) & set(lot.groups)), None)
            if other is not None:
                yield from self._both(waiting.pop(other), lot)
                continue
            waiting.append(lot)
            if len(waiting) > WAITING:
                yield from self._both(waiting.pop(0), waiting.pop(0))
        for i in range(0, len(waiting), 2):
            yield from self._both(*waiting[i : i + 2])

    def _lots(self) -> Iterator[Lot]:
        at, size, count = 0, FEW, len(self.order.addresses)
        while at < count:
            lot, size = self._lot(at, min(size, count - at))
            at += size
            yield lot

    def _choose(self) -> None:
        """Settle how near pieces may be, which lines, and how large lots are, by a lot from the middle."""
        kind = self.order.kind
        starts = np.flatnonzero(np.diff(kind, prepend=-1))
        at = int(starts[np.searchsorted(starts, len(kind) // 2, side="right") - 1])
        found: dict[tuple[int, str], tuple[float, int]] = {}

        def kinds(near: int, lines: str) -> set[str]:
            """Those that two lots in turn have; what they take is kept."""
            self.near, self.lines = near, lines
            before = max((size for _, size in found.values()), default=0)
            first, size = self._lot(at, max(FEW, 1 << max(0, before.bit_length() - 2)))
            lots = [first] if at + size == len(kind) else [first, self._lot(at + size, size)[0]]
            count = sum(len(lot.addresses) for lot in lots)
            found[near, lines] = sum(map(self._cost, lots)) * self.grain / count, size
            return {one.name for lot in lots for one in lot.kinds}

        few = self._measured(at, min(FEW, len(kind) - at)).kinds
        places = {one.name: int((one.rank >= 0).sum()) for one in few}
        mostly_far = 2 * sum(places.get(name, 0) for name in LINES) > sum(places.values())
        names = kinds(NEAREST[-1] if mostly_far else NEAREST[0], LINES[0])
        if not mostly_far and names - {OWN, OWN_SAME}:
            farther = [NEAREST[1]] * bool(names & {OWN, OWN_SAME}) + [NEAREST[2]] * bool(names - set(LINES))
            names = names.union(*(kinds(near, LINES[0]) for near in farther))
        if names & set(LINES):
            near = min(found, key=lambda key: found[key][0])[0]
            for lines in LINES[1:]:
                kinds(near, lines)
        self.near, self.lines = min(found, key=lambda key: (found[key][0], -key[0]))
        steps, size = found[self.near, self.lines]
        largest = min(self.most, len(self.order.addresses) - at)
        read = 2 * self.grain * self.move.result.lw_per_address / DRAM_LW  # if every long word came once
        if size * 4 > largest or steps < ENOUGH_STEPS * read:
            return
        best = self.lines
        for self.lines in LINES:
            cost = self._cost(self._measured(at, largest)) / largest
            if cost < steps:
                steps, best, self.large = cost, self.lines, True
        self.lines = best

    def _cost(self, lot: Lot) -> float:
        """About how many steps a lot takes. The picks of a pass in the middle stand for those of all."""
        found = self._passes(lot)
        sides = len(lot.groups)
        beside = min(4, 2 * sides) / sides if sides else 1  # of another lot that reads other DRAMs
        steps = 0.0
        for chosen in found:
            loads = [load for some in chosen.loads for load in some]
            moves = [fill for load in loads for fill in load.fills(self.move.sources)]
            steps += max(time_of(moves, beside), sum(load.steps for load in loads) + ISSUE * len(moves))
        address = self._address(lot.taken, found[len(found) // 2].address, len(found) == 1, len(found) > 1)
        return steps + picking(lot.taken.kind, address).steps * len(found)

    def _lot(self, at: int, size: int) -> tuple[Lot, int]:
        """The granules from the at-th on that are made together, at best whole kinds; about `size`, if they fit."""
        kind = self.order.kind
        largest = min(self.most, len(kind) - at)
        if self.large:
            return self._measured(at, largest), largest
        known: dict[int, Lot] = {}

        def full(n: int) -> float:
            if n not in known:
                known[n] = self._measured(at, n)
            return known[n].full

        low, high, n = 0, largest + 1, min(size, largest)
        for _ in range(TRIES):
            if full(n) <= 1:
                low = n
                n = min(high - 1, max(2 * n, int(n / full(n)) if full(n) else largest))
                if full(low) > ENOUGH or n == low:
                    break
            else:
                high = n
                n = min(high - 1, max(low + 1, int(n / full(n))))
                if high == low + 1 or (low and high < low * GROWTH):
                    break
        size = max(1, low)
        ends = np.flatnonzero(np.diff(kind[at : at + size + 1])) + 1
        if at + size < len(kind) and len(ends) and ends[-1] > size // 2:
            size = int(ends[-1])
        full(size)
        return known[size], size

    def _measured(self, at: int, count: int) -> Lot:
        if (at, count) not in self._read:
            granules = np.sort(self.order.addresses[at : at + count])
            addresses = (granules[:, None] + np.arange(self.grain)).reshape(-1)
            self._read = self._read if self.choosing else {}
            self._read[at, count] = addresses, self._taken(*self.move.at(addresses))
        addresses, taken = self._read[at, count]
        kinds = kinds_of(self.move.sources, taken.place, self.move.pes, self.near, self.lines)
        needed = taken.filled.any() or (self.clean and taken.empty.any()) or room(kinds, SLOTS) > 1
        return Lot(addresses, taken, kinds, SLOTS - SPARED if needed else SLOTS)

    def _passes(self, lot: Lot, lc: int = LC_SIZE) -> list[Pass]:
        return passes(lot.kinds, lot.taken.place.shape, lot.slots, lc)

    def _stages(self, lot: Lot, lc: int = LC_SIZE) -> list[Stage]:
        """The stages of a lot; each uses so much of a buffer of L2BM."""
        cuts = np.flatnonzero(np.diff(lot.addresses) != 1) + 1
        runs = tuple((int(run[0]), int(run[-1]) + 1) for run in np.split(lot.addresses, cuts))
        found = self._passes(lot, lc)
        stages = []
        for i, chosen in enumerate(found):
            first, last = i == 0, i == len(found) - 1
            address = self._address(lot.taken, chosen.address, first, len(found) > 1)
            pick = Pick(picking(lot.taken.kind, address), runs, first, last, lot.slots < SLOTS)
            for j, loads in enumerate(chosen.loads):
                moves = tuple(fill for load in loads for fill in load.fills(self.move.sources))
                stages.append(Stage(moves, (Turn(loads, pick if j == len(chosen.loads) - 1 else None, 0),)))
        return stages

    def _both(self, *lots: Lot) -> Iterator[Stage]:
        """Two lots at once, each in its half of the buffers."""
        half = LC_SIZE // 2
        for pair in zip_longest(*(self._stages(lot, half) for lot in lots)):
            here = [(place, stage) for place, stage in enumerate(pair) if stage]
            moves = [replace(fill, lc=fill.lc + half * place) for place, stage in here for fill in stage.moves]
            turns = [
                Turn(tuple(replace(load, lc=load.lc + half * place) for load in turn.loads), turn.pick, place)
                for place, stage in here
                for turn in stage.turns
            ]
            yield Stage(tuple(in_order(moves)), tuple(turns))

    # ---- what a lot takes -------------------------------------------------------------------------------------

    def _taken(self, place: np.ndarray, good: np.ndarray) -> Taken:
        """By long words, if they stay whole."""
        here = (place >= 0) & good
        if self._whole(place, here, good):
            first = here.argmax(axis=-1)[..., None]
            some = here.any(axis=-1)
            long = np.where(some, np.take_along_axis(place, first, -1)[..., 0], -1)
            filled = (good & ~here).any(axis=-1) & ~some
            return Taken(
                "whole",
                long.reshape(self.pes, -1),
                filled.reshape(self.pes, -1),
                ~good.any(axis=-1).reshape(self.pes, -1),
            )
        kind = "half" if self.dtype == "half" else "word"
        flat = np.where(here, place, -1).reshape(self.pes, -1)
        return Taken(kind, flat, (good & ~here).reshape(self.pes, -1), ~good.reshape(self.pes, -1))

    def _whole(self, place: np.ndarray, here: np.ndarray, good: np.ndarray) -> bool:
        """Whether every long word of the result is one of a source (or padding, or all fill)."""
        if self.per == 1:
            return True
        if (here & (place & 3 != np.arange(self.per))).any():
            return False
        long = np.where(here, place >> 2, -1)
        if not (~here | (long == long.max(axis=-1, keepdims=True))).all():
            return False
        some, filled, empty = here.any(axis=-1), (good & ~here).any(axis=-1), ~good.all(axis=-1)
        return not (filled & some | self.clean & empty & (some | filled & self.filled)).any()

    def _address(self, taken: Taken, slot: np.ndarray, first: bool, merge: bool) -> np.ndarray:
        """Where in LM0 the places find what they take, as `picking` counts."""
        each = 2 if taken.kind == "half" else 1
        address = 2 * each * slot
        if taken.kind != "whole":
            address += (taken.place & 3).astype(np.int32)
        address[slot < 0] = each * ZERO if merge else -1
        if first:
            if self.clean:
                address[taken.empty] = each * ZERO
            address[taken.filled] = each * (FILL if self.filled else ZERO)
        return address
