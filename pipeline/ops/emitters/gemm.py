"""Matrix products: C[batch, m, n] = sum_k A[batch, m, k] B[batch, k, n] + bias[n].

Rows of A (lanes = k) stay in LM as block floats for a tile of rows; B passes by in pieces (`gemm_pipeline`), double
buffered in L2BM; C collects in LM1 and is uploaded when the tile is done. Loops: local batches, tiles of rows, pieces.

Where the L2Bs share the columns of C, each needs whole rows of A. They come from copies, one for each L2B, or, as a product
before leaves them, from where the L2Bs share k (`parts`): each part goes from its group's DRAM to all L2Bs. Where the groups
share the rows, and the two L2Bs of each the columns, the parts of a group go to these two. C goes to DRAM when a tile is done,
or in parts while the next one is computed (`gemm_drain`), whichever takes fewer steps.
Where the L1Bs share k (`joined`), each sums a part of it, and the network adds the parts on their way to DRAM. So it is with the
L2Bs, if those share the k of the weights, too (`summed`), or if they share that of A, and the sum lies in `quarters`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import isqrt, prod

from mlsdk.device import spec
from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.layout import EXTENT, L1B, L2B
from mlsdk.pipeline.ir.scheme import BLOCK, LOCAL, Digit, Scheme
from mlsdk.pipeline.ops.clock import Clock
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.gemm_drain import Drain, can_drain
from mlsdk.pipeline.ops.emitters.gemm_modes import MODES, Mode
from mlsdk.pipeline.ops.emitters.gemm_pipeline import BIAS, RING, Rows
from mlsdk.pipeline.ops.emitters.gemm_stream import BETWEEN, Weights
from mlsdk.pipeline.ops.emitters.lanes import clear_tail
from mlsdk.pipeline.ops.emitters.quarters import quartered, upload_sums
from mlsdk.pipeline.ops.emitters.transfer import Range, Source, Tensor, bulk_download, bulk_upload, room, start_download

# L2BM: A and C pass through the first long words, the pieces of B through two halves above. L1BM: ring of blocks, A and C, bias.
LC_TILES = 0
LB_TILES, LB_TILES_SIZE = RING, 2048
LB_BIAS, LB_BIAS_SIZE = RING + 2048, 2048
BANK = spec.LM_WORDS // 2  # LW of an LM
DRAM = spec.DRAM_LW_PER_CYCLE * spec.CYCLES_PER_STEP  # LW a step between a group's DRAM and L2BM


@dataclass(frozen=True)
class Room:
    """How L2BM is shared: long words for A and C, and for each of the two halves for B."""

    tiles: int
    half: int

    @property
    def halves(self) -> tuple[int, int]:
        return self.tiles, self.tiles + self.half


SPARE, EVEN = Room(8192, 12288), Room(16384, 8192)  # for C once it is done; for C while it is computed


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
    parts: tuple[Source, ...]  # where a part of k is each; none: all of it is everywhere
    nb: int  # local lane blocks of n
    tile: int  # rows of a tile
    k: int
    at_once: int  # rows of a tile that are brought at once
    room: Room = SPARE
    cut: int = 0  # steps of a piece of B at most; 0: as many as go
    quarters: Scheme | None = None  # in which each L2B has a part of the sum, if that lies in quarters
    merged: int = 1  # local batches that are in LM at once: their weights follow each other, as those of one matrix
    one_a: bool = False  # all local batches have one A

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
    def _columns(self) -> list[Digit]:
        """How the columns of C are shared out."""
        scheme = self.quarters or self.c.scheme
        assert scheme is not None
        return [d for d in scheme.axes[scheme.lane] if d.n > 1] if scheme.lane is not None else []

    @property
    def fed_by_l1b(self) -> bool:
        """Whether each L1B takes weights of its own."""
        return self.b.image.l1b_spread or any(d.level == L1B for d in self._columns)

    @property
    def quartered(self) -> bool:
        """Whether weights lie in DRAM once, although the two L2Bs of a group take other columns (`in_quarters`)."""
        own = any(d.level == L2B and d.stride % 2 for d in self._columns)
        return own and self.b.home is None and self.b.image.l2b_spread and self.b.image.l2bs_used == 1

    @property
    def steps(self) -> int:
        return self.kb * self.mode.steps

    @property
    def groups(self) -> int:
        return self.nb * self.mode.outs

    @property
    def lw_group(self) -> int:
        """LM addresses of an output group of C."""
        return self.lw_c // self.groups

    @property
    def drains(self) -> bool:
        """Whether C may go in parts, while the next part is computed."""
        whole = self.joined == "l2bm@0" and not self.summed and self.quarters is None and self.merged == 1
        return whole and can_drain(self.c, self.tile, self.lw_group, self.groups, LB_TILES_SIZE)

    @property
    def short_piece(self) -> int:
        """Steps of the pieces of B that come once, if as little time as can be is spent on waiting for the first one and between
        them."""
        if self.rows > self.tile or self.batches > 1 or self.b.home is not None:
            return 0
        shared = 2 if self.b.image.l2bs_used == 2 else 1  # L2Bs of a group that take turns
        moved = self.mode.block_lw * (8 if self.fed_by_l1b else 1) * shared / DRAM
        return max(1, isqrt(int(BETWEEN * self.groups * self.steps / moved)))

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
    kb, nb, sums = local_blocks(a), local_blocks(c), sums_in_quarters(a.scheme, c.scheme)
    if sums is not None and c.home is not None:
        raise EmitError(f"{call.node.name}: a sum over all L2Bs goes to DRAM")
    parts = () if sums is not None or _sums_over_l2bs(mode, b) else _sources(a)
    rows = (sums or c.scheme).units // nb // call.batches
    shared = a.scheme.units == rows * kb  # one A for all local batches
    if not shared and a.scheme.units != rows * kb * call.batches:
        raise EmitError(f"{call.node.name}: {call.batches} local batches, of which A has some; expand A")
    k = a.shape[a.scheme.lane] if a.scheme.lane is not None else 1
    if parts and a.home is not None:
        raise EmitError(f"{call.node.name}: each L2B has a part of A, which has to come from DRAM")
    tile = _tile(mode, rows, kb * max(1, len(parts)), nb, a, c, call)
    at_once = _at_once(tile, kb, max(1, len(parts)), a, call)
    if _columns_apart(a) > 1 and min(tile, at_once) < rows:
        raise EmitError(f"{call.node.name}: lanes of A that lie outside of the rows come at once, and do not fit LM")
    kb = -(-k // BLOCK) if parts else kb
    p = Product(mode, a, b, bias, c, call.batches, rows, kb, parts, nb, tile, k, at_once, quarters=sums)
    if sums is None and call.batches == 1 and (apart := _columns_apart(c)) > 1:
        if tile < rows:
            raise EmitError(f"{call.node.name}: columns that lie outside of the rows go to DRAM once all rows are done")
        p = replace(p, nb=nb // apart, merged=apart, one_a=True)
    forms = [p, replace(p, room=EVEN)] if p.drains else [p]
    forms += [replace(form, cut=p.short_piece) for form in forms if p.short_piece]
    if (together := _merged(call, p, shared)) is not None:
        forms = [together]
    elif p.batches > 1 and rows % (grain := _grain(a, c, nb)):
        raise EmitError(f"{call.node.name}: {rows} rows of a batch do not end on {grain}; pad the rows")
    return min((_emitted(call, form, shared) for form in forms), key=lambda asm: Clock().run(asm.statements))


def _merged(call: Call, p: Product, shared: bool) -> Product | None:
    """All local batches in LM at once, if there is room: none of them has to end where an image may be cut."""
    rows_a = p.rows * (1 if shared else p.batches)
    fits = max(rows_a * p.kb * p.mode.floats, room(p.rows * p.batches * p.lw_c)) <= BANK and p.tile == p.rows
    if p.batches == 1 or p.bias is not None or p.quarters is not None or p.parts or not fits:
        return None
    return replace(p, batches=1, merged=p.batches, one_a=shared, at_once=_at_once(rows_a, p.kb, 1, p.a, call))


def _emitted(call: Call, p: Product, shared: bool) -> Asm:
    """`shared`: all local batches have one A."""
    asm, loops = Asm(), Loops()
    if p.bias is not None:
        _load_bias(asm, p, call)
    whole, rest = divmod(p.rows, p.tile)
    tiles = -(-p.tile // 4)
    halves, half = p.room.halves, p.room.half
    weights = Weights(
        asm,
        p.mode,
        p.b,
        p.steps,
        p.groups * p.merged,
        tiles,
        halves,
        half,
        p.bias is not None,
        p.merged == 1 or p.one_a,
        p.batches,
        p.fed_by_l1b,
        p.quartered,
        p.cut,
    )
    if whole > 1:
        weights.settle()
    with loops.over(
        asm, p.batches, 0 if shared else p.rows * p.lw_a, weights.addresses(p.groups * p.steps), p.rows * p.lw_c
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


def _columns_apart(c: Tensor) -> int:
    """In how many parts the columns lie in LM, each with all rows: as heads do."""
    scheme = c.scheme
    assert scheme is not None
    rows = [d.stride for axis, d in scheme.local if axis != scheme.lane]
    return prod(d.n for axis, d in scheme.local if axis == scheme.lane and rows and d.stride > max(rows))


def l2bs_of_lanes(tensor: Tensor) -> tuple[int, ...]:
    """The L2Bs among which lane blocks are shared out, in the order of the blocks."""
    scheme, found = tensor.scheme, [0]
    if scheme is not None and scheme.lane is not None:
        for d in scheme.axes[scheme.lane]:
            if d.level == L2B and d.n > 1:
                found = [x + i * d.stride for x in found for i in range(d.n)]
    return tuple(found) if len(found) > 1 else ()


def _sources(tensor: Tensor) -> tuple[Source, ...]:
    """Where the parts of k are, if the L2Bs share it: the two of each group, where the groups share the rows, or any."""
    scheme, l2bs = tensor.scheme, l2bs_of_lanes(tensor)
    assert scheme is not None
    rows = [d for axis, digits in enumerate(scheme.axes) if axis != scheme.lane for d in digits]
    if any(d.level == L2B and d.n > 1 for d in rows):
        return tuple(Source(x % 2) for x in l2bs)
    return tuple(Source(x % 2, x // 2) for x in l2bs)


def sums_in_quarters(a: Scheme, c: Scheme) -> Scheme | None:
    """The scheme in which each L2B has a part of the sum, if A and the result lie so that the L2Bs share the contraction."""
    assert a.lane is not None and c.lane is not None
    if not any(d.level == L2B and d.n > 1 for d in a.axes[a.lane]):
        return None
    rows = [a.axes[axis] for axis in range(a.rank) if axis != a.lane]
    local = tuple(d for d in c.axes[c.lane] if d.level == LOCAL)
    ways = (Scheme((*rows, lanes), c.lane) for lanes in (local, (Digit(EXTENT[L1B], L1B, 1), *local)))
    return next((parts for parts in ways if quartered(parts) == c), None)


def _sums_over_l2bs(mode: Mode, b: Tensor) -> bool:
    """Whether the L2Bs share the contraction of the weights."""
    return not mode.crossed and bool(l2bs_of_lanes(b))


def _tile(mode: Mode, rows: int, kb: int, nb: int, a: Tensor, c: Tensor, call: Call) -> int:
    """Rows of a tile: A's block floats and C must fit an LM each, and the accumulators half of GRF0."""
    lw_c, unit = nb * c.scheme.unit_lw(c.dtype), a.scheme.unit_lw(a.dtype)  # type: ignore[union-attr]
    most = min(BANK // (kb * mode.floats), BANK // lw_c, 4 * (BIAS // mode.acc_words))
    if most < 1 or kb * unit > BANK:
        raise EmitError(f"{call.node.name}: a row of {kb * BLOCK} or {nb * BLOCK} elements does not fit LM")
    if rows <= most:
        return rows
    grain = _grain(a, c, nb)
    if grain > most:
        raise EmitError(f"{call.node.name}: tiles of {most} rows do not end on {grain} rows")
    step = max(grain, 4)
    return most // step * step if most >= step else most // grain * grain


def _grain(a: Tensor, c: Tensor, nb: int) -> int:
    """Rows that end where the images of A and C may be cut."""
    lw_c = nb * c.scheme.unit_lw(c.dtype)  # type: ignore[union-attr]
    lw_a = local_blocks(a) * a.scheme.unit_lw(a.dtype)  # type: ignore[union-attr]
    grain = 1
    while (grain * lw_c) % c.image.granule or (grain * lw_a) % a.image.granule:
        grain *= 2
    return grain


def _at_once(tile: int, kb: int, parts: int, a: Tensor, call: Call) -> int:
    """Rows of a tile that LM takes as they come: a whole number of granules, of each part."""
    lw = kb * a.scheme.unit_lw(a.dtype)  # type: ignore[union-attr]
    granule = a.image.granule

    def fits(rows: int) -> bool:
        return parts * room(-(-rows * lw // granule) * granule) <= BANK

    if fits(tile):
        return tile
    found = max((rows for rows in range(1, tile) if rows * lw % granule == 0 and fits(rows)), default=0)
    if not found:
        raise EmitError(
            f"{call.node.name}: rows of {kb * parts * BLOCK} elements, from where they may be cut, do not fit LM"
        )
    return found


def _load_bias(asm: Asm, p: Product, call: Call) -> None:
    """The whole bias into L1BM, from where each piece takes its part."""
    assert p.bias is not None
    part = Range.of(p.bias, 0, p.bias.image.addresses)
    if part.lb_size > LB_BIAS_SIZE or p.bias.image.mab_spread:
        raise EmitError(f"{call.node.name}: the bias of {p.bias.shape} does not fit; add it separately")
    asm.wait(*start_download(asm, part, LC_TILES))
    op, each, wide = ("l2bmd", 32, 256) if p.bias.image.l1b_spread else ("l2bmb", 64, 64)
    for i in range(-(-part.lb_size // each)):
        asm.pe(f"{op} $lc{LC_TILES + wide * i} $lb{LB_BIAS + each * i}")


def _emit_tile(asm: Asm, p: Product, weights: Weights, loops: Loops, at: int, count: int) -> None:
    mode = p.mode
    weights.start(loops.of("b"))
    count_a = count * (1 if p.one_a else p.merged)
    for start in range(0, count_a, p.at_once):
        last = start + p.at_once >= count_a
        then = partial(weights.more, loops.of("b")) if last else _nothing
        _bring_rows(asm, p, loops, at + start, min(p.at_once, count_a - start), start * p.kb * mode.floats, then)

    part_c = Range.of(p.c, at * p.lw_c, (at + count * p.merged) * p.lw_c)
    a_words = 2 * mode.floats * p.kb
    out, group = 2 * (at * p.lw_c - part_c.lo), 2 * p.lw_c // p.groups
    rows = consecutive_rows(count, a_words, a_words // p.kb, out, 2 * p.lw_c, group, p.c.dtype)
    if p.merged > 1:
        rows = _of_batches(rows, p.groups, 0 if p.one_a else count * a_words, count * 2 * p.lw_c)
    bias, place = LB_BIAS if p.bias is not None else None, (LC_TILES, p.room.tiles, LB_TILES, LB_TILES_SIZE)
    if p.room is EVEN:
        drain = Drain(
            asm, p.c, count, p.lw_c, p.lw_group, at * p.lw_c, out, LC_TILES, LB_TILES, LB_TILES_SIZE, loops.of("c")
        )
        weights.run(rows, bias, loops.of("b"), drain)
        drain.finish()
        return
    weights.run(rows, bias, loops.of("b"))
    if p.quarters is not None:
        upload_sums(
            asm, p.c, p.quarters, len(l2bs_of_lanes(p.a)), at * p.lw_c, count * p.lw_c, 0, *place, loops.of("c")
        )
        return
    bulk_upload(asm, part_c, m.LM1, 0, *place, loops.of("c"), p.joined, p.summed)


def _of_batches(rows: Rows, groups: int, of_a: int, of_c: int) -> Rows:
    """The rows of several batches, `of_a` and `of_c` words apart: each has so many output groups."""
    return replace(
        rows,
        lane=lambda block, og: og // groups * of_a + rows.lane(block, og % groups),
        out=lambda og: og // groups * of_c + rows.out(og % groups),
    )


def _nothing() -> None:
    pass


def _bring_rows(asm: Asm, p: Product, loops: Loops, at: int, count: int, to: int, then: Callable[[], None]) -> None:
    """Rows of A, through LM1, as block floats into LM0 from the LW `to` on. `then` starts other moves, behind theirs."""
    part = Range.of(p.a, at * p.lw_a, (at + count) * p.lw_a)
    first = 2 * (at * p.lw_a - part.lo)
    if p.a.home is not None and p.a.home.space == m.LM1 and not loops.of("a") and p.a.pad != "any":
        first = p.a.home.word + 2 * at * p.lw_a
        then()
    else:
        place = LC_TILES, p.room.tiles, LB_TILES, LB_TILES_SIZE
        bulk_download(asm, part, m.LM1, 0, *place, loops.of("a"), p.parts, then)
    units = _blocks_in_lm(p, first, part.addresses, count)
    if p.a.pad == "any" and p.k % BLOCK and p.a.scheme.lane is not None:  # type: ignore[union-attr]
        clear_tail(asm, p.a, m.LM1, units[p.kb - 1 :: p.kb], p.k % BLOCK)
    _to_block_float(asm, p.mode, p.a.dtype, units, 2 * to)


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
    """The words of LM1 at which the lane blocks of `count` rows lie: row after row, block after block, or those of a head with
    all rows. The first is at `first`; each of `p.parts` has taken `part` LW."""
    local = local_blocks(p.a)
    inner = local // _columns_apart(p.a)

    def unit(row: int, block: int) -> int:
        return block // inner * count * inner + row * inner + block % inner

    return [
        first + 2 * (block // local * part + unit(row, block % local) * p.unit_a)
        for row in range(count)
        for block in range(p.kb)
    ]


def _to_block_float(asm: Asm, mode: Mode, dtype: str, units: list[int], to: int) -> None:
    """A from LM1, where its blocks lie at the words `units`, to LM0 as block floats, one behind the other from the word `to`."""
    if mode.letter == "h":
        width, rounded = (2, "") if dtype == "half" else (4, "r")
        op, words = "hbfn/9", units
    else:
        width, rounded = 2, ""
        op, words = f"{mode.name}bfn", [unit + 2 * i for unit in units for i in range(mode.floats)]
    for u in range(0, len(words), 4):
        some = words[u : u + 4]
        target = vec(m.LM0, [to + 2 * (u + i) for i in range(len(some))], 2)
        asm.pe(f"{op} {vec(m.LM1, some, width)}{rounded} {target}")
