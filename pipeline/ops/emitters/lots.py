"""Which LM addresses of a move's result are made together, from which pieces, and what every PE picks for them.

A lot is as many granules of addresses as find all their pieces in LM0 at a time. Where that is few, because every granule needs
much of what the others need too, a lot is as large as GRF0 holds, its pieces come in passes, and what a pass does not hold is
picked from a zero and or-ed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np

from mlsdk.pipeline.ir.layout import PER_LW
from mlsdk.pipeline.ops.emitters.order import Order
from mlsdk.pipeline.ops.emitters.pick import FILL, ZERO, Picking, picking
from mlsdk.pipeline.ops.emitters.pieces import LC_SIZE, NEAREST, SLOTS, SPARED, Kind, Load, kinds_of, passes, room
from mlsdk.pipeline.ops.emitters.places import Move
from mlsdk.pipeline.ops.emitters.slots import Fill, in_order, time_of

MOST = {"half": 96}  # LM addresses of a lot: long words of GRF0, and columns in GRF1
MOST_OTHERS = 192
FEW = 4  # granules of a lot to begin with
TRIES = 8  # at the size of a lot
ENOUGH, GROWTH = 0.75, 1.3  # how full LM0 is, and how much larger a lot might be, when it is large enough


@dataclass(frozen=True)
class Pick:
    """What is picked from LM0. `runs`: LM addresses [lo, hi) of the result, in GRF0 one behind the other, which are complete
    with the `last` pick of their lot; `first` is the first."""

    picking: Picking
    runs: tuple[tuple[int, int], ...]
    first: bool
    last: bool

    @property
    def steps(self) -> float:
        """About how long it takes with its table."""
        return 2 * len(self.picking.turns) + 8 * self.picking.table.shape[1]


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

    @property
    def steps(self) -> float:
        """About how long it takes."""
        busy = sum(load.steps for turn in self.turns for load in turn.loads)
        return max(time_of(self.moves), busy) + sum(turn.pick.steps for turn in self.turns if turn.pick)


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

    @property
    def one_sided(self) -> bool:
        """Whether it reads the DRAM of some groups only, for L2Bs of others, through lists in L1BM."""
        if len(self.kinds) != 1 or self.full > 1 or self.kinds[0].given is None:
            return False
        group = self.kinds[0].wanted >> 41 & 3
        return len(np.unique(group[self.kinds[0].wanted >= 0])) < 4


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
        self.dtype = move.result.dtype
        self.per, self.grain = PER_LW[self.dtype], move.result.granule
        self.most = max(1, MOST.get(self.dtype, MOST_OTHERS) // self.grain)
        self.near, self.large = NEAREST[0], False
        self._choose()

    def stages(self) -> Iterator[Stage]:
        """Of all lots. Two that read some groups' DRAM only come at once, so that more DRAMs are at work."""
        waiting: Lot | None = None
        for lot in self._lots():
            if waiting is not None and lot.one_sided:
                yield from self._both(waiting, lot)
                waiting = None
                continue
            if waiting is not None:
                yield from self._stages(waiting)
            waiting = lot if lot.one_sided else None
            if waiting is None:
                yield from self._stages(lot)
        if waiting is not None:
            yield from self._stages(waiting)

    def _lots(self) -> Iterator[Lot]:
        at, size, count = 0, FEW, len(self.order.addresses)
        while at < count:
            lot, size = self._lot(at, min(size, count - at))
            at += size
            yield lot

    def _choose(self) -> None:
        """Settle how near pieces may be and how large lots are, by a lot from the middle."""
        at = len(self.order.addresses) // 2
        found: dict[int, tuple[float, int]] = {}
        for near in NEAREST:
            self.near = near
            lot, size = self._lot(at, FEW)
            found[near] = sum(stage.steps for stage in self._stages(lot)) / size, size
        self.near = min(NEAREST, key=lambda near: (found[near][0], -near))
        steps, size = found[self.near]
        largest = min(self.most, len(self.order.addresses) - at)
        if size * 4 <= largest:
            lot = self._measured(at, largest)
            self.large = sum(stage.steps for stage in self._stages(lot)) / largest < steps

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
        granules = np.sort(self.order.addresses[at : at + count])
        addresses = (granules[:, None] + np.arange(self.grain)).reshape(-1)
        taken = self._taken(*self.move.at(addresses))
        kinds = kinds_of(self.move.sources, taken.place, self.near)
        needed = taken.filled.any() or (self.clean and taken.empty.any()) or room(kinds, SLOTS) > 1
        return Lot(addresses, taken, kinds, SLOTS - SPARED if needed else SLOTS)

    def _stages(self, lot: Lot, lc: int = LC_SIZE) -> list[Stage]:
        """The stages of a lot; each uses so much of a buffer of L2BM."""
        cuts = np.flatnonzero(np.diff(lot.addresses) != 1) + 1
        runs = tuple((int(run[0]), int(run[-1]) + 1) for run in np.split(lot.addresses, cuts))
        found = passes(lot.kinds, lot.taken.place.shape, lot.slots, lc)
        stages = []
        for i, chosen in enumerate(found):
            first, last = i == 0, i == len(found) - 1
            address = self._address(lot.taken, chosen.address, first, len(found) > 1)
            pick = Pick(picking(lot.taken.kind, address), runs, first, last)
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
                "whole", long.reshape(4096, -1), filled.reshape(4096, -1), ~good.any(axis=-1).reshape(4096, -1)
            )
        kind = "half" if self.dtype == "half" else "word"
        flat = np.where(here, place, -1).reshape(4096, -1)
        return Taken(kind, flat, (good & ~here).reshape(4096, -1), ~good.reshape(4096, -1))

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
        word = 2 * slot.astype(np.int64)
        each = 2 if taken.kind == "half" else 1
        address = {
            "whole": word,
            "word": word + (taken.place & 3 if self.per == 2 else 0),
            "half": 2 * word + (taken.place & 3),
        }[taken.kind]
        address = np.where(slot >= 0, address, each * ZERO if merge else -1)
        if first:
            if self.clean:
                address[taken.empty] = each * ZERO
            address[taken.filled] = each * (FILL if self.filled else ZERO)
        return address
