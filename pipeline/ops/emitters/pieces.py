"""Pieces of source images that a part of a move needs, and where they come to lie.

Each is contiguous in DRAM and lies in L2BM as it does there. By how far an element goes it comes in one of these kinds:

    own     one LM address of all PEs of an L2B, for PEs that need what the same PE of a source has: `l2bmd` (or `l2bmb` where
            the source is the same in all L1Bs), then `l1bmd`, a long word for each PE
    share   256 LW of which each L1B gets its own 32 (`l2bmd`), for what the same L1B of a source has
    line    64 LW, for all L1Bs of an L2B (`l2bmb`) or for some (`l2bmb@b`), or a list of lines for each L1B

From L1BM shares and lines go to the PEs by lanes (`l1bmm`, where every element stays with the PE of its number), or in whole
(`l1bmp`), those groups of 8 LW in which some PE finds something. The r-th piece of every L2B (L1B) is brought in round r.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import ADDR, L1B, L2B, MAB, PE
from mlsdk.pipeline.ops.emitters.places import BIT, SOURCE
from mlsdk.pipeline.ops.emitters.slots import OF_L2B, Fill, fills

SLOTS = 2048  # long words of LM0
SPARED = 4  # of them, where zero or a fill is wanted
LB_SIZE = 2048  # LW of L1BM that lists of L1Bs pass through, and other pieces
LC_SIZE = 4096  # LW of L2BM for what is brought at a time, or twice half of it
LINE, SHARE, GROUP = 64, 256, 8  # LW
OWN, OWN_SAME, BY_SHARE, BY_LINE = "own", "own of all L1Bs", "share", "line"
LINE_FOR_SOME, LINE_OF_L1B = "line for some L1Bs", "line of an L1B"
#: what the nearest kind may be: own, share, line
NEAREST = (3, 2, 0)
#: what lines may be
LINES = (LINE_FOR_SOME, LINE_OF_L1B, BY_LINE)
DENSE = 1 << 24  # marks of pieces that are kept as an array


@dataclass(frozen=True)
class Kind:
    """The pieces of one kind. `wanted[L2B, slot]`: the piece in each slot of L2BM, as L2B << 40 | LW (the source in the bits
    above), or -1. Pieces go to the L1Bs in rounds: in round r all get slot r, or L1B b gets slot `given[b, r]` (-1: none). Of
    each place `rank` is its round (-1: it is not of this kind) and `inside` the LW of the piece in L1BM."""

    name: str
    unit: int  # LW of DRAM
    lb: int  # LW of L1BM
    wanted: np.ndarray
    given: np.ndarray | None
    rank: np.ndarray
    inside: np.ndarray
    by_lane: bool
    used: np.ndarray  # [round, group of 8 LW]: whether anything of it is needed

    @property
    def own(self) -> bool:
        return self.name in (OWN, OWN_SAME)

    @property
    def rounds(self) -> int:
        return len(self.used)

    def slots(self, first: int, last: int) -> int:
        """Long words of LM0 for rounds [first, last)."""
        if self.own:
            return -(-(last - first) // 4) * 4
        if self.by_lane:
            return (last - first) * self.lb // 4
        return GROUP * int(self.used[first:last].sum())

    def _needed(self, first: int, last: int) -> np.ndarray:
        assert self.given is not None
        found = np.unique(self.given[:, first:last])
        return found[found >= 0]

    def between(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray | None]:
        """`wanted` and `given` of these rounds."""
        if self.given is None:
            return self.wanted[:, first:last], None
        needed, given = self._needed(first, last), self.given[:, first:last]
        return self.wanted[:, needed], np.where(given < 0, -1, np.searchsorted(needed, given))


@dataclass(frozen=True)
class Part:
    """Rounds [first, last) of a kind, in LM0 from slot `slot` on."""

    kind: Kind
    first: int
    last: int
    slot: int

    @cached_property
    def wanted(self) -> np.ndarray:
        return self.kind.between(self.first, self.last)[0]

    @cached_property
    def given(self) -> np.ndarray | None:
        return self.kind.between(self.first, self.last)[1]


@dataclass(frozen=True)
class Load:
    """Slots [first, last) of L2BM of a part, from `lc` on (counted from the buffer). `done`: all of the part is in L1BM then."""

    part: Part
    first: int
    last: int
    lc: int
    done: bool

    @property
    def steps(self) -> float:
        """About how long the PEs are busy with it."""
        part, kind = self.part, self.part.kind
        if part.given is None:
            from_l2bm = (2 if kind.name == OWN else 1) * (self.last - self.first)
        else:
            from_l2bm = int(((part.given >= self.first) & (part.given < self.last)).sum())
        into = (part.last - part.first) / 4 if kind.own else kind.slots(part.first, part.last) / 8
        return max(from_l2bm, into if self.done else 0)

    def fills(self, images: Sequence[Image]) -> list[Fill]:
        """The moves that bring it to L2BM."""
        wanted = self.part.wanted[:, self.first : self.last]
        source = np.where(wanted < 0, -1, wanted >> SOURCE + 40 - BIT[L2B])
        spread = np.array([image.l2b_spread for image in images])[source]
        group = np.where(spread, wanted >> 41 & 3, OF_L2B[:, None])
        return fills(group, wanted & (1 << 40) - 1, source, self.part.kind.unit, self.lc)


@dataclass(frozen=True)
class Pass:
    """Pieces that lie in LM0 at a time. `loads`: what is in L2BM at a time; `address`: the long word of LM0 that each place
    takes, or -1; [PE, place]."""

    loads: tuple[tuple[Load, ...], ...]
    address: np.ndarray


def kinds_of(images: Sequence[Image], place: np.ndarray, pes: np.ndarray, near: int, lines: str) -> list[Kind]:
    """What the places [PE, n] need (long words, as in `places`; -1: nothing), in kinds as near as `near`, lines as `lines`.
    `pes`: L2B, L1B, MAB and PE of each PE."""
    here = np.flatnonzero(place.reshape(-1) >= 0)
    number = place.reshape(-1)[here]
    at = pes[:, here // place.shape[1]]
    code = np.zeros(len(here), np.int8)  # 3: own, 4: the same for all L1Bs, 2: share, 0: line
    piece, inside = np.zeros(len(here), np.int64), np.zeros(len(here), np.int16)
    source = number >> SOURCE
    for i, image in enumerate(images):
        mine = np.flatnonzero(source == i) if len(images) > 1 else slice(None)
        if len(number[mine]):
            code[mine], piece[mine], inside[mine] = _found(image, number[mine], [a[mine] for a in at[1:]], near)
    kinds = []
    for value, name, unit, lb in ((3, OWN, 512, 64), (4, OWN_SAME, 64, 64), (2, BY_SHARE, SHARE, 32)):
        which = np.flatnonzero(code == value)
        if len(which):
            wanted, rank = ranked(at[0][which], piece[which], 8)
            kinds.append(_kind(name, unit, lb, here[which], at[3][which], rank, inside[which], place.shape, wanted))
    which = np.flatnonzero(code == 0)
    if len(which):
        kinds.append(_lines(lines, at[:, which], here[which], piece[which], inside[which], place.shape))
    return kinds


def _found(image: Image, number: np.ndarray, at: Sequence[np.ndarray], near: int) -> tuple[np.ndarray, ...]:
    """For long words: the kind, the piece, and the LW of the piece in L1BM."""
    l1b, mab, lane = at
    source_mab, source_lane = number >> BIT[MAB] & 15, number >> BIT[PE] & 3
    address, head = number >> BIT[ADDR] & 0xFFFFFF, number >> BIT[L2B] << 40
    if image.l2bs_used == 2:
        head = head + (number >> BIT[L2B] & 1) * image.l2b_size
    per = 64 if image.mab_spread else 4
    o = address * per + source_lane + (source_mab * 4 if image.mab_spread else 0)
    if not image.l1b_spread:
        code = np.zeros(len(number), np.int8)
        piece, inside = head + (o & -64), o & 63
        if image.mab_spread and near > 2:
            close = (source_mab == mab) & (source_lane == lane)
            code[close] = 4
        return code, piece, inside
    source_l1b = number >> BIT[L1B] & 7
    line = head + (o >> 3) * 64
    if not near:
        return np.zeros(len(number), np.int8), line, source_l1b * 8 + (o & 7)
    same = source_l1b == l1b
    code = np.where(same, 2, 0).astype(np.int8)
    if image.mab_spread and near > 2:
        code[same & (source_mab == mab) & (source_lane == lane)] = 3
    piece = np.where(code == 0, line, np.where(code == 2, head + (o >> 5) * SHARE, head + address * 512))
    inside = np.where(code == 0, source_l1b * 8 + (o & 7), o & 31)
    return code, piece, inside


def line_of(images: Sequence[Image], place: np.ndarray) -> np.ndarray:
    """The lines of 64 LW in which places lie (-1: none), with the L2B and the source in the bits where a place has them."""
    found = np.full(place.shape, -1, np.int64)
    for i, image in enumerate(images):
        here = place >> SOURCE == i
        number = place[here]
        address, mab = number >> BIT[ADDR] & 0xFFFFFF, number >> BIT[MAB] & 15
        if image.mab_spread:
            line = address * 8 + (mab >> 1) if image.l1b_spread else address
        else:
            line = address >> 1 if image.l1b_spread else address >> 4
        found[here] = (number >> BIT[L2B] << BIT[L2B]) + line
    return found


def _kind(name, unit, lb, here, lane, rank, inside, shape: tuple[int, ...], wanted, given=None) -> Kind:
    ranks, insides = np.full(shape, -1, np.int32), np.zeros(shape, np.int16)
    ranks.reshape(-1)[here], insides.reshape(-1)[here] = rank, inside
    used = np.zeros((int(rank.max()) + 1, lb // GROUP), bool)
    used[rank, inside // GROUP] = True
    return Kind(name, unit, lb, wanted, given, ranks, insides, bool(((inside & 3) == lane).all()), used)


def _rows(lists: Sequence[np.ndarray]) -> np.ndarray:
    """Lists as rows, filled up with -1."""
    found = np.full((len(lists), max(map(len, lists))), -1, np.int64)
    for row, values in zip(found, lists):
        row[: len(values)] = values
    return found


def _lines(name: str, at, here, piece, inside, shape: tuple[int, ...]) -> Kind:
    """Lines for all L1Bs of an L2B, those of an L2B for those L1Bs that need them in some L2B, or a list of lines for each
    L1B."""
    l2b, l1b, _, lane = at
    if name == LINE_OF_L1B:
        rows, rank = ranked(l2b.astype(np.int16) * 8 + l1b, piece, 64, mixed=True)
        return _kind(name, LINE, LINE, here, lane, rank, inside, shape, *_mixed(*_slots_of_l1bs(rows)))
    rows, slot = ranked(l2b, piece, 8, mixed=name != BY_LINE)
    some = np.zeros((8, rows.shape[1]), bool)
    some[l1b, slot] = True
    if name == BY_LINE or some.all():
        return _kind(BY_LINE, LINE, LINE, here, lane, slot, inside, shape, rows)
    local = np.cumsum(some, axis=1) - 1
    given = _rows([np.flatnonzero(row) for row in some])
    return _kind(name, LINE, LINE, here, lane, local[l1b, slot], inside, shape, *_mixed(rows, given))


def _slots_of_l1bs(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slots of L2BM for the list of each L1B of the chip: what comes from one L2B's DRAM, L1B by L1B."""
    rounds = rows.shape[1]
    rows = rows.reshape(8, -1)  # [L2B, L1B and round]
    most = rows[(rows >= 0).sum(axis=1).argmax()]
    some = np.where(most >= 0, most, rows.max(axis=0))
    b, r = np.divmod(np.arange(8 * rounds), rounds)
    order = np.lexsort((r, b, some >> 40))
    order = order[some[order] >= 0]
    given = np.full(8 * rounds, -1, np.int64)
    given[order] = np.arange(len(order))
    return rows[:, order], given.reshape(8, -1)


