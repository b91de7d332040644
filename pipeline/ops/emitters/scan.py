"""Running sums along an axis that lies in LM: one addition for each element, four sequences a step.

A sequence is a long word (a word, for halves) of one column along the axis. Halves are summed as singles. Sequences that do
not fit LM come in chunks; the sum so far stays in GRF0.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.fold import Form
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.rows import download_units, units_room
from mlsdk.pipeline.ops.emitters.transfer import Range, bulk_upload

LC, LB = 0, 0
LM_LW = 1984
SEQUENCES = 224  # whose sums fit GRF0
BYTE = 500  # word of GRF1

ADD = {"single": "fvadd", "double": "dvadd", "int": "iadd"}


def emit_scan(call: Call) -> tuple[Asm, dict[str, np.ndarray]]:
    return Scan(call).run()


class Scan:
    """Attributes of the node: `axis`, `exclusive`, `reverse`, `logical` (the graph's dtype)."""

    def __init__(self, call: Call):
        x, out, attrs = call.inputs[0], call.outputs[0], call.node.attrs
        assert x is not None and x.scheme is not None and x.scheme == out.scheme and x.dtype == out.dtype
        self.name, self.x, self.out, self.form = call.node.name, x, out, Form.of(x)
        if self.form.narrow:  # both words of a unit are stored, copies of one element too
            self.form = replace(self.form, items=2)
        self.n = x.shape[int(attrs["axis"])]  # type: ignore[arg-type]
        digits = x.scheme.axes[int(attrs["axis"])]  # type: ignore[arg-type]
        self.span = digits[0].n if digits else 1
        self.exclusive, self.reverse = bool(attrs["exclusive"]), bool(attrs["reverse"])
        self.byte = attrs["logical"] == "uint8"
        self.lw = x.scheme.unit_lw(x.dtype)
        self.asm = Asm()

    def run(self) -> tuple[Asm, dict[str, np.ndarray]]:
        scheme = self.x.scheme
        assert scheme is not None
        if self.byte:
            self.asm.pe(f'imm ui"255" $ls{BYTE}')
        columns = scheme.units // self.span
        grain = max(1, self.x.image.granule // self.lw)
        if self.span * self.lw <= LM_LW:
            most = min(columns, LM_LW // (self.span * self.lw), SEQUENCES // self.form.items)
            while most < columns and most > 1 and most * self.span % grain:
                most -= 1
            if most < columns and most * self.span % grain:
                raise EmitError(f"{self.name}: sequences do not end on granules; choose another layout")
            for j in range(0, columns, most):
                self._lot(j, min(j + most, columns), 0, self.span, True)
            return self.asm, {}
        if columns > 1 and self.span % grain:
            raise EmitError(f"{self.name}: sequences do not end on granules; choose another layout")
        size = LM_LW // self.lw // 16 * 16
        chunks = [(a, min(a + size, self.span)) for a in range(0, self.span, size)]
        for j in range(columns):
            for number, (a, b) in enumerate(reversed(chunks) if self.reverse else chunks):
                self._lot(j, j + 1, a, b, number == 0)
        return self.asm, {}

    def _lot(self, first: int, last: int, a: int, b: int, starts: bool) -> None:
        """Elements [a, b) of columns first .. last - 1."""
        units = np.concatenate([np.arange(j * self.span + a, j * self.span + b) for j in range(first, last)])
        assert units_room(self.x, units) <= LM_LW + 64
        found = download_units(self.asm, self.x, units, m.LM0, 0, LC, LB)
        order = list(range(a, min(b, self.n)))
        order = order[::-1] if self.reverse else order
        width = self.form.width
        base = found[first * self.span + a]
        sequences = [
            (j, [found[j * self.span + i] + width * item for i in order])
            for j in range(first, last)
            for item in range(self.form.items)
        ]
        for at in range(0, len(sequences) if order else 0, 4):
            four = [words for _, words in sequences[at : at + 4]]
            self._four([2 * (at + i) for i in range(len(four))], four, starts)
        part = Range.of(self.out, (first * self.span + a) * self.lw, ((last - 1) * self.span + b) * self.lw)
        bulk_upload(self.asm, part, m.LM1, base, LC, 16384, LB, 4096)

    def _four(self, accumulators: list[int], sequences: list[list[int]], starts: bool) -> None:
        """The sums go to the places in LM1 where the elements lie in LM0. `starts`: there is no sum yet."""
        asm, form = self.asm, self.form
        acc = vec(m.GRF0, accumulators, 2)
        columns = list(zip(*sequences))
        xs = [vec(m.LM0, words, form.width, "e" if form.narrow else "") for words in columns]
        ys = [vec(m.LM1, words, form.width) for words in columns]
        if form.narrow or self.byte:
            self._rounded(acc, xs, ys, starts)
            return
        if self.exclusive:
            asm.pe(f"zero {ys[0]}" if starts else f"lpassa {acc} {ys[0]}")
            targets = [*ys[1:], acc]
        else:
            targets = [*ys[:-1], f"{ys[-1]} {acc}"]
        for number, (x, target) in enumerate(zip(xs, targets)):
            self._add(self.forward if number else acc, x, target, starts and not number)

    @property
    def forward(self) -> str:
        return "$aluf" if self.form.compute == "int" else "$mauf"

    def _add(self, running: str, x: str, target: str, fresh: bool) -> None:
        if fresh:
            self.asm.pe(f"{self.form.load(self.form.compute != 'int')} {x} {target}")
        else:
            self.asm.pe(f"{ADD[self.form.compute]} {running} {x} {target}")

    def _rounded(self, acc: str, xs: list[str], ys: list[str], starts: bool) -> None:
        """Sums that are stored narrower than they are kept."""
        if self.exclusive and starts:
            self.asm.pe(f"zero {acc}")
        for number, (x, y) in enumerate(zip(xs, ys)):
            if self.exclusive:
                self._store(self.forward if number else acc, y)
            self._add(acc, x, acc, starts and not number and not self.exclusive)
            if not self.exclusive:
                self._store(self.forward, y)

    def _store(self, total: str, y: str) -> None:
        if self.form.narrow:
            self.asm.pe(f"fvpassar {total} {y}")
        else:
            self.asm.pe(f"iand {total} $ls{BYTE} {y}")
