"""Weights on their way from DRAM to the pipeline: in pieces, two halves of a place in L2BM in turn.

The next piece's move is under way while one is used; the first two are on their way before, the second behind what others
move first (`more`). Weights of at most two pieces
stay in L2BM: they are moved once, however often `run` is called. Equal pieces become a loop.

Weights lie in the order output group, contraction step; those of a crossed mode the other way round: a piece is then a move for
each contraction step.

Weights of which the DRAM of all groups holds one copy (`in_quarters`) go from there to the L2Bs that need the same.

Weights that live in LM, a part in each MAB, go from there to the ring in L1BM before each piece: nothing is moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.gemm_drain import Drain
from mlsdk.pipeline.ops.emitters.gemm_modes import Mode
from mlsdk.pipeline.ops.emitters.gemm_pipeline import RING, Rows, emit_piece
from mlsdk.pipeline.ops.emitters.transfer import LINE, Range, Tensor, start_download

BETWEEN = 16  # PE steps, about, from the last product of a piece to the first of the next
PIECE_STEPS = 640  # PE steps of a piece, about: pieces are written out in full
BIAS_WORDS = 256  # of GRF0
EARLY = 4  # pieces of weights that may come while nodes before compute, at most
EARLY_MOVES = 12  # moves of these, at most


@dataclass(frozen=True)
class Piece:
    """Steps [first, last) of the sequence (output group, contraction step)."""

    first: int
    last: int

    @property
    def steps(self) -> int:
        return self.last - self.first


class Weights:
    """`b`: the weights; `steps`: contraction steps of an output group; `groups`: output groups; `row_groups`: groups of four
    rows that `run` will be given; `halves` and `half`: addresses and size of the two places in L2BM; `cut`: steps of a piece at
    most."""

    def __init__(
        self,
        asm: Asm,
        mode: Mode,
        b: Tensor,
        steps: int,
        groups: int,
        row_groups: int,
        halves: tuple[int, int],
        half: int,
        with_bias: bool,
        loops: bool = True,
        matrices: int = 1,
        by_l1b: bool | None = None,
        quartered: bool = False,
        cut: int = 0,
    ):
        self.asm, self.mode, self.b, self.steps, self.groups = asm, mode, b, steps, groups
        self.halves, self.loops = halves, loops
        self.by_l1b = b.image.l1b_spread if by_l1b is None else by_l1b
        self.quartered = quartered
        widen = 8 if self.by_l1b else 1
        if b.home is not None and (not b.image.mab_spread or matrices > 1):
            raise EmitError("weights are read in LM where each MAB has a part of one matrix")
        most = (half // widen if b.home is None else RING) // mode.block_lw
        self.pieces = list(self._cut(row_groups, min(cut or most, most), with_bias))
        moves = max(len(self._runs(piece)) for piece in self.pieces)
        moves *= b.image.l2bs_used
        self.tags = [tuple(asm.tag_reserved() for _ in range(moves)) for _ in (0, 1)]
        # The first pieces have tags that no loop raises again, so that their moves may start while nodes before compute.
        apart = min(EARLY, len(self.pieces), EARLY_MOVES // moves) if asm.depth == 0 and b.home is None else 0
        self.first = [tuple(asm.tag_reserved() for _ in range(moves)) for _ in range(apart)]
        self.stay = b.home is None and len(self.pieces) <= 2 and matrices == 1
        self._flying: set[int] = set()  # pieces of staying weights that were not waited for yet
        self._brought: set[int] = set()  # that were started

    def _cut(self, row_groups: int, most: int, with_bias: bool) -> Iterator[Piece]:
        """Whole output groups where they fit half of the place, else an even number of cuts of each."""
        mode, steps = self.mode, self.steps
        unit = max(1, 64 // mode.block_lw)  # steps that fill an L2BM line
        limit = min(most, max(unit, PIECE_STEPS // mode.period(row_groups)))
        limit = max(unit, limit // unit * unit)
        if steps <= limit:
            align = 1
            while align * steps % unit:
                align *= 2
            if with_bias:
                limit = min(limit, BIAS_WORDS // mode.bias_words * steps)
            groups = max(align, limit // steps // align * align)
            for og in range(0, self.groups, groups):
                yield Piece(og * steps, min(og + groups, self.groups) * steps)
            return
        cuts = -(-steps // limit)
        cuts += cuts % 2
        share = -(-steps // cuts)
        size = -(-share // unit) * unit
        for og in range(self.groups):
            for s in range(0, steps, size):
                yield Piece(og * steps + s, og * steps + min(s + size, steps))

    def addresses(self, steps: int) -> int:
        """LM addresses that the blocks of so many steps take."""
        return steps * self.mode.block_lw // (64 if self.b.image.mab_spread else 4)

    # ---- moves ------------------------------------------------------------------------------------------------

    def _runs(self, piece: Piece) -> list[tuple[int, int]]:
        """(first block in DRAM, number of blocks) of the piece's moves."""
        if not self.mode.crossed:
            return [(piece.first, piece.steps)]
        (group, start), groups = divmod(piece.first, self.steps), max(1, piece.steps // self.steps)
        return [(s * self.groups + group, groups) for s in range(start, start + piece.steps // groups)]

    def _place(self, piece: Piece) -> Callable[[int], int] | None:
        """Where the blocks that a piece's products take in turn lie in it."""
        if not self.mode.crossed or piece.steps <= self.steps:
            return None
        groups = piece.steps // self.steps
        return lambda block: block % self.steps * groups + block // self.steps

    def _prefetch(self, index: int, strides: tuple[int, ...]) -> None:
        if self.b.home is not None:
            return
        image, at = self.b.image, self.halves[index % 2]
        tags = iter(self._tags(index))
        for first, blocks in self._runs(self.pieces[index]):
            mine = tuple(next(tags) for _ in range(image.l2bs_used))
            if self.quartered:
                self._start_quarters(first, blocks, at, strides, mine[0])
            else:
                part = Range.of(self.b, self.addresses(first), self.addresses(first + blocks))
                start_download(self.asm, part, at, strides, mine)
            at += blocks * self._block

    @property
    def _block(self) -> int:
        """LW of L2BM that a block takes, with those that other L1Bs take at the same time."""
        return self.mode.block_lw * (8 if self.by_l1b else 1)

    def _start_quarters(self, first: int, blocks: int, lc: int, strides: tuple[int, ...], tag: int) -> None:
        """A move of blocks that lie in quarters: the DRAM of each group gives half as much as each L2BM takes."""
        of_dram = tuple(s * 4 * self._block // self.mode.block_lw // 2 for s in strides)
        src = m.Operand(m.DRAM, first * self._block // 2, m.LW, symbol=self.b.symbol, strides=of_dram)
        size = -(-blocks * self._block // LINE) * LINE
        self.asm.move("mvb4", src, m.Operand(m.L2BM, lc, m.LW), size, tag)

    def _tags(self, index: int) -> tuple[int, ...]:
        return self.first[index] if index < len(self.first) and self.asm.depth == 0 else self.tags[index % 2]

    def _waits(self, index: int) -> tuple[int, ...]:
        """Tags of a piece's moves."""
        return self._tags(index)[: len(self._runs(self.pieces[index])) * self.b.image.l2bs_used]

    def settle(self) -> None:
        """Weights that stay are there; before a loop around `run`."""
        if self.stay:
            self.start()
            self.more()
            self.asm.wait(*(tag for index in sorted(self._flying) for tag in self._waits(index)))
            self._flying.clear()

    def start(self, strides: tuple[int, ...] = ()) -> None:
        """Start the first move of a run, ahead of other work."""
        self._start(0, strides)

    def more(self, strides: tuple[int, ...] = ()) -> None:
        """Start the second move, too."""
        self._start(1, strides)

    def _start(self, index: int, strides: tuple[int, ...]) -> None:
        """Unless it stays and was started before."""
        if index < len(self.pieces) and index not in self._brought:
            self._prefetch(index, () if self.stay else strides)
            if self.stay:
                self._flying.add(index)
                self._brought.add(index)

    # ---- use --------------------------------------------------------------------------------------------------

    def run(self, rows: Rows, bias: int | None, strides: tuple[int, ...] = (), drain: Drain | None = None) -> None:
        """All products of the weights with a tile's rows, after `start`. `bias`: L1BM address of the bias; `strides`: of
        the weights' LM address in the enclosing loops. `drain` takes output groups as they are done."""
        first = self.pieces[0].steps
        period = 2 if self.steps <= first else -(-self.steps // first)
        period += period % 2 * period  # a repetition starts in the half that the one before started in
        early = -(-len(self.first) // period) * period if self.asm.depth == 0 else 0  # these are in no loop
        index = drained = 0
        while index < len(self.pieces):
            length, repeat = self._loop(index, rows, period, drain) if index >= early else (period, 0)
            if drain is not None and repeat > 1:
                if drained < self._group(index):
                    drain.take(drained, self._group(index) - drained)
                drain.prepare()
            if repeat > 1:
                body = sum(piece.steps for piece in self.pieces[index : index + length])
                groups = body // self.steps
                prefix = (0,) * self.asm.depth
                with self.asm.loop(repeat):
                    inner = (*strides, self.addresses(groups if self.mode.crossed else body))
                    for j in range(length):
                        out = (*prefix, rows.out(self._group(index) + groups) - rows.out(self._group(index)))
                        self._piece(index + j, rows, bias, inner, out, (*prefix, groups * self.mode.bias_words * 2))
                    if drain is not None:
                        drain.take(self._group(index), groups, out, (*prefix, groups * drain.lw))
                index += repeat * length
                drained = self._group(index) if index < len(self.pieces) else self.groups
            else:
                self._piece(index, rows, bias, strides, (), ())
                index += 1
                done = self.pieces[index - 1].last // self.steps
                if drain is not None and (done - drained >= drain.columns or index == len(self.pieces)):
                    drain.take(drained, done - drained)
                    drained = done

    def _from_lm(self, piece: Piece) -> None:
        """A piece's blocks from LM into the ring, in the order in which its products take them."""
        home, each = self.b.home, self.addresses(1)
        assert home is not None
        found: list[int] = []
        for step in range(piece.first, piece.last):
            group, s = divmod(step, self.steps)
            block = s * self.groups + group if self.mode.crossed else step
            found += [home.word + 2 * (block * each + i) for i in range(each)]
        for i in range(0, len(found), 4):
            self.asm.pe(f"l1bmd {vec(home.space, found[i : i + 4], 2)} $lb{64 * i}")

    def _piece(self, index: int, rows: Rows, bias: int | None, strides, out, of_bias) -> None:
        if self.b.home is not None:
            self._from_lm(self.pieces[index])
        elif not self.stay:
            self.asm.wait(*self._waits(index))
        elif index in self._flying:
            self.asm.wait(*self._waits(index))
            self._flying.discard(index)
        piece = self.pieces[index]
        start = None
        if bias is not None:
            start = (bias + 4 * (piece.first // self.steps * self.mode.bias_words // 2), of_bias)
        emit_piece(
            self.asm, self.mode, rows, self.steps, piece.first, piece.last,
            self.halves[index % 2] if self.b.home is None else None, self.by_l1b, start, out, self._place(piece),
        )  # fmt: skip
        if not self.stay and index + 2 < len(self.pieces):
            self._prefetch(index + 2, strides)

    def _loop(self, index: int, rows: Rows, period: int, drain: Drain | None) -> tuple[int, int]:
        """(pieces of a repetition, repetitions) of a loop that begins with a piece; no repetitions if there is none. One has as
        many output groups as are taken at once, if that is possible."""
        groups = max(1, sum(piece.steps for piece in self.pieces[index : index + period]) // self.steps)
        fitting = range(drain.columns // groups, 1, -1) if drain is not None else ()
        for length in (*(period * count for count in fitting), period, 2 * period):
            repeat = self._repeats(index, length) if self.loops and not self.stay and self.b.home is None else 0
            if repeat > 1 and self._regular(rows, index, length, repeat):
                return length, repeat
        return period, 0

    def _regular(self, rows: Rows, at: int, length: int, repeat: int) -> bool:
        """Whether the results of each repetition lie at one distance from those of the one before."""
        groups = sum(piece.steps for piece in self.pieces[at : at + length]) // self.steps
        first = self._group(at)
        return all(
            rows.out(og + groups) - rows.out(og) == rows.out(first + groups) - rows.out(first)
            for og in range(first, first + groups * (repeat - 1))
        )

    def _group(self, index: int) -> int:
        """The output group in which a piece begins."""
        return self.pieces[index].first // self.steps

    def _repeats(self, at: int, length: int) -> int:
        """How often the `length` pieces from `at` on repeat, each time with the two pieces after them to prefetch."""

        def shape(i: int) -> tuple[int, int]:
            return self.pieces[i].steps, self.pieces[i].first % self.steps

        count = 0
        while (end := at + (count + 1) * length) + 1 < len(self.pieces):
            if any(shape(i) != shape(at + (i - at) % length) for i in range(at + count * length, end + 2)):
                break
            count += 1
        return count
