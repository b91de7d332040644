"""Convolution as a matrix product whose rows are output columns: a tap of the window is a constant distance in LM0.

y[n, o, r, c] = sum over taps and channels of x[n, i, r s + k d - p, ..] w[o, i, k, ..] + bias[o]

Tiles of rows and segments of columns come through `window`; the weights, in the order output group, tap, channel block,
stream as those of a matrix product do (`gemm_stream`). Where the L1Bs share the channels of the input, see `conv_joined`.
"""

from __future__ import annotations

import numpy as np

from mlsdk.device.spec import L2B_PER_GROUP
from mlsdk.pipeline.ir.planes import Plane
from mlsdk.pipeline.ir.scheme import QUAD_LW
from mlsdk.pipeline.ops.emitters import conv_joined, gemm_pipeline
from mlsdk.pipeline.ops.emitters import window as windows
from mlsdk.pipeline.ops.emitters.asm import Asm
from mlsdk.pipeline.ops.emitters.epilogue import LB_ONCE, Epilogue, form_of
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.gemm_modes import MODES, Mode
from mlsdk.pipeline.ops.emitters.gemm_stream import BIAS_WORDS, Weights
from mlsdk.pipeline.ops.emitters.window import Columns, Patch
from mlsdk.pipeline.ops.emitters.window import Rows as Tile

LC_HALVES, LC_HALF = (windows.LC_FREE, windows.LC_FREE + 5632), 5632
CONSTANTS = ("s", "n")  # where an epilogue's may lie


def emit_conv(call: Call) -> tuple[Asm, dict[str, np.ndarray]]:
    x, w = call.inputs[0], call.inputs[1]
    bias = call.inputs[2] if len(call.inputs) > 2 else None
    y = call.outputs[0]
    assert x is not None and w is not None
    asm, mode, window = Asm(), MODES[call.kernel], windows.window_of(call)
    unit, groups = mode.floats, int(call.node.attrs["groups"])  # type: ignore[arg-type]
    blocks = window.parts * window.x.blocks // groups
    joined = bool(call.node.attrs["joined"])
    each = conv_joined.blocks_of(window) if joined else blocks
    steps = window.kernel[0] * window.kernel[1] * each * mode.steps
    raw = str(call.node.attrs.get("raw", y.dtype))  # dtype of the products
    if joined:
        rows, columns = conv_joined.choose(call.node.name, window, mode, x.dtype, y.dtype)
    else:
        rows, columns = windows.choose(call.node.name, window, unit, x.dtype, y.dtype, BIAS_WORDS // mode.acc_words)
    segments, tiles = windows.segments(window, columns), list(windows.row_tiles(window, rows))

    def patch_of(segment: Columns, tile: Tile) -> Patch:
        return conv_joined.Share(window, segment, unit, tile.rows) if joined else Patch(window, segment, unit)

    once = windows.Once(asm)
    constants = {windows.BORDER: windows.border_row(window, x.dtype)}
    bases: dict[int, int] = {}  # words from one MAB to the next -> where in GRF1
    for segment in segments:
        for step, mabs in patch_of(segment, tiles[0]).bases:
            if step not in bases:
                bases[step] = 2 * len(bases)
                symbol = f"const{len(constants)}"
                image, constants[symbol] = windows.table_of_bases(step, mabs)
                windows.load_base(once, image, symbol, bases[step])
    form = form_of(call, CONSTANTS)
    epilogue = Epilogue(asm, call, form, window) if form is not None else None
    lb = windows.load_once(once, bias, LB_ONCE) if bias is not None else LB_ONCE
    if epilogue is not None:
        epilogue.prepare(once, segments, lb)
    row_groups = max(patch_of(s, tiles[0]).groups for s in segments)
    own_bias = bias is not None and not joined  # products begin with it
    weights = Weights(
        asm,
        mode,
        w,
        steps,
        window.y.blocks * mode.outs,
        row_groups,
        LC_HALVES,
        LC_HALF,
        own_bias,
        groups == 1,
        by_l1b=joined,
        quartered=quartered(window.y),
    )
    flow = windows.Flow(asm, window, tiles, segments, x, y)
    if weights.stay:
        weights.start()
        weights.more()
    once.finish()
    if epilogue is not None:
        epilogue.begin()
    for number, tile in enumerate(tiles):
        for segment in segments:
            patch = patch_of(segment, tile)
            weights.start()
            weights.more()
            flow.load(number, patch, mode.name[0], by=conv_joined.load_share if joined else None)
            if epilogue is not None and segment == segments[0]:
                flow.settle()
                epilogue.fetch(tile)
            windows.set_base(asm, bases[patch.base_step])
            rows_of = conv_joined.rows_of(patch, mode) if joined else _rows(patch, mode, raw, blocks, groups)
            weights.run(rows_of, LB_ONCE if own_bias else None)
            windows.clear_base(asm)
            if joined:
                flow.settle()  # sums lie where results of the tile before may
                conv_joined.join(asm, patch, tile, y.dtype, bases, LB_ONCE if bias is not None else None, raw)
            left = epilogue.apply(tile, segment) if epilogue is not None else ()
            flow.store(number, segment, *left)
    return asm, constants | (epilogue.constants if epilogue is not None else {})


def quartered(y: Plane) -> bool:
    """Whether the two L2Bs of each group take other weights, and all groups the same, which lie in DRAM once (`in_quarters`)."""
    return y.split.channels == L2B_PER_GROUP and y.strides[1] == 1


def _rows(patch: Patch, mode: Mode, dtype: str, blocks: int, groups: int) -> gemm_pipeline.Rows:
    """The columns of a segment as the rows of a product. Results lie in LM1 as [group][block][column of four][LW]."""
    plane, lw = patch.window.y, QUAD_LW[dtype]

    def lane(index: int, og: int) -> int:
        if groups == 1:
            return patch.step(index)
        tap, block = divmod(index, blocks)
        row, column = divmod(tap, patch.window.kernel[1])
        mine = og // mode.outs * groups // plane.blocks
        return patch.tap(row, column, 0, mine * blocks + block)

    def out(og: int) -> int:
        block, part = divmod(og, mode.outs)
        return block * 8 * lw + part * 2 * lw // mode.outs

    count = range(patch.columns.groups)
    return gemm_pipeline.Rows(
        tuple(tuple(patch.member(g, c) for c in range(4)) for g in count),
        lane,
        tuple(tuple((g * plane.blocks * 4 + c) * lw * 2 for c in range(4)) for g in count),
        out,
        dtype,
    )