def _mixed(wanted: np.ndarray, given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slots in another order: every run of them that L2BM holds at a time has its share from each group's DRAM."""
    first = np.take_along_axis(wanted, (wanted >= 0).argmax(axis=0)[None], 0)[0]
    group = first >> 41 & 3
    rank = np.zeros(len(group))
    for g in range(4):
        mine = np.flatnonzero(group == g)
        rank[mine] = np.arange(len(mine)) / max(1, len(mine))
    count = -(-len(group) * LINE // (LC_SIZE // 2))
    order = np.lexsort((rank, group, (rank * count).astype(np.int64)))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return wanted[:, order], np.where(given < 0, -1, place[given])


def ranked(unit: np.ndarray, piece: np.ndarray, units: int, mixed: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """For each unit its pieces in an order (-1: none), and for each entry the place of its piece there. Those from the first L2B
    that a unit reads are counted from a common start for all units, and those from the second, and so on, because they lie
    alike there. `mixed`: all take turns, so that some come from each."""
    known, number = _counted(piece)
    mark = np.zeros((units, len(known)), bool)
    mark[unit, number] = True
    edges = np.flatnonzero(np.diff(known >> 40, prepend=-1, append=-2))
    counts = np.add.reduceat(mark, edges[:-1], axis=1, dtype=np.int64)  # [unit, L2B]
    ordinal = np.cumsum(counts > 0, axis=1) - 1
    lengths = [int(np.where((counts > 0) & (ordinal == j), counts, 0).max()) for j in range(int(ordinal.max()) + 1)]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    rank = np.cumsum(mark, axis=1, dtype=np.int32)
    before = np.concatenate([np.zeros((units, 1), np.int64), np.cumsum(counts, axis=1)[:, :-1]], axis=1)
    shift = starts[np.maximum(ordinal, 0)] - before - 1
    rank += np.repeat(shift, np.diff(edges), axis=1).astype(np.int32)
    turn = np.concatenate([(np.arange(n) + 0.5) / n + (0 if mixed else j) for j, n in enumerate(lengths)])
    place = np.empty(len(turn), np.int32)
    place[np.argsort(turn, kind="stable")] = np.arange(len(turn))
    rank = place[np.where(mark, rank, 0)]
    rows = np.full((units, len(turn)), -1, np.int64)
    of_unit, of_piece = np.nonzero(mark)
    rows[of_unit, rank[of_unit, of_piece]] = known[of_piece]
    return rows, rank[unit, number]


def _counted(piece: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different pieces in rising order, and the number of each entry among them."""
    head, line = piece >> 40, (piece & (1 << 40) - 1) // LINE
    span = int(line.max()) + 1
    key = head * span + line
    if int(key.max()) > DENSE:
        known, number = np.unique(key, return_inverse=True)
    else:
        there = np.zeros(int(key.max()) + 1, bool)
        there[key] = True
        known, number = np.flatnonzero(there), (np.cumsum(there) - 1)[key]
    return (known // span << 40) + known % span * LINE, number


# ---- passes -------------------------------------------------------------------------------------------------------


def room(kinds: Sequence[Kind], slots: int) -> float:
    """How often these kinds fill so many long words of LM0."""
    return sum(kind.slots(0, kind.rounds) for kind in kinds) / slots


def passes(kinds: Sequence[Kind], shape: tuple[int, ...], slots: int, lc: int) -> list[Pass]:
    """The passes that bring these kinds to so many long words of LM0, through `lc` of L2BM; a place finds its piece in one of
    them."""
    found: list[Pass] = []
    at = [0] * len(kinds)
    while not found or any(a < kind.rounds for a, kind in zip(at, kinds)):
        parts: list[Part] = []
        taken = 0
        for i, kind in enumerate(kinds):
            last = _most(kind, at[i], slots - taken)
            if last > at[i]:
                parts.append(Part(kind, at[i], last, taken))
                taken += kind.slots(at[i], last)
                at[i] = last
        found.append(Pass(_loads(parts, lc), _address(parts, shape)))
    return found


def _most(kind: Kind, first: int, slots: int) -> int:
    """The last round up to which a kind fits."""
    low, high = first, kind.rounds
    while low < high:
        middle = (low + high + 1) // 2
        if kind.slots(first, middle) <= slots:
            low = middle
        else:
            high = middle - 1
    return low


def _loads(parts: Sequence[Part], room: int) -> tuple[tuple[Load, ...], ...]:
    """Parts by what L2BM holds at a time. Lists of L1Bs are gathered in L1BM; what is too long for that comes by rounds."""
    loads: list[list[Load]] = [[]]
    lc = 0
    for whole in parts:
        for part in _short(whole):
            at, count, unit = 0, part.wanted.shape[1], part.kind.unit
            while at < count:
                size = min(count - at, (room - lc) // unit)
                if not size:
                    loads.append([])
                    lc = 0
                    continue
                if part.given is None:
                    rounds = Part(
                        part.kind,
                        part.first + at,
                        part.first + at + size,
                        part.slot + part.kind.slots(part.first, part.first + at),
                    )
                    loads[-1].append(Load(rounds, 0, size, lc, True))
                else:
                    loads[-1].append(Load(part, at, at + size, lc, at + size == count))
                lc += size * unit
                at += size
    return tuple(map(tuple, loads))


def _short(part: Part) -> Iterator[Part]:
    """A part whose rounds fit L1BM at a time, if it is one of lists."""
    each = part.last - part.first if part.given is None else LB_SIZE // part.kind.lb
    for first in range(part.first, part.last, max(1, each)):
        yield Part(part.kind, first, min(first + each, part.last), part.slot + part.kind.slots(part.first, first))


def _address(parts: Sequence[Part], shape: tuple[int, ...]) -> np.ndarray:
    address = np.full(shape, -1, np.int32)
    for part in parts:
        kind = part.kind
        here = (kind.rank >= part.first) & (kind.rank < part.last)
        rank, inside = kind.rank[here] - part.first, kind.inside[here].astype(np.int32)
        if kind.own:
            found = rank
        elif kind.by_lane:
            found = rank * (kind.lb // 4) + (inside >> 2)
        else:  # `l1bmp` of two long words leaves LW i + 4 behind LW i
            order = np.cumsum(kind.used[part.first : part.last].reshape(-1)) - 1
            group = order[rank * (kind.lb // GROUP) + inside // GROUP]
            found = GROUP * group + 2 * (inside & 3) + (inside >> 2 & 1)
        address[here] = part.slot + found
    return address
