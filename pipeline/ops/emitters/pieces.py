"""Pieces of source images on their way from DRAM to LM0 of the PEs that need them.

Each is contiguous in DRAM and lies in L2BM as it does there. By how far an element goes it comes in one of three kinds:

    own    one LM address of all PEs of an L2B, for PEs that need what the same PE of a source has: `l2bmd` (or `l2bmb` where
           the source is the same in all L1Bs), then `l1bmd`, a long word for each PE
    share  256 LW of which each L1B gets its own 32 (`l2bmd`), for what the same L1B of a source has
    line   64 LW, for all L1Bs of an L2B (`l2bmb`) or for one (`l2bmb@b`)

From L1BM shares and lines go to the PEs by lanes (`l1bmm`, where every element stays with the PE of its number), or in whole
(`l1bmp`), those groups of 4 LW in which some PE finds something. The r-th piece of every L2B (L1B) is brought in round r.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.slots import Slot, fill_slots
from mlsdk.pipeline.ops.emitters.transfer import Tensor, pipeline

ZERO, FILL = 4092, 4088  # LM0 words that hold zero, and what a move fills with
SLOTS = 2032  # long words of LM0 for pieces
HALF, HIGH = 508, 510  # GRF1 words: constants 16, 0xFFFF0000
LINE, SHARE = 64, 256  # LW of DRAM
LC_SIZE = 8192  # LW of L2BM for the pieces of a pass
LB_SIZE = 2048  # LW of L1BM that pieces pass through at a time
FLYING = 12  # moves of a pass that go on while others start
OWN, OWN_SAME, BY_SHARE, BY_LINE, BY_LINE_OF = "own", "own of all L1Bs", "share", "line", "line of an L1B"


@dataclass(frozen=True)
class Home:
    """What is needed of a source to find its pieces. `first`: number of its first place among those of all sources."""

    tensor: Tensor
    first: int

    @property
    def groups(self) -> int:
        return 4 if self.tensor.image.l2b_spread else 1

    @property
    def size(self) -> int:
        """LW of all its places, in whole shares."""
        return self.groups * self.pitch

    @property
    def pitch(self) -> int:
        return -(-self.tensor.image.group_size // 512) * 512


@dataclass
class Kind:
    """The pieces of one kind in a tile. `lists[unit]`: piece numbers in rising order; `rank`: of each place, or -1;
    `inside`: LW of the piece in L1BM that a place takes."""

    name: str
    unit: int  # LW of DRAM
    lb: int  # LW of L1BM
    lists: list[np.ndarray]
    rank: np.ndarray
    inside: np.ndarray
    by_lane: bool
    used: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), bool))  # [rank][group of 4 LW]

    @property
    def rounds(self) -> int:
        return max(map(len, self.lists), default=0)

    def lc(self, rounds: int) -> int:
        return rounds * self.unit * (8 if self.name == BY_LINE_OF else 1)

    def slots(self, first: int, last: int) -> int:
        """Long words of LM0 for these rounds."""
        if self.name in (OWN, OWN_SAME):
            return -(-(last - first) // 4) * 4
        if self.by_lane:
            return (last - first) * self.lb // 4
        return 4 * int(self.used[first:last].sum())


@dataclass(frozen=True)
class Pass:
    """`parts`: (kind, first and last round, its first LW in L2BM); `address`: the LM0 word of each place, or -1."""

    parts: tuple[tuple[Kind, int, int, int], ...]
    address: np.ndarray


def ranked(unit: np.ndarray, piece: np.ndarray, units: int) -> tuple[list[np.ndarray], np.ndarray]:
    """For each unit its pieces in rising order, and for each entry the rank of its piece."""
    if not len(piece):
        return [np.zeros(0, np.int64)] * units, np.zeros(0, np.int64)
    low = int(piece.min())
    span = int(piece.max()) - low + 1
    if units * span > 1 << 26:
        keys, inverse = np.unique(unit * span + (piece - low), return_inverse=True)
        starts = np.searchsorted(keys, np.arange(units + 1) * span)
        lists = [keys[a:b] - u * span + low for u, (a, b) in enumerate(zip(starts, starts[1:]))]
        return lists, inverse - starts[unit]
    mark = np.zeros((units, span), bool)
    mark[unit, piece - low] = True
    rank = np.cumsum(mark, axis=1, dtype=np.int32) - 1
    return [np.flatnonzero(row) + low for row in mark], rank[unit, piece - low].astype(np.int64)


class Pieces:
    """Chooses and brings pieces. `spread`: halves are brought one to a word."""

    def __init__(self, asm: Asm, sources: Sequence[Tensor], spread: bool):
        self.asm, self.spread = asm, spread
        self.homes: list[Home] = []
        first = 0
        for tensor in sources:
            self.homes.append(Home(tensor, first))
            first += self.homes[-1].size

    def number(self, source: np.ndarray, lw: np.ndarray) -> np.ndarray:
        """Places of all sources counted through (-1: none); `lw` counts the LW of a source's groups."""
        found = np.full(lw.shape, -1, np.int64)
        for i, home in enumerate(self.homes):
            mine = source == i
            size = home.tensor.image.group_size
            if home.pitch == size or home.groups == 1:
                np.copyto(found, lw + home.first, where=mine)
            else:
                group, rest = np.divmod(lw, size)
                np.copyto(found, group * home.pitch + rest + home.first, where=mine)
        return found

    # ---- which pieces -----------------------------------------------------------------------------------------

    def choose(self, place: np.ndarray) -> list[Pass]:
        """The passes that bring what the places [L2B, L1B, MAB, PE, n] of a tile need (`number`, or -1)."""
        shape = place.shape
        kinds = self._kinds(place.reshape(-1), shape)
        return self._passes(kinds, shape)

    def _kinds(self, place: np.ndarray, shape: tuple[int, ...]) -> list[Kind]:
        here = np.flatnonzero(place >= 0)
        number = place[here]
        pe = here // shape[-1]
        l2b, l1b, mab, lane = pe >> 9, pe >> 6 & 7, pe >> 2 & 15, pe & 3
        own = np.zeros(len(here), np.int8)  # 1: by own, 2: the same for all L1Bs, 3: by share, 0: by line
        piece, inside = np.zeros(len(here), np.int64), np.zeros(len(here), np.int64)
        for home in self.homes:
            mine = slice(None)
            if len(self.homes) > 1:
                mine = np.flatnonzero((number >= home.first) & (number < home.first + home.size))  # type: ignore[assignment]
            n = number[mine]
            if len(n):
                own[mine], piece[mine], inside[mine] = self._near(home, n, l1b[mine], mab[mine], lane[mine])
        kinds = []
        for code, name, unit, lb in ((1, OWN, 512, 64), (2, OWN_SAME, 64, 64), (3, BY_SHARE, SHARE, 32)):
            chosen = own == code
            if chosen.any():
                kinds.append(self._kind(name, unit, lb, here, chosen, l2b, piece, inside, lane, place.shape, 8))
        chosen = own == 0
        if chosen.any():
            piece, inside = number // LINE, number % LINE
            kinds.append(self._lines(here, chosen, l2b, l1b, piece, inside, lane, place.shape))
        return kinds

    def _near(self, home: Home, number, l1b, mab, lane) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """How near the places lie: code, number of the piece, LW of the piece's part in L1BM."""
        image = home.tensor.image
        rest = (number - home.first) % home.pitch
        size = image.l2b_size
        k = rest % size if image.l2bs_used == 2 else rest
        base = number - k
        if not image.l1b_spread:
            if not image.mab_spread:
                return np.zeros(len(number), np.int8), number, number
            near = (k >> 2 & 15 == mab) & (k & 3 == lane) & (base % LINE == 0)
            return np.where(near, 2, 0).astype(np.int8), (base + k) // LINE, np.zeros(len(number), np.int64)
        o = (k >> 6) * 8 + (k & 7)
        same = (k >> 3 & 7) == l1b
        code = np.where(same, 3, 0)
        piece, inside = number // SHARE, o & 31
        if image.mab_spread:
            near = same & (o >> 2 & 15 == mab) & (o & 3 == lane) & (base % 512 == 0)
            code[near] = 1
            piece = np.where(near, (base + k) // 512, piece)
            inside = np.where(near, 0, inside)
        return code.astype(np.int8), piece, inside

    def _kind(self, name, unit, lb, here, chosen, units, piece, inside, lane, size, count) -> Kind:
        which = np.flatnonzero(chosen)
        lists, rank = ranked(units[which], piece[which], count)
        ranks, insides = np.full(size, -1, np.int64), np.zeros(size, np.int64)
        ranks[here[which]], insides[here[which]] = rank, inside[which]
        by_lane = bool((inside[which] & 3 == lane[which]).all())
        kind = Kind(name, unit, lb, lists, ranks, insides, by_lane)
        if name not in (OWN, OWN_SAME):
            kind.used = np.zeros((kind.rounds, lb // 4), bool)
            kind.used[rank, inside[which] >> 2] = True
        return kind

    def _lines(self, here, chosen, l2b, l1b, piece, inside, lane, size) -> Kind:
        """Lines for all L1Bs of an L2B, or for one each: what takes fewer steps (of the moves, and of the PEs)."""
        shared = self._kind(BY_LINE, LINE, LINE, here, chosen, l2b, piece, inside, lane, size, 8)
        single = self._kind(BY_LINE_OF, LINE, LINE, here, chosen, l2b * 8 + l1b, piece, inside, lane, size, 64)
        same = sum(len(x) for x in shared.lists) * 8 == sum(len(x) for x in single.lists)
        if same:
            return shared

        def cost(kind: Kind, each: int) -> float:
            into = 2 * kind.rounds if kind.by_lane else int(kind.used.sum())
            moved = sum(len(x) for x in kind.lists) * LINE
            return max(moved / 160, kind.rounds * each + into) + (0 if kind.by_lane else 0)

        return shared if cost(shared, 1) <= cost(single, 8) else single

    def _passes(self, kinds: list[Kind], shape: tuple[int, ...]) -> list[Pass]:
        each = 2 if self.spread else 1
        passes: list[Pass] = []
        at = [0] * len(kinds)
        while True:
            parts, slots, lc = [], 0, 0
            for i, kind in enumerate(kinds):
                first, last = at[i], at[i]
                while last < kind.rounds:
                    if (slots + kind.slots(first, last + 1)) * each > SLOTS or lc + kind.lc(last + 1 - first) > LC_SIZE:
                        break
                    last += 1
                if last > first:
                    parts.append((kind, first, last, lc))
                    slots += kind.slots(first, last)
                    lc += kind.lc(last - first)
                at[i] = last
            if not parts and passes:
                return passes
            passes.append(Pass(tuple(parts), self._address(parts, shape)))
            if all(a >= kind.rounds for a, kind in zip(at, kinds)):
                return passes

    def _address(self, parts, shape: tuple[int, ...]) -> np.ndarray:
        """The LM0 long word (counted in slots) of each place of a pass, or -1."""
        address = np.full(int(np.prod(shape)), -1, np.int64)
        base = 0
        for kind, first, last, _ in parts:
            here = (kind.rank >= first) & (kind.rank < last)
            rank, inside = kind.rank[here] - first, kind.inside[here]
            if kind.name in (OWN, OWN_SAME):
                address[here] = base + rank
            elif kind.by_lane:
                address[here] = base + rank * (kind.lb // 4) + (inside >> 2)
            else:
                order = np.cumsum(kind.used[first:last].reshape(-1)) - 1
                group = order[rank * (kind.lb // 4) + (inside >> 2)]
                address[here] = base + 4 * group + (inside & 3)
            base += kind.slots(first, last)
        return address.reshape(shape)

    # ---- DRAM -> LM0 ------------------------------------------------------------------------------------------

    def start(self, chosen: Pass, lc: int) -> list[int]:
        """Start the moves of a pass into L2BM from `lc` on."""
        tags: list[int] = []
        for kind, first, last, at in chosen.parts:
            if kind.name == BY_LINE_OF:
                for b in range(8):
                    slots = [self._slot(kind, r, [8 * x + b for x in range(8)]) for r in range(first, last)]
                    tags = self._fewer(tags) + fill_slots(
                        self.asm, slots, kind.unit, lc + at + b * (last - first) * kind.unit, FLYING
                    )
            else:
                slots = [self._slot(kind, r, list(range(8))) for r in range(first, last)]
                tags = self._fewer(tags) + fill_slots(self.asm, slots, kind.unit, lc + at, FLYING)
        return tags

    def _fewer(self, tags: list[int]) -> list[int]:
        """Waits for the first moves of many."""
        spare = max(0, len(tags) - FLYING)
        self.asm.wait(*tags[:spare])
        return tags[spare:]

    def _slot(self, kind: Kind, r: int, units: list[int]) -> Slot:
        where = {}
        for l2b, unit in enumerate(units):
            mine = kind.lists[unit]
            if r < len(mine):
                number = int(mine[r]) * kind.unit
                home = next(h for h in reversed(self.homes) if h.first <= number)
                group, address = divmod(number - home.first, home.pitch)
                where[l2b] = (group if home.groups > 1 else l2b >> 1, address, home.tensor.symbol)
        return where

    def finish(self, chosen: Pass, lc: int, lb: int) -> None:
        """Everything of a pass from L2BM to its place in LM0, through L1BM from `lb` on."""
        slot = 0
        for kind, first, last, at in chosen.parts:
            step = max(1, LB_SIZE // kind.lb)
            for a in range(first, last, step):
                b = min(a + step, last)
                self._chunk(kind, a, b, first, last, lc + at, lb, slot)
            slot += kind.slots(first, last)

    def _chunk(self, kind: Kind, a: int, b: int, first: int, last: int, lc: int, lb: int, slot: int) -> None:
        load: list[str] = []
        done: list[int] = []  # lines of `load` after which round a + i is in L1BM
        for i, r in enumerate(range(a, b)):
            to = lb + i * kind.lb
            if kind.name == OWN:
                at = lc + (r - first) * kind.unit
                load += [f"l2bmd $lc{at} $lb{to}", f"l2bmd $lc{at + 256} $lb{to + 32}"]
            elif kind.name == BY_SHARE:
                load.append(f"l2bmd $lc{lc + (r - first) * kind.unit} $lb{to}")
            elif kind.name == BY_LINE_OF:
                for x in range(8):
                    if any(r < len(kind.lists[8 * y + x]) for y in range(8)):
                        load.append(f"l2bmb@{x} $lc{lc + (x * (last - first) + r - first) * LINE} $lb{to}")
            else:
                load.append(f"l2bmb $lc{lc + (r - first) * kind.unit} $lb{to}")
            done.append(len(load))
        reads = self._reads(kind, a, b, first, lb, slot)
        if not self.spread:
            pipeline(self.asm, load, [(text, done[min(i, len(done) - 1)]) for text, _, i in reads], distance=2)
            return
        for line in load:
            self.asm.pe(line)
        for text, slots, _ in reads:
            self.asm.pe(f"{text} $nowrite")
            self.asm.pe(f"iand $lbf $ls{HIGH} {vec(m.LM0, [4 * s for s in slots], 2)}")
            self.asm.pe(f"ilsl $lbf $ls{HALF} {vec(m.LM0, [4 * s + 2 for s in slots], 2)}")

    def _reads(self, kind: Kind, a: int, b: int, first: int, lb: int, slot: int) -> list[tuple[str, list[int], int]]:
        """(instruction, LM0 slots of its cycles, the last round, counted from a, that it needs)."""
        reads: list[tuple[str, list[int], int]] = []
        if kind.name in (OWN, OWN_SAME):
            for r in range(a, b, 4):
                slots = [slot + r - first + c for c in range(4)]
                text = f"l1bmd $lb{lb + (r - a) * 64}"
                reads.append((text if self.spread else f"{text} $lm{2 * slots[0]}v", slots, r - a + 3))
            return reads
        groups = kind.lb // 4
        if kind.by_lane:
            for r in range(a, b):
                for g in range(0, groups, 4 if self.spread else 8):
                    at, to = lb + (r - a) * kind.lb + 4 * g, slot + (r - first) * groups + g
                    if self.spread:
                        reads.append((f"l1bmm $lb{at}", [to + c for c in range(4)], r - a))
                    elif kind.used[r, g : g + 8].any():
                        reads.append((f"l1bmm $llb{at} $llm{2 * to}v", [], r - a))
            return reads
        to = slot + 4 * int(kind.used[first:a].sum())
        for r in range(a, b):
            for g in np.flatnonzero(kind.used[r]).tolist():
                text = f"l1bmp $lb{lb + (r - a) * kind.lb + 4 * g}"
                slots = [to + c for c in range(4)]
                reads.append((text if self.spread else f"{text} $lm{2 * to}v", slots, r - a))
                to += 4
        return reads
