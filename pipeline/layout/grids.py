"""Products of many rows and columns: the groups share the rows, and the two L2Bs of each group the columns.

Every long word of A then goes to two L2Bs and every one of the weights to four, where a product that shares only the rows
brings all weights to all eight. The L1Bs share the rows, or, of fewer rows, the columns. About how long each way takes is
estimated here; a search counts.
"""

from __future__ import annotations

from math import prod

from mlsdk.device import spec
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import EXTENT, L1B, L2B, MAB
from mlsdk.pipeline.ir.scheme import BLOCK, LOCAL, Digit, Scheme, spread
from mlsdk.pipeline.ops.emitters.gemm_modes import Mode
from mlsdk.pipeline.ops.emitters.gemm_pipeline import BIAS

PORT = spec.DRAM_LW_PER_CYCLE * spec.CYCLES_PER_STEP  # LW a step between a group's DRAM and L2BM
LINE_BY_L1B = 32  # LW a step from L2BM to each L1BM, if each takes other ones
STARTING = 150  # steps until the first product, and from the last one to the end
LEAST_GAIN = 0.9  # what a way has to take, of the steps of the rule's own, to stand before it

PAIR = Digit(spec.L2B_PER_GROUP, L2B, 1)
GROUPS = Digit(spec.GROUPS, L2B, spec.L2B_PER_GROUP)
L2BS, L1BS = Digit(EXTENT[L2B], L2B, 1), Digit(EXTENT[L1B], L1B, 1)

Way = tuple[Scheme, Scheme]  # of A and of the result


def in_pairs(scheme: Scheme) -> bool:
    """Whether the two L2Bs of each group have other lanes, and all groups the same."""
    assert scheme.lane is not None
    return [d for d in scheme.axes[scheme.lane] if d.level == L2B and d.n > 1] == [PAIR]


def grids(shape_c: tuple[int, ...], k: int) -> list[Way]:
    """The ways to share out rows and columns over L2Bs and L1Bs. Where two L2Bs share the columns they share k of A, too: each
    part is brought to both."""
    last, n = len(shape_c) - 1, shape_c[-1]
    blocks_k, blocks_n = -(-k // BLOCK), -(-n // BLOCK)
    longest = max(range(last), key=lambda x: (shape_c[x] % GROUPS.n == 0, shape_c[x]))
    found: list[Way] = []
    for by_l1b in (False, True):
        l1bs, levels = ((L1BS,), (MAB,)) if by_l1b else ((), (L1B, MAB))
        columns = prod(d.n for d in l1bs)
        if min(blocks_k, blocks_n // columns) >= PAIR.n and shape_c[longest] >= GROUPS.n:
            sizes = [-(-size // GROUPS.n) if x == longest else size for x, size in enumerate(shape_c[:-1])]
            rows = list(spread(sizes, None, levels=levels).axes)
            rows[longest] = (GROUPS, *rows[longest])
            lanes = [(PAIR, *parts, *_local(blocks, columns)) for parts, blocks, columns in (
                ((), blocks_k, PAIR.n), (l1bs, blocks_n, PAIR.n * columns))]  # fmt: skip
            found.append((Scheme((*rows, lanes[0]), last), Scheme((*rows, lanes[1]), last)))
        if by_l1b and blocks_n >= columns * L2BS.n:
            rows = list(spread(shape_c[:-1], None, levels=levels).axes)
            lanes_c = (L2BS, *l1bs, *_local(blocks_n, columns * L2BS.n))
            found.append((Scheme((*rows, _local(blocks_k, 1)), last, (L2BS,)), Scheme((*rows, lanes_c), last)))
    return found


def _local(blocks: int, parts: int) -> tuple[Digit, ...]:
    each = -(-blocks // parts)
    return (Digit(each, LOCAL, -1),) if each > 1 else ()


def steps(mode: Mode, way: Way, dtypes: tuple[str, str], batches: int = 1) -> float:
    """About how many steps a product takes that goes a way. `dtypes`: of A and of the result."""
    a, c = way
    assert a.lane is not None and c.lane is not None
    lanes_a, lanes_c = a.axes[a.lane], c.axes[c.lane]
    blocks_k, blocks_n = (prod(d.n for d in lanes if d.level == LOCAL) for lanes in (lanes_a, lanes_c))
    sources = prod(d.n for d in lanes_a if d.level == L2B)
    rows = c.units // blocks_n
    of_l2b = [d for d in lanes_c if d.level == L2B and d.n > 1]
    by_l1b = any(d.level == L1B and d.n > 1 for d in lanes_c)

    largest = max(blocks_k * sources * mode.floats, blocks_n * c.unit_lw(dtypes[1]))
    tile = max(1, min(rows, spec.LM_WORDS // 2 // largest, 4 * (BIAS // mode.acc_words)))
    blocks = blocks_k * sources * mode.steps * blocks_n * mode.outs
    whole, rest = divmod(rows, tile)
    period = mode.period(-(-tile // 4)) * whole + (mode.period(-(-rest // 4)) if rest else 0)
    rate = PORT // 2 if of_l2b == [L2BS] else PORT
    weights = mode.block_lw * max((8 if by_l1b else 1) / rate, 1 / LINE_BY_L1B if by_l1b else 0)
    stream = blocks * max(period, weights * (whole + bool(rest)))

    image_a, image_c = (Image(s.layout(d), d, s.extents) for s, d in zip(way, dtypes))
    into = image_a.l2b_size * (image_a.l2bs_used if sources == 1 else 2 * sources if sources == L2BS.n else sources)
    return into / PORT + stream + image_c.l2b_size * image_c.l2bs_used / PORT + STARTING
