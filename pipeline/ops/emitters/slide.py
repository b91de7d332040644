"""Windows that keep channels apart: maximum and average pooling, depthwise convolution.

Each lane block is on its own: for four columns at a time the taps of the window follow each other, one a step, through a
forward register; weights of a depthwise convolution lie in GRF1, a long word for each tap and part of a block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.bits import to_bits
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import ADDR, L1B, L2B, MAB, PE, Layout, Sub, W
from mlsdk.pipeline.ir.scheme import QUAD_LW
from mlsdk.pipeline.ops.emitters import window as windows
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.epilogue import LB_ONCE, Epilogue, form_of
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.transfer import Range, Tensor, finish_download, start_download
from mlsdk.pipeline.ops.emitters.window import Columns, Patch, Rows, Window

#: the lowest value of a dtype, as a long word
LOWEST = {
    "half": 0xFFFF_FFFF_FFFF_FFFF,
    "single": 0xFFFF_FFFF_FFFF_FFFF,
    "double": 0xFFFF_FFFF_FFFF_FFFF,
    "int": 0x8000_0000_8000_0000,
}
PREFIX = {"half": "h", "single": "f", "double": "d", "int": "i"}
# GRF1, words: base addresses, the fill of borders, factors of averages or weights of a depthwise convolution; GRF0: its bias.
# Weights and bias have 16 LW around them that a load, of whole granules, may overwrite.
BASES, FILL, FACTORS, FACTORS_SIZE = 0, 16, 32, 128
WEIGHTS, WEIGHTS_LW = 64, 208
BIAS, BIAS_LW = 32, 64
LB_WEIGHTS = 0
CONSTANTS = ("r", "n")  # where an epilogue's may lie


@dataclass(frozen=True)
class Taps:
    """How the taps of a window are combined: {p} type letter, {x} a tap, {w} its weight, {b} bias, {f} factor; the result of
    each line but the last goes through the forward register."""

    first: tuple[str, ...]
    then: tuple[str, ...]
    last: tuple[str, ...] = ()


# Doubles are multiplied in two steps, by the upper and by the lower part of a weight.
_LOWER = "dvfmad {x} {w} $mauf"
_MORE = ("dvfmau {x} {w} $mauf", _LOWER)
_SCALE = ("dvpassa $mauf $lr0v", "dvmulu $lr0v {f}", "dvfmad $lr0v {f} $mauf")

TAPS = {
    "max": Taps(("lpassa {x}",), ("{p}max {x} $aluf",)),
    "average": Taps(("{p}vpassa {x}",), ("{p}vadd {x} $mauf",), ("{p}vmul $mauf {f}",)),
    "average:double": Taps(("dvpassa {x}",), ("dvadd {x} $mauf",), _SCALE),
    "depthwise": Taps(("{p}vmul {x} {w}",), ("{p}vfma {x} {w} $mauf",)),
    "depthwise:double": Taps(("dvmulu {x} {w}", _LOWER), _MORE),
    "depthwise+bias": Taps(("{p}vfma {x} {w} {b}",), ("{p}vfma {x} {w} $mauf",)),
    "depthwise+bias:double": Taps(("dvfmau {x} {w} {b}", _LOWER), _MORE),
}


def compute_dtype(kernel: str, x: str) -> str:
    """In what a window is computed: halves are summed in single."""
    return x if kernel == "max" or x != "half" else "single"


def emit_slide(call: Call) -> tuple[Asm, dict[str, np.ndarray]]:
    x, y, kernel = call.inputs[0], call.outputs[0], call.kernel
    assert x is not None
    weights = call.inputs[1] if len(call.inputs) > 1 else None
    bias = call.inputs[2] if len(call.inputs) > 2 else None
    raw = str(call.node.attrs.get("raw", y.dtype))  # dtype of the results
    asm, window = Asm(), windows.window_of(call, own=True)
    if window.x.split.channels != window.y.split.channels or window.x.blocks != window.y.blocks:
        raise EmitError(f"{call.node.name}: input and result share channels out in different ways")
    compute = compute_dtype(kernel, x.dtype)
    taps = TAPS.get(f"{kernel}:{compute}", TAPS[kernel])
    most = 16 if kernel == "average" else 64
    unit = QUAD_LW[x.dtype]  # halves lie as they are in LM0, and are widened as they are read
    rows, columns = windows.choose(call.node.name, window, unit, x.dtype, y.dtype, most)
    segments = windows.segments(window, columns)
    lowest = LOWEST[x.dtype] if kernel == "max" else 0
    constants = {windows.BORDER: windows.border_row(window, x.dtype, lowest)}
    tiles = list(windows.row_tiles(window, rows))
    form = form_of(call, CONSTANTS)
    epilogue = Epilogue(asm, call, form, window) if form is not None else None
    once = windows.Once(asm)
    if epilogue is not None:
        epilogue.prepare(once, segments, LB_ONCE)
    sources = _Sources(asm, call, window, compute, weights, bias)
    fill = ""
    if kernel == "max":
        fill = f"$ls{FILL}"
        high, low = LOWEST[compute] >> 32, LOWEST[compute] & 0xFFFFFFFF
        asm.pe(f'imm ui"{high}" $s{FILL}')
        asm.pe(f'imm ui"{low}" $s{FILL + 1}')
    bases: dict[int, int] = {}
    for segment in segments:
        if segment.groups not in bases:
            bases[segment.groups] = BASES + 2 * len(bases)
            symbol = f"const{len(constants)}"
            image, constants[symbol] = windows.table_of_bases(Patch(window, segment, unit).base_step, segment.mabs)
            windows.load_base(once, image, symbol, bases[segment.groups])
    flow = windows.Flow(asm, window, tiles, segments, x, y)
    once.finish()
    if epilogue is not None:
        epilogue.begin()
    factors = None
    if kernel == "average":
        factors = _Factors(asm, call, window, compute, tiles, segments)
        constants["factors"] = factors.data
    for number in range(len(tiles)):
        for index, segment in enumerate(segments):
            patch = Patch(window, segment, unit)
            if factors is not None:
                factors.load(number * len(segments) + index)
            flow.load(number, patch, x.dtype, fill)
            if epilogue is not None and segment == segments[0]:
                flow.settle()
                epilogue.fetch(tiles[number])
            for blocks in sources.chunks():
                sources.load(blocks)
                windows.set_base(asm, bases[segment.groups])
                for block in blocks:
                    _emit_block(asm, patch, block, block - blocks[0], taps, compute, raw, sources)
                windows.clear_base(asm)
            left = epilogue.apply(tiles[number], segment) if epilogue is not None else ()
            if left:
                sources.loaded = False  # the epilogue's operands lie there now
            flow.store(number, segment, *left)
    return asm, constants | (epilogue.constants if epilogue is not None else {})


def _emit_block(
    asm: Asm, patch: Patch, block: int, local: int, taps: Taps, compute: str, dtype: str, sources: _Sources
) -> None:
    """All columns of a block."""
    window, lw, lw_y = patch.window, QUAD_LW[compute], QUAD_LW[dtype]
    kernel = [(row, column) for row in range(window.kernel[0]) for column in range(window.kernel[1])]
    r = "r" if dtype != compute else ""
    narrow = patch.unit < lw
    width = 2 * lw_y // lw
    for group in range(patch.columns.groups):
        for part in range(lw):
            lines = []
            for tap, (row, column) in enumerate(kernel):
                base = patch.tap(row, column, 0, block) + (1 if narrow else 2) * part
                words = [base + patch.member(group, c) for c in range(4)]
                x = vec(m.LM0, words, 1, "e") if narrow else vec(m.LM0, words, 2)
                w, b = sources.weight(local, tap, part), sources.bias(local, part)
                for line in taps.then if tap else taps.first:
                    lines.append(line.format(p=PREFIX[compute], x=x, w=w, b=b))
            lines += [line.format(p=PREFIX[compute], f=f"$ls{FACTORS + 8 * group}v") for line in taps.last]
            start = (group * window.y.blocks + block) * 4
            out = vec(m.LM1, [(start + c) * lw_y * 2 + part * width for c in range(4)], width)
            for index, line in enumerate(lines):
                if index + 1 < len(lines):
                    asm.pe(line if line.endswith("$lr0v") else f"{line} $nowrite")
                else:
                    name, rest = line.split(" ", 1)
                    asm.pe(f"{name}{r} {rest} {out}")


class _Sources:
    """Weights and bias of a depthwise convolution in GRF1: all blocks once if they fit, else some blocks at a time."""

    def __init__(self, asm: Asm, call: Call, window: Window, compute: str, weights: Tensor | None, bias: Tensor | None):
        self.asm, self.window, self.lw = asm, window, QUAD_LW[compute]
        self.weights, self.biases = weights, bias
        self.blocks, self.loaded = window.y.blocks, False
        if weights is None:
            self.each = self.blocks
            return
        self.taps = window.kernel[0] * window.kernel[1]
        self.each = min(self.blocks, WEIGHTS_LW // (self.taps * self.lw), BIAS_LW // self.lw)
        if self.each == 0:
            raise EmitError(f"{call.node.name}: a depthwise window of {self.taps} taps does not fit GRF1")
        self.parts: list[
            tuple[Range, int, int, str, int]
        ] = []  # (what, LW a block, where in L2BM, and where in which GRF)
        lc = windows.LC_FREE
        for tensor, size, space, word in (
            (weights, self.taps * self.lw, m.GRF1, WEIGHTS),
            (bias, self.lw, m.GRF0, BIAS),
        ):
            if tensor is not None:
                part = Range.of(tensor, 0, tensor.image.addresses)
                if lc + part.lc_size > 32768 or tensor.dtype != compute:
                    raise EmitError(f"{call.node.name}: the weights of {self.blocks} channel blocks do not fit L2BM")
                asm.wait(*start_download(asm, part, lc))
                self.parts.append((part, size, lc, space, word))
                lc += -(-part.lc_size // 64) * 64

    def chunks(self) -> list[range]:
        return [range(at, min(at + self.each, self.blocks)) for at in range(0, self.blocks, self.each)]

    def load(self, blocks: range) -> None:
        """The weights of these blocks to GRF1, unless they are there."""
        if self.weights is None or self.loaded:
            return
        self.loaded = self.each == self.blocks
        for part, size, lc, space, word in self.parts:
            lo = blocks[0] * size
            first, last = lo // 16 * 16, -(-(blocks[-1] + 1) * size // 16) * 16
            piece = Range(part.tensor, first, last)
            finish_download(self.asm, piece, lc + first * 4, LB_WEIGHTS, space, word - 2 * (lo - first))

    def weight(self, local: int, tap: int, part: int) -> str:
        if self.weights is None:
            return ""
        return f"$ls{WEIGHTS + 2 * ((local * self.taps + tap) * self.lw + part)}"

    def bias(self, local: int, part: int) -> str:
        if self.biases is None:
            return ""
        return f"$lr{BIAS + 2 * (local * self.lw + part)}"


class _Factors:
    """What the sum of each window is multiplied by: one over the number of its elements. A long word for each column of each
    MAB, L1B and L2B, in each tile and segment."""

    def __init__(
        self, asm: Asm, call: Call, window: Window, compute: str, tiles: list[Rows], segments: list[Columns]
    ) -> None:
        self.asm, self.columns = asm, 4 * max(s.groups for s in segments)
        if 2 * self.columns > FACTORS_SIZE:
            raise EmitError(f"{call.node.name}: {self.columns} columns of a MAB have no room for their factors")
        attrs = call.node.attrs
        y, count = window.y, len(tiles) * len(segments)
        by_row, by_column = (np.asarray(attrs[k], np.float64) for k in ("rows_met", "columns_met"))
        table = np.ones((8, 8, 16, count, self.columns))
        mab = np.arange(16)[:, None]
        for t, tile in enumerate(tiles):
            for s, segment in enumerate(segments):
                column = segment.first + mab * 4 * segment.groups + np.arange(4 * segment.groups)
                across = by_column[np.minimum(column, len(by_column) - 1)]
                for l2b in range(8):
                    part = l2b // y.strides[2] % y.split.rows if y.split.rows > 1 else 0
                    row = part * y.rows + tile.row + np.arange(8)
                    down = by_row[np.minimum(row, len(by_row) - 1)]
                    table[l2b, :, :, t * len(segments) + s, : 4 * segment.groups] = down[:, None, None] * across
        levels = tuple((Sub(n, level),) for n, level in ((8, L2B), (8, L1B), (16, MAB)))
        layout = Layout((*levels, (Sub(count * self.columns, ADDR),)), (Sub(0, PE), Sub(0, W)))
        flat = (1 / table).reshape(8, 8, 16, count * self.columns)
        image = Image(layout, compute, flat.shape)
        self.tensor = Tensor(image, "factors")
        self.data = image.pack(to_bits(flat, compute))

    def load(self, index: int) -> None:
        part = Range.of(self.tensor, index * self.columns, (index + 1) * self.columns)
        lc = windows.LC_FREE
        self.asm.wait(*start_download(self.asm, part, lc))
        finish_download(self.asm, part, lc, windows.LB_ROWS, m.GRF1, FACTORS)
