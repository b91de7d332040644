"""Matrix products: C[batch, m, n] = sum_k A[batch, m, k] B[batch, k, n] + bias[n].

Rows of A (lanes = k) stay in LM as block floats for a tile of rows; B passes by in pieces (`gemm_pipeline`), double
buffered in L2BM; C collects in LM1 and is uploaded when the tile is done. Loops: local batches, tiles of rows, pieces.

Where the L2Bs share the columns of C, each needs whole rows of A. They come from copies, one for each L2B, or, as a product
before leaves them, from where the L2Bs share k (`parts`): each part goes from its group's DRAM to all L2Bs.
Where the L1Bs share k (`joined`), each sums a part of it, and the network adds the parts on their way to DRAM. So it is with the
L2Bs, if those share the k of the weights, too (`summed`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from mlsdk.device import spec
from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.layout import L1B, L2B
from mlsdk.pipeline.ir.scheme import BLOCK, LOCAL
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.gemm_modes import MODES, Mode
from mlsdk.pipeline.ops.emitters.gemm_pipeline import BIAS, RING, Rows
from mlsdk.pipeline.ops.emitters.gemm_stream import Weights
from mlsdk.pipeline.ops.emitters.lanes import clear_tail
from mlsdk.pipeline.ops.emitters.transfer import Range, Tensor, bulk_download, bulk_upload, start_download

# L2BM: A and C pass through [0, 8192), the pieces of B through two halves above. L1BM: ring of blocks, A and C, bias.
LC_TILES, LC_TILES_SIZE = 0, 8192
LC_HALVES, LC_HALF = (8192, 8192 + 12288), 12288
LB_TILES, LB_TILES_SIZE = RING, 2048
LB_BIAS, LB_BIAS_SIZE = RING + 2048, 2048


@dataclass
class Loops:
    """What a tensor's LM addresses advance by in each enclosing loop, outermost first."""

    strides: dict[str, list[int]] = field(default_factory=lambda: {"a": [], "b": [], "c": []})

    @contextmanager
    def over(self, asm: Asm, count: int, a: int = 0, b: int = 0, c: int = 0) -> Iterator[None]:
        if count == 1:
            yield
            return
        for name, step in (("a", a), ("b", b), ("c", c)):
            self.strides[name].append(step)
        try:
            with asm.loop(count):
                yield
        finally:
            for name in "abc":
                self.strides[name].pop()

    def of(self, name: str) -> tuple[int, ...]:
        return tuple(self.strides[name])


@dataclass(frozen=True)
class Product:
    """One emitted product as every MAB sees it."""

    mode: Mode
    a: Tensor
    b: Tensor
    bias: Tensor | None
    c: Tensor
    batches: int  # local batches
    rows: int  # local rows of a batch
    kb: int  # lane blocks of k
    parts: tuple[int, ...]  # L2Bs that hold a part of k each; none: all of it is everywhere
    nb: int  # local lane blocks of n
    tile: int  # rows of a tile
    k: int

    @property
    def joined(self) -> str:
        """How L2BM takes the result of all L1Bs."""
        lanes = self.a.scheme.axes[self.a.scheme.lane] if self.a.scheme.lane is not None else ()  # type: ignore[union-attr]
        if not any(d.level == L1B and d.n > 1 for d in lanes):
            return "l2bm@0"
        return {"single": "l2bmrffadd", "double": "l2bmrdfadd"}[self.c.dtype]

    @property
    def summed(self) -> str:
        """The move that adds what all L2Bs have of the result, if each has a part."""
        return {"single": "mvrffadd", "double": "mvrdfadd"}[self.c.dtype] if _sums_over_l2bs(self.mode, self.b) else ""

    @property
    def steps(self) -> int:
        return self.kb * self.mode.steps

    @property
    def groups(self) -> int:
        return self.nb * self.mode.outs

    @property
    def unit_a(self) -> int:
        """LW of a lane block of A as it comes."""
        return self.a.scheme.unit_lw(self.a.dtype)  # type: ignore[union-attr]

    @property
    def lw_a(self) -> int:
        """LM addresses of a row of A in its image."""
        return local_blocks(self.a) * self.unit_a

    @property
    def lw_c(self) -> int:
        return self.nb * self.c.scheme.unit_lw(self.c.dtype)  # type: ignore[union-attr]


