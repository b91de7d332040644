"""A product's results on their way to DRAM, some columns at a time, while the next columns are computed.

Each row's part of the columns is a move of its own. The place in L2BM is free again when the moves of the columns before are
done, so these are waited for first; inside a loop the first time, too: tags are raised before it.
"""

from __future__ import annotations

from mlsdk.device.isa import model as m
from mlsdk.pipeline.ops.emitters.asm import Asm
from mlsdk.pipeline.ops.emitters.transfer import Range, Tensor, finish_upload, start_upload

MOST_MOVES = 32


class Drain:
    """`lw`: LM addresses of the result in an output group, `row` of them in a row; `at`: its first address, `word`: where in
    LM1 that lies; `rows` follow each other. `lc`, `lb`: places in L2BM and L1BM, the latter of `lb_size` LW. `strides`: of its
    address in the enclosing loops."""

    def __init__(
        self, asm: Asm, c: Tensor, rows: int, row: int, lw: int, at: int, word: int,
        lc: int, lb: int, lb_size: int, strides: tuple[int, ...],
    ):  # fmt: skip
        self.asm, self.c, self.rows, self.row, self.lw, self.at, self.word = asm, c, rows, row, lw, at, word
        self.lc, self.lb, self.strides = lc, lb, strides
        self.columns = columns_at_once(rows, lw, lb_size)
        self.tags = tuple(asm.tag_reserved() for _ in range(moves(c, rows)))
        self._raised = False

    def prepare(self) -> None:
        """Before a loop around `take`: there is something to wait for."""
        if not self._raised:
            for tag in self.tags:
                self.asm.raised(tag)
            self._raised = True

    def take(self, first: int, count: int, of_words: tuple[int, ...] = (), of_addresses: tuple[int, ...] = ()) -> None:
        """The output groups from `first` on, whose products are done. `of_words`, `of_addresses`: what the loops add to their
        place in LM1 and in the image, beyond `strides`."""
        for start in range(first, first + count, self.columns):
            self._upload(start, min(self.columns, first + count - start), of_words, of_addresses)

    def _upload(self, first: int, count: int, of_words: tuple[int, ...], of_addresses: tuple[int, ...]) -> None:
        asm, each, from_group = self.asm, count * self.lw, first * self.lw
        self.finish()
        places = [row * self.row + from_group + i for row in range(self.rows) for i in range(each)]
        words = [self.word + 2 * place for place in places]
        whole = Range(self.c, 0, len(words))
        finish_upload(asm, whole, self.lc, self.lb, m.LM1, words, strides=of_words)
        strides = (*self.strides, *of_addresses[len(self.strides) :])
        tags = iter(self.tags)
        for row in range(self.rows):
            lo = self.at + row * self.row + from_group
            part = Range(self.c, lo, lo + each)
            mine = tuple(next(tags) for _ in range(self.c.image.l2bs_used))
            start_upload(asm, part, self.lc + row * each * self.c.image.lw_per_address, strides, mine)
        self._raised = True

    def finish(self) -> None:
        """Wait for all moves."""
        if self._raised:
            self.asm.wait(*self.tags)
            self._raised = False


def moves(c: Tensor, rows: int) -> int:
    return rows * c.image.l2bs_used


def columns_at_once(rows: int, lw: int, lb_size: int) -> int:
    """Output groups of as many rows that L1BM takes at once."""
    return lb_size // 64 // (rows * lw)


def can_drain(c: Tensor, rows: int, lw: int, groups: int, lb_size: int) -> bool:
    """Whether a result can go in parts, of which there are several."""
    image, at_once = c.image, columns_at_once(rows, lw, lb_size)
    plain = c.home is None and bool(c.symbol) and image.mab_spread and image.granule == 1
    return plain and moves(c, rows) <= MOST_MOVES and 0 < at_once < groups
