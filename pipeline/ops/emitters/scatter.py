"""Writing at indices that are computed at run time: ScatterElements, ScatterND, with or without a reduction.

The rows of the data lie in LM0, those of a column in one PE or shared out over PEs, each of which takes the updates for its
own. Every PE goes through all updates of its columns in order, so that equal indices follow each other: values that replace
others go four updates a step, where the last one stays; those that are added, multiplied or compared with what is there go
one update at a time. Data that do not fit LM0 come in chunks of rows; an update for a row that is not there is masked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import ADDR, L1B, L2B, MAB, PE, Layout, Sub, W
from mlsdk.pipeline.ir.scheme import LOCAL
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.gather import LM_LW, OUT_LW, RAW, at_t, without_components
from mlsdk.pipeline.ops.emitters.indices import SCRATCH, Component, Constants, Indices, units_of
from mlsdk.pipeline.ops.emitters.integers import product
from mlsdk.pipeline.ops.emitters.rows import download_units, units_room
from mlsdk.pipeline.ops.emitters.transfer import Range, Tensor, bulk_upload, download

LC, LB = 0, 0
START = SCRATCH + 60  # word of GRF1: the address of the first row that lies in LM0
BASE = SCRATCH + 62  # word of GRF0: the address of the first row of this PE

#: reduction -> dtype -> lines on {old} and {new} that leave {out}; ints of a logical dtype have rows of their own
COMBINE: dict[str, dict[str, tuple[str, ...]]] = {
    "add": {
        "single": ("fvadd {old} {new} {out}",),
        "double": ("dvadd {old} {new} {out}",),
        "int": ("iadd {old} {new} {out}",),
        "uint8": ("iadd {old} {new} $nowrite", "iand $aluf {byte} {out}"),
        "bool": ("ior {old} {new} {out}",),
    },
    "mul": {
        "single": ("fvmul {old} {new} {out}",),
        "double": ("dvmulu {old} {new} $nowrite", "dvfmad {old} {new} $mauf {out}"),
        "int": (),  # `integers.product`
        "uint8": (),
        "bool": ("iand {old} {new} {out}",),
    },
    "max": {
        "single": ("fmax {old} {new} {out}",),
        "double": ("dmax {old} {new} {out}",),
        "int": ("imax {old} {new} {out}",),
    },
    "min": {
        "single": ("fmin {old} {new} {out}",),
        "double": ("dmin {old} {new} {out}",),
        "int": ("imin {old} {new} {out}",),
    },
}


def emit_scatter(call: Call) -> tuple[Asm, dict[str, np.ndarray]]:
    return Scatter(call).run()


class Scatter:
    """Attributes as of a `gather`, where the axes are those of the updates; `logical`: the dtype of the graph."""

    def __init__(self, call: Call):
        attrs = call.node.attrs
        data, index, updates = call.inputs
        assert data is not None and index is not None and updates is not None
        assert data.scheme is not None and index.scheme is not None and updates.scheme is not None
        self.name, self.kind = call.node.name, call.kernel
        self.data, self.updates, self.out = data, updates, call.outputs[0]
        self.row_axis = int(attrs["row_axis"])  # type: ignore[arg-type]
        reduction = str(attrs.get("reduction", "none"))
        self.lines: tuple[str, ...] | None = None
        self.product = 0  # mask of the product of integers
        if reduction != "none":
            rows = COMBINE[reduction]
            logical = str(attrs["logical"])
            kind = logical if logical in rows else data.dtype
            self.lines = rows[kind]
            self.product = {"uint8": 0xFF}.get(logical, 0xFFFFFFFF) if not self.lines else 0
        self.asm = Asm()
        self.tables: dict[str, np.ndarray] = {}
        self.constants = Constants(self.asm)
        self.unit_lw = data.scheme.unit_lw(data.dtype)
        self.words = 2 * self.unit_lw  # of a row
        numbers = [int(x) for x in attrs["components"]]  # type: ignore[union-attr]
        components = [Component(e, s * self.words) for e, s in zip(numbers[::2], numbers[1::2])]
        self.indices = Indices(self.asm, self.constants, index, components, writes=True)
        data_axes, index_axes = tuple(attrs["data_axes"]), tuple(attrs["index_axes"])  # type: ignore[arg-type]
        scheme = updates.scheme
        self.depth = prod(d.n for d in data.scheme.axes[self.row_axis] if d.level == LOCAL)
        self.column = units_of(scheme, data.scheme, data_axes) // self.depth
        self.index_unit = units_of(scheme, without_components(index, len(components)), index_axes)
        self.valid = self._valid([a for a in range(len(updates.shape)) if a not in data_axes])

    def _valid(self, free: Sequence[int]) -> np.ndarray:
        """Units of the updates that hold some, in the order of the updates of each column."""
        scheme, shape = self.updates.scheme, self.updates.shape
        assert scheme is not None
        unit, strides = np.arange(scheme.units), scheme.unit_strides()
        good, order = np.ones(scheme.units, bool), np.zeros(scheme.units, np.int64)
        for a in free:
            index = np.zeros(scheme.units, np.int64)
            for d in scheme.axes[a]:
                assert d.level == LOCAL or d.n == 1
                if d.n > 1:
                    index = index * d.n + unit // strides[a, d.stride] % d.n
            good &= index < shape[a]
            order = order * shape[a] + index
        self.order = order
        return np.flatnonzero(good)

    def run(self) -> tuple[Asm, dict[str, np.ndarray]]:
        assert self.data.scheme is not None
        split = self._bases()
        whole = self.depth * self.unit_lw <= LM_LW
        columns = self.data.scheme.units // self.depth
        grain = max(1, self.out.image.granule // self.unit_lw)
        at_once = self._columns_at_once(grain) if whole else 1
        size = self.depth if whole else LM_LW // self.unit_lw // 16 * 16
        if not whole and columns > 1 and self.depth % grain:
            raise EmitError(f"{self.name}: columns of the result do not end on granules; choose another layout")
        for j in range(0, columns, at_once):
            mine = range(j, min(j + at_once, columns))
            for a in range(0, self.depth, size):
                b = min(a + size, self.depth)
                self._chunk(mine, a, b, split)
        return self.asm, self.tables

    def _columns_at_once(self, grain: int) -> int:
        """As many as fit LM0; the first of each lot stands at a granule."""
        assert self.data.scheme is not None
        columns = self.data.scheme.units // self.depth
        most = LM_LW // (self.depth * self.unit_lw)
        if most >= columns:
            return columns
        while most > 1 and most * self.depth % grain:
            most -= 1
        if most * self.depth % grain:
            raise EmitError(f"{self.name}: columns of the result do not end on granules; choose another layout")
        return most

    def _bases(self) -> bool:
        """Whether rows are shared out over PEs; if so, each PE knows the address of its first."""
        scheme = self.data.scheme
        assert scheme is not None
        spatial = [d for d in scheme.axes[self.row_axis] if d.level != LOCAL and d.n > 1]
        if not spatial:
            return False
        pe = np.arange(4096)
        place = {L2B: pe >> 9, L1B: pe >> 6 & 7, MAB: pe >> 2 & 15, PE: pe & 3}
        number = np.zeros(4096, np.int64)
        for d in spatial:
            number = number * d.n + place[d.level] // d.stride % d.n
        words = (number * self.depth * self.words).astype(np.uint32).repeat(2)
        layout = Layout(((Sub(8, L2B), Sub(8, L1B), Sub(16, MAB), Sub(4, PE), Sub(1, ADDR), Sub(2, W)),))
        image = Image(layout, "int", (8192,))
        self.tables["const0"] = image.pack(words)
        download(self.asm, Range.of(Tensor(image, "const0"), 0, 1), m.LM1, 0, LC, LB)
        self.asm.pe(f"lpassa $ln0 $lr{BASE}")
        return True

    # ---- one load of LM0 --------------------------------------------------------------------------------------

    def _chunk(self, columns: range, a: int, b: int, split: bool) -> None:
        """Rows [a, b) of each PE, of these columns, through all updates."""
        asm, c = self.asm, self.constants
        wanted = np.concatenate([np.arange(j * self.depth + a, j * self.depth + b) for j in columns])
        if units_room(self.data, wanted) > LM_LW + 40:
            raise EmitError(f"{self.name}: rows of the data lie too far apart for LM; choose another layout")
        found = download_units(asm, self.data, wanted, m.LM0, 0, LC, LB)
        places = {j: found[j * self.depth + a] for j in columns}
        start = c(a * self.words)
        asm.pe(f"iadd {start} $lr{BASE} $ls{START}" if split else f"lpassa {start} $ls{START}")
        mine = self.valid[np.isin(self.column[self.valid], np.array(columns))]
        order = mine[np.lexsort((self.column[mine], self.order[mine]))]
        for units in self._tiles(order):
            self._tile(units, places, (b - a) * self.words)
        lw = self.unit_lw
        for j in columns if a or b < self.depth else [columns]:
            first, last = (j[0], j[-1]) if isinstance(j, range) else (j, j)
            part = Range.of(self.out, (first * self.depth + a) * lw, (last * self.depth + b) * lw)
            word = places[first] - 2 * ((first * self.depth + a) * lw - part.lo)
            bulk_upload(asm, part, m.LM0, word, LC, 16384, LB, 4096)

    def _tiles(self, units: np.ndarray) -> list[np.ndarray]:
        """Lots of updates that fit LM1, and their indices GRF0; updates of one number stay together where they can."""
        assert self.updates.scheme is not None
        lw = self.updates.scheme.unit_lw(self.updates.dtype)
        tiles, at = [], 0
        while at < len(units):
            size = min(len(units) - at, OUT_LW // lw)
            while True:
                part = np.unique(units[at : at + size])
                if units_room(self.updates, part) <= OUT_LW + 16 and self.indices.fits(
                    len(np.unique(self.index_unit[part]))
                ):
                    break
                if size == 1:
                    raise EmitError(f"{self.name}: an update does not fit LM; choose another layout")
                size = -(-size // 2)
            tiles.append(units[at : at + size])
            at += size
        return tiles

    def _tile(self, units: np.ndarray, places: Mapping[int, int], span: int) -> None:
        found = self.indices.prepare(self.index_unit[units].tolist(), RAW, LC, LB)
        at = download_units(self.asm, self.updates, np.unique(units), m.LM1, 0, LC, LB)
        items = [(found[int(self.index_unit[u])], places[int(self.column[u])], at[int(u)]) for u in units]
        self.constants.ready(span - 1)
        if self.kind == "elements":
            self._elements(items, span)
        elif self.lines is None:
            self._replace(items, span)
        else:
            self._combine_rows(items, span)

    def _load_t(self, words: Sequence[int], span: int) -> None:
        """T = the address of the row; mask 1 where it lies in LM0."""
        self.asm.pe(f"isub {vec(m.GRF0, words, 2)} $ls{START} $lt")
        self.asm.pe(f"uisub {self.constants(span - 1)} $aluf $omr1")

    def _replace(self, items: list[tuple[int, int, int]], span: int) -> None:
        """(word of the index, place of the column, word of the update), four a step; those of one column in order."""
        asm = self.asm
        width = min(self.words, 4)
        prefix, guard = {2: ("l", "/$imr1"), 4: ("ll", "/$llimr1")}[width]
        by_index: dict[int, list[tuple[int, int]]] = {}
        for index, place, update in items:
            by_index.setdefault(index, []).append((place, update))
        rows = list(by_index.items())
        for start in range(0, len(rows), 4):
            four = rows[start : start + 4]
            self._load_t([index for index, _ in four], span)
            for i in range(max(len(pairs) for _, pairs in four)):
                pairs = [p[min(i, len(p) - 1)] for _, p in four]
                for part in range(0, self.words, width):
                    source = vec(m.LM1, [u + part for _, u in pairs], width)
                    asm.pe(f"lpassa {source} {at_t([p + part for p, _ in pairs], prefix)}{guard}")

    def _combine_rows(self, items: list[tuple[int, int, int]], span: int) -> None:
        """One index at a time, the long words of its columns four a step."""
        by_index: dict[int, list[tuple[int, int]]] = {}
        sequence: list[tuple[int, list[tuple[int, int]]]] = []
        for index, place, update in items:
            pairs = by_index.get(index)
            if pairs is None or any(p == place for p, _ in pairs):
                pairs = by_index[index] = []
                sequence.append((index, pairs))
            pairs.append((place, update))
        for index, pairs in sequence:
            accesses = [(p + w, u + w) for p, u in pairs for w in range(0, self.words, 2)]
            for at in range(0, len(accesses), 4):
                four = accesses[at : at + 4]
                self._combine([index], [p for p, _ in four], [u for _, u in four], 2, span, at == 0)

    def _elements(self, items: list[tuple[int, int, int]], span: int) -> None:
        """A quad of updates at a time, a lane each cycle."""
        each = 2 if self.data.dtype == "double" else 1
        for index, place, update in items:
            words = [index + 2 * e for e in range(4)]
            old, new = [place + each * e for e in range(4)], [update + each * e for e in range(4)]
            if self.lines is None:
                self._load_t(words, span)
                letter, prefix = ("l", "l") if each == 2 else ("i", "")
                self.asm.pe(f"{letter}passa {vec(m.LM1, new, each)} {at_t(old, prefix)}/$imr1")
            else:
                self._combine(words, old, new, each, span, True)

    def _combine(
        self, index: Sequence[int], old: Sequence[int], new: Sequence[int], width: int, span: int, load: bool
    ) -> None:
        asm = self.asm
        target = at_t(list(old), "l" if width == 2 else "")
        source = vec(m.LM1, new, width)
        if self.product:
            self._product(index, target, source, span)
            return
        if load:
            self._load_t(index, span)
        names = {"{old}": target, "{new}": source, "{out}": f"{target}/$imr1"}
        if any("{byte}" in line for line in self.lines or ()):
            self.constants.ready(0xFF)
            names["{byte}"] = self.constants(0xFF)
        for line in self.lines or ():
            for key, value in names.items():
                line = line.replace(key, value)
            asm.pe(line)

    def _product(self, index: Sequence[int], target: str, source: str, span: int) -> None:
        """Integers are multiplied in GRF0."""
        old = f"$lr{SCRATCH + 40}v"
        self._load_t(index, span)
        self.asm.pe(f"ipassa {target} {old}")
        product(self.asm, self.constants, old, source, f"{target}/$imr1", self.product)
