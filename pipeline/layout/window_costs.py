"""Estimates in steps of convolutions over planes, by which rules choose: how a plane is shared out over the L2Bs, whether the
L1Bs share channels or rows, whether an input is rounded first."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.layout import EXTENT, L2B
from mlsdk.pipeline.ir.planes import Plane, Split, plane_scheme
from mlsdk.pipeline.ir.scheme import BLOCK, QUAD_LW
from mlsdk.pipeline.ops.emitters import conv_joined
from mlsdk.pipeline.ops.emitters import window as windows
from mlsdk.pipeline.ops.emitters.conv import LC_HALF
from mlsdk.pipeline.ops.emitters.gemm_modes import MODES, Mode
from mlsdk.pipeline.ops.emitters.gemm_stream import BETWEEN, BIAS_WORDS
from mlsdk.pipeline.ops.emitters.window import Window

LINE = 64  # LW a step between a group's DRAM and L2BM, and between L2BM and L1BM
STARTING = 60  # steps of a tile that nothing goes on beside


@lru_cache(maxsize=4096)
def split_for(shape: tuple[int, ...], dtype: str) -> Split:
    """How a tensor of `shape` that a window operation makes is shared out over the L2Bs, for convolutions of 3 x 3 taps
    or, where these do not fit, of one. It depends on the shape alone, so that tensors which meet later lie alike."""
    n, c, h, w = (*shape[:2], 1, shape[2]) if len(shape) == 3 else shape
    blocks = -(-c // BLOCK)
    for span in (3, 1):
        costs = []
        for channels in (1, 2, 4, 8):
            if channels > blocks:
                continue
            for images in (1, 2, 4, 8):
                if images > n or channels * images > EXTENT[L2B]:
                    continue
                rows = min(h, EXTENT[L2B] // channels // images)
                split = Split(images, channels, rows)
                steps = _of_split((n, c, h, w), split, dtype, span)
                if steps is not None:
                    costs.append((steps, channels, split))
        if costs:
            return min(costs, key=lambda cost: (*cost[:2], -cost[2].images))[-1]
    return Split(1, 1, min(h, EXTENT[L2B]))  # whoever cannot work with it will not


def _of_split(shape: tuple[int, int, int, int], split: Split, dtype: str, most: int) -> float | None:
    """A convolution with `most` x `most` taps from a plane of that shape and split; None where it does not fit."""
    plane = Plane.of(shape, plane_scheme(shape, split))
    assert plane is not None
    span = (min(most, shape[2]), min(most, shape[3]))
    window = Window(plane, plane, span, (1, 1), (1, 1), (span[0] // 2, span[1] // 2))
    mode = MODES[{"half": "h", "single": "f", "double": "d"}[dtype]]
    found = [
        steps for steps in (of_rows(window, mode, (dtype, dtype)), of_channels(window, mode, (dtype, dtype))) if steps
    ]
    return min(found) + _moved(window, dtype) if found else None


def pays_to_join(window: Window, mode: Mode, dtypes: tuple[str, str]) -> bool:
    """Whether a convolution takes fewer steps where the L1Bs share its channels than where they share its rows."""
    rows, channels = of_rows(window, mode, dtypes), of_channels(window, mode, dtypes)
    return channels is not None and (rows is None or channels < rows)


def of_rows(window: Window, mode: Mode, dtypes: tuple[str, str]) -> float | None:
    """Steps where the L1Bs share the rows, without the moves of planes; None where that cannot be done."""
    try:
        rows, columns = windows.choose("", window, mode.floats, *dtypes, BIAS_WORDS // mode.acc_words)
    except EmitError:
        return None
    blocks = window.parts * window.x.blocks
    steps = _Stream(window, mode, blocks, 1)
    load = rows * window.kernel[0] * windows.row_lw(window.x, dtypes[0]) * window.parts / LINE
    beside = sum(steps.compute(mode.period(s.groups)) for s in windows.segments(window, columns))
    return steps.in_tiles(rows, len(windows.segments(window, columns)), beside, load, dtypes[1])


def of_channels(window: Window, mode: Mode, dtypes: tuple[str, str]) -> float | None:
    """The same where they share the channels."""
    try:
        rows, columns = conv_joined.choose("", window, mode, *dtypes)
    except EmitError:
        return None
    steps, compute, other = _Stream(window, mode, conv_joined.blocks_of(window), 8), 0.0, 0.0
    segments = windows.segments(window, columns)
    for segment in segments:
        share = conv_joined.Share(window, segment, mode.floats, rows)
        compute += steps.compute(max(mode.period(share.groups), mode.block_lw // 32))
        lines = conv_joined.sums_lw(window, segment.count) / LINE
        other += share.rows * windows.row_lw(window.x, dtypes[0]) * window.parts / LINE
        other += 2 * rows * lines + 2 * lines + share.groups * window.y.blocks
    return steps.in_tiles(rows, len(segments), compute, other, dtypes[1])


class _Stream:
    """The weights of `blocks` blocks of the input as they pass by; `spread`: L1Bs that each take others."""

    def __init__(self, window: Window, mode: Mode, blocks: int, spread: int):
        self.window, self.mode, self.spread = window, mode, spread
        self.products = prod(window.kernel) * blocks * mode.steps * window.y.blocks * mode.outs

    @property
    def pieces(self) -> float:
        return max(1.0, self.products * self.mode.block_lw * self.spread / LC_HALF)

    @property
    def moved(self) -> float:
        """Steps for which the weights keep the DRAM of a group busy: twice where each L2B has others."""
        apart = self.window.y.split.channels == EXTENT[L2B]
        return self.products * self.mode.block_lw * self.spread * (2 if apart else 1) / LINE

    def compute(self, period: int) -> float:
        return self.products * period + self.pieces * BETWEEN

    def in_tiles(self, rows: int, segments: int, compute: float, beside: float, dtype: str) -> float:
        """All tiles of so many rows; the weights come again for each, but where they stay in L2BM."""
        y = self.window.y
        tiles = y.images * -(-y.rows // rows)
        out = rows * windows.row_lw(y, dtype) / LINE + y.blocks * y.columns / 4 * QUAD_LW[dtype]
        once = self.moved if self.pieces <= 2 else 0.0
        each = max(compute, segments * self.moved) if not once else compute
        return max(once, tiles * (each + beside + out + STARTING))


def _moved(window: Window, dtype: str) -> float:
    """Steps for which a plane as the input and as the result of a window is moved. Parts of channels come from other groups, at
    half the rate; where each L2B has a part, all are broadcast."""
    rows = min(windows.L1BS, window.y.rows)
    brought = -(-window.y.rows // rows) * window.slot_rows(rows)
    parts = window.parts if window.parts == EXTENT[L2B] else 2 * window.parts
    return window.y.images * (brought * parts + window.y.rows) * windows.row_lw(window.x, dtype) / 32


def pays_to_round(x: Plane, y: Plane, found: dict, mode: Mode) -> bool:
    """Whether a pass that writes the singles of x as halves costs less than a convolution gains from them: fewer tiles, for
    each of which all weights come again, and half the rows to load, from other groups where channels are shared out."""
    window = Window(x, y, found["window"], found["step"], found["apart"], found["border"])
    tiles, compute, load = {}, 0.0, 0.0
    for dtype in ("single", "half"):
        try:
            rows, columns = windows.choose("", window, MODES["h"].floats, dtype, "half", BIAS_WORDS // mode.acc_words)
        except EmitError:
            return dtype == "single"
        tiles[dtype] = y.images * -(-y.rows // rows)
        products = prod(window.kernel) * x.blocks * window.parts * mode.steps * y.blocks * mode.outs
        compute = sum(products * mode.period(s.groups) for s in windows.segments(window, columns))
        slot = windows.row_lw(x, "half") * window.parts
        load = window.slot_rows(rows) * slot / (20 if window.parts > 1 else 32) + rows * window.kernel[0] * slot / 64
    size = x.images * x.rows * windows.row_lw(x, "single")
    return (tiles["single"] - tiles["half"]) * compute + tiles["half"] * load > size / 8
