"""Downloads and uploads: DRAM <-> L2BM <-> L1BM <-> PE memory, for a range of LM addresses of a tensor's image.

`pipeline/ir/image.py` fixes the order of the data; here stand the instructions. A transfer has three parts that callers
may overlap with other work: the moves (asynchronous, by tag), the L2BM steps and the L1BM steps.

An operand may live in LM (`home.py`): then a download is a copy from there, and an upload ends there, too, or only there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import EXTENT, L1B
from mlsdk.pipeline.ir.scheme import Scheme
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.home import Home, copy

LINE = 64  # LW of a move are a multiple of it
L1BS = EXTENT[L1B]


@dataclass(frozen=True)
class Tensor:
    """An operand of a fragment: its image, and the symbol that its address in DRAM is relative to ("": it is not there)."""

    image: Image
    symbol: str
    pad: str = "zero"  # what its padding holds: zero, lanes or any (see placed.py)
    scheme: Scheme | None = None  # None: a layout of no scheme (user's, or for streamed weights)
    home: Home | None = None  # where in LM it is read or left

    @property
    def dtype(self) -> str:
        return self.image.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.image.shape


@dataclass(frozen=True)
class Range:
    """LM addresses [lo, hi) of a tensor, widened to whole granules of its image."""

    tensor: Tensor
    lo: int
    hi: int

    @classmethod
    def of(cls, tensor: Tensor, lo: int, hi: int) -> Range:
        g = tensor.image.granule
        return cls(tensor, lo // g * g, -(-hi // g) * g)

    @property
    def addresses(self) -> int:
        return self.hi - self.lo

    @property
    def lc_size(self) -> int:
        """LW of each L2BM; the last address may be there in part (`seen`)."""
        image = self.tensor.image
        return min(self.addresses * image.lw_per_address, image.l2b_size - self.lo * image.lw_per_address)

    @property
    def lb_size(self) -> int:
        """LW of each L1BM."""
        return self.addresses * self.tensor.image.lb_per_address


def room(addresses: int) -> int:
    """LM addresses to reserve for a download of so many: the last step may write up to 7 more."""
    return -(-addresses // 8) * 8


def start_download(
    asm: Asm, part: Range, lc: int, strides: tuple[int, ...] = (), tags: tuple[int, ...] = ()
) -> list[int]:
    """Moves from DRAM into L2BM at `lc`; `strides` are added to the DRAM address per enclosing loop, in LM addresses."""
    image = part.tensor.image
    size, offset = part.lc_size, part.lo * image.lw_per_address
    dram_strides = tuple(s * image.lw_per_address for s in strides)
    result = []
    for half in range(image.l2bs_used):
        src = m.Operand(m.DRAM, offset + half * image.l2b_size, m.LW, symbol=part.tensor.symbol, strides=dram_strides)
        tag = tags[half] if tags else None
        if image.l2b_spread and not image.paired:
            dst = m.Operand(m.L2BM, lc, m.LW, block=half)
            result.append(asm.move("mvp", src, dst, size, tag))
        else:
            result.append(asm.move("mvb2", src, m.Operand(m.L2BM, lc, m.LW), size, tag))
    return result


@dataclass(frozen=True)
class Source:
    """What one L2B has goes to all L2Bs; with no group: what each group's L2B `half` has goes to both of the group."""

    half: int
    group: int | None = None


def _start_from(asm: Asm, part: Range, source: Source, lc: int, strides: tuple[int, ...]) -> int:
    """A move of what one L2B of a group, or of each, has in DRAM into L2BM at `lc`."""
    image = part.tensor.image
    src = m.Operand(
        m.DRAM,
        part.lo * image.lw_per_address + source.half * image.l2b_size,
        m.LW,
        symbol=part.tensor.symbol,
        group=source.group,
        strides=tuple(s * image.lw_per_address for s in strides),
    )
    return asm.move("mvb2" if source.group is None else "mvb", src, m.Operand(m.L2BM, lc, m.LW), part.lc_size)


