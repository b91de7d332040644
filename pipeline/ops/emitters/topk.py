"""The k largest (or smallest) elements along an axis on the lanes, one after another.

Each element becomes a key, a long word whose order as a signed integer is the order wanted: the number's bits in an order of
integers, and below them the inverted index, so that of equal numbers the first wins and no two keys are equal. A round finds
the largest key of a row (over the units, the four elements of a quad, the PEs of the MAB), keeps it, and overwrites it with
the lowest value of all. Doubles fill the key themselves: a round finds the largest, then the first place that holds it.
"""

from __future__ import annotations

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.scheme import BLOCK, LOCAL
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.gather import at_t
from mlsdk.pipeline.ops.emitters.indices import SCRATCH, Constants
from mlsdk.pipeline.ops.emitters.rows import download_units, units_room
from mlsdk.pipeline.ops.emitters.transfer import Range, bulk_upload

LC, LB = 0, 0
KEYS = 1980  # long words of LM0 for keys: four for each block of 16
RAW = 1000  # long words of LM1 for elements as they are, from its first word on
VALUES, INDEXES, FOUND, PLACES = (
    0,
    1024,
    2048,
    3072,
)  # words of LM1: results (where elements were), winners and their places
RESULTS = 288  # long words that each of these may hold
LOWEST, TOP = 1 << 63, 0x7FFFFFFF
LANES, OWN = (
    SCRATCH - 10,
    SCRATCH - 2,
)  # words of GRF0: long words 4 p + e for the elements of a quad; 4 p in a low word


def emit_topk(call: Call) -> tuple[Asm, dict[str, np.ndarray]]:
    return TopK(call).run()


