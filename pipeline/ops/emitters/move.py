"""The generic move: any elements of any tensors to any places, whatever the layouts.

Every place of the result takes an element of the sources (or is padding, or the fill). For a tile of LM addresses of the
result, what the PEs need is brought to LM0 (`pieces`), and each PE picks by T-indirect reads: long words where they stay
whole, else words. Where one offset per PE plus one per place gives the addresses of all, T is loaded once; else T comes from
a table with a word for each place. When a tile's pieces do not fit they come in passes, and what a pass does not hold is
picked from a zero and or-ed.

The pieces of the next pass are on their way from DRAM while one is picked, and results on their way back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import ADDR, L1B, L2B, MAB, PE, PER_LW, Layout, Sub, W
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.pieces import FILL, HALF, HIGH, LC_SIZE, ZERO, Pass, Pieces
from mlsdk.pipeline.ops.emitters.places import Finder, Holder, SourceOf, Wanted, wanted
from mlsdk.pipeline.ops.emitters.transfer import Range, Tensor, bulk_download, finish_upload, start_upload

LC_IN = (0, LC_SIZE)  # L2BM: pieces of two passes,
LC_OUT, LC_OUT_SIZE = 2 * LC_SIZE, 4096  # two parts of a result,
LC_TABLE, LC_TABLE_SIZE = LC_OUT + 2 * LC_OUT_SIZE, 8192  # and tables
LB, LB_OUT, LB_TABLE = 0, 2048, 6144
WORD = 508  # GRF0 word: constant 32
COLUMNS = 440  # words of a table in GRF1
TILES = (192, 128, 96, 64, 48, 32, 24, 16, 12, 8, 4, 2, 1)


def emit_move(
    sources: Sequence[Tensor], result: Tensor, source_of: SourceOf, clean: bool = False, fill: int = 0
) -> tuple[Asm, dict[str, np.ndarray]]:
    """Statements and the constants they need (symbol -> uint64[4][n]). `clean`: the result's padding becomes zero.
    `fill`: the bits of what stands where no source does."""
    return _Mover(sources, result, source_of, clean, fill).run()


@dataclass(frozen=True)
class Tile:
    """LM addresses [lo, hi) of the result. `whole`: picks are long words; `other`: the LM0 word of a place that takes none."""

    lo: int
    hi: int
    whole: bool
    passes: list[Pass]
    other: np.ndarray
    word: np.ndarray  # element of the long word that a place takes


class _Mover:
    def __init__(self, sources: Sequence[Tensor], result: Tensor, source_of: SourceOf, clean: bool, fill: int):
        if any(s.dtype != result.dtype for s in sources):
            raise EmitError(f"a move cannot change dtypes: {[s.dtype for s in sources]} to {result.dtype}")
        self.asm = Asm()
        self.constants: dict[str, np.ndarray] = {}
        self.tables: dict[tuple[int, bytes], tuple[str, Image]] = {}
        self.result, self.dtype, self.clean = result, result.dtype, clean
        self.source_of, self.fill = source_of, fill
        self.per = PER_LW[self.dtype]
        self.holder, self.finders = Holder(result.image), [Finder(s.image) for s in sources]
        self.pieces = {spread: Pieces(self.asm, sources, spread) for spread in (False, True)}
        self.in_t: np.ndarray | None = None  # the offset of each PE that T holds
        self.flying: list[list[int]] = []  # moves of results under way
        self.given = 0

    def run(self) -> tuple[Asm, dict[str, np.ndarray]]:
        asm = self.asm
        asm.pe(f'imm ui"32" $lr{WORD}')
        asm.pe(f'imm ui"16" $ls{HALF}')
        asm.pe(f'imm ui"0xFFFF0000" $ls{HIGH}')
        asm.pe(f"zero $lm{ZERO}")
        if self.fill:
            self._make_fill()
        work = [(tile, i) for tile in self._tiles() for i in range(len(tile.passes))]
        tags = self._start(work, 0)
        for number, (tile, i) in enumerate(work):
            waiting, tags = tags, self._start(work, number + 1)
            asm.wait(*waiting)
            self._pieces(tile).finish(tile.passes[i], LC_IN[number % 2], LB)
            merge = len(tile.passes) > 1
            if merge and not i:
                for word in range(0, 2 * (tile.hi - tile.lo), 8):
                    asm.pe(f"zero {vec(m.GRF0, list(range(word, word + 8, 2)), 2)}")
            self._pick(tile, tile.passes[i].address, not i, merge)
            if i == len(tile.passes) - 1:
                self._give(tile)
        self._settle()
        return asm, self.constants

    def _pieces(self, tile: Tile) -> Pieces:
        return self.pieces[self._spread(tile)]

    def _spread(self, tile: Tile) -> bool:
        return self.dtype == "half" and not tile.whole

    def _start(self, work: list[tuple[Tile, int]], number: int) -> list[int]:
        if number >= len(work):
            return []
        tile, i = work[number]
        return self._pieces(tile).start(tile.passes[i], LC_IN[number % 2])

    def _make_fill(self) -> None:
        """The fill in LM0: in the upper half of a word (half), in a word, or in a long word; for whole long words as often
        as they hold it."""
        if self.dtype == "double":
            self.asm.pe(f'imm ui"{self.fill >> 32}" $r0')
            self.asm.pe(f'imm ui"{self.fill & 0xFFFFFFFF}" $r1')
        else:
            self.asm.pe(f'imm ui"{self.fill << 16 | self.fill if self.dtype == "half" else self.fill}" $lr0')
        self.asm.pe(f"lpassa $lr0 $lm{FILL}")
        if self.dtype == "half":
            self.asm.pe(f'imm ui"{self.fill << 16}" $lr0')
            self.asm.pe(f"lpassa $lr0 $lm{FILL - 4}")

    # ---- tiles ------------------------------------------------------------------------------------------------

    def _tiles(self) -> list[Tile]:
        span, granule = self.result.image.addresses, self.result.image.granule
        size = self._tile_size(span, granule)
        return [self._tile(lo, min(lo + size, span)) for lo in range(0, span, size)]

    def _tile_size(self, span: int, granule: int) -> int:
        """The largest tile whose pieces fit at once (tried at both ends and in the middle); failing that, a middle one."""
        largest = 192 if self.dtype != "half" else 96
        for size in TILES:
            if (size % granule and size < span) or size > max(largest, granule):
                continue
            starts = sorted({0, span // 2 // size * size, (span - 1) // size * size})
            if all(len(self._tile(lo, min(lo + size, span)).passes) == 1 for lo in starts):
                return size
        return max(32, granule)

    def _tile(self, lo: int, hi: int) -> Tile:
        w = wanted(self.holder, self.finders, self.source_of, lo, hi)
        lw, low = np.divmod(w.place, self.per)
        word = self.per - 1 - low
        whole = self._whole(w, lw, word)
        if whole:
            here = w.source >= 0
            first = here.argmax(axis=-1)[..., None]
            source, lw = (np.take_along_axis(a, first, -1)[..., 0] for a in (w.source, lw))
            filled, empty = w.filled.any(axis=-1), w.empty.all(axis=-1)
            filled = filled & (source < 0)
            word = np.zeros((1,), np.int64)
        else:
            flat = (*lw.shape[:4], -1)
            source, lw, word = (np.broadcast_to(a, w.source.shape).reshape(flat) for a in (w.source, lw, word))
            filled, empty = w.filled.reshape(flat), w.empty.reshape(flat)
        other = np.full(source.shape, -1, np.int16)
        if self.clean:
            other[empty] = ZERO
        other[filled] = ZERO if not self.fill else FILL - 4 if self.dtype == "half" and not whole else FILL
        pieces = self.pieces[self.dtype == "half" and not whole]
        return Tile(lo, hi, whole, pieces.choose(pieces.number(source, lw)), other, word)

    def _whole(self, w: Wanted, lw: np.ndarray, word: np.ndarray) -> bool:
        """Whether every long word of the result is one of a source (or padding, or all fill)."""
        if self.per == 1:
            return True
        here = w.source >= 0
        some = here.any(axis=-1)
        if (w.filled.any(axis=-1) & some).any() or (self.clean and (w.empty.any(axis=-1) & some).any()):
            return False
        if self.clean and self.fill and (w.empty.any(axis=-1) & w.filled.any(axis=-1)).any():
            return False
        if (here & (word != np.arange(self.per))).any():
            return False
        code = np.where(here, lw * 128 + w.source, -1)
        return bool((~here | (code == code.max(axis=-1, keepdims=True))).all())

    # ---- results ----------------------------------------------------------------------------------------------

    def _give(self, tile: Tile) -> None:
        """A tile from GRF0 to DRAM; two parts of it may be under way."""
        part = Range.of(self.result, tile.lo, tile.hi)
        image = self.result.image
        most = max(image.granule, LC_OUT_SIZE // image.lw_per_address // image.granule * image.granule)
        if most > 8:
            most = most // 8 * 8 if not (most // 8 * 8) % image.granule else most
        per_lb = 64 if image.mab_spread else 4
        assert most * per_lb <= 4096 and most * image.lw_per_address <= LC_OUT_SIZE
        for lo in range(part.lo, part.hi, most):
            piece = Range(self.result, lo, min(lo + most, part.hi))
            if len(self.flying) == 2:
                self.asm.wait(*self.flying.pop(0))
            lc = LC_OUT + LC_OUT_SIZE * (self.given % 2)
            finish_upload(self.asm, piece, lc, LB_OUT, m.GRF0, 2 * (lo - part.lo))
            self.flying.append(start_upload(self.asm, piece, lc))
            self.given += 1

    def _settle(self) -> None:
        for tags in self.flying:
            self.asm.wait(*tags)

    # ---- LM0 -> result ----------------------------------------------------------------------------------------

    def _pick(self, tile: Tile, slot: np.ndarray, first: bool, merge: bool) -> None:
        """GRF0 of every PE from LM0. `merge`: a place that this pass does not hold stays as it is."""
        flat = slot.reshape(4096, -1)
        if self._spread(tile):  # first halves of the words of a long word, then second halves
            word = np.broadcast_to(tile.word, slot.shape).reshape(4096, -1)
            address = np.where(flat >= 0, 4 * flat + (word & 1) * 2 + (word >> 1), -1)
        else:
            address = np.where(flat >= 0, 2 * flat, -1)
            if not tile.whole:
                address += np.where(flat >= 0, np.broadcast_to(tile.word, slot.shape).reshape(4096, -1), 0)
        if first:
            other = tile.other.reshape(4096, -1)
            address = np.where(other >= 0, other, address)
        each = 2 if self._spread(tile) else 1  # addresses of a place of GRF0
        if merge:
            self._by_table(tile, address, each, True)
            return
        if (address < 0).all():
            return
        split = separate(address)
        if split is None:
            self._by_table(tile, address, each, False)
            return
        of_pe, of_place = split
        uniform = bool((of_pe == of_pe[0]).all())
        if not uniform:
            self._load_t(of_pe)
        offsets = (of_place + (of_pe[0] if uniform else 0)).reshape(-1, each)
        for at in range(0, len(offsets), 4):
            self._four(tile, at, offsets[at : at + 4], "" if uniform else "t")

    def _destination(self, tile: Tile, at: Sequence[int]) -> str:
        if tile.whole:
            return vec(m.GRF0, [2 * i for i in at], 2)
        return vec(m.GRF0, list(at), 1)

    def _four(self, tile: Tile, at: int, offsets: np.ndarray, t: str) -> None:
        asm = self.asm
        out = self._destination(tile, range(at, at + len(offsets)))
        wide = "l" if tile.whole else ""
        cols = [lm0(offsets[:, i].tolist(), wide, t) for i in range(offsets.shape[1])]
        if self._spread(tile):
            asm.pe(f"ipassa {cols[0]} $r504v1")
            asm.pe(f"uilsr {cols[1]} $ls{HALF} $nowrite")
            asm.pe(f"ior $r504v1 $aluf {out}")
        else:
            asm.pe(f"{'l' if tile.whole else 'i'}passa {cols[0]} {out}")

    def _by_table(self, tile: Tile, address: np.ndarray, each: int, merge: bool) -> None:
        """T from a table for every place; four places at a time whose columns stand in the same word of a long word."""
        places = address.shape[1] // each
        wanted_here = (address >= 0).any(axis=0).reshape(places, each).any(axis=1)
        touched = np.flatnonzero(wanted_here).tolist()
        address = np.where(address >= 0, address, ZERO)
        self.in_t = None
        most = COLUMNS // each
        for start in range(0, len(touched), most):
            lot = touched[start : start + most]
            columns = np.stack([address[:, each * i + k] for i in lot for k in range(each)], axis=1)
            symbol, image = self._table(columns)
            part = Range.of(Tensor(image, symbol), 0, image.addresses)
            bulk_download(
                self.asm, part, m.GRF1, 0, LC_TABLE, 4096 if image.lw_per_address < 512 else 8192, LB_TABLE, 2048
            )
            order = lot if each == 2 else lot[::2] + lot[1::2]
            column = {i: each * k for k, i in enumerate(lot)}
            groups = [lot[::2][a : a + 4] for a in range(0, len(lot[::2]), 4)] + [
                lot[1::2][a : a + 4] for a in range(0, len(lot[1::2]), 4)
            ]
            if each == 2:
                groups = [order[a : a + 4] for a in range(0, len(order), 4)]
            for group in groups:
                self._four_by_table(tile, group, [column[i] for i in group], merge)

    def _four_by_table(self, tile: Tile, at: list[int], columns: list[int], merge: bool) -> None:
        asm, out = self.asm, self._destination(tile, at)
        wide = "l" if tile.whole else ""
        found = f"${wide}mt0"
        self._t_of(columns)
        if self._spread(tile):
            asm.pe(f"ipassa {found} $r504v1")
            self._t_of([c + 1 for c in columns])
            asm.pe(f"uilsr {found} $ls{HALF} $nowrite")
            if merge:
                asm.pe("ior $r504v1 $aluf $nowrite")
                asm.pe(f"ior {out} $aluf {out}")
            else:
                asm.pe(f"ior $r504v1 $aluf {out}")
            return
        letter = "l" if tile.whole else "i"
        asm.pe(f"{letter}or {out} {found} {out}" if merge else f"{letter}passa {found} {out}")

    # ---- tables -----------------------------------------------------------------------------------------------

    def _table(self, data: np.ndarray) -> tuple[str, Image]:
        """The symbol and the image of a table of words, data[PE of the chip][column]."""
        key = data.shape[1], data.tobytes()
        if key not in self.tables:
            symbol = f"const{len(self.constants)}"
            image, bits = table_image(data)
            self.constants[symbol] = image.pack(bits)
            self.tables[key] = symbol, image
        return self.tables[key]

    def _load_t(self, of_pe: np.ndarray) -> None:
        """T from a table of one column."""
        if self.in_t is not None and np.array_equal(self.in_t, of_pe):
            return
        symbol, image = self._table(of_pe[:, None])
        part = Range.of(Tensor(image, symbol), 0, image.addresses)
        bulk_download(self.asm, part, m.GRF1, 0, LC_TABLE, LC_TABLE_SIZE, LB_TABLE, 2048)
        self.asm.pe("lpassa $ls0 $lt")
        self.in_t = of_pe

    def _t_of(self, columns: list[int]) -> None:
        """T of each cycle from a column of the table in GRF1; T takes its index from the low word of a long word. All
        columns are odd, or all even."""
        words = vec(m.GRF1, [c - c % 2 for c in columns], 2)
        if columns[0] % 2:
            self.asm.pe(f"lpassa {words} $lt")
        else:
            self.asm.pe(f"ullsr {words} $lr{WORD} $lt")


def table_image(data: np.ndarray) -> tuple[Image, np.ndarray]:
    """The image of a table of words, data[PE of the chip][column], and its words; levels over which it is the same are
    copies."""
    if data.shape[1] % 2:
        data = np.concatenate([data, data[:, -1:]], axis=1)
    words = (data % 4096).astype(np.uint32).reshape(8, 8, 16, 4, -1)
    axis, copies = [], []
    for dim, (level, n) in enumerate(((L2B, 8), (L1B, 8), (MAB, 16))):
        if (words == words.take([0], axis=dim)).all():
            words = words.take([0], axis=dim)
            copies.append(Sub(0, level))
        else:
            axis.append(Sub(n, level))
    addresses = words.shape[-1] // 2
    layout = Layout(((*axis, Sub(4, PE), Sub(addresses, ADDR), Sub(2, W)),), tuple(copies))
    return Image(layout, "int", (words.size,)), words.reshape(-1)


def lm0(offsets: list[int], width: str, t: str) -> str:
    """LM0 at an address of its own in each cycle, behind T or not."""
    a = [o % 4096 for o in offsets]
    a += [a[-1]] * (4 - len(a))
    body = str(a[0]) if len(set(a)) == 1 else "[" + ",".join(map(str, a)) + "]"
    return f"${width}m{t}{body}"


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
