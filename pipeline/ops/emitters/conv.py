"""Convolution as a matrix product whose rows are output columns: a tap of the window is a constant distance in LM0.

y[n, o, r, c] = sum over taps and channels of x[n, i, r s + k d - p, ..] w[o, i, k, ..] + bias[o]

Tiles of rows and segments of columns come through `window`; the weights, in the order output group, tap, channel block,
stream as those of a matrix product do (`gemm_stream`).
"""

from __future__ import annotations

import numpy as np

from mlsdk.pipeline.ir.scheme import QUAD_LW
from mlsdk.pipeline.ops.emitters import gemm_pipeline
from mlsdk.pipeline.ops.emitters import window as windows
from mlsdk.pipeline.ops.emitters.asm import Asm
from mlsdk.pipeline.ops.emitters.epilogue import LB_ONCE, Epilogue, form_of
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.gemm_modes import MODES, Mode
from mlsdk.pipeline.ops.emitters.gemm_stream import BIAS_WORDS, Weights
from mlsdk.pipeline.ops.emitters.window import Patch

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
    steps = window.kernel[0] * window.kernel[1] * blocks * mode.steps
    raw = str(call.node.attrs.get("raw", y.dtype))  # dtype of the products
    rows, columns = windows.choose(call.node.name, window, unit, x.dtype, y.dtype, BIAS_WORDS // mode.acc_words)
    segments = windows.segments(window, columns)
    once = windows.Once(asm)
    constants = {windows.BORDER: windows.border_row(window, x.dtype)}
    bases: dict[int, int] = {}
    for segment in segments:
        if segment.groups not in bases:
            bases[segment.groups] = 2 * len(bases)
            symbol = f"const{len(constants)}"
            step = Patch(window, segment, unit).base_step
            image, constants[symbol] = windows.table_of_bases(step, segment.mabs)
            windows.load_base(once, image, symbol, bases[segment.groups])
    form = form_of(call, CONSTANTS)
    epilogue = Epilogue(asm, call, form, window) if form is not None else None
    lb = windows.load_once(once, bias, LB_ONCE) if bias is not None else LB_ONCE
    if epilogue is not None:
        epilogue.prepare(once, segments, lb)
    row_groups = max(s.groups for s in segments)
    weights = Weights(
        asm, mode, w, steps, window.y.blocks * mode.outs, row_groups, LC_HALVES, LC_HALF, bias is not None, groups == 1
    )
    tiles = list(windows.row_tiles(window, rows))
    flow = windows.Flow(asm, window, tiles, segments, x, y)
    if weights.stay:
        weights.start()
        weights.more()
    once.finish()
    if epilogue is not None:
        epilogue.begin()
    for number in range(len(tiles)):
        for segment in segments:
            patch = Patch(window, segment, unit)
            weights.start()
            weights.more()
            flow.load(number, patch, mode.name[0])
            if epilogue is not None and segment == segments[0]:
                flow.settle()
                epilogue.fetch(tiles[number])
            windows.set_base(asm, bases[segment.groups])
            weights.run(_rows(patch, mode, raw, blocks, groups), LB_ONCE if bias is not None else None)
            windows.clear_base(asm)
            left = epilogue.apply(tiles[number], segment) if epilogue is not None else ()
            flow.store(number, segment, *left)
    return asm, constants | (epilogue.constants if epilogue is not None else {})


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
