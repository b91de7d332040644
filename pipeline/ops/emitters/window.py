"""Windows over planes: how a tile's input rows come to LM0 of the MABs, and how its results go back.

An L1B computes one output row of a tile, a MAB neighbouring columns of it, four a step. The input rows of an L1B, all channel
blocks of them, lie in LM0 of each of its MABs with zeros around them (`Patch`); a MAB's own columns are reached by LM0's base
address (BAR), so that all MABs execute the same addresses and a tap of the window is a constant distance.

    DRAM -> L2BM   the rows that the L2B's L1Bs need, a slot for each; rows outside the input are a row of zeros
    L2BM -> L1BM   each L1B its own rows (`l2bmb@b`)
    L1BM -> LM0    in the form that the operation wants (block floats, singles)
    LM1 -> L1BM    each MAB's results to their columns (`l1bmm@m`), L1BM -> L2BM, and whole rows to DRAM
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from mlsdk.device import spec
from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import EXTENT, L1B, L2B, MAB, PE, Layout, Sub, W
from mlsdk.pipeline.ir.planes import Plane
from mlsdk.pipeline.ir.scheme import QUAD_LW
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.slots import Slot, fill_slots
from mlsdk.pipeline.ops.emitters.transfer import (
    Range,
    Tensor,
    finish_download,
    pipeline,
    settle_at_home,
    start_download,
)

# L2BM: rows of the input from below, up to LC_FREE rows of the result (`lc_out`), what is left for weights, and at the end what
# is loaded once. L1BM: below are weights, above is bias.
BORDER = "const0"  # symbol of the row that stands for those outside the input
LC_ROWS, LC_FREE, LC_ONCE = 0, 20480, 31744
LB_ROWS, LB_ROWS_SIZE = 4096, 3072
PATCH_LIMIT = 1960  # LW of LM0
LEAST_MOVE = 1024  # LW of finished rows that go to DRAM while others are stored
L1BS, MABS = 8, 16


@dataclass(frozen=True)
class Window:
    """A window operation from one plane to another; pairs are (rows, columns). `own`: an L2B needs its own channels only."""

    x: Plane
    y: Plane
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    before: tuple[int, int]
    own: bool = False

    @property
    def parts(self) -> int:
        """Channel parts of the input that an L2B needs."""
        return 1 if self.own else self.x.split.channels

    @property
    def rows_in(self) -> int:
        """Input rows of one output row."""
        return (self.kernel[0] - 1) * self.dilation[0] + 1

    def columns_in(self, columns: int) -> int:
        """Input columns of so many output columns."""
        return (columns - 1) * self.stride[1] + (self.kernel[1] - 1) * self.dilation[1] + 1

    def slot_rows(self, rows: int) -> int:
        """Input rows of so many neighbouring output rows."""
        return (rows - 1) * self.stride[0] + self.rows_in


def window_of(call: Call, own: bool = False) -> Window:
    """The window that the planner put into the node's attributes."""
    x, y, attrs = call.inputs[0], call.outputs[0], call.node.attrs
    assert x is not None and x.scheme is not None and y.scheme is not None
    source, result = Plane.of(x.shape, x.scheme), Plane.of(y.shape, y.scheme)
    if source is None or result is None:
        raise EmitError(f"{call.node.name}: {call.node.op} works on planes; input or result lies in another layout")

    def pair(key: str) -> tuple[int, int]:
        a, b = cast("tuple[int, int]", attrs[key])
        return int(a), int(b)

    return Window(source, result, pair("window"), pair("step"), pair("apart"), pair("border"), own)


@dataclass(frozen=True)
class Rows:
    """A tile: `rows` output rows from `row` on (local to each L2B) of a local image; L1B b computes row + b."""

    image: int
    row: int
    rows: int


