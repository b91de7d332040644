"""Convolution as a matrix product whose rows are output columns: a tap of the window is a constant distance in LM0.

y[n, o, r, c] = sum over taps and channels of x[n, i, r s + k d - p, ..] w[o, i, k, ..] + bias[o]

Tiles of rows and segments of columns come through `window`; the weights, in the order output group, tap, channel block,
stream as those of a matrix product do (`gemm_stream`).
"""

from __future__ import annotations

import numpy as np

from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.scheme import QUAD_LW
from mlsdk.pipeline.ops.emitters import gemm_pipeline
from mlsdk.pipeline.ops.emitters import window as windows
from mlsdk.pipeline.ops.emitters.asm import Asm
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.gemm_modes import MODES, Mode
from mlsdk.pipeline.ops.emitters.gemm_stream import BIAS_WORDS, Weights
from mlsdk.pipeline.ops.emitters.transfer import Range, Tensor
from mlsdk.pipeline.ops.emitters.window import Patch

LC_HALVES, LC_HALF = (windows.LC_FREE, windows.LC_FREE + 5632), 5632
LB_BIAS, LB_BIAS_SIZE = 7168, 1024
#: LW of LM0 that a place of block floats takes, by mode
UNIT = {"h": 1, "hs": 1, "f": 2, "d": 4}


def emit_conv(call: Call) -> tuple[Asm, dict[str, np.ndarray]]:
    x, w = call.inputs[0], call.inputs[1]
    bias = call.inputs[2] if len(call.inputs) > 2 else None
    y = call.outputs[0]
    assert x is not None and w is not None
    asm, mode, window = Asm(), MODES[call.kernel], windows.window_of(call)
    unit, groups = UNIT[mode.name], int(call.node.attrs["groups"])  # type: ignore[arg-type]
    blocks = window.parts * window.x.blocks // groups
    steps = window.kernel[0] * window.kernel[1] * blocks * mode.steps
    rows, columns = windows.choose(call.node.name, window, unit, x.dtype, y.dtype, BIAS_WORDS // mode.acc_words)
    segments = windows.segments(window, columns)
    once = windows.Once(asm)
    constants = {windows.BORDER: windows.border_row(window, x.dtype)}
    bases: dict[int, int] = {}
    for segment in segments:
        if segment.groups not in bases:
            bases[segment.groups] = 2 * len(bases)
            symbol = f"const{len(constants)}"
            image, constants[symbol] = windows.base_table(Patch(window, segment, unit))
            windows.load_base(once, image, symbol, bases[segment.groups])
    if bias is not None:
        _load_bias(once, bias, call)
    row_groups = max(s.groups for s in segments)
    weights = Weights(
        asm, mode, w, steps, window.y.blocks * mode.outs, row_groups, LC_HALVES, LC_HALF, bias is not None, groups == 1
    )
    weights.bring()
    once.finish()
    tiles = list(windows.row_tiles(window, rows))
    flow = windows.Flow(asm, window, tiles, segments, x, y)
    for number in range(len(tiles)):
        for segment in segments:
            patch = Patch(window, segment, unit)
            weights.start()
            flow.load(number, patch, mode.name[0])
            windows.set_base(asm, bases[segment.groups])
            weights.run(_rows(patch, mode, y, blocks, groups), LB_BIAS if bias is not None else None)
            windows.clear_base(asm)
            if call.node.attrs.get("activation") == "Relu":
                _rectify(asm, segment.groups * window.y.blocks * 4 * QUAD_LW[y.dtype], y.dtype)
            flow.store(number, segment)
    return asm, constants


def _rows(patch: Patch, mode: Mode, y: Tensor, blocks: int, groups: int) -> gemm_pipeline.Rows:
    """The columns of a segment as the rows of a product. Results lie in LM1 as [group][block][column of four][LW]."""
    plane, lw = patch.window.y, QUAD_LW[y.dtype]

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
        y.dtype,
    )


def _rectify(asm: Asm, size: int, dtype: str) -> None:
    """max(x, 0) of `size` LW of results in LM1, by way of the accumulators, which are free between segments."""
    asm.pe(f"zero $lr{gemm_pipeline.BIAS}v")
    asm.nop(1)
    letter = {"half": "h", "single": "f", "double": "d"}[dtype]
    most = gemm_pipeline.BIAS // 8 * 4  # LW that the accumulators hold
    for start in range(0, size, most):
        words = range(2 * start, 2 * min(start + most, size), 8)
        for i, word in enumerate(words):
            asm.pe(f"{letter}max $ln{word}v $lr{gemm_pipeline.BIAS}v $lr{8 * i}v")
        for i, word in enumerate(words):
            asm.pe(f"lpassa $lr{8 * i}v $ln{word}v")


def _load_bias(once: windows.Once, bias: Tensor, call: Call) -> None:
    """The whole bias into L1BM, from where each piece of weights takes its part."""
    part = Range.of(bias, 0, bias.image.addresses)
    if part.lb_size > LB_BIAS_SIZE or bias.image.l1b_spread or bias.image.mab_spread:
        raise EmitError(f"{call.node.name}: a bias of {bias.shape} does not fit; share out more channels")

    def finish(lc: int) -> None:
        for i in range(-(-part.lb_size // 64)):
            once.asm.pe(f"l2bmb $lc{lc + 64 * i} $lb{LB_BIAS + 64 * i}")

    once.start(part, finish)
