"""Convolutions whose input channels the L1Bs share: for planes of few columns, which leave most MABs without any otherwise.

An L1B has some blocks of the input, all rows that a tile needs of them, and multiplies them with its part of the weights. A MAB
has a column of each sixteen, four output rows a step. The network adds what the L1Bs have:

    LM1 -> L1BM    a line of sixteen columns for each row, block of outputs and long word of a quad (`l1bmd`)
    L1BM -> L2BM   the sum over the L1Bs (`l2bmr`)
    L2BM -> LM1    each L1B the lines of its output row, each MAB its neighbouring columns, with the bias: as other convolutions
                   leave their results, so that the same epilogue and the same way to DRAM follow
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.scheme import QUAD_LW
from mlsdk.pipeline.ops.emitters import gemm_pipeline
from mlsdk.pipeline.ops.emitters import window as windows
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.epilogue import LM_LW
from mlsdk.pipeline.ops.emitters.gemm_modes import Mode
from mlsdk.pipeline.ops.emitters.gemm_stream import BIAS_WORDS
from mlsdk.pipeline.ops.emitters.transfer import Tensor, pipeline
from mlsdk.pipeline.ops.emitters.window import (
    FORMS,
    L1BS,
    LB_ROWS,
    LB_ROWS_SIZE,
    LC_FREE,
    LC_ROWS,
    MABS,
    PATCH_LIMIT,
    Incoming,
    Patch,
    Rows,
    Window,
)

MODES = ("h", "hs", "f")  # of products that can be shared out so; sums are singles
LW = QUAD_LW["single"]
LINE = 64  # LW of a line of sums: sixteen columns
MOST_COLUMNS = 4 * MABS  # of a segment: one group of four for a MAB
SPREAD_STEP = 2 * 4  # words of sums from one MAB's columns to the next one's


@dataclass(frozen=True)
class Share(Patch):
    """The input of a segment in LM0: an L1B's blocks, all rows that `out_rows` output rows need."""

    out_rows: int = 1

    @property
    def sixteens(self) -> int:
        return -(-self.columns.count // MABS)

    @property
    def width(self) -> int:
        count = MABS * self.sixteens if self.sixteens > 1 else self.columns.count
        return self.window.columns_in(count)

    @property
    def parts(self) -> int:
        return 1

    @property
    def blocks(self) -> int:
        return blocks_of(self.window)

    @property
    def step_rows(self) -> int:
        """Rows in LM0 from one output row to the next: of a window of one row only those that it meets are there."""
        return self.window.stride[0] if self.window.kernel[0] > 1 else 1

    @property
    def rows(self) -> int:
        return (self.out_rows - 1) * self.step_rows + self.window.rows_in

    def tap(self, row: int, column: int, part: int, block: int) -> int:
        return super().tap(row * self.window.dilation[0], column, part, block)

    @property
    def groups(self) -> int:
        """Groups of four rows of the product."""
        return self.sixteens * -(-self.out_rows // 4)

    def row(self, group: int, cycle: int) -> tuple[int, int]:
        """(output row, which sixteen columns) of a row of the product; rows behind the last one are that again."""
        sixteen, four = divmod(group, -(-self.out_rows // 4))
        return min(4 * four + cycle, self.out_rows - 1), sixteen

    def member(self, group: int, cycle: int) -> int:
        row, sixteen = self.row(group, cycle)
        places = row * self.step_rows * self.blocks * self.pitch + MABS * sixteen * self.window.stride[1]
        return 2 * self.unit * places

    @property
    def base_step(self) -> int:
        return 2 * self.unit * self.window.stride[1]

    @property
    def bases(self) -> list[tuple[int, int]]:
        """Of products, and of sums that come back."""
        count = MABS if self.sixteens > 1 else self.columns.count
        return [(self.base_step, count), (SPREAD_STEP, self.columns.mabs)]


def blocks_of(window: Window) -> int:
    """Blocks of the input for each L1B."""
    return -(-window.parts * window.x.blocks // L1BS)


def sums_lw(window: Window, columns: int) -> int:
    """LW of the sums of an output row."""
    return window.y.blocks * LW * -(-columns // MABS) * LINE


def lc_sums(window: Window, tile: Rows, columns: int, y: str) -> int:
    """Where in L2BM the sums of a tile lie."""
    return windows.lc_out(window, tile, y) - tile.rows * sums_lw(window, columns)


def choose(name: str, window: Window, mode: Mode, x: str, y: str) -> tuple[int, int]:
    """(rows of a tile, columns of a segment); EmitError where there is no room for it. `x`, `y`: dtypes."""
    width, lw_x = window.y.shape[3], QUAD_LW[x]
    slot, out = windows.row_lw(window.x, x) * window.parts, windows.row_lw(window.y, y)
    least = -(-16 // QUAD_LW[y])
    if mode.name not in MODES or window.y.blocks * LW * 2 > BIAS_WORDS:
        raise EmitError(f"{name}: channels of {y} or so many are not shared out over L1Bs")
    for columns in (width, *range((width - 1) // 4 * 4, least - 1, -4)):
        rest = width % columns
        if columns > MOST_COLUMNS or (rest and -(-rest // 4) * 4 < least):
            continue
        for rows in range(min(L1BS, window.y.rows), 0, -1):
            shares = [Share(window, segment, mode.floats, rows) for segment in windows.segments(window, columns)]
            widest = max(last - first for first, last in (share.loaded for share in shares))
            if (
                window.slot_rows(rows) * slot + rows * (out + sums_lw(window, columns)) <= LC_FREE - LC_ROWS
                and max(share.size for share in shares) <= PATCH_LIMIT
                and shares[0].groups * mode.acc_words <= gemm_pipeline.BIAS
                and shares[0].groups * window.y.blocks * 4 * LW <= LM_LW
                and -(-(-(-widest // 4) * 16 * lw_x) // LINE) * LINE <= LB_ROWS_SIZE // 2
            ):
                return rows, columns
    raise EmitError(f"{name}: {window.x.blocks} blocks do not fit the L1Bs that share them")


def load_share(asm: Asm, patch: Patch, tile: Rows, x: Tensor, kind: str, fill: str = "") -> None:
    """From the slots in L2BM to LM0: each L1B its blocks. Those behind the last one are the last one again; their weights are
    zero."""
    assert isinstance(patch, Share)
    window, lw = patch.window, QUAD_LW[x.dtype]
    first, last = patch.loaded
    slot, slots = windows.row_lw(window.x, x.dtype), window.slot_rows(tile.rows)
    columns = -(-(last - first) // 4) * 4
    each = columns * 4 * lw  # LW of a row of a block
    blocks, most = patch.blocks, window.parts * window.x.blocks
    together = blocks if columns == window.x.columns and window.x.blocks % blocks == 0 else 1
    while together > 1 and -(-together * each // LINE) * LINE > LB_ROWS_SIZE // 2:
        together = max(d for d in range(1, together) if together % d == 0)
    moved = -(-together * each // LINE) * LINE
    skip = window.stride[0] // patch.step_rows
    todo = [(row, block) for row in range(patch.rows) for block in range(0, blocks, together)]
    per_round = LB_ROWS_SIZE // 2 // max(moved, LINE)  # none is loaded where windows meet borders only
    for at in range(0, len(todo) if last > first else 0, per_round):
        half = LB_ROWS + at // per_round % 2 * (LB_ROWS_SIZE // 2)
        lines: list[str] = []
        coming = Incoming(FORMS[kind, x.dtype], patch.unit, lw)
        for index, (row, start) in enumerate(todo[at : at + per_round]):
            lb = half + index * moved
            for b in range(L1BS):
                part, block = divmod(min(b * blocks + start, most - together), window.x.blocks)
                lc = LC_ROWS + (part * slots + row * skip) * slot + (block * window.x.columns + first) * 4 * lw
                lines += [f"l2bmb@{b} $lc{lc + i} $lb{lb + i}" for i in range(0, together * each, LINE)]
            for i in range(together):
                coming.take(lb + i * each, patch.place(0, row, start + i) + patch.left, columns, len(lines))
        coming.emit(asm, lines)
    windows.fill_borders(asm, patch, fill)


def rows_of(patch: Patch, mode: Mode) -> gemm_pipeline.Rows:
    """Rows of the product; sums lie in LM1 as [group][block][row of four][LW]."""
    assert isinstance(patch, Share)
    blocks = patch.window.y.blocks

    def out(og: int) -> int:
        block, part = divmod(og, mode.outs)
        return block * 8 * LW + part * 2 * LW // mode.outs

    count = range(patch.groups)
    return gemm_pipeline.Rows(
        tuple(tuple(patch.member(g, c) for c in range(4)) for g in count),
        lambda index, og: patch.step(index),
        tuple(tuple((g * blocks * 4 + c) * LW * 2 for c in range(4)) for g in count),
        out,
        "single",
    )


def join(asm: Asm, patch: Patch, tile: Rows, y: str, bases: Mapping[int, int], bias: int | None, raw: str) -> None:
    """The sums over the L1Bs in LM1, as `raw`. `bases`: where in GRF1 the base addresses of the patch are, `bias`: L1BM address
    of the bias, `y`: dtype of the result."""
    assert isinstance(patch, Share)
    lc = lc_sums(patch.window, tile, patch.columns.count, y)
    if bias is not None:
        for i in range(-(-patch.window.y.blocks // 4)):
            asm.pe(f"l1bmm $llb{bias + 32 * i} $llr{gemm_pipeline.BIAS + 16 * i}v")
    _collect(asm, patch, lc)
    _spread(asm, patch, lc, bases[SPREAD_STEP], None if bias is None else gemm_pipeline.BIAS, raw)


def _collect(asm: Asm, patch: Share, lc: int) -> None:
    """The sums over the L1Bs from LM1 to L2BM at `lc`: [row][block][LW][sixteen columns]."""
    blocks = patch.window.y.blocks
    items = [(g, block, i) for block in range(blocks) for i in range(LW) for g in range(patch.groups)]
    at_once = LB_ROWS_SIZE // (4 * LINE)
    for at in range(0, len(items), at_once):
        first: list[str] = []
        second: list[tuple[str, int]] = []
        for group, block, i in items[at : at + at_once]:
            lb = LB_ROWS + len(first) * 4 * LINE
            words = [((group * blocks + block) * 4 + c) * LW * 2 + 2 * i for c in range(4)]
            first.append(f"l1bmd {vec(m.LM1, words, 2)} $lb{lb}")
            seen: set[int] = set()
            for c in range(4):
                row, sixteen = patch.row(group, c)
                if row not in seen:
                    line = ((row * blocks + block) * LW + i) * patch.sixteens + sixteen
                    second.append((f"l2bmrffadd $lb{lb + c * LINE} $lc{lc + line * LINE}", len(first)))
                    seen.add(row)
        pipeline(asm, first, second, distance=3)


def _spread(asm: Asm, patch: Share, lc: int, base: int, bias: int | None, dtype: str) -> None:
    """The sums at `lc` back to LM1, as `dtype`: an output row in each L1B, neighbouring columns in each MAB. `base`: word of
    GRF1 with the MABs' base addresses, `bias`: word of GRF0 with the bias of all blocks."""
    blocks, wide = patch.window.y.blocks, patch.sixteens * LINE
    size = sums_lw(patch.window, patch.columns.count)
    per_round = max(1, min(LB_ROWS_SIZE // (LW * wide), LM_LW * 4 // (LW * wide)))
    r, width = ("r", 1) if dtype == "half" else ("", 2)
    for b0 in range(0, blocks, per_round):
        these = range(b0, min(b0 + per_round, blocks))
        lines = [
            f"l2bmb{f'@{b}' if patch.out_rows > 1 else ''} $lc{lc + b * size + b0 * LW * wide + i} $lb{LB_ROWS + i}"
            for i in range(0, len(these) * LW * wide, LINE)
            for b in range(patch.out_rows)
        ]
        reads = [
            (f"l1bmm $llb{LB_ROWS + 4 * a} $llm{2 * a}v", (4 * a // LINE + 1) * patch.out_rows)
            for a in range(0, len(these) * LW * wide // 4, 8)
        ]
        pipeline(asm, lines, reads, distance=2)
        windows.set_base(asm, base)
        for block in these:
            for i in range(LW):
                source = vec(m.LM0, [2 * (((block - b0) * LW + i) * wide // 4 + c) for c in range(4)], 2)
                target = [(block * 4 + c) * QUAD_LW[dtype] * 2 + i * width for c in range(4)]
                op = f"fvpassa{r} {source}" if bias is None else f"fvadd{r} {source} $lr{bias + (block * LW + i) * 2}"
                asm.pe(f"{op} {vec(m.LM1, target, width)}")
        windows.clear_base(asm)
