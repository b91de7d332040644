"""Products of many rows and columns: the groups share the rows, and the two L2Bs of each group the columns.

Every long word of A then goes to two L2Bs and every one of the weights to four, where a product that shares only the rows
brings all weights to all eight. The L1Bs share the rows, or, of fewer rows, the columns. About how long each way takes is
estimated here; a search counts.
"""

from __future__ import annotations

from math import gcd, prod

from mlsdk.device import spec
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import EXTENT, L1B, L2B, MAB, PER_LW
from mlsdk.pipeline.ir.scheme import BLOCK, LOCAL, Digit, Scheme, spread
from mlsdk.pipeline.ops.emitters.gemm import sums_in_quarters
from mlsdk.pipeline.ops.emitters.gemm_modes import Mode
from mlsdk.pipeline.ops.emitters.gemm_pipeline import BIAS
from mlsdk.pipeline.ops.emitters.quarters import LINE, quartered

PORT = spec.DRAM_LW_PER_CYCLE * spec.CYCLES_PER_STEP  # LW a step between a group's DRAM and L2BM
LINE_BY_L1B = 32  # LW a step from L2BM to each L1BM, if each takes other ones
PIECE, BETWEEN = 12288, 16  # LW of weights of which the products follow each other, and steps until the next ones do
LINE_OF_SUM = spec.MVR_L2BM_LW_PER_CYCLE * spec.CYCLES_PER_STEP  # LW a step of what all L2Bs have, as they are summed
STARTING = 150  # steps until the first product, and from the last one to the end
SWITCH = 30  # LW a step of a value that is brought to another layout
LEAST_GAIN = 0.98  # what a way has to take, of the steps of the rule's own, to stand before it

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