@dataclass(frozen=True)
class Columns:
    """A segment of the output columns; a MAB computes 4 `groups` neighbours."""

    first: int
    count: int

    @property
    def groups(self) -> int:
        return -(-self.count // (4 * MABS))

    @property
    def mabs(self) -> int:
        return -(-self.count // (4 * self.groups))


class Stretch:
    """Neighbouring input columns of a row in LM0, with places for the border: from `first_column` on, which is negative in the
    border, `width` of the `extent` that there are."""

    @property
    def first_column(self) -> int:
        """Input column that the first window starts at."""
        raise NotImplementedError

    @property
    def width(self) -> int:
        """Input columns that the windows meet."""
        raise NotImplementedError

    @property
    def extent(self) -> int:
        """Columns of the input."""
        raise NotImplementedError

    @property
    def left(self) -> int:
        """Places before the loaded columns: the border, an even number so that pairs of long words stay aligned."""
        return -(-max(0, -self.first_column) // 2) * 2

    @property
    def loaded(self) -> tuple[int, int]:
        """Input columns [first, last) that are loaded; the first one starts a group of four."""
        first = min(max(0, self.first_column), self.extent) // 4 * 4
        return first, max(first, min(self.extent, self.first_column + self.width))

    @property
    def origin(self) -> int:
        """Place of input column `first_column` in a row."""
        return self.left - self.loaded[0] + self.first_column

    @property
    def pitch(self) -> int:
        """Places of a row of one block."""
        first, last = self.loaded
        need = max(self.origin + self.width, self.left + -(-(last - first) // 8) * 8)
        return -(-need // 2) * 2


@dataclass(frozen=True)
class Patch(Stretch):
    """The input of a segment in LM0: channel parts x rows x blocks x columns, `unit` LW a place."""

    window: Window
    columns: Columns
    unit: int

    @property
    def first_column(self) -> int:
        """Input column that the first window starts at; negative in the border."""
        return self.columns.first * self.window.stride[1] - self.window.before[1]

    @property
    def width(self) -> int:
        """Input columns that the windows meet."""
        return self.window.columns_in(self.columns.count)

    @property
    def extent(self) -> int:
        return self.window.x.shape[3]

    @property
    def groups(self) -> int:
        """Groups of four rows of a product."""
        return self.columns.groups

    @property
    def bases(self) -> list[tuple[int, int]]:
        """(words from one MAB's base address to the next one's, how many MABs) of what is read by such."""
        return [(self.base_step, self.columns.mabs)]

    @property
    def parts(self) -> int:
        return self.window.parts

    @property
    def blocks(self) -> int:
        return self.window.x.blocks

    @property
    def rows(self) -> int:
        """Input rows of a block."""
        return self.window.kernel[0]

    @property
    def size(self) -> int:
        """LW of LM0."""
        return self.parts * self.rows * self.blocks * self.pitch * self.unit

    def place(self, part: int, row: int, block: int) -> int:
        """The first place of a block's input row that meets row `row` of the window."""
        return ((part * self.rows + row) * self.blocks + block) * self.pitch

    def tap(self, row: int, column: int, part: int, block: int) -> int:
        """Word offset of a tap of the window in a block."""
        place = self.place(part, row, block) + self.origin + column * self.window.dilation[1]
        return 2 * self.unit * place

    def step(self, index: int) -> int:
        """Word offset of block `index` of a contraction that goes tap by tap and block by block."""
        tap, block = divmod(index, self.parts * self.blocks)
        row, column = divmod(tap, self.window.kernel[1])
        return self.tap(row, column, *divmod(block, self.blocks))

    def member(self, group: int, cycle: int) -> int:
        """Word offset of a MAB's column 4 group + cycle."""
        return 2 * self.unit * self.window.stride[1] * (4 * group + cycle)

    @property
    def base_step(self) -> int:
        """Words from one MAB's base address to the next one's."""
        return self.member(self.columns.groups, 0)


def row_tiles(window: Window, rows: int) -> Iterator[Rows]:
    for image in range(window.y.images):
        for row in range(0, window.y.rows, rows):
            yield Rows(image, row, min(rows, window.y.rows - row))


def segments(window: Window, columns: int) -> list[Columns]:
    width = window.y.shape[3]
    return [Columns(at, min(columns, width - at)) for at in range(0, width, columns)]


def row_lw(plane: Plane, dtype: str) -> int:
    """LW of L2BM for a row of all local blocks."""
    return plane.blocks * plane.columns * 4 * QUAD_LW[dtype]


def choose(name: str, window: Window, unit: int, x: str, y: str, most_groups: int) -> tuple[int, int]:
    """(rows of a tile, columns of a segment): rows of input and result must fit L2BM, a patch LM0. `x`, `y`: dtypes."""
    slot, out = row_lw(window.x, x) * window.parts, row_lw(window.y, y)
    rows = min(L1BS, window.y.rows)
    while rows > 1 and window.slot_rows(rows) * slot + rows * out > LC_FREE - LC_ROWS:
        rows -= 1
    if window.rows_in * slot + out > LC_FREE - LC_ROWS:
        raise EmitError(
            f"{name}: {window.rows_in} input rows of {slot} long words and one of {out} of results do not fit L2BM; share out "
            "more channels"
        )
    columns = _segment_columns(window, unit, QUAD_LW[x], QUAD_LW[y], most_groups)
    if columns is None:
        raise EmitError(f"{name}: a window over {window.x.blocks} blocks does not fit LM0; share out more channels")
    return rows, columns


def _segment_columns(window: Window, unit: int, lw_x: int, lw: int, most_groups: int) -> int | None:
    """The widest segment whose patch fits LM0 and whose results fit their place in L1BM, and that leaves no segment of less
    than the 64 LW which the network moves at least."""
    width, least = window.y.shape[3], -(-16 // lw)
    for columns in (width, *range((width - 1) // 4 * 4, least - 1, -4)):
        rest = width % columns
        reach = (columns - 1) * window.stride[1] + (window.kernel[1] - 1) * window.dilation[1] + 1
        read = min(window.x.columns, reach + 6)  # it begins and ends on four columns
        if (
            -(-read * 4 * lw_x // 64) * 64 <= LB_ROWS_SIZE // 2
            and columns <= 4 * MABS * most_groups
            and columns * 4 * lw <= LB_ROWS_SIZE
            and (rest == 0 or -(-rest // 4) * 4 >= least)
            and max(Patch(window, segment, unit).size for segment in segments(window, columns)) <= PATCH_LIMIT
        ):
            return columns
    return None


# ---- DRAM -> LM0 --------------------------------------------------------------------------------------------------


def start_rows(asm: Asm, window: Window, tile: Rows, x: Tensor, border: str) -> list[int]:
    """Moves of a tile's input rows into slots of L2BM: slot (part, row), the same place for all L2Bs. `border`: the symbol
    of a row that stands for those outside the input."""
    half = (
        x.image.l2b_size if x.image.l2bs_used == 2 else 0
    )  # so that the two L2Bs' parts may lie in memories of their own
    return fill_slots(asm, list(_slots(window, tile, x, border)), row_lw(window.x, x.dtype), LC_ROWS, half)


LoadPatch = Callable[[Asm, Patch, Rows, Tensor, str, str], None]


class Flow:
    """Tiles one after another: while one computes, the rows of the next and the results of the one before are on their way."""

    def __init__(self, asm: Asm, window: Window, tiles: list[Rows], segments: list[Columns], x: Tensor, y: Tensor):
        self.asm, self.window, self.tiles, self.segments, self.x, self.y = asm, window, tiles, segments, x, y
        self._coming = self._rows(0)
        self._going: list[int] = []

    def _rows(self, number: int) -> list[int]:
        if number >= len(self.tiles):
            return []
        return start_rows(self.asm, self.window, self.tiles[number], self.x, BORDER)

    def load(self, number: int, patch: Patch, kind: str, fill: str = "", by: LoadPatch | None = None) -> None:
        """The patch of a segment of tile `number` into LM0, in the way of `load_patch` or `by`."""
        self.asm.wait(*self._coming)
        self._coming = []
        (by or load_patch)(self.asm, patch, self.tiles[number], self.x, kind, fill)
        if patch.columns == self.segments[-1]:
            self._coming = self._rows(number + 1)

    def settle(self) -> None:
        """Wait until the results of the tile before have left L2BM."""
        self.asm.wait(*self._going)
        self._going = []

    def store(self, number: int, segment: Columns, memory: str = "n", first: int = 0) -> None:
        """The results of a segment out of LM1 (or LM0, from a word on); with the tile's last some rows after others to DRAM."""
        self.settle()
        tile, start = self.tiles[number], 0
        each = -(-LEAST_MOVE // row_lw(self.window.y, self.y.dtype))
        for rows in store_segment(self.asm, self.window, tile, segment, self.y, memory, first):
            if segment == self.segments[-1] and (rows - start >= each or rows == tile.rows):
                self._going += start_results(self.asm, self.window, tile, self.y, range(start, rows))
                start = rows
        if segment == self.segments[-1]:
            settle_results(self.asm, self.window, tile, self.y)
        if number + 1 == len(self.tiles):
            self.asm.wait(*self._going)


def border_row(window: Window, dtype: str, fill: int = 0) -> np.ndarray:
    """A row of the LW `fill`, the same in all groups."""
    return np.full((4, row_lw(window.x, dtype)), fill, np.uint64)


def _slots(window: Window, tile: Rows, x: Tensor, border: str) -> Iterator[Slot]:
    source, result, lw = window.x, window.y, 4 * QUAD_LW[x.dtype]
    split = result.split
    for part in range(window.parts):
        for row in range(window.slot_rows(tile.rows)):
            wanted: dict[int, tuple[int, int, str]] = {}
            for image_part in range(split.images):
                for row_part in range(split.rows):
                    image = image_part * result.images + tile.image
                    h = (row_part * result.rows + tile.row) * window.stride[0] - window.before[0] + row
                    inside = 0 <= h < source.shape[2] and image < source.shape[0]
                    for channel_part in range(split.channels):
                        first = result.l2b(image_part, channel_part, row_part)
                        # A result that is not shared out lies in all L2Bs.
                        everyone = range(first, first + 1) if split.l2bs > 1 else range(EXTENT[L2B])
                        if not inside:
                            wanted |= {here: (here >> 1, 0, border) for here in everyone}
                            continue
                        part_in = channel_part if window.own else part
                        owner = source.l2b(image // source.images, part_in, h // source.rows)
                        at = source.row_address(image % source.images, h % source.rows) * lw
                        if x.image.l2bs_used == 2:
                            at += (owner & 1) * x.image.l2b_size
                        for here in everyone:
                            wanted[here] = (owner >> 1 if x.image.l2b_spread else here >> 1, at, x.symbol)
            yield wanted


@dataclass(frozen=True)
class Form:
    """How a row comes from L1BM to LM0: whether L1BM delivers two long words a cycle, whether two are written, and the
    instruction between them ({0} what was delivered, {1} where it goes; none: directly)."""

    read_two: bool
    write_two: bool
    convert: str = ""


#: (what lies in LM0, dtype of the input) -> form
FORMS = {
    ("h", "half"): Form(True, True, "hbfn/9 {0} {1}"),
    ("h", "single"): Form(True, False, "hbfn/9 {0}r {1}"),
    ("f", "single"): Form(False, False, "fbfn {0} {1}"),
    ("d", "double"): Form(False, False, "dbfn {0} {1}"),
    ("single", "half"): Form(False, True, "hvpassa {0} {1}"),
    ("half", "half"): Form(True, True),
    ("single", "single"): Form(True, True),
    ("double", "double"): Form(True, True),
    ("int", "int"): Form(True, True),
}


@dataclass
class Incoming:
    """Rows of blocks on their way from L1BM to LM0: lines that read, each beside the conversion of what the line before read.
    `unit`: LW of a place in LM0, `lw`: LW of a quad as it comes."""

    form: Form
    unit: int
    lw: int
    reads: list[tuple[str, int]] = field(default_factory=list)
    _pending: str = ""

    def take(self, lb: int, place: int, columns: int, need: int) -> None:
        """Columns of a block from L1BM at `lb` to LM0 from `place` on, when `need` lines have brought them there."""
        form = self.form
        delivered = 8 if form.read_two else 4  # long words a step and PE
        for a in range(0, columns * self.lw, delivered):  # long words of the row
            read = f"l1bmm ${'ll' if form.read_two else 'l'}b{lb + 4 * a}"
            target = f"${'ll' if form.write_two else 'l'}m{2 * self.unit * (place + a // self.lw)}v"
            if not form.convert:
                self.reads.append((f"{read} {target}", need))
                continue
            self.reads.append((f"{read} $nowrite" + (f" ; {self._pending}" if self._pending else ""), need))
            self._pending = form.convert.format("$lbf", target)

    def emit(self, asm: Asm, lines: list[str]) -> None:
        """Behind the lines that bring them to L1BM."""
        pipeline(asm, lines, self.reads, distance=2)
        if self._pending:
            asm.pe(self._pending)


def load_patch(asm: Asm, patch: Patch, tile: Rows, x: Tensor, kind: str, fill: str = "") -> None:
    """From the slots in L2BM to LM0, as `kind`: block floats for products in mode h, f or d, or plain values. `fill`: what
    stands beside the columns of the input, an operand, zero if empty."""
    window, lw = patch.window, QUAD_LW[x.dtype]
    first, last = patch.loaded
    slot, rows = row_lw(window.x, x.dtype), window.slot_rows(tile.rows)
    columns = -(-(last - first) // 4) * 4
    each = columns * 4 * lw  # LW of L1BM for a row of a block
    together = 1  # blocks that are moved as one, where they follow each other, so that the last line is full
    while columns == window.x.columns and together * each % 64:
        together *= 2
    moved = -(-together * each // 64) * 64
    if moved > LB_ROWS_SIZE // 2:
        raise EmitError(f"{columns} input columns do not fit their place in L1BM; make the segment narrower")
    per_round = LB_ROWS_SIZE // 2 // max(moved, 64)  # none is loaded where windows meet borders only
    todo = [
        (part, row, block)
        for part in range(patch.parts)
        for row in range(patch.rows)
        for block in range(0, patch.blocks, together)
    ]
    for at in range(0, len(todo) if last > first else 0, per_round):
        half = LB_ROWS + at // per_round % 2 * (LB_ROWS_SIZE // 2)
        lines: list[str] = []
        coming = Incoming(FORMS[kind, x.dtype], patch.unit, lw)
        for index, (part, row, start) in enumerate(todo[at : at + per_round]):
            lb, blocks = half + index * moved, range(start, min(start + together, patch.blocks))
            for b in range(tile.rows):
                lc = LC_ROWS + (part * rows + b * window.stride[0] + row * window.dilation[0]) * slot
                lc += (start * window.x.columns + first) * 4 * lw
                target = f"@{b}" if tile.rows > 1 else ""
                lines += [f"l2bmb{target} $lc{lc + i} $lb{lb + i}" for i in range(0, len(blocks) * each, 64)]
            for block in blocks:
                coming.take(
                    lb + (block - start) * each, patch.place(part, row, block) + patch.left, columns, len(lines)
                )
        coming.emit(asm, lines)
    fill_borders(asm, patch, fill)


def fill_borders(asm: Asm, patch: Patch, fill: str) -> None:
    """What stands in the places beside the loaded columns that some window meets."""
    first, last = patch.loaded
    inside = range(patch.left, patch.left + last - first)
    columns = [c for c in range(patch.origin, patch.origin + patch.width) if c not in inside]
    words = [
        2 * patch.unit * (patch.place(part, row, block) + c) + 2 * i
        for part in range(patch.parts)
        for row in range(patch.rows)
        for block in range(patch.blocks)
        for c in columns
        for i in range(patch.unit)
    ]
    for at in range(0, len(words), 4):
        asm.pe(f"{f'lpassa {fill}' if fill else 'zero'} {vec(m.LM0, words[at : at + 4], 2)}")


# ---- base addresses -----------------------------------------------------------------------------------------------


def table_of_bases(step: int, mabs: int) -> tuple[Image, np.ndarray]:
    """A long word for each PE, both words the base address of its MAB, `step` words behind that of the MAB before; MABs from
    `mabs` on have that of the last one."""
    mab = np.minimum(np.arange(64) >> 2, mabs - 1)
    layout = Layout(((Sub(16, MAB), Sub(4, PE), Sub(2, W)),), (Sub(0, L2B), Sub(0, L1B)))
    image = Image(layout, "int", (16 * 4 * 2,))
    return image, image.pack(np.repeat(mab * step, 2).astype(np.uint32))


class Once:
    """What a fragment loads once, at its beginning: all moves are started before the first is waited for."""

    def __init__(self, asm: Asm) -> None:
        self.asm, self.lc = asm, LC_ONCE
        self._loads: list[tuple[list[int], int, Callable[[int], None]]] = []

    def start(self, part: Range, finish: Callable[[int], None]) -> None:
        """`finish(lc)` is called when the data are in L2BM at `lc`."""
        if self.lc + part.lc_size > spec.L2BM_LW:
            self.finish()
        self._loads.append((start_download(self.asm, part, self.lc), self.lc, finish))
        self.lc += -(-part.lc_size // 64) * 64

    def finish(self) -> None:
        for tags, lc, finish in self._loads:
            self.asm.wait(*tags)
            finish(lc)
        self._loads.clear()
        self.lc = LC_ONCE


def load_once(once: Once, tensor: Tensor, lb: int) -> int:
    """A tensor that all MABs of an L2B share into L1BM at `lb`, whole; gives the address behind."""
    part = Range.of(tensor, 0, tensor.image.addresses)
    if tensor.image.l1b_spread or tensor.image.mab_spread or part.lc_size > spec.L2BM_LW - LC_ONCE:
        raise EmitError(f"{tensor.shape} numbers of {tensor.dtype} do not fit L1BM; share out more channels")

    def finish(lc: int) -> None:
        for i in range(0, part.lb_size, 64):
            once.asm.pe(f"l2bmb $lc{lc + i} $lb{lb + i}")

    once.start(part, finish)
    return lb + -(-part.lb_size // 64) * 64


def load_base(once: Once, image: Image, symbol: str, word: int) -> None:
    """A table of base addresses into GRF1."""
    part = Range.of(Tensor(image, symbol), 0, image.addresses)
    once.start(part, lambda lc: finish_download(once.asm, part, lc, LB_ROWS, m.GRF1, word))


def set_base(asm: Asm, word: int) -> None:
    """LM0's base address from GRF1; nothing but reads of the patch until `clear_base`."""
    asm.pe(f"ipassa $s{word} $mb")
    asm.nop(2)


def clear_base(asm: Asm) -> None:
    asm.pe("zero $mb")
    asm.nop(2)


# ---- LM1 -> DRAM --------------------------------------------------------------------------------------------------


def lc_out(window: Window, tile: Rows, y: str) -> int:
    """Where in L2BM the results of a tile lie, as dtype `y`."""
    return LC_FREE - tile.rows * row_lw(window.y, y)


def store_segment(
    asm: Asm, window: Window, tile: Rows, columns: Columns, y: Tensor, memory: str = "n", first: int = 0
) -> Iterator[int]:
    """Results of a segment from LM ([group][block][column of four][LW], from word `first` on) to their columns of the rows in
    L2BM; how many rows are there in full, each time that one more is."""
    lw, plane = QUAD_LW[y.dtype], window.y
    whole, stored = is_whole(plane, columns), stored_columns(plane, columns)
    per_round = max(1, LB_ROWS_SIZE // (stored * 4 * lw))
    for b0 in range(0, plane.blocks, per_round):
        blocks = range(b0, min(b0 + per_round, plane.blocks))
        for block in blocks:
            for mab in range(columns.mabs):
                for group in range(columns.groups):
                    column = (mab * columns.groups + group) * 4
                    if column >= stored:
                        continue
                    word = first + (group * plane.blocks + block) * 4 * lw * 2
                    lb = LB_ROWS + ((block - b0) * stored + column) * 4 * lw
                    if lw == 1:
                        asm.pe(f"l1bmm@{mab} $l{memory}{word}v $lb{lb}")
                        continue
                    for i in range(0, 4 * lw, 8):
                        asm.pe(f"l1bmm@{mab} $ll{memory}{word + 2 * i}v $llb{lb + 4 * i}")
        for b in range(tile.rows):
            row = lc_out(window, tile, y.dtype) + b * row_lw(plane, y.dtype)
            for lb, lc, size in spans(plane, blocks, columns, stored, whole, lw):
                for i in cuts(size):
                    asm.pe(f"l2bm@{b} $lb{LB_ROWS + lb + i} $lc{row + lc + i}")
            if blocks[-1] + 1 == plane.blocks:
                yield b + 1


def is_whole(plane: Plane, columns: Columns) -> bool:
    """Whether a segment has all columns of a row."""
    return columns.first == 0 and columns.count >= plane.shape[3]


def stored_columns(plane: Plane, columns: Columns) -> int:
    """How many columns of a row pass through L1BM for a segment."""
    return plane.columns if is_whole(plane, columns) else -(-columns.count // 4) * 4


def spans(plane: Plane, blocks: range, columns: Columns, stored: int, whole: bool, lw: int):
    """(offset in L1BM, offset in a row of L2BM, size) of what is contiguous in both."""
    each = stored * 4 * lw
    if whole:
        yield 0, blocks[0] * each, len(blocks) * each
        return
    for index, block in enumerate(blocks):
        yield index * each, (block * plane.columns + columns.first) * 4 * lw, each


def cuts(size: int) -> list[int]:
    """Offsets of the 64-LW steps that cover a size exactly; the last one may overlap the one before."""
    if size < 64:
        raise EmitError("a segment of less than 64 long words cannot be stored alone; make it wider")
    return [*range(0, size - 63, 64)] + ([size - 64] if size % 64 else [])


def start_results(asm: Asm, window: Window, tile: Rows, y: Tensor, rows: range) -> list[int]:
    """Moves of some finished rows of a tile from L2BM to DRAM."""
    image, each = y.image, row_lw(window.y, y.dtype)
    at = window.y.row_address(tile.image, tile.row) * 4 * QUAD_LW[y.dtype] + rows[0] * each
    tags, out = [], lc_out(window, tile, y.dtype) + rows[0] * each
    for half in range(image.l2bs_used if y.symbol else 0):
        dst = m.Operand(m.DRAM, at + half * image.l2b_size, m.LW, symbol=y.symbol)
        tags.append(asm.move("mvp", m.Operand(m.L2BM, out, m.LW, block=half), dst, len(rows) * each))
    return tags


def settle_results(asm: Asm, window: Window, tile: Rows, y: Tensor) -> None:
    """A tile's finished rows from L2BM to where they live in LM."""
    if y.home is None:
        return
    if not y.image.l2b_spread:
        raise EmitError("results of one L2B cannot be left in the LM of all")
    per = y.image.lw_per_address
    lo = window.y.row_address(tile.image, tile.row) * 4 * QUAD_LW[y.dtype] // per
    hi = lo + tile.rows * row_lw(window.y, y.dtype) // per
    settle_at_home(asm, Range(y, lo, hi), lc_out(window, tile, y.dtype), LB_ROWS, LB_ROWS_SIZE)
