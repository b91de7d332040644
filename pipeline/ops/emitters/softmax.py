"""Softmax along axes that lie inside a MAB (addresses and lanes).

Per tile of rows: the maximum m of each row; e = exp(x - m), back into LM1, and its sum; the reciprocal of the sum; e times
that into LM0. Halves are computed with as singles; the sum is never narrower than single.
"""

from __future__ import annotations

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.fold import MAX, SUM, Form, Place, fold, fold_lanes
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.functions import EXP, RECIP, Table
from mlsdk.pipeline.ops.emitters.rows import FULL, Rows, download_units, load_masks, units_room
from mlsdk.pipeline.ops.emitters.transfer import Range, bulk_upload

LC, LB = 0, 0
LM_BUDGET = 1800  # LW of an LM bank for a tile
MAXIMA, SUMS = 192, 320  # words: GRF1 (masks lie below, the table of constants above), GRF0
RESULTS = 60  # results of a tile: a long word each of MAXIMA and SUMS
SCRATCH = 448


def emit_softmax(call: Call) -> tuple[Asm, dict[str, np.ndarray]]:
    return Softmax(call).run()


class Softmax:
    def __init__(self, call: Call):
        x = call.inputs[0]
        assert x is not None
        self.name, self.x, self.out = call.node.name, x, call.outputs[0]
        self.rows = Rows(x, tuple(call.node.attrs["reduced"]))  # type: ignore[arg-type]
        self.form = Form.of(x)
        self.wide = Form(self.form.compute, 2, self.form.items)  # as it is computed with, in LM1
        more = {
            "32": 32 << 32 | 32,
            "ninf": 0xFFF0000000000000 if self.form.compute == "double" else 0xFF800000FF800000,
        }
        self.table = Table([EXP[self.form.compute], RECIP[self.form.compute]], {**more, "zero": 0})
        self.asm = Asm()
        self.constants: dict[str, np.ndarray] = {}

    def run(self) -> tuple[Asm, dict[str, np.ndarray]]:
        rows, items = self.rows, self.form.items
        self.constants["const0"] = self.table.load(self.asm, "const0", LC, LB)
        self.unit_pattern, patterns = rows.patterns
        self.patterns, self.masks = len(patterns), None
        if len(patterns):
            if (len(patterns) + 2) * items * 2 > MAXIMA:
                raise EmitError(
                    f"{self.name}: {len(patterns)} kinds of padding along {rows.axes}; choose another layout"
                )
            self.masks, self.constants["const1"] = load_masks(self.asm, patterns, items, "const1", 0, LC, LB)
        size = self._tile_rows()
        for first in range(0, rows.reduced.units, size):
            self._tile(first, min(first + size, rows.reduced.units))
        return self.asm, self.constants

    def _tile_rows(self) -> int:
        rows, out = self.rows, self.out
        assert out.scheme is not None
        per_row = 1 if rows.over_lanes else self.form.items
        size = min(rows.reduced.units, max(1, RESULTS // per_row))
        lw = out.scheme.unit_lw(out.dtype)

        def fits(count: int) -> bool:
            units = np.unique(rows.members[:count])
            room = max(units_room(self.x, units), len(units) * self.form.items)
            whole = count == rows.reduced.units or all(
                self._contiguous(first, count) for first in range(0, rows.reduced.units, count)
            )
            return (
                room <= LM_BUDGET
                and whole
                and (count == rows.reduced.units or count * rows.members.shape[1] * lw % out.image.granule == 0)
            )

        while size > 0 and not fits(size):
            size -= 1
        if size == 0:
            raise EmitError(
                f"{self.name}: a row of {rows.members.shape[1]} units does not fit LM; choose another layout"
            )
        return size

    def _contiguous(self, first: int, count: int) -> bool:
        """Whether the units of these rows are neighbours, so that they can be uploaded in one range."""
        units = np.unique(self.rows.members[first : first + count])
        return int(units[-1]) - int(units[0]) + 1 == len(units)

    def _tile(self, first: int, last: int) -> None:
        asm, rows, form = self.asm, self.rows, self.form
        members = rows.members[first:last]
        units = np.unique(members)
        start = int(units[0])
        if form.narrow:
            places = download_units(asm, self.x, units, m.LM0, 0, LC, LB)
            wide = {u: 2 * form.items * i for i, u in enumerate(units.tolist())}
            self._widen(units, places, wide)
        else:
            wide = download_units(asm, self.x, units, m.LM1, 0, LC, LB)
        lists = self._lists(members, wide)
        groups = [(at, lists[at : at + 4]) for at in range(0, len(lists), 4)]
        for at, group in groups:
            self._maximum(at, group)
        for at, group in groups:
            self._exponentials(at, group)
        for at, group in groups:
            self._reciprocal(at, group)
        assert self.out.scheme is not None
        lw = self.out.scheme.unit_lw(self.out.dtype)
        part = Range.of(self.out, start * lw, (int(units[-1]) + 1) * lw)
        base = 2 * (start * lw - part.lo)
        result = {u: base + 2 * lw * (u - start) for u in units.tolist()}
        for at, group in groups:
            self._scale(at, group, members, result)
        bulk_upload(asm, part, m.LM0, 0, LC, 16384, LB, 4096)

    def _widen(self, units: np.ndarray, places: dict[int, int], wide: dict[int, int]) -> None:
        items = [(places[u] + i, wide[u] + 2 * i) for u in units.tolist() for i in range(self.form.items)]
        for at in range(0, len(items), 4):
            group = items[at : at + 4]
            self.asm.pe(f"fvpassa {vec(m.LM0, [a for a, _ in group], 1)}e {vec(m.LM1, [b for _, b in group], 2)}")

    def _lists(self, members: np.ndarray, wide: dict[int, int]) -> list[list[Place]]:
        items = self.form.items

        def place(unit: int, item: int) -> Place:
            return wide[unit] + 2 * item, int(self.unit_pattern[unit]), item

        if self.rows.over_lanes:
            return [[place(u, i) for u in row for i in range(items)] for row in members.tolist()]
        return [[place(u, i) for u in row] for row in members.tolist() for i in range(items)]

    def _results(self, at: int, count: int, space: str, word: int) -> str:
        return vec(space, [word + 2 * (at + i) for i in range(count)], 2)

    def _maximum(self, at: int, group: list[list[Place]]) -> None:
        rule, compute = MAX[self.form.compute], self.form.compute
        acc = self._results(at, len(group), m.GRF1, MAXIMA)
        fold(self.asm, rule, self.wide, m.LM1, group, acc, self.table.grf("ninf"), self.masks, self.patterns)
        if self.rows.over_lanes:
            scratch = self._results(at, len(group), m.GRF0, SUMS)
            self.asm.pe(f"lpassa {acc} {scratch}")
            fold_lanes(self.asm, rule, compute, scratch, self.table.grf("32"), SCRATCH)
            self.asm.pe(f"lpassa {scratch} {acc}")

    def _exponentials(self, at: int, group: list[list[Place]]) -> None:
        asm, double = self.asm, self.form.compute == "double"
        maximum = self._results(at, len(group), m.GRF1, MAXIMA)
        total = self._results(at, len(group), m.GRF0, SUMS)
        add = "dvadd" if double else "fvadd"
        asm.pe(f"lpassa {self.table.grf('zero')} {total}")
        for column in zip(*group):
            x = vec(m.LM1, [w for w, _, _ in column], 2)
            masked = any(p != FULL for _, p, _ in column)
            if masked:
                assert self.masks is not None
                asm.pe(
                    f"ipassa {self.masks.operand([p for _, p, _ in column], [item for *_, item in column], self.patterns)} $omr1"
                )
            asm.pe(f"{add} {x} -{maximum} $nowrite")
            self.table.run(asm, EXP[self.form.compute], "$mauf", x)
            asm.pe(f"{add} {total} $aluf {total}{'/$imr1' if masked else ''}")

    def _reciprocal(self, at: int, group: list[list[Place]]) -> None:
        total = self._results(at, len(group), m.GRF0, SUMS)
        if self.rows.over_lanes:
            fold_lanes(self.asm, SUM[self.form.compute], self.form.compute, total, self.table.grf("32"), SCRATCH)
        self.table.run(self.asm, RECIP[self.form.compute], total, total)

    def _scale(self, at: int, group: list[list[Place]], members: np.ndarray, result: dict[int, int]) -> None:
        asm = self.asm
        share = self._results(at, len(group), m.GRF0, SUMS)
        narrow = self.out.dtype == "half"
        step = 1 if narrow else 2
        targets = []
        for row in members.tolist():
            if self.rows.over_lanes:
                targets.append([result[u] + step * i for u in row for i in range(self.form.items)])
            else:
                targets += [[result[u] + step * i for u in row] for i in range(self.form.items)]
        for column, out in zip(zip(*group), zip(*targets[at : at + 4])):
            x = vec(m.LM1, [w for w, _, _ in column], 2)
            y = vec(m.LM0, list(out), step)
            if self.form.compute == "double":
                asm.pe(f"dvmulu {x} {share} $nowrite")
                asm.pe(f"dvfmad {x} {share} $mauf {y}")
            else:
                asm.pe(f"fvmul{'r' if narrow else ''} {x} {share} {y}")
                if narrow and self.out.scheme.lane is None:  # type: ignore[union-attr]
                    asm.pe(f"ipassa $mauf {vec(m.LM0, [w + 1 for w in out], 1)}")