class TopK:
    """Attributes of the node: `axis`, `k`, `largest`. Results: values (without lanes) and their indices."""

    def __init__(self, call: Call):
        attrs, x = call.node.attrs, call.inputs[0]
        assert x is not None and x.scheme is not None
        self.name, self.x = call.node.name, x
        self.values, self.indexes = call.outputs
        axis = int(attrs["axis"])  # type: ignore[arg-type]
        self.n, self.k, self.largest = x.shape[axis], int(attrs["k"]), bool(attrs["largest"])  # type: ignore[arg-type]
        assert x.scheme.lane == axis
        self.span = int(np.prod([d.n for d in x.scheme.axes[axis] if d.level == LOCAL]))  # units of a row
        self.blocks = -(-self.n // BLOCK)
        scheme = self.values.scheme
        assert scheme is not None
        digits = [d for d in scheme.axes[axis] if d.level == LOCAL and d.n > 1]
        self.each = digits[0].n if digits else 1  # results of a row, with padding
        self.lw = x.scheme.unit_lw(x.dtype)
        self.double = x.dtype == "double"
        self.asm = Asm()
        self.c = Constants(self.asm)

    def run(self) -> tuple[Asm, dict[str, np.ndarray]]:
        assert self.x.scheme is not None
        if self.blocks * 4 > KEYS or self.blocks * self.lw > RAW:
            raise EmitError(f"{self.name}: {self.n} elements of a row do not fit LM; cut the axis")
        self._constants()
        rows = self.x.scheme.units // self.span
        size = max(1, min(4, KEYS // (4 * self.blocks), RAW // (self.span * self.lw)))
        grain = max(self.values.image.granule, self.indexes.image.granule)
        if rows > 1 and self.each % grain:
            raise EmitError(f"{self.name}: rows of results do not end on granules; choose another layout")
        for first in range(0, rows, size):
            self._lot(list(range(first, min(first + size, rows))))
        return self.asm, {}

    def _constants(self) -> None:
        asm, c = self.asm, self.c
        c.ready(2, 1)
        asm.pe(f"ilsl $subpeid {c(2)} $lr{LANES}")
        for e in range(1, 4):
            asm.pe(f"iadd $lr{LANES + 2 * e - 2} {c(1)} $lr{LANES + 2 * e}")
        two = c.wide(2)
        asm.pe(f"llsl $subpeid {two} $lr{OWN}")

    # ---- a lot of rows ----------------------------------------------------------------------------------------

    def _lot(self, rows: list[int]) -> None:
        asm = self.asm
        units = np.concatenate([np.arange(r * self.span, r * self.span + self.blocks) for r in rows])
        if units_room(self.x, units) > RAW + 24:
            raise EmitError(f"{self.name}: rows lie too far apart for LM; choose another layout")
        found = download_units(asm, self.x, units, m.LM1, 0, LC, LB)
        for number, r in enumerate(rows):
            for block in range(self.blocks):
                self._keys(found[r * self.span + block], self._key(number, block), block)
        at = 0
        most = RESULTS // len(rows) // 16 * 16
        while at < self.k:
            count = min(most, self.k - at)
            self._rounds(len(rows), count)
            self._results(rows, at, count)
            at += count

    def _key(self, number: int, block: int) -> int:
        """The word of LM0 where the four keys of a quad start."""
        return 8 * (number * self.blocks + block)

    def _keys(self, source: int, target: int, block: int) -> None:
        """The keys of a quad, an element each cycle."""
        asm, c, wide = self.asm, self.c, self.double
        c.ready(31, TOP, -16 * block - 1, self.n - 16 * block)
        shift, top, lowest = c.wide(63), c.wide((1 << 63) - 1), c.wide(LOWEST)
        letter = "i"
        if wide:
            letter = "l"
        else:
            shift, top = c(31), c(TOP)
        width = 2 if wide else 1
        x = vec(m.LM1, [source + width * e for e in range(4)], width)
        full = vec(m.LM0, [target + 2 * e for e in range(4)], 2)
        number = full if wide else vec(m.LM0, [target + 2 * e for e in range(4)], 1)
        ordered = number if self.largest else "$nowrite"
        if not wide:
            lanes = vec(m.GRF0, [LANES + 2 * e for e in range(4)], 1)
            low = vec(m.LM0, [target + 2 * e + 1 for e in range(4)], 1)
            asm.pe(f"isub {c(-16 * block - 1)} {lanes} {low}")  # ~(16 block + lane)
        if self.x.dtype == "int":
            asm.pe(f"ipassa {x} {ordered}")
        else:
            asm.pe(f"{'d' if wide else 'f'}vpassa {x} $nowrite")
            asm.pe(f"{letter}lsr $mauf {shift} $nowrite")
            asm.pe(f"{letter}and $aluf {top} $nowrite")
            asm.pe(f"{letter}xor $aluf $mauf {ordered}")
        if not self.largest:
            asm.pe(f"{letter}not $aluf {number}")
        if 16 * (block + 1) > self.n:
            lanes = vec(m.GRF0, [LANES + 2 * e for e in range(4)], 2)
            asm.pe(f"isub {lanes} {c(self.n - 16 * block)} $omr1")  # 1 where the lane is outside
            asm.pe(f"lpassa {lowest} {full}/$imr1")

    # ---- rounds -----------------------------------------------------------------------------------------------

    def _rounds(self, rows: int, count: int) -> None:
        asm = self.asm
        self.c.ready(4, 3, 1)
        for value in (LOWEST, 12):
            self.c.wide(value)
        depth = asm.depth
        with asm.loop(count):
            self._round(rows, (0,) * depth + (2 * rows,))

    def _round(self, rows: int, stride: tuple[int, ...]) -> None:
        """The winners of all rows of the lot (a row each cycle) to FOUND, and away with them."""
        asm, c = self.asm, self.c
        s = SCRATCH
        best, other = f"$lr{s + 32}v", f"$lr{s + 40}v"
        for r in range(rows):
            for block in range(self.blocks):
                key = vec(m.LM0, [self._key(r, block) + 2 * e for e in range(4)], 2)
                target = (
                    vec(m.GRF0, [s + 8 * r + 2 * e for e in range(4)], 2) if block == self.blocks - 1 else "$nowrite"
                )
                asm.pe(f"lpassa {key} {target}" if not block else f"lmax $aluf {key} {target}")
        for e in range(4):
            column = vec(m.GRF0, [s + 8 * r + 2 * e for r in range(rows)], 2)
            asm.pe(f"lpassa {column} $nowrite" if not e else f"lmax $aluf {column} {best if e == 3 else '$nowrite'}")
        self._over_lanes("lmax", best, other)
        f = f"$lr{s + 48}v"  # the index, in the low word
        kept = vec(m.LM1, [FOUND + 2 * r for r in range(rows)], 2)
        asm.pe(f"lpassa {best} {kept}", (0, 1, stride))
        if self.double:
            self._first_place(rows, f, other)
            asm.pe(f"lpassa {f} {vec(m.LM1, [PLACES + 2 * r for r in range(rows)], 2)}", (0, 1, stride))
        else:
            asm.pe(f"inot {best} {f}")
        asm.pe(f"ilsr {f} {c(4)} $nowrite")
        asm.pe(f"ilsl $aluf {c(3)} $lr{s}v")
        asm.pe(f"iand {f} {c(3)} $nowrite")
        asm.pe(f"ilsl $aluf {c(1)} $nowrite")
        asm.pe(f"ior $aluf $lr{s}v $lt")
        asm.pe(f"land {f} {c.wide(12)} $nowrite")
        asm.pe(f"lxor $aluf $lr{OWN} $omr1")
        asm.pe(f"lpassa {c.wide(LOWEST)} {at_t([self._key(r, 0) for r in range(rows)], 'l')}/$imr1")

    def _over_lanes(self, op: str, best: str, other: str) -> None:
        """best = op over the PEs of the MAB."""
        asm = self.asm
        asm.pe(f"msr {best} $nowrite")
        asm.pe(f"{op} $aluf {best} {other}")
        asm.pe("msr $aluf $nowrite")
        asm.pe("msr $aluf $nowrite")
        asm.pe(f"{op} $aluf {other} {best}")

    def _first_place(self, rows: int, f: str, other: str) -> None:
        """f = the index of the first key that equals the best of its row (in GRF0 at SCRATCH + 32)."""
        asm, s = self.asm, SCRATCH
        for r in range(rows):
            place = vec(m.GRF0, [s + 8 * r + 2 * e for e in range(4)], 2)
            winner = vec(m.GRF0, [s + 32 + 2 * r] * 4, 2)
            asm.pe(f'imm ui"{TOP}" {place}')
            for block in reversed(range(self.blocks)):
                key = vec(m.LM0, [self._key(r, block) + 2 * e for e in range(4)], 2)
                asm.pe(f"lxor {key} {winner} $omr2")
                asm.pe(f'imm ui"{16 * block}" {place}/$imr2')
            asm.pe(f"lpassa {vec(m.GRF0, [LANES + 2 * e for e in range(4)], 2)} $nowrite")
            asm.pe(f"iadd $aluf {place} {place}")
        for e in range(4):
            column = vec(m.GRF0, [s + 8 * r + 2 * e for r in range(rows)], 2)
            asm.pe(f"lpassa {column} $nowrite" if not e else f"uimin $aluf {column} {f if e == 3 else '$nowrite'}")
        self._over_lanes("uimin", f, other)

    # ---- results ----------------------------------------------------------------------------------------------

    def _results(self, rows: list[int], at: int, count: int) -> None:
        """Winners at .. at + count - 1 of each row, as numbers and indices without lanes."""
        whole = at == 0 and count == self.k and len(rows) * self.each <= RESULTS
        step = self.each if whole else count
        items = [(2 * (i * len(rows) + r), 2 * (r * step + i)) for r in range(len(rows)) for i in range(count)]
        for start in range(0, len(items), 4):
            four = items[start : start + 4]
            self._four([w for w, _ in four], [t for _, t in four])
        for tensor, word in ((self.values, VALUES), (self.indexes, INDEXES)):
            if whole:
                part = Range.of(tensor, rows[0] * self.each, (rows[-1] + 1) * self.each)
                bulk_upload(self.asm, part, m.LM1, word, LC, 16384, LB, 4096)
                continue
            for number, r in enumerate(rows):
                part = Range.of(tensor, r * self.each + at, r * self.each + at + count)
                bulk_upload(self.asm, part, m.LM1, word + 2 * number * step, LC, 16384, LB, 4096)

    def _four(self, winners: list[int], targets: list[int]) -> None:
        asm, c, s = self.asm, self.c, SCRATCH
        c.ready(31, TOP)
        if self.double:
            shift, top = c.wide(63), c.wide((1 << 63) - 1)
            key = f"$lr{s}v"
            asm.pe(f"{'lpassa' if self.largest else 'lnot'} {vec(m.LM1, [FOUND + w for w in winners], 2)} {key}")
            asm.pe(f"llsr $aluf {shift} $nowrite")
            asm.pe(f"land $aluf {top} $nowrite")
            asm.pe(f"lxor $aluf {key} {vec(m.LM1, [VALUES + t for t in targets], 2)}")
            places = vec(m.LM1, [PLACES + w for w in winners], 2)
            asm.pe(f"lpassa {places} $lr{s + 8}v")
            asm.pe(f"lpassa $lr{s + 8}v {vec(m.LM1, [INDEXES + t for t in targets], 2)}")
            return
        high = vec(m.LM1, [FOUND + w for w in winners], 1)
        low = vec(m.LM1, [FOUND + w + 1 for w in winners], 1)
        asm.pe(f"inot {low} $lr{s + 16}v")
        key = f"$lr{s}v"
        asm.pe(f"{'ipassa' if self.largest else 'inot'} {high} {key}")
        if self.x.dtype != "int":
            asm.pe(f"ilsr $aluf {c(31)} $nowrite")
            asm.pe(f"iand $aluf {c(TOP)} $nowrite")
            asm.pe(f"ixor $aluf {key} {key}")
        for base, source in ((VALUES, s), (INDEXES, s + 16)):
            word = vec(m.GRF0, [source + 2 * i for i in range(len(winners))], 1)
            for part in (0, 1):
                asm.pe(f"ipassa {word} {vec(m.LM1, [base + t + part for t in targets], 1)}")
