"""Reductions: over units (addresses), over lanes, and over MABs, L1Bs and L2Bs where the reduced axes use whole levels."""

from __future__ import annotations

from dataclasses import replace
from math import lcm

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import EXTENT, L1B, L2B, MAB
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.fold import MAX, MIN, PRODUCT, SUM, Form, fold, fold_lanes
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.rows import FULL, Rows, download_units, load_masks, units_room
from mlsdk.pipeline.ops.emitters.seen import ADDRESS, LEAST, Seen, Turns, turns_of
from mlsdk.pipeline.ops.emitters.transfer import Range, bulk_download, bulk_upload, join_l2bs, room
from mlsdk.pipeline.ops.emitters.turns import table_of

LC, LB = 0, 0
LM_BUDGET = 1900  # LW of LM0 for a tile's data
SUMS = 960  # LW of LM1 for the sums of turns, of each result
ROWS_LIMIT = 96  # results of a tile, a long word of GRF0 each
SCRATCH, CONST = 448, 500  # words of GRF0 and GRF1
RULES = {"ReduceSum": SUM, "ReduceMean": SUM, "ReduceMax": MAX, "ReduceMin": MIN, "ReduceProd": PRODUCT}
#: the network compares integers as sign and magnitude: by these operations, as if they were singles
TWISTED = {"imax": "fmax", "imin": "fmin"}


def emit_reduce(call: Call) -> tuple[Asm, dict[str, np.ndarray]]:
    return Reduction(call).run()


