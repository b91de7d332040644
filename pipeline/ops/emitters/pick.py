"""From LM0 to GRF0: every PE picks, for each place of its results, a long word, a word or a half.

The address is what T holds plus an offset in the instruction. Places for which the PEs' addresses differ only by an offset
share a vector of addresses; the vectors of a pass are the columns of a table, which comes from DRAM to GRF1, four of them in a
long word. Where all PEs agree, the instruction alone has the address.

A half is picked with its word and shifted to its end of the result. Where the PEs find it at different ends, the address has
the shifts in bits that T does not look at, and there are two in a long word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import ADDR, L1B, L2B, MAB, PE, Layout, Sub, W
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.transfer import Range, Tensor, bulk_download

ZERO, FILL = 4092, 4088  # LM0: long words of zero, and of what a move fills with, which stands in GRF1 too
FILL_IN_GRF1 = 504
COLUMNS = 440  # columns of a table, if there are two in a long word of GRF1
UP, DOWN = 16, 24  # bits of an address from which on stand shifts of its word to the upper and the lower end
TEMP = 504  # GRF0: four words
BITS = {16: 492, 24: 494, 32: 496, 48: 498}  # GRF0: long words of constants
HALF, HIGH, LOW = 508, 510, 506  # GRF1, long words: constants 16, 0xFFFF0000, 0xFFFF
ALIKE = -1  # the vector of addresses that are the same in all PEs
UPPER, LOWER, EITHER = 0, 1, 2  # the end of its word where a half lies
ABSENT = -(1 << 20)


@dataclass(frozen=True)
class Columns:
    """address[PE, place] = vectors[which[place]][PE] + offset[place] wherever the address is not -1. `which` is ALIKE where
    the offset is all, and `wanted` False where no PE has an address."""

    vectors: np.ndarray
    which: np.ndarray
    offset: np.ndarray
    wanted: np.ndarray


def columns(address: np.ndarray) -> Columns:
    """The fewest vectors that are easy to find: one if one is enough, else one for places that agree exactly."""
    known = address >= 0
    wanted = np.asarray(known.any(axis=0))
    first = known.argmax(axis=0)
    offset = address[first, np.arange(address.shape[1])]
    alike = ((address == offset) | ~known).all(axis=0)
    which = np.full(address.shape[1], ALIKE, np.int64)
    others = np.flatnonzero(~alike)
    if not len(others):
        return Columns(np.zeros((0, len(address)), np.int64), which, offset, wanted)
    split = separate(address)
    if split is not None:
        of_pe, of_place = split
        which[wanted] = 0
        return Columns(of_pe[None], which, np.where(wanted, of_place, 0), wanted)
    shape = np.where(known[:, others], address[:, others] - offset[others], ABSENT)
    codes = _codes(shape)
    _, representative, group = np.unique(codes, return_index=True, return_inverse=True)
    assert (shape == shape[:, representative[group]]).all()
    which[others] = group
    vectors = shape[:, representative].T
    return Columns(np.where(vectors > ABSENT, vectors, 0), which, offset, wanted)


def _codes(shape: np.ndarray) -> np.ndarray:
    """A number for each column, the same for equal ones."""
    weights = np.random.default_rng(0).integers(1, 1 << 62, len(shape))
    with np.errstate(over="ignore"):
        return (shape * weights[:, None]).sum(axis=0)


def separate(address: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """of_pe[q] + of_place[i] = address[q, i] wherever that is not -1, or None when there is no such pair."""
    known = address >= 0
    of_pe, of_place = np.zeros(address.shape[0], np.int64), np.zeros(address.shape[1], np.int64)
    pe_set, place_set = np.zeros(address.shape[0], bool), np.zeros(address.shape[1], bool)
    while True:
        fresh = np.flatnonzero(known.any(axis=0) & ~place_set)
        if not len(fresh):
            break
        place_set[fresh[0]] = True
        while True:
            links = known & place_set[None, :]
            new_pe = links.any(axis=1) & ~pe_set
            if new_pe.any():
                column = links[new_pe].argmax(axis=1)
                of_pe[new_pe] = address[new_pe, column] - of_place[column]
                pe_set |= new_pe
            links = known & pe_set[:, None]
            new_place = links.any(axis=0) & ~place_set
            if new_place.any():
                row = links[:, new_place].argmax(axis=0)
                of_place[new_place] = address[row, new_place] - of_pe[row]
                place_set |= new_place
            if not new_pe.any() and not new_place.any():
                break
    good = (of_pe[:, None] + of_place[None, :] == address) | ~known
    return (of_pe, of_place) if good.all() else None


@dataclass(frozen=True)
class Source:
    """Where up to four places find their word: the `columns` that T is loaded from (none: no T), and an offset for each.
    `end`: for halves."""

    columns: tuple[int, ...]
    offsets: tuple[int, ...]
    end: int = UPPER


@dataclass(frozen=True)
class Turn:
    """Up to four places at a time: `targets` are words of GRF0; words made of halves have a second source, for the lower."""

    targets: tuple[int, ...]
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class Picking:
    """What is picked with one table in GRF1: `table`, of long words, [PE that holds anything, long word], with `each` columns in
    one, the first in the lowest bits."""

    kind: str
    table: np.ndarray
    each: int
    turns: tuple[Turn, ...]

    @property
    def steps(self) -> float:
        """About how long it takes with its table, of which a column of long words is 512 LW for each L2B."""
        return 2 * len(self.turns) + 16 * self.table.shape[1]


def picking(kind: str, address: np.ndarray) -> Picking:
    """address[PE, place], or -1: for `whole` and `word` the word of LM0, for `half` twice that and 1 for the lower half. Places
    are long words, words or halves of GRF0 from word 0 on."""
    found = columns(address)
    ends = np.zeros(address.shape[1], np.int64)
    if kind == "half":
        found, ends = _with_ends(found)
    assert len(found.vectors) <= COLUMNS
    each = 2 if (ends == EITHER).any() else 4
    halves = 2 if kind == "half" else 1

    def key(place: int) -> tuple[int, int, int]:
        """What the places of a turn have in common: T or not, and the bits of a long word for it."""
        which = int(found.which[place])
        return which != ALIKE, which % each if which != ALIKE else 0, int(ends[place])

    def source(places: Sequence[int]) -> Source:
        which = [int(found.which[i]) for i in places]
        return Source(
            () if which[0] == ALIKE else tuple(which), tuple(int(found.offset[i]) for i in places), int(ends[places[0]])
        )

    rows = []
    for target in range(address.shape[1] // halves):
        places = range(halves * target, halves * (target + 1))
        if found.wanted[places].any():
            rows.append((tuple(map(key, places)), tuple(int(found.which[i]) for i in places), target))
    width = 2 if kind == "whole" else 1
    turns = [
        Turn(
            tuple(width * i for i in group),
            tuple(source([halves * i + low for i in group]) for low in range(halves)),
        )
        for group in _grouped([(common, target) for common, _, target in sorted(rows)])
    ]
    return Picking(kind, _table(found.vectors, each), each, tuple(turns))


def _with_ends(found: Columns) -> tuple[Columns, np.ndarray]:
    """Halves as words and ends: offsets become even, so that a vector alone says at which end a half is; where it differs,
    the vector has the shifts too."""
    vectors: list[np.ndarray] = []
    numbers: dict[tuple[int, int], int] = {}
    which, ends = found.which.copy(), found.offset & 1
    for place in np.flatnonzero(which != ALIKE).tolist():
        pair = int(which[place]), int(found.offset[place] & 1)
        if pair not in numbers:
            numbers[pair] = len(vectors)
            vectors.append(found.vectors[pair[0]] + pair[1])
        which[place] = numbers[pair]
    end = [EITHER if (v & 1 != v[0] & 1).any() else int(v[0] & 1) for v in vectors]
    ends = np.where(which == ALIKE, ends, np.array([*end, 0])[which])
    shifts = [(v & 1) << UP + 4 | (1 - (v & 1)) << DOWN + 4 if e == EITHER else 0 for v, e in zip(vectors, end)]
    words = [(v >> 1) % 4096 + by for v, by in zip(vectors, shifts)]
    table = np.array(words, np.int64).reshape(len(words), found.vectors.shape[1])
    return Columns(table, which, found.offset >> 1, found.wanted), ends


def _table(vectors: np.ndarray, each: int) -> np.ndarray:
    """Vectors as columns, [PE, long word]."""
    bits = 64 // each
    columns = np.zeros((vectors.shape[1], -(-len(vectors) // each) * each), np.uint64)
    columns[:, : len(vectors)] = (vectors & ((1 << bits) - 1 if each == 2 else 4095)).T
    columns = columns.reshape(len(columns), -1, each) << np.arange(0, 64, bits, dtype=np.uint64)
    return np.bitwise_or.reduce(columns, axis=2)


def _grouped(rows: Sequence[tuple[tuple, int]]) -> Iterator[list[int]]:
    """Items four by four, those of a group with one key."""
    group: list[int] = []
    last: tuple | None = None
    for key, item in rows:
        if len(group) == 4 or (group and key != last):
            yield group
            group = []
        group.append(item)
        last = key
    if group:
        yield group


# ---- instructions -------------------------------------------------------------------------------------------------


class Picker:
    """Emits what is picked, and keeps what GRF1 and T hold. `tables` are the constants made on the way."""

    def __init__(self, asm: Asm, held: Sequence[np.ndarray], lc: int, lb: int):
        self.asm, self.held, self.lc, self.lb = asm, held, lc, lb
        self.tables: dict[str, np.ndarray] = {}
        self._images: dict[bytes, tuple[str, Image]] = {}
        self._in_grf1 = ""
        self._in_t: tuple[int, ...] = ()  # columns

    def prepare(self) -> None:
        """Constants."""
        asm = self.asm
        for bits, word in BITS.items():
            asm.pe(f'imm ui"{bits}" $lr{word}')
        for word, value in ((HALF, "16"), (HIGH, "0xFFFF0000"), (LOW, "0x0000FFFF")):
            asm.pe(f'imm ui"{value}" $ls{word}')

    def constants(self) -> None:
        """Zero and the fill in LM0."""
        self.asm.pe(f"zero $lm{ZERO}")
        self.asm.pe(f"lpassa $ls{FILL_IN_GRF1} $lm{FILL}")

    def forget(self) -> None:
        """GRF1 and T hold something else."""
        self._in_grf1, self._in_t = "", ()

    def state(self) -> tuple[str, tuple[int, ...]]:
        return self._in_grf1, self._in_t

    def load(self, chosen: Picking) -> None:
        """The table into GRF1."""
        if not chosen.table.shape[1]:
            return
        symbol, image = self._image(chosen.table)
        if symbol == self._in_grf1:
            return
        part = Range.of(Tensor(image, symbol), 0, image.addresses)
        bulk_download(self.asm, part, m.GRF1, 0, self.lc, 4096 if image.lw_per_address < 512 else 8192, self.lb, 2048)
        self._in_grf1, self._in_t = symbol, ()

    def _image(self, table: np.ndarray) -> tuple[str, Image]:
        key = table.shape[1].to_bytes(4, "big") + table.tobytes()
        if key not in self._images:
            symbol = f"const{len(self.tables)}"
            image, self.tables[symbol] = table_image(table, self.held)
            self._images[key] = symbol, image
        return self._images[key]

    def pick(self, chosen: Picking, merge: bool) -> None:
        """Every place; `merge`: what is there already stays, and what is picked is or-ed to it."""
        for turn in chosen.turns:
            if chosen.kind == "half":
                self._two(chosen.each, turn, merge)
            else:
                self._one(chosen.each, turn, merge, 2 if chosen.kind == "whole" else 1)

    def _one(self, each: int, turn: Turn, merge: bool, width: int) -> None:
        letter = "l" if width == 2 else "i"
        found, out = self._found(each, turn.sources[0], width), vec(m.GRF0, turn.targets, width)
        self.asm.pe(f"{letter}or {out} {found} {out}" if merge else f"{letter}passa {found} {out}")

    def _two(self, each: int, turn: Turn, merge: bool) -> None:
        asm, out = self.asm, vec(m.GRF0, turn.targets, 1)
        self._half(each, turn.sources[0], (f"iand {{}} $ls{HIGH}", f"ilsl {{}} $ls{HALF}"), UP, f"$r{TEMP}v1")
        self._half(each, turn.sources[1], (f"uilsr {{}} $ls{HALF}", f"iand {{}} $ls{LOW}"), DOWN, "$nowrite")
        if merge:
            asm.pe(f"ior $r{TEMP}v1 $aluf $nowrite")
            asm.pe(f"ior {out} $aluf {out}")
        else:
            asm.pe(f"ior $r{TEMP}v1 $aluf {out}")

    def _half(self, each: int, source: Source, ends: tuple[str, str], toward: int, out: str) -> None:
        """A half at its end of a word; `ends`: how it comes there from the upper and the lower end."""
        found = self._found(each, source, 1)
        if source.end != EITHER:
            self.asm.pe(f"{ends[source.end].format(found)} {out}")
            return
        words = vec(m.GRF1, [c ^ 1 for c in source.columns], 1)
        self.asm.pe(f"uilsr {words} $lr{BITS[toward]} $nowrite")
        shift, mask = ("ilsl", HIGH) if toward == UP else ("uilsr", LOW)
        self.asm.pe(f"{shift} {found} $aluf $nowrite")
        self.asm.pe(f"iand $aluf $ls{mask} {out}")

    def _found(self, each: int, source: Source, width: int) -> str:
        """The operand of the places' words, T loaded."""
        if source.columns and source.columns != self._in_t:
            words = vec(m.GRF1, [2 * (c // each) for c in source.columns], 2)
            shift = source.columns[0] % each * (64 // each)
            self.asm.pe(f"ullsr {words} $lr{BITS[shift]} $lt" if shift else f"lpassa {words} $lt")
            self._in_t = source.columns
        a = [o % 4096 for o in source.offsets]
        a += [a[-1]] * (4 - len(a))
        body = str(a[0]) if len(set(a)) == 1 else "[" + ",".join(map(str, a)) + "]"
        return f"${'l' if width == 2 else ''}m{'t' if source.columns else ''}{body}"


def table_image(data: np.ndarray, held: Sequence[np.ndarray]) -> tuple[Image, np.ndarray]:
    """The image of a table, data[PE, long word] for the PEs at the positions `held` of each level (others may have anything),
    and its data in DRAM, uint64[4][n]. Levels over which it is the same are copies."""
    long = data.reshape(*map(len, held), -1)
    nearest = [np.minimum(np.searchsorted(h, np.arange(n)), len(h) - 1) for h, n in zip(held, (8, 8, 16, 4))]
    long = long.take(nearest[3], axis=3)
    axis, copies = [], []
    for dim, (level, n) in enumerate(((L2B, 8), (L1B, 8), (MAB, 16))):
        if (long == long.take([0], axis=dim)).all():
            long = long.take([0], axis=dim)
            copies.append(Sub(0, level))
        else:
            long = long.take(nearest[dim], axis=dim)
            axis.append(Sub(n, level))
    layout = Layout(((*axis, Sub(4, PE), Sub(long.shape[-1], ADDR), Sub(2, W)),), tuple(copies))
    image = Image(layout, "int", (2 * long.size,))
    return image, _packed(image, long)


def _packed(image: Image, long: np.ndarray) -> np.ndarray:
    """Long words [L2B, L1B, MAB, PE, address] as they lie in DRAM (`pipeline/ir/image.py`)."""
    l2bs, l1bs, mabs, _, count = long.shape
    pad = -count % image.granule
    if pad:
        long = np.concatenate([long, np.zeros((l2bs, l1bs, mabs, 4, pad), np.uint64)], axis=4)
    order: np.ndarray = long.transpose(0, 1, 4, 2, 3).reshape(l2bs, l1bs, -1)  # o = 64 a + 4 m + p, or 4 a + p
    if l1bs > 1:
        order = order.reshape(l2bs, l1bs, -1, 8).transpose(0, 2, 1, 3)
    order = order.reshape(l2bs, -1)
    return np.ascontiguousarray(np.broadcast_to(order, (4, order.shape[1])) if l2bs == 1 else order.reshape(4, -1))