def sums(shape_c: tuple[int, ...], k: int) -> list[Way]:
    """The ways in which the L2Bs share k, and what they multiply is summed: each of the weights goes to one L2B. A has no lanes
    beyond k: these might hold anything."""
    last, blocks_n = len(shape_c) - 1, -(-shape_c[-1] // BLOCK)
    if k % (L2BS.n * BLOCK):
        return []
    found: list[Way] = []
    for l1bs, levels in (((), (L1B, MAB)), ((L1BS,), (MAB,))):
        if blocks_n < prod(d.n for d in l1bs):
            continue
        rows = rows_in_powers_of_two(shape_c[:-1], levels)
        lanes = (*l1bs, *_local(blocks_n, prod(d.n for d in l1bs)))
        c = quartered(Scheme((*rows, lanes), last))
        if c is not None:
            found.append((Scheme((*rows, (L2BS, *_local(k // BLOCK, L2BS.n))), last), c))
    return found


def rows_in_powers_of_two(rows: tuple[int, ...], levels: tuple[str, ...]) -> tuple[tuple[Digit, ...], ...]:
    """Rows over levels: one axis of many as bits of their numbers, so that sums of them can lie in quarters."""
    whole = prod(EXTENT[level] for level in levels)
    even = [min(1 << (n - 1).bit_length(), -(-n // whole) * whole) if n == prod(rows) > whole // 4 else n for n in rows]
    return spread(even, None, levels=levels).axes


def _local(blocks: int, parts: int) -> tuple[Digit, ...]:
    each = -(-blocks // parts)
    return (Digit(each, LOCAL, -1),) if each > 1 else ()


def fits(mode: Mode, way: Way, dtypes: tuple[str, str]) -> bool:
    """Whether the emitter has room for its tiles: A's block floats in LM0, what comes of A at once and C in LM1, all of them from
    where an image may be cut to where it may be cut."""
    most, rows = _most_rows(mode, way, dtypes)
    a, c = way
    (lw_a, of_a), (lw_c, of_c) = (
        (_blocks(s) * s.unit_lw(dtype), Image(s.layout(dtype), dtype, s.extents).granule)
        for s, dtype in zip(way, dtypes)
    )
    grain = 1
    while grain * lw_a % of_a or grain * lw_c % of_c:
        grain *= 2
    at_once = of_a // gcd(lw_a, of_a) * lw_a * (_sources(a) if sums_in_quarters(a, c) is None else 1)
    return most >= min(rows, grain) and at_once <= spec.LM_WORDS // 2


def _blocks(scheme: Scheme) -> int:
    """Lane blocks of a MAB."""
    assert scheme.lane is not None
    return prod(d.n for d in scheme.axes[scheme.lane] if d.level == LOCAL)


def _sources(a: Scheme) -> int:
    """L2Bs that have another part of k each."""
    assert a.lane is not None
    return prod(d.n for d in a.axes[a.lane] if d.level == L2B)


def _most_rows(mode: Mode, way: Way, dtypes: tuple[str, str]) -> tuple[int, int]:
    """Rows of the largest tile, as far as LM and the accumulators go, and rows of a MAB."""
    a, c = way
    parts = sums_in_quarters(a, c)
    sources, c = (1, parts) if parts is not None else (_sources(a), c)
    largest = max(_blocks(a) * sources * mode.floats, _blocks(c) * c.unit_lw(dtypes[1]))
    return min(spec.LM_WORDS // 2 // largest, 4 * (BIAS // mode.acc_words)), c.units // _blocks(c)


def switched(shape: tuple[int, ...], dtype: str) -> float:
    """About how many steps a value takes to lie otherwise."""
    return prod(shape) / PER_LW[dtype] / SWITCH + STARTING


def steps(mode: Mode, way: Way, dtypes: tuple[str, str]) -> float:
    """About how many steps a product takes that goes a way. `dtypes`: of A and of the result."""
    a, c = way
    assert c.lane is not None
    parts = sums_in_quarters(a, c)
    blocks_k, blocks_n, sources = _blocks(a), _blocks(c), _sources(a) if parts is None else 1
    of_l2b = [d for d in (c.axes[c.lane] if parts is None else (L2BS,)) if d.level == L2B and d.n > 1]
    by_l1b = any(d.level == L1B and d.n > 1 for d in (parts or c).axes[c.lane])

    most, rows = _most_rows(mode, way, dtypes)
    tile = max(1, min(rows, most))
    blocks = blocks_k * sources * mode.steps * blocks_n * mode.outs
    whole, rest = divmod(rows, tile)
    period = mode.period(-(-tile // 4)) * whole + (mode.period(-(-rest // 4)) if rest else 0)
    rate = PORT // 2 if of_l2b == [L2BS] else PORT
    weights = mode.block_lw * max((8 if by_l1b else 1) / rate, 1 / LINE_BY_L1B if by_l1b else 0)
    pieces = blocks * mode.block_lw * (8 if by_l1b else 1) / PIECE
    stream = max(blocks * period + pieces * BETWEEN, blocks * weights * (whole + bool(rest)))

    image_a, image_c = (Image(s.layout(d), d, s.extents) for s, d in zip(way, dtypes))
    of_a = image_a.l2bs_used if sources == 1 else 2 * sources if sources == L2BS.n else sources
    before = _carried(image_a, of_a, sources) + stream + STARTING
    return before + (_carried(image_c, image_c.l2bs_used, 1) if parts is None else _summed(parts, c, dtypes[1]))


def _summed(parts: Scheme, c: Scheme, dtype: str) -> float:
    """About how long a sum over all L2Bs takes, and the bias, for which it comes back."""
    wide = "double" if dtype == "double" else "single"
    size = parts.addresses(wide) * 64 * EXTENT[L1B]
    image = Image(c.layout(wide), wide, c.extents)
    return size / LINE_OF_SUM + size / LINE + 2 * _carried(image, image.l2bs_used, 1) + STARTING


def _carried(image: Image, moves: int, parts: int) -> float:
    """About how long a tensor takes between DRAM and LM: in moves of what an L2BM has, or in lines of L2BM and their pieces."""
    size = image.l2b_size
    line, piece = (256, 4096) if image.l1b_spread else (64, 2048)
    return max(size * moves / PORT, size * parts / line + size * parts / piece * BETWEEN)
