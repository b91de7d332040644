"""Reductions: over units (addresses), over lanes, and over MABs, L1Bs and L2Bs where the reduced axes use whole levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.layout import L1B, L2B, MAB
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.rows import FULL, NOTHING, Masks, Rows, download_units, load_masks, units_room
from mlsdk.pipeline.ops.emitters.transfer import Range, Tensor, bulk_upload

LC, LB = 0, 0
LM_BUDGET = 1900  # LW of LM0 for a tile's data
ROWS_LIMIT = 96  # results of a tile, a long word of GRF0 each
SCRATCH, CONST = 448, 500  # words of GRF0 and GRF1


@dataclass(frozen=True)
class Combine:
    """How two partial results become one, by compute dtype: (mnemonic, on the MAU, bits of the neutral element)."""

    single: tuple[str, bool, int]
    double: tuple[str, bool, int]
    int: tuple[str, bool, int] | None = None
    network: dict[str, str] | None = None  # reduction of L1BM, L2BM and MV


SUM = Combine(("fvadd", True, 0), ("dvadd", True, 0), ("iadd", False, 0), {"single": "ffadd", "double": "dfadd", "int": "iiadd"})
MAX = Combine(
    ("fmax", False, 0xFF800000), ("dmax", False, 0xFFF00000), ("imax", False, 0x80000000), {"single": "fmax", "double": "dmax"}
)
MIN = Combine(
    ("fmin", False, 0x7F800000), ("dmin", False, 0x7FF00000), ("imin", False, 0x7FFFFFFF), {"single": "fmin", "double": "dmin"}
)
COMBINE = {"ReduceSum": SUM, "ReduceMean": SUM, "ReduceMax": MAX, "ReduceMin": MIN}


@dataclass(frozen=True)
class Form:
    """How values of a dtype are computed with."""

    compute: str  # single, double or int
    width: int  # words of an access in memory
    items: int  # accesses per unit

    @classmethod
    def of(cls, tensor: Tensor) -> Form:
        assert tensor.scheme is not None
        lane = tensor.scheme.lane is not None
        if tensor.dtype == "double":
            return cls("double", 2, 4 if lane else 1)
        if tensor.dtype == "half":
            return cls("single", 1, 2 if lane else 1)
        return cls("int" if tensor.dtype == "int" else "single", 2, 2 if lane else 1)

    def operand(self, space: str, words: Sequence[int]) -> str:
        return vec(space, words, self.width, "e" if self.width == 1 else "")


def emit_reduce(call: Call) -> tuple[Asm, dict[str, np.ndarray]]:
    x, out = call.inputs[0], call.outputs[0]
    assert x is not None
    axes = tuple(call.node.attrs["reduced"])  # type: ignore[arg-type]
    return Reduction(call.node.name, call.node.op, x, out, axes, COMBINE[call.node.op]).run()


class Reduction:
    def __init__(self, name: str, op: str, x: Tensor, out: Tensor, axes: tuple[int, ...], combine: Combine):
        self.name, self.op, self.x, self.out, self.combine = name, op, x, out, combine
        self.rows, self.form = Rows(x, axes), Form.of(x)
        rule = getattr(combine, self.form.compute)
        if rule is None:
            raise EmitError(f"{name}: {op} is not available for {x.dtype}")
        self.mnemonic, self.mau, self.neutral = rule
        self.asm, self.constants = Asm(), {}
        self.count = int(np.prod([x.shape[a] for a in axes]))

    def run(self) -> tuple[Asm, dict[str, np.ndarray]]:
        asm, rows = self.asm, self.rows
        unit_pattern, patterns = rows.patterns
        self.unit_pattern, self.patterns = unit_pattern, len(patterns)
        items = self.form.items
        if len(patterns) and (len(patterns) + 2) * items > 128:
            raise EmitError(f"{self.name}: {len(patterns)} kinds of padding along {rows.axes}; choose another layout")
        self.masks = None
        if len(patterns):
            self.masks, data = load_masks(asm, patterns, items, "const0", 0, LC, LB)
            self.constants["const0"] = data
        self._constants()
        results = rows.reduced.units * (1 if rows.over_lanes else items)
        per_row = 1 if rows.over_lanes else items
        size = self._tile_rows(per_row)
        for first in range(0, rows.reduced.units, size):
            self._tile(first, min(first + size, rows.reduced.units), per_row)
        assert results
        return asm, self.constants

    def _constants(self) -> None:
        asm = self.asm
        asm.pe(f'imm ui"32" $ls{CONST}')
        if self.form.compute == "double":
            asm.pe(f'immu ui"{self.neutral}" $ls{CONST + 2}')
        else:
            asm.pe(f'imm ui"{self.neutral}" $ls{CONST + 2}')
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
                self._lanes([2 * (at + i) for i in range(min(4, results - at))])
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

        lists = []
        for row in members.tolist():
            if over_lanes:
                lists.append([source(unit, item) for unit in row for item in range(items)])
            else:
                lists += [[source(unit, item) for unit in row] for item in range(items)]
        for at in range(0, len(lists), 4):
            group = lists[at : at + 4]
            self._chain(group, vec(m.GRF0, [2 * (at + i) for i in range(len(group))], 2), goes_on)

    def _chain(self, lists: list[list[tuple[int, int, int]]], acc: str, goes_on: bool) -> None:
        """acc = acc (if it goes on) combined with all members; those that are data in all four cycles first."""
        asm, form = self.asm, self.form
        plain, masked = [], []
        for column in zip(*lists):
            (plain if all(p == FULL for _, p, _ in column) else masked).append(column)
        narrow = form.width == 1
        for index, column in enumerate(plain):
            x = form.operand(m.LM0, [w for w, _, _ in column])
            begins, ends = index == 0 and not goes_on, index == len(plain) - 1
            target = acc if ends else "$nowrite"
            if begins:
                asm.pe(f"{self._load} {x} {target}")
                if narrow and not self.mau and not ends:
                    asm.pe("ipassa $mauf $nowrite")
                continue
            running = acc if index == 0 else ("$mauf" if self.mau else "$aluf")
            if narrow and not self.mau:
                asm.pe(f"fvpassa {x} $nowrite")
                x = "$mauf"
            asm.pe(f"{self.mnemonic} {running} {x} {target}")
        if not plain and not goes_on:
            asm.pe(f"lpassa $ls{CONST + 2} {acc}")
        for column in masked:
            item = column[0][2]
            if len({i for _, _, i in column}) > 1:
                raise EmitError(f"{self.name}: lanes of different items meet")
            assert self.masks is not None
            asm.pe(f"ipassa {self.masks.operand([p for _, p, _ in column], item, self.patterns)} $omr1")
            x = form.operand(m.LM0, [w for w, _, _ in column])
            if narrow and not self.mau:
                asm.pe(f"fvpassa {x} $nowrite")
                x = "$mauf"
            asm.pe(f"{self.mnemonic} {acc} {x} {acc}/$imr1")

    @property
    def _load(self) -> str:
        if self.form.compute == "double":
            return "dvpassa" if self.mau else "lpassa"
        if self.form.width == 1 or self.mau:
            return "fvpassa"
        return "ipassa"

    def _lanes(self, words: list[int]) -> None:
        """Combine the lanes of up to four results; every lane ends with the same bits."""
        asm, op = self.asm, self.mnemonic
        acc = vec(m.GRF0, words, 2)
        last = "$mauf" if self.mau else "$aluf"
        if self.form.compute != "double":
            asm.pe(f"lbsl {acc} $ls{CONST} $nowrite")
            asm.pe(f"{op} {acc} $aluf $lr{SCRATCH}v")
        else:
            asm.pe(f"lpassa {acc} $lr{SCRATCH}v")
            last = "$aluf"
        asm.pe(f"msr {last} $nowrite")
        asm.pe("msr $aluf $nowrite")
        asm.pe(f"{op} $lr{SCRATCH}v $aluf $lr{SCRATCH + 8}v")
        asm.pe(f"msr {'$mauf' if self.mau else '$aluf'} $nowrite")
        asm.pe(f"{op} $lr{SCRATCH + 8}v $aluf {acc}")

    def _levels(self, results: int) -> None:
        """Combine over the spatial levels of the reduced axes; all units of a level end with the same bits."""
        levels = self.rows.levels()
        if not levels:
            return
        network = (self.combine.network or {}).get(self.form.compute)
        if network is None:
            raise EmitError(f"{self.name}: {self.op} of {self.x.dtype} cannot leave a MAB; choose another layout")
        asm = self.asm
        if MAB in levels and not levels & {L1B, L2B}:
            for at in range(0, results, 4):
                acc = vec(m.GRF0, [2 * (at + i) for i in range(min(4, results - at))], 2)
                asm.pe(f"l1bmr{network} {acc} $lbi")
                asm.pe(f"l1bmm $lbi {acc}")
            return
        per = 16 if MAB in levels else 256  # LW of L1BM of four results
        steps = -(-results // 4)
        for i in range(steps):
            acc = vec(m.GRF0, [2 * (4 * i + j) for j in range(min(4, results - 4 * i))], 2)
            asm.pe(f"l1bmr{network} {acc} $lb{LB + per * i}" if MAB in levels else f"l1bmd {acc} $lb{LB + per * i}")
        lines = -(-steps * per // 64)
        for i in range(lines):
            if L1B in levels:
                asm.pe(f"l2bmr{network} $lb{LB + 64 * i} $lc{LC + 64 * i}")
            elif L2B in levels:
                asm.pe(f"l2bmd $lb{LB + 32 * i} $lc{LC + 256 * i}")
        if L2B in levels:
            size = 64 * lines * (1 if L1B in levels else 4)
            lc, pdm = m.Operand(m.L2BM, LC, m.LW), m.Operand(m.PDM, 0, m.LW, group=0)
            asm.wait(asm.move(f"mvr{network}", lc, pdm, size))
            asm.wait(asm.move("mvb", pdm, lc, size))
        for i in range(lines):
            if L1B in levels:
                asm.pe(f"l2bmb $lc{LC + 64 * i} $lb{LB + 64 * i}")
            else:
                asm.pe(f"l2bmd $lc{LC + 256 * i} $lb{LB + 32 * i}")
        for i in range(steps):
            acc = vec(m.GRF0, [2 * (4 * i + j) for j in range(min(4, results - 4 * i))], 2)
            asm.pe(f"{'l1bmm' if MAB in levels else 'l1bmd'} $lb{LB + per * i} {acc}")

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


assert NOTHING != FULL and Masks