class Reduction:
    def __init__(self, call: Call):
        x = call.inputs[0]
        assert x is not None
        self.name, self.op, self.x, self.out = call.node.name, call.node.op, x, call.outputs[0]
        self.rows, self.form = Rows(x, tuple(call.node.attrs["reduced"])), Form.of(x)  # type: ignore[arg-type]
        self.rule = RULES[self.op][self.form.compute]
        self.asm = Asm()
        self.constants: dict[str, np.ndarray] = {}
        self.count = int(np.prod([x.shape[a] for a in self.rows.axes]))

    def run(self) -> tuple[Asm, dict[str, np.ndarray]]:
        asm, rows = self.asm, self.rows
        unit_pattern, patterns = rows.patterns
        turns = self._shared(unit_pattern, patterns)
        if turns is not None:
            self._constants()
            self._sum_of_all(turns)
            return asm, self.constants
        self.unit_pattern, self.patterns = unit_pattern, len(patterns)
        items = self.form.items
        if len(patterns) and (len(patterns) + 2) * items > 128:
            raise EmitError(f"{self.name}: {len(patterns)} kinds of padding along {rows.axes}; choose another layout")
        self.masks = None
        if len(patterns):
            self.masks, data = load_masks(asm, patterns, items, "const0", 0, LC, LB)
            self.constants["const0"] = data
        self._constants()
        per_row = 1 if rows.over_lanes else items
        size = self._tile_rows(per_row)
        for first in range(0, rows.reduced.units, size):
            self._tile(first, min(first + size, rows.reduced.units), per_row)
        return asm, self.constants

    # ---- values of which all L1Bs and MABs hold copies ----------------------------------------------------------

    def _shared(self, unit_pattern: np.ndarray, patterns: np.ndarray) -> Turns | None:
        """How the results are met if each PE sums a part of what all have; None where that is not possible or no gain."""
        outside = None
        if len(patterns):
            of_l2b = patterns.reshape(len(patterns), EXTENT[L2B], -1)
            if (of_l2b != of_l2b[..., :1]).any():
                return None
            outside = np.where(unit_pattern >= 0, of_l2b[unit_pattern, :, 0].T, False)
        x, image, reduced = self.x, self.x.image, self.rows.reduced
        alone = x.home is None and self.out.home is None
        sums = self.op in ("ReduceSum", "ReduceMean") and self.form.compute == "single"
        if not alone or not sums or self.rows.over_lanes:
            return None
        if image.l1b_spread or image.mab_spread or image.l2b_size % ADDRESS or image.addresses < LEAST:
            return None
        assert x.scheme is not None
        whole = Seen(image.layout, image.dtype, image.shape)
        out = replace(self.out, image=Image(reduced.layout("single"), "single", ()), scheme=reduced)
        found = turns_of(whole, x, out, whole.addresses // x.scheme.unit_lw(x.dtype), outside)
        results = reduced.units * self.form.items
        most = SUMS // results if found is not None else 0
        return found if whole.addresses <= LM_BUDGET and results <= ROWS_LIMIT and most >= self._turn(found) else None

    def _turn(self, turns: Turns | None) -> int:
        """Values after which the same results are met again, in the same cycle."""
        return lcm(turns.index.shape[-1], 4) if turns is not None else 1

    def _sum_of_all(self, turns: Turns) -> None:
        """Each PE sums the values of each of its turns, then those of each result, then all PEs theirs."""
        asm, form, turn = self.asm, self.form, self._turn(turns)
        whole = replace(self.x, image=Seen(self.x.image.layout, self.x.dtype, self.x.shape))
        part = Range.of(whole, 0, whole.image.addresses)
        table, self.constants["turns"] = table_of(turns, "turns", turn)
        bulk_download(asm, Range.of(table, 0, turn), m.GRF1, 0, LC, 16384, LB, 4096)
        bulk_download(asm, part, m.LM0, 0, LC, 32768, LB, 8192)
        zero, each = 2 * room(part.addresses), form.items // self.x.scheme.unit_lw(self.x.dtype)  # type: ignore[union-attr]
        asm.pe(f"zero $lm{zero}")
        words = [2 * (i // each) + i % each * form.width for i in range(part.addresses * each)]
        lists = [words[i::turn] for i in range(turn)]
        length = max(map(len, lists))
        lists = [[*found, *[zero] * (length - len(found))] for found in lists]
        for at in range(0, turn, 4):
            members = [[(word, FULL, 0) for word in found] for found in lists[at : at + 4]]
            fold(asm, self.rule, form, m.LM0, members, f"$lr{2 * at}v", f"$ls{CONST + 2}")
        results = self.rows.reduced.units * form.items
        for result in range(results):
            asm.pe(f'imm ui"{2 * result}" $lr{CONST}')
            for at in range(0, turn, 4):
                asm.pe(f"ixor $ls{2 * at}v $lr{CONST} $omr1")
                asm.pe(f"lpassa/$imr1 $lr{2 * at}v $ln{2 * (result * turn + at)}v")
        sums = Form("single", 2, 1)
        for first in range(0, results, 4):
            mine = range(first, min(first + 4, results))
            members = [[(2 * (result * turn + i), FULL, 0) for i in range(turn)] for result in mine]
            acc = vec(m.GRF0, [2 * result for result in mine], 2)
            fold(asm, self.rule, sums, m.LM1, members, acc, f"$ls{CONST + 2}")
        self._combine(self.rows.levels() | {L1B, MAB}, results, self.rule.network)
        self._finish(results)
        lw = self.out.scheme.unit_lw(self.out.dtype)  # type: ignore[union-attr]
        bulk_upload(asm, Range.of(self.out, 0, self.rows.reduced.units * lw), m.GRF0, 0, LC, 16384, LB, 4096)

    def _constants(self) -> None:
        asm = self.asm
        asm.pe(f'imm ui"32" $ls{CONST}')
        if self.form.compute == "double":
            asm.pe(f'immu ui"{self.rule.neutral}" $ls{CONST + 2}')
        else:
            asm.pe(f'imm ui"{self.rule.neutral}" $ls{CONST + 2}')
        if self.op == "ReduceMean":
            share = np.float64(1.0) / self.count
            if self.form.compute == "double":
                high, low = divmod(int(np.float64(share).view(np.uint64)), 1 << 32)
                asm.pe(f'imm ui"{high}" $s{CONST + 4}')
                asm.pe(f'imm ui"{low}" $s{CONST + 5}')
            else:
                asm.pe(f'imm ui"{int(np.float32(share).view(np.uint32))}" $ls{CONST + 4}')

    def _tile_rows(self, per_row: int) -> int:
        """Results of a tile: what fits GRF0, on granules of the result."""
        out, reduced = self.out, self.rows.reduced
        assert out.scheme is not None
        lw = out.scheme.unit_lw(out.dtype)
        grain = max(1, out.image.granule // lw)
        size = max(1, ROWS_LIMIT // max(per_row, lw))
        if reduced.units <= size:
            return reduced.units
        size = size // grain * grain
        if size < 1:
            raise EmitError(f"{self.name}: {grain} results at a time do not fit GRF0")
        while size > grain and units_room(self.x, np.sort(self.rows.members[:size].reshape(-1))) > LM_BUDGET:
            size = max(grain, size // 2 // grain * grain)
        return size

    # ---- one tile ---------------------------------------------------------------------------------------------

    def _tile(self, first: int, last: int, per_row: int) -> None:
        members = self.rows.members[first:last]
        positions = members.shape[1]
        chunk = positions
        while units_room(self.x, np.sort(members[:, :chunk].reshape(-1))) > LM_BUDGET:
            if chunk == 1:
                raise EmitError(f"{self.name}: {len(members)} results at a time do not fit LM")
            chunk = -(-chunk // 2)
        for start in range(0, positions, chunk):
            part = members[:, start : start + chunk]
            places = download_units(self.asm, self.x, np.unique(part), m.LM0, 0, LC, LB)
            self._accumulate(part, places, per_row, start > 0)
        results = len(members) * per_row
        if self.rows.over_lanes:
            for at in range(0, results, 4):
                acc = vec(m.GRF0, [2 * (at + i) for i in range(min(4, results - at))], 2)
                fold_lanes(self.asm, self.rule, self.form.compute, acc, f"$ls{CONST}", SCRATCH)
        self._levels(results)
        self._finish(results)
        lw = self.out.scheme.unit_lw(self.out.dtype)  # type: ignore[union-attr]
        bulk_upload(self.asm, Range.of(self.out, first * lw, last * lw), m.GRF0, 0, LC, 16384, LB, 4096)

    def _accumulate(self, members: np.ndarray, places: dict[int, int], per_row: int, goes_on: bool) -> None:
        """Results i = row * per_row + item into GRF0 words 2 i."""
        items, width = self.form.items, self.form.width
        over_lanes = self.rows.over_lanes

        def source(unit: int, item: int) -> tuple[int, int, int]:
            return places[unit] + item * width, int(self.unit_pattern[unit]), item

        rows = members.tolist()
        if over_lanes:
            lists = [
                (2 * i, [source(unit, item) for unit in row for item in range(items)]) for i, row in enumerate(rows)
            ]
        else:  # item by item, because the lanes that are data may differ between the items of a unit
            lists = [
                (2 * (i * items + item), [source(unit, item) for unit in row])
                for item in range(items)
                for i, row in enumerate(rows)
            ]
        size = len(rows)
        for at in [start + i for start in range(0, len(lists), size) for i in range(0, size, 4)]:
            group = lists[at : min(at + 4, (at // size + 1) * size)]
            acc = vec(m.GRF0, [word for word, _ in group], 2)
            self._fold([places for _, places in group], acc, goes_on)

    def _fold(self, lists: list[list[tuple[int, int, int]]], acc: str, goes_on: bool) -> None:
        neutral = f"$ls{CONST + 2}"
        fold(self.asm, self.rule, self.form, m.LM0, lists, acc, neutral, self.masks, self.patterns, goes_on)

    def _levels(self, results: int) -> None:
        """Combine over the spatial levels of the reduced axes; all units of a level end with the same bits."""
        levels = self.rows.levels()
        if not levels:
            return
        twisted = TWISTED.get(self.rule.mnemonic, "")
        network = self.rule.network or twisted
        if not network:
            raise EmitError(f"{self.name}: {self.op} of {self.x.dtype} cannot leave a MAB; choose another layout")
        if twisted:
            self._twist(results)
        self._combine(levels, results, network)
        if twisted:
            self._twist(results)

    def _twist(self, results: int) -> None:
        """Integers to sign and (for negative ones, inverted) magnitude, in the same order; and back."""
        asm = self.asm
        asm.pe(f'imm ui"31" $ls{CONST + 6}')
        asm.pe(f'imm ui"0x7FFFFFFF" $ls{CONST + 8}')
        for at in range(0, results, 4):
            acc = vec(m.GRF0, [2 * (at + i) for i in range(min(4, results - at))], 2)
            asm.pe(f"ilsr {acc} $ls{CONST + 6} $nowrite")
            asm.pe(f"iand $aluf $ls{CONST + 8} $nowrite")
            asm.pe(f"ixor $aluf {acc} {acc}")

    def _combine(self, levels: set[str], results: int, network: str) -> None:
        asm = self.asm
        if MAB in levels and not levels & {L1B, L2B}:
            for at in range(0, results, 4):
                acc = vec(m.GRF0, [2 * (at + i) for i in range(min(4, results - at))], 2)
                asm.pe(f"l1bmr{network} {acc} $lbi")
                asm.pe(f"l1bmm $lbi {acc}")
            return
        image = self.x.image
        apart = (
            MAB not in levels and image.mab_spread,
            L1B not in levels and image.l1b_spread,
        )  # each unit its own results
        per = 256 if apart[0] else 16  # LW of L1BM of four results
        up = "l1bmd" if apart[0] else f"l1bmr{network}" if MAB in levels else "l1bmm@0"
        each, wide = (32, 256) if apart[1] else (64, 64)  # LW of L1BM and of L2BM a line
        join = "l2bmd" if apart[1] else f"l2bmr{network}" if L1B in levels else "l2bm@0"
        steps = -(-results // 4)
        for i in range(steps):
            acc = vec(m.GRF0, [2 * (4 * i + j) for j in range(min(4, results - 4 * i))], 2)
            asm.pe(f"{up} {acc} $lb{LB + per * i}")
        lines = -(-steps * per // each)
        for i in range(lines):
            asm.pe(f"{join} $lb{LB + each * i} $lc{LC + wide * i}")
        if L2B in levels:
            join_l2bs(asm, f"mvr{network}", LC, lines * wide)
        for i in range(lines):
            asm.pe(f"{'l2bmd' if apart[1] else 'l2bmb'} $lc{LC + wide * i} $lb{LB + each * i}")
        for i in range(steps):
            acc = vec(m.GRF0, [2 * (4 * i + j) for j in range(min(4, results - 4 * i))], 2)
            asm.pe(f"{'l1bmd' if apart[0] else 'l1bmm'} $lb{LB + per * i} {acc}")

    def _finish(self, results: int) -> None:
        """From computed results to results as they are stored."""
        asm = self.asm
        if self.op == "ReduceMean":
            for at in range(0, results, 4):
                acc = vec(m.GRF0, [2 * (at + i) for i in range(min(4, results - at))], 2)
                if self.form.compute == "double":
                    asm.pe(f"dvmulu {acc} $ls{CONST + 4} $nowrite")
                    asm.pe(f"dvfmad {acc} $ls{CONST + 4} $mauf {acc}")
                else:
                    asm.pe(f"fvmul {acc} $ls{CONST + 4} {acc}")
        if self.out.dtype == "half":
            self._narrow(results)

    def _narrow(self, results: int) -> None:
        """Singles in long words -> halves: a word each with lanes, the whole long word with copies without."""
        asm = self.asm
        lanes = self.out.scheme.lane is not None  # type: ignore[union-attr]
        for at in range(0, results, 4):
            count = min(4, results - at)
            acc = vec(m.GRF0, [2 * (at + i) for i in range(count)], 2)
            if lanes:
                asm.pe(f"fvpassar {acc} {vec(m.GRF0, [at + i for i in range(count)], 1)}")
            else:
                asm.pe(f"fvpassar {acc} {vec(m.GRF0, [2 * (at + i) for i in range(count)], 1)}")
                asm.pe(f"ipassa $mauf {vec(m.GRF0, [2 * (at + i) + 1 for i in range(count)], 1)}")