def start_upload(
    asm: Asm, part: Range, lc: int, strides: tuple[int, ...] = (), tags: tuple[int, ...] = ()
) -> list[int]:
    """Moves from L2BM at `lc` into DRAM; none for a tensor that stays in LM."""
    image = part.tensor.image
    size, offset = part.lc_size, part.lo * image.lw_per_address
    dram_strides = tuple(s * image.lw_per_address for s in strides)
    result: list[int] = []
    if not part.tensor.symbol:
        return result
    for half in range(image.l2bs_used):
        dst = m.Operand(m.DRAM, offset + half * image.l2b_size, m.LW, symbol=part.tensor.symbol, strides=dram_strides)
        result.append(asm.move("mvp", m.Operand(m.L2BM, lc, m.LW, block=half), dst, size, tags[half] if tags else None))
    return result


def _down_steps(image: Image, count: int, lc: int, lb: int, space: str, word: int, exact: bool) -> tuple[list, list]:
    """(L2BM lines, [(L1BM line, number of L2BM lines it needs)]) that bring `count` addresses to `space` at `word`. `exact`:
    nothing is written behind them."""
    if image.quartered:
        return _quarters_down(image, count, lc, lb, space, word)
    lb_size = count * (64 if image.mab_spread else 4)
    each = 32 if image.l1b_spread else 64  # LW of L1BM per L2BM step
    wide = 256 if image.l1b_spread else 64
    op = "l2bmd" if image.l1b_spread else "l2bmb"
    l2 = [f"{op} $lc{lc + i * wide} $lb{lb + i * each}" for i in range(-(-lb_size // each))]
    l1 = []
    if image.mab_spread:
        for a in range(0, count, 4):
            need = -(-min((a + 4) * 64, lb_size) // each)
            mask = _first_cycles(count - a) if exact else ""
            l1.append((f"l1bmd $lb{lb + 64 * a} {vec(space, _words(word, a, 4), 2)}{mask}", need))
    else:
        for a in range(0, count, 8):
            need = -(-min((a + 8) * 4, lb_size) // each)
            if exact and count % 2:
                raise EmitError(f"{count} long words of a value cannot be left in LM: two are written at a time")
            mask = _first_cycles((count - a) // 2) if exact else ""
            l1.append((f"l1bmm $llb{lb + 4 * a} {vec(space, [word + 2 * a + 4 * c for c in range(4)], 4)}{mask}", need))
    return l2, l1


def _quarters_down(image: Image, count: int, lc: int, lb: int, space: str, word: int) -> tuple[list, list]:
    """`_down_steps` of an image that is quartered: 16 units of each L1B a time, four for each quarter."""
    lw = image.granule // 4
    l2, l1 = [], []
    for at in range(count // image.granule):
        for b in range(L1BS):
            for i in range(lw):
                l2.append(f"l2bmb@{b} $lc{lc + ((at * L1BS + b) * lw + i) * LINE} $lb{lb + (at * lw + i) * LINE}")
        words = [word + 2 * (at * image.granule + lw * c) for c in range(4)]
        l1.append((f"l1bmm4 {_WIDE[lw]}b{lb + at * lw * LINE} {vec(space, words, 2 * lw)}", len(l2)))
    return l2, l1


def _quarters_up(image: Image, count: int, lc: int, lb: int, space: str, words: list[int]) -> tuple[list, list]:
    """The way back, of what the first MAB of each quarter has."""
    lw = image.granule // 4
    l1, l2 = [], []
    for at in range(count // image.granule):
        some = words[at * image.granule : (at + 1) * image.granule : lw]
        l1.append(f"l1bmm4@0 {vec(space, some, 2 * lw)} {_WIDE[lw]}b{lb + at * lw * LINE}")
        for b in range(L1BS):
            for i in range(lw):
                there = lc + ((at * L1BS + b) * lw + i) * LINE
                l2.append((f"l2bm@{b} $lb{lb + (at * lw + i) * LINE} $lc{there}", len(l1)))
    return l1, l2


#: operands of L1BM that take so many long words of a PE in a cycle
_WIDE = {1: "$l", 2: "$ll"}


def _first_cycles(count: int) -> str:
    """The mask of a destination that is written in the first cycles only."""
    return "" if count >= 4 else "/" + "1" * count + "0" * (4 - count)


def _words(word: int, address: int, count: int) -> list[int]:
    return [word + 2 * (address + c) for c in range(count)]


def finish_download(
    asm: Asm, part: Range, lc: int, lb: int, space: str, word: int, strides: tuple[int, ...] = (), exact: bool = False
) -> None:
    """From L2BM at `lc` (its moves awaited) through L1BM at `lb` into `space` from word address `word` on, which advances by
    `strides` words in the enclosing loops. `exact`: nothing is written behind the part."""
    lines = _down_steps(part.tensor.image, part.addresses, lc, lb, space, word, exact)
    pipeline(asm, *lines, distance=2, strides=strides)


def settle_at_home(asm: Asm, part: Range, lc: int, lb: int, lb_size: int, strides: tuple[int, ...] = ()) -> None:
    """A part of a result from L2BM at `lc`, where it is complete, to its home in LM, by way of `lb_size` LW of L1BM. `strides`
    as those of an upload, in LM addresses."""
    home, image = part.tensor.home, part.tensor.image
    assert home is not None
    for piece in _pieces(part, 1 << 30, lb_size):
        at = lc + (piece.lo - part.lo) * image.lw_per_address
        finish_download(asm, piece, at, lb, home.space, home.word + 2 * piece.lo, tuple(2 * s for s in strides), True)


def pipeline(
    asm: Asm,
    first: list[str],
    second: list[tuple[str, int]],
    distance: int,
    strides: tuple[int, ...] = (),
    of_first: tuple[int, ...] = (),
) -> None:
    """Issue `first` one a step, and each line of `second` beside it as soon as the `need` lines of `first` before it are
    `distance` steps old. `strides`: of the targets of `second`, `of_first`: of the sources of `first`; one instruction a line."""
    issued: list[int] = []
    position = 0
    while len(issued) < len(first) or position < len(second):
        lines: list[str] = []
        moving: list[tuple[int, int, tuple[int, ...]]] = []
        if len(issued) < len(first):
            lines.append(first[len(issued)])
            moving += [(0, 0, of_first)] if any(of_first) else []
        if position < len(second):
            line, need = second[position]
            if need <= len(issued) and (need == 0 or issued[need - 1] + distance <= asm.step):
                moving += [(len(lines), 1, strides)] if any(strides) else []
                lines.append(line)
                position += 1
        if not lines:
            asm.nop(1)
            continue
        before = asm.step
        asm.pe("; ".join(lines), *moving)
        if lines[0] == (first[len(issued)] if len(issued) < len(first) else None):
            issued.append(asm.step - 1)
        assert asm.step > before


def finish_upload(
    asm: Asm,
    part: Range,
    lc: int,
    lb: int,
    space: str,
    word: int | list[int],
    of_copies: str = "l2bm@0",
    strides: tuple[int, ...] = (),
) -> None:
    """From `space` at `word`, or at the word of each address, through L1BM at `lb` into L2BM at `lc`; the moves may start
    afterwards. `of_copies`: how L2BM takes what all L1Bs have: from L1B 0, or reduced. `strides`: words by which those in LM
    advance in the enclosing loops."""
    image, count = part.tensor.image, part.addresses
    words = word if isinstance(word, list) else _words(word, 0, room(count))
    if image.quartered:
        pipeline(asm, *_quarters_up(image, count, lc, lb, space, words), distance=3, of_first=strides)
        return
    each, wide = (32, 256) if image.l1b_spread else (64, 64)
    first = []
    if image.mab_spread:
        for a in range(0, count, 4):
            first.append(f"l1bmd {vec(space, words[a : a + 4], 2)} $lb{lb + 64 * a}")
        per_line = 256
    else:
        for a in range(0, count, 8):
            first.append(f"l1bmm@0 {vec(space, words[a : a + 8 : 2], 4)} $llb{lb + 4 * a}")
        per_line = 32
    second = []
    for i in range(-(-part.lb_size // each)):
        op = "l2bmd" if image.l1b_spread else of_copies
        need = -(-min((i + 1) * each, part.lb_size) // per_line)
        second.append((f"{op} $lb{lb + i * each} $lc{lc + i * wide}", need))
    pipeline(asm, first, second, distance=3, of_first=strides)


def download(asm: Asm, part: Range, space: str, word: int, lc: int = 0, lb: int = 0) -> None:
    """A whole download, waited for."""
    asm.wait(*start_download(asm, part, lc))
    finish_download(asm, part, lc, lb, space, word)


def bulk_download(
    asm: Asm,
    part: Range,
    space: str,
    word: int,
    lc: int,
    lc_size: int,
    lb: int,
    lb_size: int,
    strides: tuple[int, ...] = (),
    sources: tuple[Source, ...] = (),
    then: Callable[[], None] = lambda: None,
) -> None:
    """A download of any size: in pieces that fit two halves of L2BM [lc, lc + lc_size) and L1BM [lb, lb + lb_size), the
    next piece's moves on their way while one is distributed. `sources`: these parts go to several L2Bs each, one part behind
    the other. `then` is called when all moves are on their way, to start those of others."""
    if part.tensor.home is not None:
        home = part.tensor.home
        then()
        copy(asm, home.space, home.word + 2 * part.lo, space, word, part.addresses, tuple(2 * s for s in strides))
        return
    whole = list(_pieces(part, lc_size // 2, lb_size))
    halves = [lc, lc + lc_size // 2 // 256 * 256]
    pieces = [(at, piece) for at in range(max(1, len(sources))) for piece in whole]

    def start(i: int) -> list[int]:
        at, piece = pieces[i]
        if sources:
            return [_start_from(asm, piece, sources[at], halves[i % 2], strides)]
        return start_download(asm, piece, halves[i % 2], strides)

    tags = start(0)
    for i, (at, piece) in enumerate(pieces):
        waiting = tags
        if i + 1 < len(pieces):
            tags = start(i + 1)
        if i + 2 == len(pieces) or len(pieces) == 1:
            then()
        asm.wait(*waiting)
        to = word + 2 * (at * part.addresses + piece.lo - part.lo)
        finish_download(asm, piece, halves[i % 2], lb, space, to)


def bulk_upload(
    asm: Asm,
    part: Range,
    space: str,
    word: int,
    lc: int,
    lc_size: int,
    lb: int,
    lb_size: int,
    strides: tuple[int, ...] = (),
    of_copies: str = "l2bm@0",
    of_l2bs: str = "",
) -> None:
    """An upload of any size, waited for. What stays in LM only, each place with data of its own, is copied there. `of_l2bs`: the
    move that makes one of what all L2Bs have."""
    home, image = part.tensor.home, part.tensor.image
    if home is not None and not part.tensor.symbol and image.spread and home.space != space:
        copy(asm, space, word, home.space, home.word + 2 * part.lo, part.addresses, (), tuple(2 * s for s in strides))
        return
    pieces = list(_pieces(part, lc_size // 2, lb_size))
    halves = [lc, lc + lc_size // 2 // 256 * 256]
    flying: list[list[int]] = []
    for i, piece in enumerate(pieces):
        if len(flying) == 2:
            asm.wait(*flying.pop(0))
        finish_upload(asm, piece, halves[i % 2], lb, space, word + 2 * (piece.lo - part.lo), of_copies)
        if of_l2bs:
            join_l2bs(asm, of_l2bs, halves[i % 2], piece.lc_size)
        flying.append(start_upload(asm, piece, halves[i % 2], strides))
        if home is not None:
            settle_at_home(asm, piece, halves[i % 2], lb, lb_size, strides)
    for tags in flying:
        asm.wait(*tags)


def join_l2bs(asm: Asm, reduction: str, lc: int, size: int) -> None:
    """What all L2BMs have at `lc`, reduced by way of the first group's PDM, in all of them again."""
    whole = -(-size // LINE) * LINE
    shared, pdm = m.Operand(m.L2BM, lc, m.LW), m.Operand(m.PDM, 0, m.LW, group=0)
    asm.wait(asm.move(reduction, shared, pdm, whole))
    asm.wait(asm.move("mvb", pdm, shared, whole))


def _pieces(part: Range, lc_size: int, lb_size: int) -> list[Range]:
    image = part.tensor.image
    per_lb = 64 if image.mab_spread else 4
    most = min(lc_size // image.lw_per_address, lb_size // per_lb)
    unit = max(image.granule, 8)
    most = most // unit * unit
    assert most > 0
    return [Range(part.tensor, lo, min(lo + most, part.hi)) for lo in range(part.lo, part.hi, most)]
