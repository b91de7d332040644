"""The generic move: any elements of any tensors to any places, whatever the layouts.

Every word of the result takes one word of the sources (or is padding, or the fill). For a tile of LM addresses of the
result, what the PEs of an L1B need is brought to LM0 of all of them (`Pieces`), and each PE picks its words by T-indirect
reads. Where one offset per PE plus one per place gives the addresses of all words, T is loaded once; else T comes from a
table with a word for each word of the result. When a tile's pieces do not fit LM0 they come in passes, and what a pass does
not hold is picked from a zero and or-ed.

It is right for any two layouts; its cost grows with the number of pieces, not with the disorder inside them. Halves are
spread to one word each on the way into LM0 and put together again after the pick.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import ADDR, L1B, L2B, MAB, PE, PER_LW, Layout, Sub, W
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.pieces import FILL, HALF, HIGH, WORD, ZERO, Pieces
from mlsdk.pipeline.ops.emitters.transfer import (
    Range,
    Tensor,
    bulk_download,
    bulk_upload,
    finish_download,
    start_download,
)

LC_OTHER, LB_OTHER = 24576, 4096
TILES = (128, 64, 32, 16, 8, 4, 2, 1)

#: flat elements of the result -> (source number, flat element of that source; -1: the fill)
SourceOf = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def elements_of(image: Image) -> np.ndarray:
    """[L1B of the chip 0..63][PE of the L1B 0..63][LM address][element of the LW] -> the flat element there, or -1.

    Where the layout holds copies, those that an upload takes are filled."""
    layout, span, per = image.layout, image.addresses, PER_LW[image.dtype]
    unit = {L2B: 8 * 64 * span * per, L1B: 64 * span * per, MAB: 4 * span * per, PE: span * per, ADDR: per, W: 1}
    place = np.zeros((), np.int64)
    for axis, size in enumerate(image.shape):
        part = sum(layout.digits(axis, level)[:size] * n for level, n in unit.items())
        place = np.add.outer(place, part)
    flat = np.arange(place.size, dtype=np.int32).reshape(image.shape)
    copies = list(image.copy_terms())
    if not image.l2b_spread:
        copies.append(Sub(4, L2B, 2))  # each group uploads from its own L2B
    for term in copies:
        place = np.add.outer(place, np.arange(term.n) * term.stride * unit[term.level])
        flat = flat[..., None]
    element = np.full(64 * 64 * span * per, -1, np.int32)
    element[place] = flat
    return element.reshape(64, 64, span, per)


def emit_move(
    sources: list[Tensor], result: Tensor, source_of: SourceOf, clean: bool = False, fill: int = 0
) -> tuple[Asm, dict[str, np.ndarray]]:
    """Statements and the constants they need (symbol -> uint64[4][n]). `clean`: the result's padding becomes zero.
    `fill`: the bits of what stands where no source does."""
    return _Mover(sources, result, source_of, clean, fill).run()


class _Mover:
    def __init__(self, sources: list[Tensor], result: Tensor, source_of: SourceOf, clean: bool, fill: int):
        if any(s.dtype != result.dtype for s in sources):
            raise EmitError(f"a move cannot change dtypes: {[s.dtype for s in sources]} to {result.dtype}")
        self.asm = Asm()
        self.constants: dict[str, np.ndarray] = {}
        self.tables: dict[tuple[int, bytes], str] = {}
        self.result, self.dtype, self.clean = result, result.dtype, clean
        self.source_of, self.fill = source_of, fill
        self.elements = elements_of(result.image)
        self.pieces = Pieces(self.asm, sources, self.dtype)

    def run(self) -> tuple[Asm, dict[str, np.ndarray]]:
        asm = self.asm
        asm.pe(f'imm ui"32" $ls{WORD}')
        asm.pe(f'imm ui"16" $ls{HALF}')
        asm.pe(f'imm ui"0xFFFF0000" $ls{HIGH}')
        asm.pe(f"zero $lm{ZERO}")
        if self.fill:
            self._make_fill()
        span, granule = self.result.image.addresses, self.result.image.granule
        size = self._tile_size(span, granule)
        for lo in range(0, span, size):
            self._tile(lo, min(lo + size, span))
        return asm, self.constants

    def _make_fill(self) -> None:
        """The fill in LM0: in the upper half of a word (half), in a word, or in a long word."""
        if self.dtype == "double":
            self.asm.pe(f'imm ui"{self.fill >> 32}" $r0')
            self.asm.pe(f'imm ui"{self.fill & 0xFFFFFFFF}" $r1')
        else:
            self.asm.pe(f'imm ui"{self.fill << 16 if self.dtype == "half" else self.fill}" $lr0')
        self.asm.pe(f"lpassa $lr0 $lm{FILL}")

    # ---- tiles ------------------------------------------------------------------------------------------------

    def _wanted(self, lo: int, hi: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(number of the source, its element, LM0 word where none is wanted) for the places of a tile. -1: no source; no
        word where anything may stand."""
        element = self.elements[:, :, lo:hi]
        source, found = self.source_of(np.maximum(element, 0).astype(np.int64))
        here = (element >= 0) & (found >= 0)
        other = np.full(element.shape, ZERO if self.clean else -1)
        other[(element >= 0) & (found < 0)] = FILL if self.fill else ZERO
        other[here] = -1
        return np.where(here, source, -1), np.where(here, found, 0), other

    def _tile_size(self, span: int, granule: int) -> int:
        """The largest tile whose pieces fit LM0 at once (tried at both ends and in the middle); failing that, one of
        middle size in passes."""
        for size in TILES:
            if size % granule and size < span:
                continue
            starts = {0, span // 2 // size * size, (span - 1) // size * size}
            if all(self._fits(lo, min(lo + size, span)) for lo in starts):
                return size
        return max(64, granule)

    def _fits(self, lo: int, hi: int) -> bool:
        source, element, _ = self._wanted(lo, hi)
        return len(self.pieces.choose(source, element)) == 1

    def _tile(self, lo: int, hi: int) -> None:
        source, element, other = self._wanted(lo, hi)
        passes = self.pieces.choose(source, element)
        merge = len(passes) > 1
        if merge:
            for word in range(0, 2 * (hi - lo), 8):
                self.asm.pe(f"zero {vec(m.GRF0, list(range(word, word + 8, 2)), 2)}")
        for number, chosen in enumerate(passes):
            self.pieces.bring(chosen)
            address = chosen.address
            self._pick(np.where(other >= 0, other, address) if not number else address, merge)
        bulk_upload(self.asm, Range.of(self.result, lo, hi), m.GRF0, 0, LC_OTHER, 8192, LB_OTHER, 4096)

    # ---- LM0 -> result ----------------------------------------------------------------------------------------

    def _pick(self, address: np.ndarray, merge: bool) -> None:
        """GRF0 word (or LW) i of every PE from LM0 word address[.., i]; where it is -1, anything (`merge`: nothing)."""
        per = 2 if self.dtype == "half" else 1
        flat = address.reshape(64 * 64, -1, per)
        places = flat.shape[1]
        split = None if merge else _separate(flat.reshape(64 * 64, -1))
        if split is not None:
            of_pe, of_place = split
            self._load_t(self._table(of_pe[:, None]))
            offsets = of_place.reshape(places, -1)
            for at in range(0, places, 4):
                self._pick_four(at, min(4, places - at), offsets[at : at + 4])
            return
        touched = [at for at in range(0, places, 4) if (flat[:, at : at + 4] >= 0).any()]
        table = np.where(flat >= 0, flat, ZERO)
        columns = [table[:, at + i] for at in touched for i in range(min(4, places - at))]
        if not columns:
            return
        data = np.stack(columns, axis=1).reshape(64 * 64, -1)
        image = _table_image(data.shape[1])
        part = Range.of(Tensor(image, self._table(data)), 0, image.addresses)
        bulk_download(self.asm, part, m.LM1, 0, LC_OTHER, 8192, LB_OTHER, 4096)
        column = 0
        for at in touched:
            count = min(4, places - at)
            self._pick_four_by_table(at, count, column, per, merge)
            column += count * per

    def _destination(self, at: int, count: int) -> str:
        if self.dtype == "double":
            return vec(m.GRF0, [2 * (at + i) for i in range(count)], 2)
        return vec(m.GRF0, [at + i for i in range(count)], 1)

    def _pick_four(self, at: int, count: int, offsets: np.ndarray) -> None:
        asm, out = self.asm, self._destination(at, count)
        wide = self.dtype == "double"
        cols = [_indirect(offsets[:, i].tolist(), "l" if wide else "") for i in range(offsets.shape[1])]
        if self.dtype == "half":
            asm.pe(f"ipassa {cols[0]} $r504v1")
            asm.pe(f"uilsr {cols[1]} $ls{HALF} $nowrite")
            asm.pe(f"ior $r504v1 $aluf {out}")
        else:
            asm.pe(f"{'l' if wide else 'i'}passa {cols[0]} {out}")

    def _pick_four_by_table(self, at: int, count: int, column: int, per: int, merge: bool) -> None:
        asm, out = self.asm, self._destination(at, count)
        wide = "l" if self.dtype == "double" else ""
        found = f"${wide}mt0"
        self._load_t_columns([column + i * per for i in range(count)])
        if self.dtype == "half":
            asm.pe(f"ipassa {found} $r504v1")
            self._load_t_columns([column + i * per + 1 for i in range(count)])
            asm.pe(f"uilsr {found} $ls{HALF} $nowrite")
            if merge:
                asm.pe("ior $r504v1 $aluf $nowrite")
                asm.pe(f"ior {out} $aluf {out}")
            else:
                asm.pe(f"ior $r504v1 $aluf {out}")
            return
        letter = wide or "i"
        asm.pe(f"{letter}or {out} {found} {out}" if merge else f"{letter}passa {found} {out}")

    # ---- tables -----------------------------------------------------------------------------------------------

    def _table(self, data: np.ndarray) -> str:
        """The symbol of a table of words, data[PE of the chip][column], as it lies in DRAM."""
        key = data.shape[1], data.tobytes()
        if key not in self.tables:
            self.tables[key] = f"const{len(self.constants)}"
            self.constants[self.tables[key]] = _table_image(data.shape[1]).pack(_table_bits(data))
        return self.tables[key]

    def _load_t(self, symbol: str) -> None:
        """T from a table of one column."""
        image = _table_image(1)
        part = Range.of(Tensor(image, symbol), 0, image.addresses)
        self.asm.wait(*start_download(self.asm, part, LC_OTHER))
        finish_download(self.asm, part, LC_OTHER, LB_OTHER, m.LM1, 0)
        self._load_t_columns([0] * 4)

    def _load_t_columns(self, columns: list[int]) -> None:
        """T of each cycle from a column of the table in LM1: T takes its index from the low word of a long word."""
        columns = columns + [columns[-1]] * (4 - len(columns))
        words = vec(m.LM1, [c - c % 2 for c in columns], 2)
        odd = "".join("01"[c % 2] for c in columns)
        even = "".join("10"[c % 2] for c in columns)
        if "1" in even:
            self.asm.pe(f"ullsr {words} $ls{WORD} $lt{'/' + even if '1' in odd else ''}")
        if "1" in odd:
            self.asm.pe(f"lpassa {words} $lt{'/' + odd if '1' in even else ''}")


def _table_image(columns: int) -> Image:
    addresses = -(-columns // 2)
    layout = Layout(((Sub(8, L2B), Sub(8, L1B), Sub(16, MAB), Sub(4, PE), Sub(addresses, ADDR), Sub(2, W)),))
    return Image(layout, "int", (4096 * addresses * 2,))


def _table_bits(data: np.ndarray) -> np.ndarray:
    if data.shape[1] % 2:
        data = np.concatenate([data, data[:, -1:]], axis=1)
    return (data % 4096).astype(np.uint32).reshape(-1)


def _indirect(offsets: list[int], width: str) -> str:
    a = [o % 4096 for o in offsets]
    a += [a[-1]] * (4 - len(a))
    if len(set(a)) == 1:
        return f"${width}mt{a[0]}"
    return f"${width}mt[" + ",".join(map(str, a)) + "]"


def _separate(address: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
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
