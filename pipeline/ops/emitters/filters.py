"""The gradient of a convolution's filters: a product along the places of the images, which never leave the planes.

dw[o, c, k, l] = sum over n, r, s of  g[n, o, r, s]  x[n, c, r stride + k dilation - before, s stride + l dilation - before]

L2Bs share the images and rows of g, the L1Bs of each again: an L1B has *chunks* of rows of some images, and of x the rows that
these meet. They lie in LM0 of all its MABs as they come, lanes channels. What a MAB multiplies are *blocks*: 16 channels of x
at one tap of the window, and 16 channels of g, along 16 places. Both have the places on their rows, so both are read across in
the matrix registers: those of g once, into LM1; those of x on their way to each product, where they become its matrix.

    LM0      rows of x with their borders, rows of g
    LM1      g, lanes places, as block floats; accumulators of other rounds
    GRF0     accumulators of a round, GRF1 the bases of x and g for each round

The MABs share the blocks: in a round each has one of x, at the place that its base address says (BAR), and some of g. In the end
the L1Bs' sums are added on their way to L2BM, and those of the L2Bs on their way to DRAM. What does not fit goes in *passes*,
each with some channels of x and g.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from mlsdk.device import spec
from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import ADDR, EXTENT, L1B, L2B, MAB, PE, Layout, Sub, W
from mlsdk.pipeline.ir.planes import Plane
from mlsdk.pipeline.ir.scheme import BLOCK, QUAD_LW
from mlsdk.pipeline.ops.clock import Clock
from mlsdk.pipeline.ops.emitters import window as windows
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.filter_ways import (
    KINDS,
    LM1_LW,
    ZERO_PLACE,
    Field,
    Pass,
    Sharing,
    Sizes,
    choose,
    passes,
    segments,
    sizes_of,
    slot_counts,
)
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.gemm_pipeline import Timetable
from mlsdk.pipeline.ops.emitters.slots import Slot, fill_slots
from mlsdk.pipeline.ops.emitters.transfer import Range, Tensor, finish_download, pipeline, settle_at_home, start_upload
from mlsdk.pipeline.ops.emitters.window import L1BS, MABS, row_lw

LC_ROWS = 0  # L2BM: rows of x and g, later sums
LB_HALF = 4096  # L1BM is two halves of as much
BASES, KEPT = 0, 480  # words of GRF1 for the bases, and for what singles read across
BASES_AT_ONCE = 16  # as many as go where things are loaded once
PIECE = 16  # blocks of sums that are on their way together


def emit_filters(call: Call) -> tuple[Asm, dict[str, np.ndarray]]:
    """inputs: x and g, planes of one dtype; output: singles (doubles), lanes channels, in the order output block, tap, channel
    block, output."""
    x, g = call.inputs[:2]
    assert x is not None and g is not None and x.scheme is not None and g.scheme is not None
    planes = [Plane.of(t.shape, t.scheme) for t in (x, g)]  # type: ignore[arg-type]
    if planes[0] is None or planes[1] is None:
        raise EmitError(f"{call.node.name}: {call.node.op} works on planes; x or the gradient lies in another layout")
    groups = int(call.node.attrs["groups"])  # type: ignore[arg-type]
    ways = [
        (sizes, way)
        for sizes in sizes_of(planes[0], planes[1], dict(call.node.attrs), groups)
        if (way := choose(sizes, call.kernel, x.dtype)) is not None
    ]
    if not ways:
        raise EmitError(f"{call.node.name}: the rows of {call.node.op} do not fit LM in any way")
    found = [_Filters(call, sizes, way, x, g).emit() for sizes, way in ways]
    return min(found, key=lambda emitted: Clock().run(emitted[0].statements))


@dataclass(frozen=True)
class _Tile:
    image: int
    row: int


class _Filters:
    def __init__(self, call: Call, sizes: Sizes, way: Sharing, x: Tensor, g: Tensor):
        self.sizes, self.way, self.x, self.g, self.out = sizes, way, x, g, call.outputs[0]
        self.kind = KINDS[call.kernel]
        self.unit = QUAD_LW[x.dtype]
        self.asm = Asm()
        self.constants: dict[str, np.ndarray] = {}

    def emit(self) -> tuple[Asm, dict[str, np.ndarray]]:
        longest = max(row_lw(self.sizes.x, self.x.dtype), row_lw(self.sizes.g, self.g.dtype))
        self.constants[windows.BORDER] = np.zeros((spec.GROUPS, longest), np.uint64)
        self.asm.pe(f"zero $llm[{','.join(str(2 * ZERO_PLACE + 4 * i) for i in range(4))}]")
        for some in passes(self.sizes, self.way):
            self._pass(some)
        return self.asm, self.constants

    # ---- one pass -----------------------------------------------------------------------------------------------

    def _pass(self, some: Pass) -> None:
        sizes, way = self.sizes, self.way
        tiles = [
            _Tile(image, row)
            for image in range(0, sizes.work.images, way.tile_images)
            for row in range(0, sizes.work.rows, way.tile_rows)
        ]
        parts = segments(sizes, way.columns)
        coming = self._start_rows(tiles[0])
        bases = self._load_bases(some, parts)
        first = True
        for number in range(len(tiles)):
            for index, (start, count) in enumerate(parts):
                field = Field(sizes, way, start, count, len(some.channels), len(some.outputs), self.unit)
                self.asm.wait(*coming)
                coming = []
                self._bring(some, field)
                if index + 1 == len(parts) and number + 1 < len(tiles):
                    coming = self._start_rows(tiles[number + 1])
                self._across(some, field)
                self._multiply(some, field, bases[index], first)
                first = False
        self._store(some)

    def _start_rows(self, tile: _Tile) -> list[int]:
        """Moves of a tile's rows of x and g into L2BM."""
        lc_g = self._lc_of_g
        return fill_slots(self.asm, list(self._slots(tile, True)), row_lw(self.sizes.x, self.x.dtype), LC_ROWS) + (
            fill_slots(self.asm, list(self._slots(tile, False)), row_lw(self.sizes.g, self.g.dtype), lc_g)
        )

    @property
    def _lc_of_g(self) -> int:
        return LC_ROWS + slot_counts(self.sizes, self.way)[0] * row_lw(self.sizes.x, self.x.dtype)

    def _slots(self, tile: _Tile, of_x: bool) -> Iterator[Slot]:
        """Slots [part of the channels][image][row] of x or g. Where an L2B has no place of g, both are zero."""
        sizes, way, work = self.sizes, self.way, self.sizes.work
        source, tensor = (sizes.x, self.x) if of_x else (sizes.g, self.g)
        stride, before = (sizes.stride[0], sizes.before[0]) if of_x else (1, 0)
        rows = sizes.window.slot_rows(way.tile_rows) if of_x else way.tile_rows
        lw = 4 * QUAD_LW[tensor.dtype]
        for part in range(source.split.channels):
            for at in range(way.tile_images):
                for row in range(rows):
                    wanted = {l2b: (l2b >> 1, 0, windows.BORDER) for l2b in range(EXTENT[L2B])}
                    for i, r in product(range(work.split.images), range(work.split.rows)):
                        image, h = i * work.images + tile.image + at, (r * work.rows + tile.row) * stride - before + row
                        mine = tile.image + at < work.images and (of_x or tile.row + row < work.rows)
                        if not (mine and image < source.shape[0] and 0 <= h < source.shape[2]):
                            continue
                        owner = source.l2b(image // source.images, part, h // source.rows)
                        address = source.row_address(image % source.images, h % source.rows) * lw
                        if tensor.image.l2bs_used == 2:
                            address += (owner & 1) * tensor.image.l2b_size
                        here = work.l2b(i, 0, r)
                        wanted[here] = (owner >> 1 if tensor.image.l2b_spread else here >> 1, address, tensor.symbol)
                    yield wanted
        if not of_x:
            yield {l2b: (l2b >> 1, 0, windows.BORDER) for l2b in range(EXTENT[L2B])}

    def _load_bases(self, some: Pass, parts: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
        """For each segment and round the words of GRF1 with the bases of x and of g."""
        values: list[list[int]] = []
        found: list[list[tuple[int, int]]] = []
        for start, count in parts:
            field = Field(self.sizes, self.way, start, count, len(some.channels), len(some.outputs), self.unit)
            mine = []
            for number in range(some.rounds):
                items = some.of_round(number)
                of_x = [field.base_of_x(i.tap, i.channel - some.channels.start) for i in items]
                of_g = [2 * BLOCK * self.unit * (i.output - some.outputs.start) for i in items]
                for of in (of_x, of_g):
                    if of not in values:
                        values.append(of)
                mine.append((values.index(of_x), values.index(of_g)))
            found.append([(BASES + 2 * a, BASES + 2 * b) for a, b in mine])
        symbol, count = f"const{len(self.constants)}", len(values)
        if BASES + 2 * count > KEPT:
            raise EmitError("there are more bases than GRF1 holds")
        layout = Layout(((Sub(count, ADDR), Sub(16, MAB), Sub(4, PE), Sub(2, W)),), (Sub(0, L2B), Sub(0, L1B)))
        image = Image(layout, "int", (count * 16 * 4 * 2,))
        self.constants[symbol] = image.pack(np.repeat(np.array(values, np.uint32).reshape(-1), 8))
        once, table = windows.Once(self.asm), Tensor(image, symbol)
        for at in range(0, count, BASES_AT_ONCE):
            part = Range(table, at, min(at + BASES_AT_ONCE, count))
            once.start(part, partial(self._keep_bases, part))
        once.finish()
        return found

    def _keep_bases(self, part: Range, lc: int) -> None:
        finish_download(self.asm, part, lc, 0, m.GRF1, BASES + 2 * part.lo, exact=True)

    # ---- L2BM -> LM0 --------------------------------------------------------------------------------------------

    def _bring(self, some: Pass, field: Field) -> None:
        """The rows of each L1B's chunk into LM0."""
        jobs = [*self._rows_of(some.channels, field, True), *self._rows_of(some.outputs, field, False)]
        at = 0
        half = 0
        while at < len(jobs):
            lines: list[str] = []
            reads: list[tuple[str, int]] = []
            lb = 0
            while at < len(jobs) and lb + jobs[at].size <= LB_HALF:
                job = jobs[at]
                base = half + lb
                for b, lc in enumerate(job.lc):
                    lines += [f"l2bmb@{b} $lc{lc + i} $lb{base + i}" for i in range(0, job.size, 64)]
                reads += [(f"l1bmm $llb{base + offset} $llm{2 * place}v", len(lines)) for offset, place in job.reads]
                lb += job.size
                at += 1
            pipeline(self.asm, lines, reads, distance=2)
            half = LB_HALF - half
        self._fill_borders(field)

    def _rows_of(self, blocks: range, field: Field, of_x: bool) -> Iterator[_Job]:
        sizes, way = self.sizes, self.way
        plane, tensor = (sizes.x, self.x) if of_x else (sizes.g, self.g)
        first, last = field.loaded if of_x else (field.first, field.first + field.count)
        if last <= first:
            return
        columns = -(-(last - first) // 4) * 4
        slot, lw = row_lw(plane, tensor.dtype), 4 * QUAD_LW[tensor.dtype]
        rows = field.x_rows if of_x else way.rows
        slots = sizes.window.slot_rows(way.tile_rows) if of_x else way.tile_rows
        step = way.rows * sizes.stride[0] if of_x else way.rows
        base = LC_ROWS if of_x else self._lc_of_g
        whole = columns == plane.columns
        for image, row in product(range(way.images), range(rows)):
            for run in _runs(blocks, plane.blocks, whole, (LB_HALF - 64) // (plane.columns * lw)):
                part, block = divmod(run.start, plane.blocks)
                lcs = []
                for b in range(L1BS):
                    mine = b % way.l1bs
                    there = (part * way.tile_images + mine // way.beside * way.images + image) * slots
                    there += mine % way.beside * step + row
                    if b >= way.l1bs and not of_x:
                        there = slot_counts(sizes, way)[1] - 1
                    lcs.append(base + there * slot + (block * plane.columns + first) * lw)
                size = -(-len(run) * columns * lw // 64) * 64
                reads = []
                for index, at in enumerate(run):
                    where = image, row, at - blocks.start
                    place = field.x_place(*where) + field.left if of_x else field.g_place(*where)
                    for a in range(0, columns * lw // 4, 8):
                        reads.append((index * columns * lw + 4 * a, place * self.unit + a))
                yield _Job(tuple(lcs), size, tuple(reads))

    def _fill_borders(self, field: Field) -> None:
        first, last = field.loaded
        inside = range(field.left, field.left + last - first)
        columns = [c for c in range(field.origin, field.origin + field.width) if c not in inside]
        words = [
            2 * (self.unit * (field.x_place(image, row, block) + c) + i)
            for image in range(self.way.images)
            for row in range(field.x_rows)
            for block in range(field.channels)
            for c in columns
            for i in range(self.unit)
        ]
        for at in range(0, len(words), 4):
            self.asm.pe(f"zero {vec(m.LM0, words[at : at + 4], 2)}")

    # ---- products -----------------------------------------------------------------------------------------------

    def _across(self, some: Pass, field: Field) -> None:
        """g out of LM0, lanes places as block floats into LM1: [block of places][output block][group of places][output]."""
        table, kind = Timetable(), self.kind
        index = 0
        for block, output in product(range(field.blocks), range(len(some.outputs))):
            words = field.of_g(block, output)
            for group, part in product(range(kind.groups), range(kind.parts)):
                to = ((block * len(some.outputs) + output) * kind.groups + group) * BLOCK
                t, side = index * kind.across, "xy"[index % 2]
                if kind.letter == "h":
                    for i in range(4):
                        table.at(t + i, f"hmwrite {vec(m.LM0, words[4 * i : 4 * i + 4], 2)} $l{side}{4 * i}")
                    for i in range(2):
                        table.at(t + 4 + i, f"hmread $ll{side}{8 * i} $nowrite")
                        table.at(t + 5 + i, f"hbfn/9 $mreadf $lln{2 * (to + 8 * i)}v")
                else:
                    count, lines = (8, 2) if kind.letter == "f" else (4, 1)
                    for i in range(lines):
                        mine = [w + 2 * part for w in words[group * count + 4 * i : group * count + 4 * i + 4]]
                        table.at(t + i, f"{kind.letter}mwrite {vec(m.LM0, mine, 2)} $l{side}{4 * i}")
                        table.at(t + lines + i, f"{kind.letter}mread $l{side}{4 * i} $nowrite")
                        outs = [_channel(kind.letter, 4 * i + c, part) for c in range(4)]
                        target = vec(m.LM1, [2 * (to + o) for o in outs], 2)
                        table.at(t + lines + i + 1, f"{kind.letter}bfn $mreadf {target}")
                index += 1
        table.emit(self.asm)

    def _multiply(self, some: Pass, field: Field, bases: list[tuple[int, int]], first: bool) -> None:
        each = self.way.each
        for number in range(some.rounds):
            stored = some.rounds > 1
            if stored and not first:
                self._swap(some, number, True)
            of_x, of_g = bases[number]
            self.asm.pe(f"ipassa $s{of_x} $mb")
            self.asm.pe(f"ipassa $s{of_g} $nb")
            self.asm.nop(2)
            table = Timetable()
            period = self.kind.steps(each)
            for block in range(field.blocks):
                words = field.of_x(block)
                for group, part in product(range(self.kind.groups), range(self.kind.parts)):
                    index = (block * self.kind.groups + group) * self.kind.parts + part
                    to = (block * len(some.outputs) * self.kind.groups + group) * BLOCK
                    starts = first and block == 0 and group == 0
                    self._matrix(table, index, index * period, period, words, group, part, to, starts)
            table.emit(self.asm)
            self.asm.pe("zero $mb")
            self.asm.pe("zero $nb")
            self.asm.nop(2)
            if stored:
                self._swap(some, number, False)

    def _matrix(
        self, table: Timetable, index: int, t: int, period: int, words: list[int], group: int, part: int, to: int,
        starts: bool,
    ) -> None:  # fmt: skip
        """One matrix of x at the MAB's tap, and its products with the blocks of g, whose first output lies at LW `to` of LM1."""
        letter, side = self.kind.letter, "xy"[index % 2]
        each, acc_lw = self.way.each, self.kind.acc_lw
        groups = self.kind.groups

        def operands(block: int, four: int) -> tuple[list[int], list[int]]:
            of_g = [2 * (to + block * groups * BLOCK + 4 * four + c) for c in range(4)]
            quad = acc_lw // BLOCK
            return of_g, [2 * (block * acc_lw + (4 * four + c) * quad + part) for c in range(4)]

        if letter == "h":
            for i in range(4):
                table.at(t - 8 + i, f"hmwrite {vec(m.LM0, words[4 * i : 4 * i + 4], 2)} $l{side}{4 * i}")
            for i in range(2):
                table.at(t - 4 + i, f"hmread $ll{side}{8 * i} $nowrite")
                table.at(t - 3 + i, "hbfn/9 $mreadf $nowrite")
                table.at(t - 2 + i, f"hmwrite $aluf $ll{side}{8 * i}")
            for block, four in product(range(each), range(4)):
                of_g, acc = operands(block, four)
                into = vec(m.GRF0, acc, 4)
                source = vec(m.LM1, of_g, 2)
                line = f"hmmul $l{side} {source} {into}" if starts else f"hmfma $l{side} {source} {into} {into}"
                table.at(t + 4 * block + four, line)
        elif letter == "f":
            later = period // 2
            kept = KEPT + 16 * (index % 2)
            for i in range(2):
                mine = [w + 2 * part for w in words[8 * group + 4 * i : 8 * group + 4 * i + 4]]
                table.at(t - 8 + i, f"fmwrite {vec(m.LM0, mine, 2)} $lx{4 * i}")
                table.at(t - 6 + i, f"fmread $lx{4 * i} $nowrite")
                table.at(t - 5 + i, f"fbfn $mreadf $ls{kept + 8 * i}v")
                table.at(t - 2 + i, f"fmwrite $ls{kept + 8 * i}v $lx{4 * i}")
                table.at(t + later - 2 + i, f"fmwrite $s{kept + 8 * i + 1}v2 $ly{4 * i}")
            for block, four in product(range(each), range(4)):
                of_g, acc = operands(block, four)
                into = vec(m.GRF0, acc, 2)
                for odd, one in ((0, "x"), (1, "y")):
                    source = vec(m.LM1, [w + odd for w in of_g], 1)
                    line = (
                        f"fmmul $l{one} {source} {into}"
                        if starts and not odd
                        else f"fmfma $l{one} {source} {into} {into}"
                    )
                    table.at(t + odd * later + 4 * block + four, line)
        else:
            mine = [w + 2 * part for w in words[4 * group : 4 * group + 4]]
            table.at(t - 4, f"dmwrite {vec(m.LM0, mine, 2)} $l{side}0")
            table.at(t - 3, f"dmread $l{side}0 $nowrite")
            table.at(t - 2, "dbfn $mreadf $nowrite")
            table.at(t - 1, f"dmwrite $aluf $l{side}0")
            for block, four in product(range(each), range(4)):
                of_g, acc = operands(block, four)
                into, source = vec(m.GRF0, acc, 2), vec(m.LM1, of_g, 2)
                at = t + 2 * (4 * block + four)
                table.at(
                    at, f"dmmulu $l{side} {source} $nowrite" if starts else f"dmfmau $l{side} {source} {into} $nowrite"
                )
                table.at(at + 1, f"dmfmad $l{side} {source} $mauf {into}")

    def _sums_lw(self, some: Pass, number: int) -> int:
        """Where in LM1 the accumulators of a round lie, behind g."""
        size = self.way.each * self.kind.acc_lw
        return LM1_LW - (some.rounds - number) * size

    def _swap(self, some: Pass, number: int, load: bool) -> None:
        at, size = self._sums_lw(some, number), self.way.each * self.kind.acc_lw
        for i in range(0, size, 8):
            sums, acc = f"$lln{2 * (at + i)}v", f"$llr{2 * i}v"
            self.asm.pe(f"lpassa {sums} {acc}" if load else f"lpassa {acc} {sums}")

    # ---- sums -> DRAM -------------------------------------------------------------------------------------------

    def _store(self, some: Pass) -> None:
        """The sums of all L1Bs, added, into L2BM; those of all L2Bs, added, to where the result lies."""
        found: dict[int, tuple[int, int]] = {}  # number of the block in the result -> (MAB, LW of its memory)
        sizes, each, acc_lw = self.sizes, self.way.each, self.kind.acc_lw
        of_group = sizes.channels // sizes.groups
        for index, item in enumerate(some.items):
            number, mab = divmod(index, MABS)
            at = self._sums_lw(some, number) if some.rounds > 1 else 0
            tap = item.tap[0] * sizes.kernel[1] + item.tap[1]
            for i in range(min(each, item.stop - item.output)):
                block = ((item.output + i) * sizes.taps + tap) * of_group + item.channel % of_group
                found[block] = (mab, at + i * acc_lw)
        memory = "n" if some.rounds > 1 else "r"
        blocks = sorted(found)
        runs: list[list[int]] = []
        for block in blocks:
            if runs and runs[-1][-1] + 1 == block and len(runs[-1]) < PIECE:
                runs[-1].append(block)
            else:
                runs.append([block])
        uploads = _Uploads(self.asm, self.out, "d" if self.kind.letter == "d" else "f")
        for count, run in enumerate(runs):
            lc, lb = uploads.place(), count % 2 * LB_HALF
            lines, reads = [], []
            for index, block in enumerate(run):
                mab, at = found[block]
                for i in range(0, acc_lw, 8):
                    lines.append(f"l1bmm@{mab} $ll{memory}{2 * (at + i)}v $llb{lb + 4 * (index * acc_lw + i)}")
                    if (index * acc_lw + i) % 16 == 8:
                        there = 4 * (index * acc_lw + i - 8)
                        reads.append((f"l2bmr{uploads.dtype}fadd $lb{lb + there} $lc{lc + there}", len(lines)))
            pipeline(self.asm, lines, reads, distance=3)
            uploads.start(Range(self.out, run[0] * acc_lw, (run[-1] + 1) * acc_lw))
        uploads.finish()


class _Uploads:
    """Sums of the L1Bs in L2BM on their way to DRAM, several pieces at a time, each a stage behind the next: added up in PDM,
    brought to all L2Bs, stored."""

    STAGES = 3

    def __init__(self, asm: Asm, out: Tensor, dtype: str):
        self.asm, self.out, self.dtype = asm, out, dtype
        self._size = PIECE * 64 * 4  # LW of a piece, at most
        self._count = 0
        self._pieces: list[tuple[int, Range, list[int]]] = []  # the oldest first

    def place(self) -> int:
        """Where in L2BM the next piece may lie."""
        if len(self._pieces) > self.STAGES:
            self.asm.wait(*self._pieces.pop(0)[2])
        return LC_ROWS + self._count % (self.STAGES + 1) * self._size

    def start(self, part: Range) -> None:
        """A piece that is in its place; the ones before go on."""
        lc = LC_ROWS + self._count % (self.STAGES + 1) * self._size
        self._count += 1
        shared, pdm = m.Operand(m.L2BM, lc, m.LW), m.Operand(m.PDM, lc, m.LW, group=0)
        tag = self.asm.move(f"mvr{self.dtype}fadd", shared, pdm, part.lc_size)
        self._pieces.append((lc, part, [tag]))
        self._advance()

    def finish(self) -> None:
        for _ in range(self.STAGES - 1):
            self._pieces.append((0, Range(self.out, 0, 0), []))
            self._advance()
        for _, _, tags in self._pieces:
            self.asm.wait(*tags)

    def _advance(self) -> None:
        for behind, stage in ((3, self._store), (2, self._bring)):
            if len(self._pieces) >= behind:
                at = len(self._pieces) - behind
                lc, part, tags = self._pieces[at]
                if part.addresses:
                    self.asm.wait(*tags)
                    self._pieces[at] = (lc, part, stage(lc, part))

    def _bring(self, lc: int, part: Range) -> list[int]:
        pdm = m.Operand(m.PDM, lc, m.LW, group=0)
        return [self.asm.move("mvb", pdm, m.Operand(m.L2BM, lc, m.LW), part.lc_size)]

    def _store(self, lc: int, part: Range) -> list[int]:
        tags = start_upload(self.asm, part, lc)
        if self.out.home is not None:
            settle_at_home(self.asm, part, lc, 0, LB_HALF)
        return tags


@dataclass(frozen=True)
class _Job:
    """Rows on their way from L2BM to LM0: where each L1B's begin in L2BM, LW of L1BM, and (its LW there, place in LM0) of what
    one step reads."""

    lc: tuple[int, ...]
    size: int
    reads: tuple[tuple[int, int], ...]


def _runs(blocks: range, of_part: int, whole: bool, most: int) -> Iterator[range]:
    """Blocks that follow each other in a row of L2BM, and are moved as one."""
    at = blocks.start
    while at < blocks.stop:
        stop = min(blocks.stop, (at // of_part + 1) * of_part, at + max(1, most)) if whole else at + 1
        yield range(at, stop)
        at = stop


def _channel(letter: str, column: int, part: int) -> int:
    """Which of 16 channels stands in a column of the matrix registers that hold the long words `part` of their quads."""
    return column // 2 * 4 + 2 * part + column % 2 if letter == "f" else 4 * column + part