def emit_gemm(call: Call) -> Asm:
    """inputs: A (scheme rows.., lane k), B (`weights_layout`), bias (restricted scheme of C, singles or doubles) or None."""
    a, b = call.inputs[0], call.inputs[1]
    bias = call.inputs[2] if len(call.inputs) > 2 else None
    c = call.outputs[0]
    assert a is not None and b is not None and a.scheme is not None and c.scheme is not None
    mode = MODES[call.kernel]
    kb, nb, parts = local_blocks(a), local_blocks(c), () if _sums_over_l2bs(mode, b) else l2bs_of_lanes(a)
    rows = c.scheme.units // nb // call.batches
    shared = a.scheme.units == rows * kb  # one A for all local batches
    if not shared and a.scheme.units != rows * kb * call.batches:
        raise EmitError(f"{call.node.name}: {call.batches} local batches, of which A has some; expand A")
    k = a.shape[a.scheme.lane] if a.scheme.lane is not None else 1
    if parts and a.home is not None:
        raise EmitError(f"{call.node.name}: each L2B has a part of A, which has to come from DRAM")
    tile = _tile(mode, rows, kb * max(1, len(parts)), nb, a, c, call)
    kb = -(-k // BLOCK) if parts else kb
    p = Product(mode, a, b, bias, c, call.batches, rows, kb, parts, nb, tile, k)
    asm, loops = Asm(), Loops()
    if bias is not None:
        _load_bias(asm, p, call)
    whole, rest = divmod(rows, p.tile)
    tiles = -(-p.tile // 4)
    weights = Weights(asm, mode, b, p.steps, p.groups, tiles, LC_HALVES, LC_HALF, bias is not None, True, p.batches)
    weights.bring()
    if whole > 1:
        weights.settle()
    with loops.over(
        asm, p.batches, 0 if shared else rows * p.lw_a, weights.addresses(p.groups * p.steps), rows * p.lw_c
    ):
        with loops.over(asm, whole, p.tile * p.lw_a, 0, p.tile * p.lw_c):
            if whole:
                _emit_tile(asm, p, weights, loops, 0, p.tile)
        if rest:
            _emit_tile(asm, p, weights, loops, whole * p.tile, rest)
    return asm


def local_blocks(tensor: Tensor) -> int:
    """Lane blocks of a row that each MAB holds."""
    scheme, n = tensor.scheme, 1
    assert scheme is not None
    if scheme.lane is not None:
        for d in scheme.axes[scheme.lane]:
            if d.level == LOCAL:
                n *= d.n
    return n


def l2bs_of_lanes(tensor: Tensor) -> tuple[int, ...]:
    """The L2Bs among which lane blocks are shared out, in the order of the blocks."""
    scheme, found = tensor.scheme, [0]
    if scheme is not None and scheme.lane is not None:
        for d in scheme.axes[scheme.lane]:
            if d.level == L2B and d.n > 1:
                found = [x + i * d.stride for x in found for i in range(d.n)]
    return tuple(found) if len(found) > 1 else ()


def _sums_over_l2bs(mode: Mode, b: Tensor) -> bool:
    """Whether the L2Bs share the contraction of the weights."""
    return not mode.crossed and bool(l2bs_of_lanes(b))


def _tile(mode: Mode, rows: int, kb: int, nb: int, a: Tensor, c: Tensor, call: Call) -> int:
    """Rows of a tile: A and C must fit an LM bank each, and the accumulators half of GRF0."""
    lw_a, lw_c = kb * a.scheme.unit_lw(a.dtype), nb * c.scheme.unit_lw(c.dtype)  # type: ignore[union-attr]
    local_a = local_blocks(a) * a.scheme.unit_lw(a.dtype)  # type: ignore[union-attr]
    bank = spec.LM_WORDS // 2 - 8
    most = min(bank // lw_a, bank // lw_c, 4 * (BIAS // mode.acc_words))
    if most < 1:
        raise EmitError(f"{call.node.name}: a row of {kb * BLOCK} or {nb * BLOCK} elements does not fit LM")
    grain = 1
    while (grain * lw_c) % c.image.granule or (grain * local_a) % a.image.granule:
        grain *= 2
    if rows <= most:
        if call.batches > 1 and rows % grain:
            raise EmitError(f"{call.node.name}: {rows} rows of a batch do not end on {grain}; pad the rows")
        return rows
    if grain > most:
        raise EmitError(f"{call.node.name}: tiles of {most} rows do not end on {grain} rows")
    step = max(grain, 4)
    return most // step * step if most >= step else most // grain * grain


def _load_bias(asm: Asm, p: Product, call: Call) -> None:
    """The whole bias into L1BM, from where each piece takes its part."""
    assert p.bias is not None
    part = Range.of(p.bias, 0, p.bias.image.addresses)
    if part.lb_size > LB_BIAS_SIZE or p.bias.image.l1b_spread or p.bias.image.mab_spread:
        raise EmitError(f"{call.node.name}: the bias of {p.bias.shape} does not fit; add it separately")
    asm.wait(*start_download(asm, part, LC_TILES))
    for i in range(-(-part.lb_size // 64)):
        asm.pe(f"l2bmb $lc{LC_TILES + 64 * i} $lb{LB_BIAS + 64 * i}")


def _emit_tile(asm: Asm, p: Product, weights: Weights, loops: Loops, at: int, count: int) -> None:
    mode = p.mode
    weights.start(loops.of("b"))
    part_a = Range.of(p.a, at * p.lw_a, (at + count) * p.lw_a)
    first = 2 * (at * p.lw_a - part_a.lo)
    if p.a.home is not None and p.a.home.space == m.LM1 and not loops.of("a") and p.a.pad != "any":
        first = p.a.home.word + 2 * at * p.lw_a
    else:
        bulk_download(asm, part_a, m.LM1, 0, LC_TILES, LC_TILES_SIZE, LB_TILES, LB_TILES_SIZE, loops.of("a"), p.parts)
    units = _blocks_in_lm(p, first, part_a.addresses, count)
    if p.a.pad == "any" and p.k % BLOCK and p.a.scheme.lane is not None:  # type: ignore[union-attr]
        clear_tail(asm, p.a, m.LM1, units[p.kb - 1 :: p.kb], p.k % BLOCK)
    _to_block_float(asm, mode, p.a.dtype, units)

    part_c = Range.of(p.c, at * p.lw_c, (at + count) * p.lw_c)
    a_words = {"h": 2, "f": 4, "d": 8}[mode.letter] * p.kb
    out, group = 2 * (at * p.lw_c - part_c.lo), 2 * p.lw_c // p.groups
    rows = consecutive_rows(count, a_words, a_words // p.kb, out, 2 * p.lw_c, group, p.c.dtype)
    weights.run(rows, LB_BIAS if p.bias is not None else None, loops.of("b"))
    bulk_upload(
        asm, part_c, m.LM1, 0, LC_TILES, LC_TILES_SIZE, LB_TILES, LB_TILES_SIZE, loops.of("c"), p.joined, p.summed
    )


def consecutive_rows(count: int, a_row: int, a_lane: int, c_base: int, c_row: int, c_group: int, dtype: str) -> Rows:
    """Rows behind each other: `a_row` and `c_row` words apart, lane blocks `a_lane` and output groups `c_group` apart."""
    groups = [range(at, min(at + 4, count)) for at in range(0, count, 4)]
    return Rows(
        tuple(tuple(i * a_row for i in group) for group in groups),
        lambda block, og: block * a_lane,
        tuple(tuple(c_base + i * c_row for i in group) for group in groups),
        lambda og: og * c_group,
        dtype,
    )


def _blocks_in_lm(p: Product, first: int, part: int, count: int) -> list[int]:
    """The words of LM1 at which the lane blocks of `count` rows lie: row after row, block after block. The first is at
    `first`; each of `p.parts` has taken `part` LW."""
    local = local_blocks(p.a)
    return [
        first + 2 * (block // local * part + (row * local + block % local) * p.unit_a)
        for row in range(count)
        for block in range(p.kb)
    ]


def _to_block_float(asm: Asm, mode: Mode, dtype: str, units: list[int]) -> None:
    """A from LM1, where its blocks lie at the words `units`, to LM0 as block floats, one behind the other."""
    if mode.letter == "h":
        width, rounded = (2, "") if dtype == "half" else (4, "r")
        op, words = "hbfn/9", units
    else:
        per = 2 if mode.name == "f" else 4
        width, rounded = 2, ""
        op, words = f"{mode.name}bfn", [unit + 2 * i for unit in units for i in range(per)]
    for u in range(0, len(words), 4):
        some = words[u : u + 4]
        to = vec(m.LM0, [2 * (u + i) for i in range(len(some))], 2)
        asm.pe(f"{op} {vec(m.LM1, some, width)}{rounded} {to}")
