"""Reading rows at indices that are computed at run time: Gather, GatherElements, GatherND.

The rows of the data lie in LM0, all of them in each PE that may want one, and T picks. Three ways, by where the lanes are:

    rows      an index is for a whole lane block (or there are no lanes): a quad or a long word is read at once
    elements  each lane has an index of its own: a word is read for each
    lanes     the rows themselves are on the lanes: the PE that holds the row gives it to the others of its MAB

Data that do not fit LM0 come in chunks of rows; what a chunk does not hold is masked.
"""

from __future__ import annotations

from math import prod

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.scheme import LOCAL
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.indices import SCRATCH, Component, Constants, Indices, units_of
from mlsdk.pipeline.ops.emitters.rows import download_units, units_room
from mlsdk.pipeline.ops.emitters.transfer import Range, Tensor, bulk_upload

LC, LB = 0, 0
LM_LW = 2000  # long words of LM0 for rows
OUT_LW, RAW = 1000, 2048  # long words of LM1 for results; its first word for raw indices


def emit_gather(call: Call) -> tuple[Asm, dict[str, np.ndarray]]:
    return Gather(call).run()


class Gather:
    """Attributes of the node: `row_axis` of the data; `data_axes` and `index_axes`: for each axis of the data and of the
    indices the axis of the result (-1: none); `components`: extents and strides of the numbers of an index."""

    def __init__(self, call: Call):
        attrs = call.node.attrs
        data, index = call.inputs
        assert data is not None and index is not None and data.scheme is not None and index.scheme is not None
        self.name, self.kind = call.node.name, call.kernel
        self.data, self.index, self.out = data, index, call.outputs[0]
        self.row_axis = int(attrs["row_axis"])  # type: ignore[arg-type]
        self.asm = Asm()
        self.constants = Constants(self.asm)
        scheme = self.out.scheme
        assert scheme is not None
        self.unit_lw = data.scheme.unit_lw(data.dtype)
        self.out_lw = scheme.unit_lw(self.out.dtype)
        #: units of the data along the rows
        self.depth = prod(d.n for d in data.scheme.axes[self.row_axis] if d.level == LOCAL)
        numbers = [int(x) for x in attrs["components"]]  # type: ignore[union-attr]
        row_words = 1 if self.kind == "lanes" else 2 * self.unit_lw
        components = [Component(e, s * row_words) for e, s in zip(numbers[::2], numbers[1::2])]
        self.indices = Indices(self.asm, self.constants, index, components, writes=False)
        self.base = units_of(scheme, data.scheme, attrs["data_axes"])  # type: ignore[arg-type]
        self.index_unit = units_of(scheme, without_components(index, len(components)), attrs["index_axes"])  # type: ignore[arg-type]

    def run(self) -> tuple[Asm, dict[str, np.ndarray]]:
        """Result units in runs that read the same columns of the data."""
        assert self.out.scheme is not None and self.data.scheme is not None
        units = self.out.scheme.units
        depth = self.depth
        columns = self.base // depth
        grain = max(1, self.out.image.granule // self.out_lw)
        whole = depth * self.unit_lw <= LM_LW
        at_once = max(1, LM_LW // (depth * self.unit_lw)) if whole else 1
        if whole and len(np.unique(columns)) <= at_once:
            runs = [(0, units)]
        else:
            cuts = np.flatnonzero(np.diff(columns // at_once)) + 1
            edges = [0, *cuts.tolist(), units]
            runs = list(zip(edges, edges[1:]))
            if any(edge % grain for edge in edges[1:-1]):
                raise EmitError(f"{self.name}: columns of the result do not end on granules; choose another layout")
        for first, last in runs:
            mine = np.unique(columns[first:last])
            if whole:
                wanted = np.concatenate([np.arange(j * depth, (j + 1) * depth) for j in mine.tolist()])
                places = self._rows(wanted)
                for a, b in self._tiles(first, last, grain):
                    self._tile(a, b, [(0, depth, {int(j): places[int(j) * depth] for j in mine})])
            else:
                assert len(mine) == 1
                for a, b in self._tiles(first, last, grain):
                    self._tile(a, b, None)
        return self.asm, {}

    def _rows(self, wanted: np.ndarray) -> dict[int, int]:
        if units_room(self.data, wanted) > LM_LW + 40:
            raise EmitError(f"{self.name}: rows of the data lie too far apart for LM; choose another layout")
        return download_units(self.asm, self.data, wanted, m.LM0, 0, LC, LB)

    def _tiles(self, first: int, last: int, grain: int) -> list[tuple[int, int]]:
        """Result units whose indices fit GRF0 and that fit LM1."""
        most = OUT_LW // self.out_lw // grain * grain
        tiles, at = [], first
        while at < last:
            size = min(most, last - at)
            while not self._index_room(at, at + size):
                if size <= grain:
                    raise EmitError(f"{self.name}: {grain} results have too many indices; choose another layout")
                size = max(grain, size // 2 // grain * grain)
            tiles.append((at, at + size))
            at += size
        return tiles

    def _index_room(self, first: int, last: int) -> bool:
        return self.indices.fits(len(np.unique(self.index_unit[first:last])))

    def _tile(self, first: int, last: int, chunk: list[tuple[int, int, dict[int, int]]] | None) -> None:
        """`chunk`: the rows in LM0 (all of them), or None: bring them chunk by chunk."""
        units = np.arange(first, last)
        found = self.indices.prepare(self.index_unit[first:last].tolist(), RAW, LC, LB)
        depth = self.depth
        groups = self._groups(units)
        columns = self.base[first:last] // depth
        if chunk is not None:
            for a, b, places in chunk:
                self._read(first, groups, found, a, b, {int(u): places[int(j)] for u, j in zip(units, columns)}, False)
        else:
            size = LM_LW // self.unit_lw // 16 * 16
            j = int(columns[0])
            for a in range(0, depth, size):
                b = min(a + size, depth)
                place = self._rows(np.arange(j * depth + a, j * depth + b))[j * depth + a]
                self._read(first, groups, found, a, b, dict.fromkeys(units.tolist(), place), True)
        part = Range.of(self.out, first * self.out_lw, last * self.out_lw)
        assert part.lo == first * self.out_lw
        bulk_upload(self.asm, part, m.LM1, 0, LC, 16384, LB, 4096)

    def _groups(self, units: np.ndarray) -> list[list[list[int]]]:
        """Result units four by four; those of a group share their four indices."""
        by_index: dict[int, list[int]] = {}
        for unit in units.tolist():
            by_index.setdefault(int(self.index_unit[unit]), []).append(unit)
        rows = sorted(by_index.items())
        groups = []
        for at in range(0, len(rows), 4):
            four = [list(units) for _, units in rows[at : at + 4]]
            depth = max(len(units) for units in four)
            groups.append([[units[min(i, len(units) - 1)] for units in four] for i in range(depth)])
        return groups

    def _read(self, first, groups, found, a: int, b: int, places: dict[int, int], masked: bool) -> None:
        kinds = {"rows": self._read_rows, "elements": self._read_elements, "lanes": self._read_lanes}
        kinds[self.kind](first, groups, found, a, b, places, masked)

    def _load_t(self, source: str, lo: int, span: int, masked: bool) -> None:
        """T = the address of a row in a chunk that starts `lo` words behind the first row and has `span` words; mask 1
        where the row is one of them."""
        asm, c = self.asm, self.constants
        if not masked:
            asm.pe(f"lpassa {source} $lt")
            return
        c.ready(lo, span - 1)
        asm.pe(f"isub {source} {c(lo)} $lt")
        asm.pe(f"uisub {c(span - 1)} $aluf $omr1")

    # ---- rows -------------------------------------------------------------------------------------------------

    def _read_rows(self, first, groups, found, a: int, b: int, places, masked: bool) -> None:
        asm, words = self.asm, 2 * self.unit_lw
        width = min(words, 4)
        prefix = {2: "l", 4: "ll"}[width]
        guard = {2: "/$imr1", 4: "/$llimr1"}[width] if masked else ""
        for group in groups:
            four = group[0]
            self._load_t(
                vec(m.GRF0, [found[int(self.index_unit[u])] for u in four], 2), a * words, (b - a) * words, masked
            )
            for units in group:
                for part in range(0, words, width):
                    source = at_t([places[u] + part for u in units], prefix)
                    target = vec(m.LM1, [2 * self.out_lw * (u - first) + part for u in units], width)
                    asm.pe(f"lpassa {source} {target}{guard}")

    # ---- elements ---------------------------------------------------------------------------------------------

    def _read_elements(self, first, groups, found, a: int, b: int, places, masked: bool) -> None:
        """A quad of results at a time, a lane each cycle."""
        asm, span = self.asm, 2 * self.unit_lw
        guard = "/$imr1" if masked else ""
        dtype = self.data.dtype
        for unit in sorted({u for group in groups for units in group for u in units}):
            at = found[int(self.index_unit[unit])]
            self._load_t(vec(m.GRF0, [at + 2 * e for e in range(4)], 2), a * span, (b - a) * span, masked)
            place, to = places[unit], 2 * self.out_lw * (unit - first)
            if dtype != "half":
                each = 2 if dtype == "double" else 1
                words = [each * e for e in range(4)]
                source = at_t([place + w for w in words], "l" if each == 2 else "")
                target = vec(m.LM1, [to + w for w in words], each)
                asm.pe(f"{'l' if each == 2 else 'i'}passa {source} {target}{guard}")
            else:
                self._halves(place, to, masked, again=a > 0)

    def _halves(self, place: int, to: int, masked: bool, again: bool) -> None:
        """Four halves at T, each from a word of its own, into two words; those outside the chunk stay as they are."""
        asm, c = self.asm, self.constants
        high, low = c(0xFFFF0000), c(0x0000FFFF)
        h, lo = int(high[3:]), int(low[3:])
        r = SCRATCH + 32
        flush = "/$imr1" if masked else ""
        source, keep = at_t([place, place, place + 1, place + 1], ""), vec(m.GRF1, [h, lo, h, lo], 1)
        asm.pe(f"iand{flush} {source} {keep} {vec(m.GRF0, [r, r + 1, r + 2, r + 3], 1)}")
        asm.pe(f"ipassa {vec(m.GRF0, [r + 1, r + 3, r + 1, r + 3], 1)} $nowrite")
        target = vec(m.LM1, [to, to + 1, to, to + 1], 1)
        pair = vec(m.GRF0, [r, r + 2, r, r + 2], 1)
        if again:
            asm.pe(f"ior $aluf {pair} $nowrite")
            asm.pe(f"ior $aluf {target} {target}")
        else:
            asm.pe(f"ior $aluf {pair} {target}")

    # ---- lanes ------------------------------------------------------------------------------------------------

    def _read_lanes(self, first, groups, found, a: int, b: int, places, masked: bool) -> None:
        """Four results at a time: row f is element f & 3 of PE f >> 2 & 3 in unit f >> 4."""
        asm, c, dtype = self.asm, self.constants, self.data.dtype
        words = 2 * self.unit_lw
        r = SCRATCH + 32
        shift, inside = {"half": (3, (1, 1)), "double": (1, (-1, 6))}.get(dtype, (2, (0, 3)))
        c.ready(12, 16, 32, 1, 4, shift, -words, inside[1], a * words, (b - a) * words - 1, 0xFFFF0000)
        for group in groups:
            f = vec(m.GRF0, [found[int(self.index_unit[u])] for u in group[0]], 2)
            owner_of_lane(asm, c, f)
            asm.pe(f"ilsl $aluf {c(16)} $ls{r}v")
            asm.pe(f"ilsr {f} {c(shift)} $nowrite")
            asm.pe(f"iand $aluf {c(-words)} $lr{r}v")
            if inside[0]:
                asm.pe(f"{'ilsr' if inside[0] > 0 else 'ilsl'} {f} {c(1)} $nowrite")
                asm.pe(f"iand $aluf {c(inside[1])} $nowrite")
            else:
                asm.pe(f"iand {f} {c(inside[1])} $nowrite")
            asm.pe(f"ior $aluf $lr{r}v $nowrite")
            if a:
                asm.pe(f"isub $aluf {c(a * words)} $lt $lr{r}v")
            else:
                asm.pe(f"ipassa $aluf $lt $lr{r}v")
            asm.pe(f"ior $aluf $ls{r}v $nowrite")
            asm.pe(f"uisub {c((b - a) * words - 1)} $aluf $omr1")
            for units in group:
                self._from_lanes(units, f, [2 * (u - first) for u in units], [places[u] for u in units], again=a > 0)

    def _from_lanes(self, units: list[int], f: str, targets: list[int], places: list[int], again: bool) -> None:
        asm, c, r = self.asm, self.constants, SCRATCH + 32
        target = vec(m.LM1, targets, 2)
        if self.data.dtype == "double":
            asm.pe(f"lpassa/$imr1 {at_t(places, 'l')} $lr{r}v")
        else:
            if self.data.dtype == "half":
                asm.pe(f"iand {f} {c(1)} $nowrite")
                asm.pe(f"ilsl $aluf {c(4)} $lr{r + 8}v")
                asm.pe(f"ipassa/$imr1 {at_t(places, '')} $nowrite")
                asm.pe(f"ilsl $aluf $lr{r + 8}v $nowrite")
                asm.pe(f"iand $aluf {c(0xFFFF0000)} $lr{r}v")
                asm.pe(f"uilsr $aluf {c(16)} $nowrite")
                asm.pe(f"ior $aluf $lr{r}v $lr{r}v")
            else:
                asm.pe(f"ipassa/$imr1 {at_t(places, '')} $lr{r}v")
            asm.pe(f"lbsl $aluf {c(32)} $nowrite")
            asm.pe(f"lor $aluf $lr{r}v $lr{r}v")
        asm.pe("msr $aluf $nowrite")
        asm.pe(f"lor $aluf $lr{r}v $lr{r}v")
        asm.pe("msr $aluf $nowrite")
        asm.pe("msr $aluf $nowrite")
        if again:
            asm.pe(f"lor $aluf $lr{r}v $nowrite")
            asm.pe(f"lor $aluf {target} {target}")
        else:
            asm.pe(f"lor $aluf $lr{r}v {target}")


def owner_of_lane(asm: Asm, c: Constants, f: str) -> None:
    """In $aluf: 0 where this PE holds lane f of a block of 16, else up to 12."""
    c.ready(12)
    if not c.lane:
        asm.pe(f"ilsl $subpeid {c(2)} $ls{SCRATCH - 2}")
        c.lane = f"$ls{SCRATCH - 2}"
    asm.pe(f"iand {f} {c(12)} $nowrite")
    asm.pe(f"ixor $aluf {c.lane} $nowrite")


def at_t(offsets: list[int], prefix: str) -> str:
    """LM0 at T and an offset for each cycle."""
    a = [o % 4096 for o in offsets] + [offsets[-1] % 4096] * (4 - len(offsets))
    return f"${prefix}mt{a[0]}" if len(set(a)) == 1 else f"${prefix}mt[" + ",".join(map(str, a)) + "]"


def without_components(index: Tensor, components: int):
    """The scheme of the indices without the axis of their components."""
    assert index.scheme is not None
    if components == 1:
        return index.scheme
    return index.scheme.restrict((*index.shape[:-1], 1), index.shape)
