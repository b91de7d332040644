"""The generic move: any elements of any tensors to any places, whatever the layouts.

Every word of the result takes one word of the sources (or is padding, or a fill of zero). For a tile of LM addresses of the
result:

1. Which *lines* (64 LW of a source's image) does each L1B need for its 64 PEs? The r-th line of every L1B is brought in
   round r: DRAM -> L2BM (in all groups at once where each reads its own DRAM at one address, else by broadcast, else one by
   one), then L2BM -> L1BM (`l2bmb@b`, or to all L1Bs when they need the same line).
2. L1BM -> LM0 of every PE (`l1bmp`), as far as some PE needs it.
3. Each PE picks its words by T-indirect reads. Where one offset per PE plus one per place gives the addresses of all words,
   T is loaded once; else T comes from a table with a word for each word of the result. When a tile's lines do not fit LM0
   they come in passes, and what a pass does not hold is picked from a zero and or-ed.

It is right for any two layouts; its cost grows with the number of lines, not with the disorder inside them. Halves are
spread to one word each on the way into LM0 and put together again after the pick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import ADDR, L1B, L2B, MAB, PE, PER_LW, Layout, Sub, W
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.transfer import Range, Tensor, bulk_upload, finish_download, pipeline, start_download

LINE = 64  # LW
ZERO = 4092  # LM0 word that holds zero
WORD, HALF, HIGH = 506, 508, 510  # GRF1 words: constants 32, 16, 0xFFFF0000
LC_LINES, LC_OTHER = 0, 24576
LB_LINES, LB_OTHER = 0, 4096
TILES = (128, 64, 32, 16, 8, 4, 2, 1)

#: flat elements of the result -> (source number, flat element of that source; -1: zero)
SourceOf = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Words:
    """The places of a tensor's words: arrays over [L1B of the chip 0..63][PE of the L1B 0..63][LM address][element of the
    LW], the flat element that lies there or -1."""

    element: np.ndarray

    @classmethod
    def of(cls, image: Image) -> Words:
        layout, span, per = image.layout, image.addresses, PER_LW[image.dtype]
        unit = {L2B: 8 * 64 * span * per, L1B: 64 * span * per, MAB: 4 * span * per, PE: span * per, ADDR: per, W: 1}
        place = np.zeros((), np.int64)
        for axis, size in enumerate(image.shape):
            part = sum(layout.digits(axis, level)[:size] * n for level, n in unit.items())
            place = np.add.outer(place, part)
        flat = np.arange(int(np.prod(image.shape))).reshape(image.shape)
        copies = list(image.copy_terms())
        if not image.l2b_spread:
            copies.append(Sub(4, L2B, 2))  # each group uploads from its own L2B
        for term in copies:
            place = np.add.outer(place, np.arange(term.n) * term.stride * unit[term.level])
            flat = flat[..., None]
        element = np.full(64 * 64 * span * per, -1, np.int64)
        element[place] = flat
        return cls(element.reshape(64, 64, span, per))


@dataclass(frozen=True)
class Places:
    """Where each element of a tensor lies in DRAM: line number (group * lines + line), and the element's place in it."""

    line: np.ndarray
    inside: np.ndarray  # element of the line, most significant first
    lines: int  # of a group
    everywhere: bool  # each group has its own copy
    symbol: str

    @classmethod
    def of(cls, tensor: Tensor) -> Places:
        image = tensor.image
        per = PER_LW[image.dtype]
        index = image.element_index().reshape(-1)
        lw, low = np.divmod(index, per)
        group, lw = np.divmod(lw, image.group_size)
        lines = -(-image.group_size // LINE)
        return cls(
            group * lines + lw // LINE, lw % LINE * per + (per - 1 - low), lines, not image.l2b_spread, tensor.symbol
        )


def emit_move(
    sources: list[Tensor], result: Tensor, source_of: SourceOf, clean: bool = False
) -> tuple[Asm, dict[str, np.ndarray]]:
    """Statements and the constants they need (symbol -> uint64[4][n]). `clean`: the result's padding becomes zero."""
    return _Mover(sources, result, source_of, clean).run()


class _Mover:
    def __init__(self, sources: list[Tensor], result: Tensor, source_of: SourceOf, clean: bool):
        if any(s.dtype != result.dtype for s in sources):
            raise EmitError(f"a move cannot change dtypes: {[s.dtype for s in sources]} to {result.dtype}")
        self.asm = Asm()
        self.constants: dict[str, np.ndarray] = {}
        self.tables: dict[tuple[int, bytes], str] = {}
        self.result, self.dtype = result, result.dtype
        self.places = [Places.of(s) for s in sources]
        self.base = np.cumsum([0] + [4 * p.lines for p in self.places])
        words = Words.of(result.image).element
        source, element = source_of(np.maximum(words, 0))
        wanted = (words >= 0) & (element >= 0)
        self.line = np.full(words.shape, -1, np.int64)
        self.inside = np.zeros(words.shape, np.int64)
        for number, place in enumerate(self.places):
            here = wanted & (source == number)
            self.line[here] = place.line[element[here]] + self.base[number]
            self.inside[here] = place.inside[element[here]]
        self.fill = ~wanted if clean else (words >= 0) & (element < 0)

    # ---- tiles ------------------------------------------------------------------------------------------------

    @property
    def line_words(self) -> int:
        """Words of LM0 that a line takes."""
        return 2 * LINE * (2 if self.dtype == "half" else 1)

    @property
    def most_lines(self) -> int:
        return (ZERO - 4) // self.line_words

    def run(self) -> tuple[Asm, dict[str, np.ndarray]]:
        asm = self.asm
        asm.pe(f'imm ui"32" $ls{WORD}')
        asm.pe(f'imm ui"16" $ls{HALF}')
        asm.pe(f'imm ui"0xFFFF0000" $ls{HIGH}')
        asm.pe(f"zero $lm{ZERO}")
        span, granule = self.result.image.addresses, self.result.image.granule
        size = self._tile_size(span, granule)
        for lo in range(0, span, size):
            self._tile(lo, min(lo + size, span))
        return asm, self.constants

    def _tile_size(self, span: int, granule: int) -> int:
        """The largest tile whose lines fit LM0 at once; failing that, one of middle size in passes."""
        for size in TILES:
            if size % granule and size < span:
                continue
            rounds = max(self._rounds(lo, min(lo + size, span)) for lo in range(0, span, size))
            if rounds <= self.most_lines:
                return size
        return max(64, granule)

    def _rounds(self, lo: int, hi: int) -> int:
        part = self.line[:, :, lo:hi].reshape(64, -1)
        return max((len(np.unique(row[row >= 0])) for row in part), default=0)

    def _tile(self, lo: int, hi: int) -> None:
        line, inside = self.line[:, :, lo:hi], self.inside[:, :, lo:hi]
        lists = [np.unique(row[row >= 0]) for row in line.reshape(64, -1)]
        rounds = max(len(x) for x in lists)
        part = Range.of(self.result, lo, hi)
        passes = max(1, -(-rounds // self.most_lines))
        if passes > 1 or self.fill[:, :, lo:hi].any():
            for word in range(0, 2 * (hi - lo), 8):
                self.asm.pe(f"zero {vec(m.GRF0, list(range(word, word + 8, 2)), 2)}")
        for number in range(passes):
            first = number * self.most_lines
            chosen = [x[first : first + self.most_lines] for x in lists]
            self._bring(chosen, line, inside)
            address = np.full(line.shape, -1, np.int64)
            for xb, mine in enumerate(chosen):
                if len(mine):
                    rank = np.searchsorted(mine, line[xb])
                    rank = np.minimum(rank, len(mine) - 1)
                    hit = mine[rank] == line[xb]
                    address[xb][hit] = rank[hit] * self.line_words + self._word(inside[xb][hit])
            self._pick(address, merge=passes > 1 or bool(self.fill[:, :, lo:hi].any()))
        bulk_upload(self.asm, part, m.GRF0, 0, LC_OTHER, 8192, LB_OTHER, 4096)

    def _word(self, inside: np.ndarray) -> np.ndarray:
        """LM0 word, from the line's first on, of an element of the line."""
        if self.dtype == "half":  # LW j is spread over words 4 j ..: first halves of its words, then second halves
            return inside // 4 * 4 + inside % 2 * 2 + inside // 2 % 2
        return inside * (2 if self.dtype == "double" else 1)

    # ---- DRAM -> LM0 ------------------------------------------------------------------------------------------

    def _bring(self, lists: list[np.ndarray], line: np.ndarray, inside: np.ndarray) -> None:
        """Round r of every L1B's list into LM0 line r."""
        asm = self.asm
        rounds = max(len(x) for x in lists)
        need = np.full((8, 8, rounds), -1, np.int64)
        for xb, mine in enumerate(lists):
            need[xb // 8, xb % 8, : len(mine)] = mine
        slots: list[tuple[int, int | None, np.ndarray]] = []  # (round, L1B or all, line of each L2B)
        for r in range(rounds):
            column = need[:, :, r]
            best = column.max(axis=1)
            if ((column == best[:, None]) | (column < 0)).all():
                slots.append((r, None, best))
            else:
                slots += [(r, b, column[:, b]) for b in range(8) if (column[:, b] >= 0).any()]
        asm.wait(*self._moves([lines for _, _, lines in slots]))
        used = self._used_groups(lists, line, inside, rounds)
        first = []
        done: dict[int, int] = {}
        for index, (r, b, _) in enumerate(slots):
            at = "" if b is None else f"@{b}"
            first.append(f"l2bmb{at} $lc{LC_LINES + LINE * index} $lb{LB_LINES + LINE * r}")
            done[r] = index + 1
        if self.dtype == "half":
            for text in first:
                asm.pe(text)
            for r in range(rounds):
                for j in used[r]:
                    asm.pe(f"l1bmp $lb{LB_LINES + LINE * r + 4 * j} $nowrite")
                    word = r * self.line_words + 16 * j
                    asm.pe(f"iand $lbf $ls{HIGH} {vec(m.LM0, [word + 4 * c for c in range(4)], 2)}")
                    asm.pe(f"ilsl $lbf $ls{HALF} {vec(m.LM0, [word + 4 * c + 2 for c in range(4)], 2)}")
            return
        second = []
        for r in range(rounds):
            for j in used[r]:
                word = r * self.line_words + 8 * j
                second.append((f"l1bmp $lb{LB_LINES + LINE * r + 4 * j} $lm{word}v", done[r]))
        pipeline(asm, first, second, distance=2)

    def _used_groups(
        self, lists: list[np.ndarray], line: np.ndarray, inside: np.ndarray, rounds: int
    ) -> list[list[int]]:
        """For each round, the groups of four LW of the line in which any PE of any L1B finds something."""
        used = np.zeros((rounds, LINE // 4), bool)
        per = PER_LW[self.dtype]
        for xb, mine in enumerate(lists):
            if not len(mine):
                continue
            rank = np.minimum(np.searchsorted(mine, line[xb]), len(mine) - 1)
            hit = mine[rank] == line[xb]
            used[rank[hit], inside[xb][hit] // per // 4] = True
        return [np.flatnonzero(row).tolist() for row in used]

    def _moves(self, slots: list[np.ndarray]) -> list[int]:
        """Fill the L2BM slots; neighbours that continue each other become one move."""
        runs: list[list] = []  # [kind, key, dram address, slot, count, symbol]
        for slot, lines in enumerate(slots):
            for kind, key, address, symbol in self._fills(lines):
                last = next((r for r in reversed(runs) if r[0] == kind and r[1] == key and r[5] == symbol), None)
                if last and last[3] + last[4] == slot and last[2] + LINE * last[4] == address:
                    last[4] += 1
                else:
                    runs.append([kind, key, address, slot, 1, symbol])
        tags: list[int] = []
        for kind, key, address, slot, count, symbol in runs:
            size, lc = LINE * count, LC_LINES + LINE * slot
            group = key[0] if kind in ("mvb", "one") else None
            src = m.Operand(m.DRAM, address, m.LW, group=group, symbol=symbol)
            if kind == "one":
                dst = m.Operand(m.L2BM, lc, m.LW, group=key[1] >> 1, block=key[1] & 1)
            elif kind == "half":
                dst = m.Operand(m.L2BM, lc, m.LW, block=key[0])
            else:
                dst = m.Operand(m.L2BM, lc, m.LW)
            mnemonic = {"mvb": "mvb", "mvb2": "mvb2"}.get(kind, "mvp")
            if len(tags) >= 48:
                self.asm.wait(tags.pop(0))
            tags.append(self.asm.move(mnemonic, src, dst, size))
        return tags

    def _fills(self, lines: np.ndarray) -> Iterator[tuple[str, tuple, int, str]]:
        """Moves that bring lines[X] into one slot of each L2B X: (kind, key, DRAM address, symbol)."""
        where = {}
        for x, number in enumerate(lines.tolist()):
            if number >= 0:
                source = int(np.searchsorted(self.base, number, side="right")) - 1
                group, line = divmod(number - int(self.base[source]), self.places[source].lines)
                place = self.places[source]
                where[x] = (x >> 1 if place.everywhere else group, line * LINE, place.symbol, place.everywhere)
        if not where:
            return
        addresses = {(a, s) for _, a, s, _ in where.values()}
        own = all(group == x >> 1 for x, (group, *_) in where.items())
        if own and len(addresses) == 1 and len(where) > 1:
            ((address, symbol),) = addresses
            yield "mvb2", (), address, symbol
            return
        if own:
            for half in (0, 1):
                mine = {(a, s) for x, (_, a, s, _) in where.items() if x & 1 == half}
                if len(mine) == 1:
                    ((address, symbol),) = mine
                    yield "half", (half,), address, symbol
                else:
                    for x, (group, address, symbol, _) in where.items():
                        if x & 1 == half:
                            yield "one", (group, x), address, symbol
            return
        if len({(group, a, s) for group, a, s, _ in where.values()}) == 1 and len(where) > 1:
            group, address, symbol, _ = next(iter(where.values()))
            yield "mvb", (group,), address, symbol
            return
        for x, (group, address, symbol, _) in where.items():
            yield "one", (group, x), address, symbol

    # ---- LM0 -> result ----------------------------------------------------------------------------------------

    def _pick(self, address: np.ndarray, merge: bool) -> None:
        """GRF0 word (or LW) i of every PE from LM0 word address[.., i]; where it is -1, anything (`merge`: nothing)."""
        per = 2 if self.dtype == "half" else 1
        flat = address.reshape(64 * 64, -1, per)
        places = flat.shape[1]
        split = None if merge else _separate(flat.reshape(64 * 64, -1))
        if split is not None:
            of_pe, of_place = split
            self._load_t(self._table(of_pe[:, None]), 0, 1)
            offsets = of_place.reshape(places, -1)
            for at in range(0, places, 4):
                self._pick_four(at, min(4, places - at), offsets[at : at + 4], merge=False)
            return
        touched = [at for at in range(0, places, 4) if (flat[:, at : at + 4] >= 0).any()]
        table = np.where(flat >= 0, flat, ZERO)
        columns = [table[:, at + i] for at in touched for i in range(min(4, places - at))]
        if not columns:
            return
        data = np.stack(columns, axis=1).reshape(64 * 64, -1)
        symbol = self._table(data)
        self._load_table(symbol, data.shape[1])
        column = 0
        for at in touched:
            count = min(4, places - at)
            self._pick_four_by_table(at, count, column, per, merge)
            column += count * per

    def _destination(self, at: int, count: int) -> str:
        if self.dtype == "double":
            return vec(m.GRF0, [2 * (at + i) for i in range(count)], 2)
        return vec(m.GRF0, [at + i for i in range(count)], 1)

    def _pick_four(self, at: int, count: int, offsets: np.ndarray, merge: bool) -> None:
        asm, out = self.asm, self._destination(at, count)
        cols = [
            _indirect(offsets[:, i].tolist(), "l" if self.dtype == "double" else "") for i in range(offsets.shape[1])
        ]
        if self.dtype == "half":
            asm.pe(f"ipassa {cols[0]} $r504v1")
            asm.pe(f"uilsr {cols[1]} $ls{HALF} $nowrite")
            asm.pe(f"ior $r504v1 $aluf {out}")
        else:
            asm.pe(f"{'lpassa' if self.dtype == 'double' else 'ipassa'} {cols[0]} {out}")

    def _pick_four_by_table(self, at: int, count: int, column: int, per: int, merge: bool) -> None:
        asm, out = self.asm, self._destination(at, count)
        zero = _indirect([0] * 4, "l" if self.dtype == "double" else "")
        self._load_t_columns([column + i * per for i in range(count)])
        if self.dtype == "half":
            asm.pe(f"ipassa {zero} $r504v1")
            self._load_t_columns([column + i * per + 1 for i in range(count)])
            asm.pe(f"uilsr {zero} $ls{HALF} $nowrite")
            if merge:
                asm.pe("ior $r504v1 $aluf $nowrite")
                asm.pe(f"ior {out} $aluf {out}")
            else:
                asm.pe(f"ior $r504v1 $aluf {out}")
            return
        wide = "l" if self.dtype == "double" else "i"
        asm.pe(f"{wide}or {out} {zero} {out}" if merge else f"{wide}passa {zero} {out}")

    # ---- tables -----------------------------------------------------------------------------------------------

    def _table(self, data: np.ndarray) -> str:
        """The symbol of a table of words, data[PE of the chip][column], as it lies in DRAM."""
        key = data.tobytes()
        symbol = self.tables.get((data.shape[1], key))
        if symbol is None:
            symbol = f"const{len(self.constants)}"
            self.tables[data.shape[1], key] = symbol
            self.constants[symbol] = _table_image(data.shape[1]).pack(_table_bits(data))
        return symbol

    def _load_table(self, symbol: str, columns: int) -> None:
        """A table into LM1: column j in word j."""
        image = _table_image(columns)
        part = Range.of(Tensor(image, symbol), 0, image.addresses)
        from mlsdk.pipeline.ops.emitters.transfer import bulk_download

        bulk_download(self.asm, part, m.LM1, 0, LC_OTHER, 8192, LB_OTHER, 4096)

    def _load_t(self, symbol: str, column: int, columns: int) -> None:
        image = _table_image(columns)
        part = Range.of(Tensor(image, symbol), 0, image.addresses)
        self.asm.wait(*start_download(self.asm, part, LC_OTHER))
        finish_download(self.asm, part, LC_OTHER, LB_OTHER, m.LM1, 0)
        self._load_t_columns([column] * 4)

    def _load_t_columns(self, columns: list[int]) -> None:
        """T of each cycle from a column of the table in LM1: T takes its index from the low word of a long word."""
        columns = columns + [columns[-1]] * (4 - len(columns))
        even = [c - c % 2 for c in columns]
        if all(c % 2 for c in columns):
            self.asm.pe(f"lpassa {vec(m.LM1, even, 2)} $lt")
        elif not any(c % 2 for c in columns):
            self.asm.pe(f"ullsr {vec(m.LM1, even, 2)} $ls{WORD} $lt")
        else:
            self.asm.pe(f"ullsr {vec(m.LM1, even, 2)} $ls{WORD} $lt/{''.join('01'[c % 2 == 0] for c in columns)}")
            self.asm.pe(f"lpassa {vec(m.LM1, even, 2)} $lt/{''.join('01'[c % 2] for c in columns)}")


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
