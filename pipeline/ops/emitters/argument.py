"""ArgMax and ArgMin along axes that lie inside a MAB.

Positions are visited from the last to the first and taken when they are at least as good, so that ties go to the first (from
the first to the last where the node asks for the last). Across lanes, the best value is found first; among the lanes that
hold it the smallest (largest) index wins.
"""

from __future__ import annotations

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.fold import MAX, MIN, Form, Place, fold_lanes
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.rows import FULL, Rows, download_units, load_masks, local_index, units_room
from mlsdk.pipeline.ops.emitters.transfer import Range, bulk_upload

LC, LB = 0, 0
LM_BUDGET = 1900
RESULTS = 60
BEST, INDEX = 256, 320  # words: GRF0 (best value), GRF1 (its index); results end in GRF0 from 0 on
SCRATCH, CONST = 448, 496
LANE = 500  # word of GRF0: the index of each lane


def emit_argument(call: Call) -> tuple[Asm, dict[str, np.ndarray]]:
    return Argument(call).run()


class Argument:
    def __init__(self, call: Call):
        x = call.inputs[0]
        assert x is not None
        self.name, self.x, self.out = call.node.name, x, call.outputs[0]
        self.rows, self.form = Rows(x, tuple(call.node.attrs["reduced"])), Form.of(x)  # type: ignore[arg-type]
        self.rule = (MAX if call.node.op == "ArgMax" else MIN)[self.form.compute]
        self.last = bool(call.node.attrs.get("select_last_index", 0))
        self.asm = Asm()
        self.constants: dict[str, np.ndarray] = {}

    def run(self) -> tuple[Asm, dict[str, np.ndarray]]:
        asm, rows, items = self.asm, self.rows, self.form.items
        self.unit_pattern, patterns = rows.patterns
        self.patterns, self.masks = len(patterns), None
        if len(patterns):
            if (len(patterns) + 2) * items * 2 > BEST:
                raise EmitError(
                    f"{self.name}: {len(patterns)} kinds of padding along {rows.axes}; choose another layout"
                )
            self.masks, self.constants["const0"] = load_masks(asm, patterns, items, "const0", 0, LC, LB)
        asm.pe(f'imm ui"32" $ls{CONST}')
        double = self.form.compute == "double"
        asm.pe(f'{"immu" if double else "imm"} ui"{self.rule.neutral}" $ls{CONST + 2}')
        asm.pe(f'imm i"{-1 if self.last else 0x7FFFFFFF}" $ls{CONST + 4}')
        asm.pe(f'imm ui"1" $ls{CONST + 6}')
        if rows.over_lanes:
            asm.pe(f'imm ui"2" $ls{CONST + 8}')
            asm.pe(f"ilsl $subpeid $ls{CONST + 8} $lr{LANE}")
            if not double:
                asm.pe('immu ui"1" $lt')
                asm.pe(f"isub $lr{LANE} $lt $nowrite")  # 4 p - 1, 4 p
                asm.pe(f"iadd $aluf $ls{CONST + 6} $lr{LANE}")
        size = self._tile_rows()
        for first in range(0, rows.reduced.units, size):
            self._tile(first, min(first + size, rows.reduced.units))
        return asm, self.constants

    def _tile_rows(self) -> int:
        rows, out = self.rows, self.out
        assert out.scheme is not None
        lw = out.scheme.unit_lw(out.dtype)
        grain = max(1, out.image.granule // lw)
        size = max(1, RESULTS // (1 if rows.over_lanes else self.form.items))
        if rows.reduced.units <= size:
            size = rows.reduced.units
        else:
            size = size // grain * grain
        while size > 0 and units_room(self.x, np.unique(rows.members[:size])) > LM_BUDGET:
            size = size // 2 // grain * grain
        if size < 1:
            raise EmitError(
                f"{self.name}: a row of {rows.members.shape[1]} units does not fit LM; choose another layout"
            )
        return size

    def _tile(self, first: int, last: int) -> None:
        members = self.rows.members[first:last]
        places = download_units(self.asm, self.x, np.unique(members), m.LM0, 0, LC, LB)
        bases = (
            local_index(self.rows.scheme, self.rows.axes[0])
            if self.rows.axes
            else np.zeros(self.rows.scheme.units, np.int64)
        )
        items, width = self.form.items, self.form.width
        step = {"double": 1}.get(self.form.compute, 2)

        def place(unit: int, item: int) -> tuple[int, Place]:
            index = int(bases[unit]) + (step * item if self.rows.over_lanes else 0)
            return index, (places[unit] + width * item, int(self.unit_pattern[unit]), item)

        if self.rows.over_lanes:
            lists = [[place(u, i) for u in row for i in range(items)] for row in members.tolist()]
        else:
            lists = [[place(u, i) for u in row] for row in members.tolist() for i in range(items)]
        for at in range(0, len(lists), 4):
            self._group(at, [sorted(row, key=lambda p: p[0]) for row in lists[at : at + 4]])
        lw = self.out.scheme.unit_lw(self.out.dtype)  # type: ignore[union-attr]
        bulk_upload(self.asm, Range.of(self.out, first * lw, last * lw), m.GRF0, 0, LC, 16384, LB, 4096)

    def _group(self, at: int, lists: list[list[tuple[int, Place]]]) -> None:
        asm, rule, form = self.asm, self.rule, self.form
        count = len(lists)
        words = [2 * i for i in range(count)]
        best = vec(m.GRF0, [BEST + w for w in words], 2)
        index = vec(m.GRF1, [INDEX + w for w in words], 2)
        asm.pe(f"lpassa $ls{CONST + 2} {best}")
        asm.pe(f"lpassa $ls{CONST + 4} {index}")
        columns = list(zip(*lists))
        for column in columns if self.last else reversed(columns):
            x = form.operand(m.LM0, [w for _, (w, _, _) in column])
            guard = ""
            if any(p != FULL for _, (_, p, _) in column):
                assert self.masks is not None
                item = column[0][1][2]
                asm.pe(
                    f"ipassa {self.masks.operand([p for _, (_, p, _) in column], [item] * len(column), self.patterns)} $omr2"
                )
                asm.pe(f"ipassa $ls{CONST + 6} $omr1")  # not zero: flag 0
                guard = "/$imr2"
            load = form.load(form.compute != "int")
            asm.pe(f"{load} {x} $nowrite")
            value = "$aluf" if form.compute == "int" else "$mauf"
            asm.pe(f"{rule.mnemonic} {value} {best} {best}{guard} $omr1{guard}")
            number = column[0][0]
            asm.pe(f'imm ui"{number}" {index}/$imr1')
        target = vec(m.GRF0, [2 * (at + i) for i in range(count)], 2)
        if not self.rows.over_lanes:
            asm.pe(f"ipassa {index} {target}")
            return
        compute = form.compute
        copy = f"$lr{SCRATCH - 16}v"
        asm.pe(f"lpassa {best} {copy}")
        fold_lanes(asm, rule, compute, copy, f"$ls{CONST}", SCRATCH)
        asm.pe(f"iadd {index} $lr{LANE} {index}")
        asm.pe(f"lpassa $ls{CONST + 4} {target}")
        asm.pe(f"lpassa {best} $lt")
        asm.pe(f"{'l' if compute == 'double' else 'i'}xor {copy} $lt $omr1")
        asm.pe(f"ipassa {index} {target}/$imr1")
        fold_lanes(asm, (MAX if self.last else MIN)["int"], compute, target, f"$ls{CONST}", SCRATCH)
