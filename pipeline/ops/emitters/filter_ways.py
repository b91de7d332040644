"""How the gradient of a convolution's filters is shared out over L2Bs, L1Bs, MABs and in time (`filters.py`), and which way takes
the fewest steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product

from mlsdk.device import spec
from mlsdk.pipeline.ir.layout import EXTENT, L2B
from mlsdk.pipeline.ir.planes import Plane, Split, plane_scheme
from mlsdk.pipeline.ir.scheme import BLOCK, QUAD_LW
from mlsdk.pipeline.ops.emitters.window import L1BS, MABS, Stretch, Window, row_lw

LC_SIZE = 31744  # LW of L2BM for rows of x and g
LM_LW = spec.LM_WORDS // 2
LM0_LW, LM1_LW = LM_LW - 8, LM_LW  # the last places of LM0 hold zeros
ZERO_PLACE = LM_LW - 8
GRF_LW = 256
MOST_ROUNDS = 100


@dataclass(frozen=True)
class Kind:
    """How the matrix unit multiplies places: `groups` of them to a block of 16, `parts` of 16 channels (long words of a quad),
    `period` steps at least from one matrix to the next one, and `each` steps for the products of four channels of g."""

    letter: str
    groups: int
    parts: int
    period: int
    each: int
    across: int  # steps from one block of g that is read across to the next one
    acc_lw: int  # LW of the accumulators of a block

    @property
    def matrices(self) -> int:
        """Matrices of a block of x."""
        return self.groups * self.parts

    def steps(self, blocks: int) -> int:
        """From one matrix to the next one, for so many blocks of g."""
        return max(self.period, 4 * blocks * self.each)


KINDS = {
    "h": Kind("h", 1, 1, 8, 1, 4, 32),
    "f": Kind("f", 2, 2, 16, 2, 2, 32),
    "d": Kind("d", 4, 4, 8, 2, 2, 64),
}


# ---- how the work is shared out -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """What is multiplied: `x` and `g` as they lie, `work` the planes in which the L2Bs share the places of g. `channels` and
    `outputs`: blocks of 16 of x and g, in `groups` that are apart."""

    x: Plane
    g: Plane
    work: Plane
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    before: tuple[int, int]
    groups: int = 1

    @property
    def window(self) -> Window:
        return Window(self.x, self.work, self.kernel, self.stride, self.dilation, self.before)

    @property
    def channels(self) -> int:
        return -(-self.x.shape[1] // BLOCK)

    @property
    def outputs(self) -> int:
        return -(-self.g.shape[1] // BLOCK)

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]


def sizes_of(x: Plane, g: Plane, window: dict, groups: int) -> list[Sizes]:
    """The ways to share the places of g out over the L2Bs: as evenly as can be; and as they lie, since what comes from other
    groups takes longer. `window`: the attributes that the planner gives to window operations."""
    n, _, h, _ = g.shape
    even = min(
        ((i, r) for i in range(1, min(n, EXTENT[L2B]) + 1) for r in range(1, min(h, EXTENT[L2B] // i) + 1)),
        key=lambda way: (-(-n // way[0]) * -(-h // way[1]), -way[0]),
    )
    found = []
    for images, rows in dict.fromkeys((even, (g.split.images, g.split.rows))):
        work = Plane.of(g.shape, plane_scheme(g.shape, Split(images, 1, rows)))
        assert work is not None
        found.append(Sizes(x, g, work, window["window"], window["step"], window["apart"], window["border"], groups))
    return found


@dataclass(frozen=True)
class Sharing:
    """A way to share the work out. Each of `l1bs` has `images` x `rows` rows of g, of `columns`; `beside` L1Bs share the rows of
    an image. A pass takes `channels` blocks of x and `outputs` of g, of which a MAB multiplies `each` at a time."""

    l1bs: int
    images: int
    rows: int
    beside: int
    columns: int
    channels: int
    outputs: int
    each: int

    @property
    def tile_images(self) -> int:
        return self.l1bs // self.beside * self.images

    @property
    def tile_rows(self) -> int:
        return self.beside * self.rows


@dataclass(frozen=True)
class Item:
    """What a MAB multiplies in a round: a block of x at a tap, and blocks of g from `output` on."""

    tap: tuple[int, int]
    channel: int
    output: int
    stop: int  # blocks of g from here on are not meant


@dataclass(frozen=True)
class Pass:
    """Blocks of x and g that are multiplied together."""

    sizes: Sizes
    sharing: Sharing
    channels: range
    outputs: range

    @cached_property
    def items(self) -> tuple[Item, ...]:
        found = []
        of_group = self.sizes.outputs // self.sizes.groups
        each = self.sharing.each
        for channel in self.channels:
            group = channel * self.sizes.groups // self.sizes.channels
            mine = self.outputs if self.sizes.groups == 1 else range(group * of_group, (group + 1) * of_group)
            for start in range(mine.start, mine.stop, each):
                first = max(mine.start, min(start, mine.stop - each))
                found += [
                    Item((row, column), channel, first, mine.stop)
                    for row, column in product(range(self.sizes.kernel[0]), range(self.sizes.kernel[1]))
                ]
        return tuple(found)

    @property
    def rounds(self) -> int:
        return -(-len(self.items) // MABS)

    def of_round(self, number: int) -> list[Item]:
        """The item of each MAB; those that have none repeat the last one."""
        found = list(self.items[number * MABS : (number + 1) * MABS])
        return found + [found[-1]] * (MABS - len(found))


def passes(sizes: Sizes, sharing: Sharing) -> list[Pass]:
    if sizes.groups > 1:
        of_x, of_g = sizes.channels // sizes.groups, sizes.outputs // sizes.groups
        some = sharing.channels // of_x
        return [
            Pass(sizes, sharing, range(at * of_x, stop * of_x), range(at * of_g, stop * of_g))
            for at in range(0, sizes.groups, some)
            for stop in [min(at + some, sizes.groups)]
        ]
    return [
        Pass(sizes, sharing, range(c, min(c + sharing.channels, sizes.channels)), range(o, stop))
        for o in range(0, sizes.outputs, sharing.outputs)
        for stop in [min(o + sharing.outputs, sizes.outputs)]
        for c in range(0, sizes.channels, sharing.channels)
    ]


@dataclass(frozen=True)
class Field(Stretch):
    """How the rows of a chunk lie in LM0 for a segment of columns, `unit` LW a place: x as [image][row][block][column], with
    zeros where a window meets its borders; g behind it."""

    sizes: Sizes
    sharing: Sharing
    first: int  # column of g
    count: int
    channels: int
    outputs: int
    unit: int

    @property
    def x_rows(self) -> int:
        """Rows of x that the rows of one image meet."""
        return self.sizes.window.slot_rows(self.sharing.rows)

    @property
    def first_column(self) -> int:
        return self.first * self.sizes.stride[1] - self.sizes.before[1]

    @property
    def width(self) -> int:
        return self.sizes.window.columns_in(self.count)

    @property
    def extent(self) -> int:
        return self.sizes.x.shape[3]

    @property
    def g_pitch(self) -> int:
        return -(-self.count // 8) * 8

    @property
    def x_size(self) -> int:
        """LW of x."""
        return self.sharing.images * self.x_rows * self.channels * self.pitch * self.unit

    @property
    def size(self) -> int:
        return self.x_size + self.sharing.images * self.sharing.rows * self.outputs * self.g_pitch * self.unit

    def x_place(self, image: int, row: int, block: int) -> int:
        return ((image * self.x_rows + row) * self.channels + block) * self.pitch

    def g_place(self, image: int, row: int, block: int) -> int:
        return self.x_size // self.unit + ((image * self.sharing.rows + row) * self.outputs + block) * self.g_pitch

    @cached_property
    def places(self) -> list[tuple[int, int, int]]:
        """(image, row, column) of what is summed, in order."""
        return list(product(range(self.sharing.images), range(self.sharing.rows), range(self.count)))

    @property
    def blocks(self) -> int:
        return -(-len(self.places) // BLOCK)

    def of_x(self, block: int) -> list[int]:
        """Word addresses of 16 places of x; behind the last one, where g is zero, the last again."""
        found = []
        for at in range(block * BLOCK, (block + 1) * BLOCK):
            image, row, column = self.places[min(at, len(self.places) - 1)]
            place = self.x_place(image, row * self.sizes.stride[0], 0) + self.origin + column * self.sizes.stride[1]
            found.append(2 * self.unit * place)
        return found

    def of_g(self, block: int, output: int) -> list[int]:
        """Word addresses of 16 places of g; behind the last one, zeros."""
        found = []
        for at in range(block * BLOCK, (block + 1) * BLOCK):
            if at >= len(self.places):
                found.append(2 * ZERO_PLACE)
                continue
            image, row, column = self.places[at]
            found.append(2 * self.unit * (self.g_place(image, row, output) + column))
        return found

    def base_of_x(self, tap: tuple[int, int], channel: int) -> int:
        """Words that a MAB adds to addresses of x."""
        rows, columns = (t * d for t, d in zip(tap, self.sizes.dilation))
        return 2 * self.unit * (self.x_place(0, rows, channel) + columns)


def segments(sizes: Sizes, columns: int) -> list[tuple[int, int]]:
    """(first column, count)"""
    width = sizes.g.shape[3]
    return [(at, min(columns, width - at)) for at in range(0, width, columns)]


# ---- which way ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def choose(sizes: Sizes, letter: str, dtype: str) -> Sharing | None:
    """The way that takes the fewest steps, about; None where none fits. `dtype`: of x and g."""
    kind, best, least = KINDS[letter], None, float("inf")
    for columns in _widths(sizes.g.shape[3]):
        for l1bs, images, rows, beside in _chunks(sizes.work):
            for channels, outputs in _parts(sizes):
                of_group = outputs if sizes.groups == 1 else sizes.outputs // sizes.groups
                for each in sorted({-(-of_group // n) for n in (1, 2, 3, 4, 8, 16)}):
                    way = Sharing(l1bs, images, rows, beside, columns, channels, outputs, each)
                    steps = _steps(sizes, way, kind, dtype)
                    if steps < least:
                        best, least = way, steps
        if best is not None:
            break
    return best


def _widths(width: int) -> Iterator[int]:
    yield width
    for parts in (2, 3, 4, 6, 8, 12, 16, 24, 32):
        if width > BLOCK * parts // 2:
            yield -(-width // parts // BLOCK) * BLOCK


def _chunks(work: Plane) -> Iterator[tuple[int, int, int, int]]:
    """(L1Bs, images, rows, L1Bs beside each other)"""
    for l1bs in (8, 4, 2, 1):
        for beside in (1, 2, 4, 8):
            most = -(-work.rows // beside)
            if beside <= min(work.rows, l1bs):
                for rows in sorted({most, -(-most // 2), -(-most // 4), *(r for r in (1, 2, 3, 4, 6, 8) if r <= most)}):
                    yield l1bs, 1, rows, beside
        for images in range(2, -(-work.images // l1bs) + 1):
            yield l1bs, images, work.rows, 1


def _parts(sizes: Sizes) -> Iterator[tuple[int, int]]:
    """(blocks of x, blocks of g) of a pass."""
    if sizes.groups > 1:
        of_x, of_g = sizes.channels // sizes.groups, sizes.outputs // sizes.groups
        for some in sorted({-(-sizes.groups // n) for n in (1, 2, 4, 8, 16, sizes.groups)}):
            yield some * of_x, some * of_g
        return
    some_x, some_g = ({-(-n // parts) for parts in (1, 2, 4, 8, 16, 32)} for n in (sizes.channels, sizes.outputs))
    yield from product(sorted(some_x), sorted(some_g))


def _steps(sizes: Sizes, way: Sharing, kind: Kind, dtype: str) -> float:
    """About how many steps; infinite where it does not fit."""
    unit = QUAD_LW[dtype]
    slots, rows_g = slot_counts(sizes, way)
    width = min(way.columns, sizes.g.shape[3])
    field = Field(sizes, way, 0, width, way.channels, way.outputs, unit)
    blocks = -(-way.images * way.rows * width // BLOCK)
    items = sizes.taps * way.channels * -(-_of_group(sizes, way) // way.each)
    rounds = -(-items // MABS)
    sums = rounds * way.each * kind.acc_lw
    across = blocks * way.outputs * BLOCK * unit
    lc = slots * row_lw(sizes.x, dtype) + rows_g * row_lw(sizes.g, dtype)
    fits = (
        lc <= LC_SIZE
        and field.size + 8 * unit <= LM0_LW
        and across + (sums if rounds > 1 else 0) <= LM1_LW
        and way.each * kind.acc_lw <= GRF_LW
        and rounds <= MOST_ROUNDS
    )
    if not fits:
        return float("inf")
    tiles = (
        -(-sizes.work.images // way.tile_images)
        * -(-sizes.work.rows // way.tile_rows)
        * -(-sizes.g.shape[3] // way.columns)
    )
    per_row = [
        -(-_piece(plane, whole, some, unit) // 64)
        for plane, whole, some in (
            (sizes.x, way.columns >= sizes.g.shape[3], (field.channels, field.loaded[1] - field.loaded[0])),
            (sizes.g, way.columns >= sizes.g.shape[3], (field.outputs, width)),
        )
    ]
    load = L1BS * way.images * (field.x_rows * per_row[0] + way.rows * per_row[1])
    compute = blocks * (way.outputs * kind.matrices * kind.across + rounds * kind.matrices * kind.steps(way.each))
    swap = 2 * rounds * sums // rounds // 8 + 10 * rounds if rounds > 1 else 0
    moved = lc / 24
    number = -(-sizes.channels // way.channels) * (-(-sizes.outputs // way.outputs) if sizes.groups == 1 else 1)
    return number * (tiles * (max(load + compute + swap + 60, moved)) + 100)


def _piece(plane: Plane, whole: bool, some: tuple[int, int], unit: int) -> int:
    blocks, columns = some
    return blocks * (plane.columns if whole else -(-columns // 4) * 4) * 4 * unit


def _of_group(sizes: Sizes, way: Sharing) -> int:
    return way.outputs if sizes.groups == 1 else sizes.outputs // sizes.groups


def slot_counts(sizes: Sizes, way: Sharing) -> tuple[int, int]:
    """Slots of L2BM for rows of x and of g; the last of g is zero."""
    rows_x = sizes.x.split.channels * way.tile_images * sizes.window.slot_rows(way.tile_rows)
    return rows_x, sizes.g.split.channels * way.tile_images * way.tile_rows + 1
