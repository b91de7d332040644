"""Pieces of source images on their way from DRAM to LM0 of all PEs that need them.

Two kinds, each of them contiguous in DRAM:

    line   64 LW of an image, brought to one L1B (`l2bmb@b`), or to all L1Bs that need the same
    share  256 LW of an image that is spread over L1Bs, of which each L1B gets its own 32 (`l2bmd`)

An L1B that needs what lies in the same L1B of another (or its own) L2B takes shares, 8 times as fast; the rest comes as lines.
The r-th piece of every L1B is brought in round r: DRAM -> L2BM (`slots`), then to its L1Bs.
From L1BM to LM0 go the groups of 4 LW in which some PE finds something (`l1bmp`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.pipeline.ir.layout import PER_LW
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.slots import Slot, fill_slots
from mlsdk.pipeline.ops.emitters.transfer import Tensor, pipeline

ZERO, FILL = 4092, 4088  # LM0 words that hold zero, and what a move fills with
WORD, HALF, HIGH = 506, 508, 510  # GRF1 words: constants 32, 16, 0xFFFF0000
LINE, SHARE = 64, 256  # LW of DRAM
SHARE_LB = 32  # LW of a share in each L1BM
LC_SIZE, LB_SIZE = 24576, 4096  # LW of L2BM and L1BM, from 0 on, that pieces pass through


@dataclass(frozen=True)
class Places:
    """Where each element of a source lies. Piece numbers: (group * pieces of a group) + piece, -1 for no share."""

    line: np.ndarray
    in_line: np.ndarray  # element of the line, most significant first
    share: np.ndarray
    in_share: np.ndarray  # element of the L1B's part of the share
    l1b: np.ndarray
    lines: int
    shares: int
    everywhere: bool  # each group has its own copy
    symbol: str

    @classmethod
    def of(cls, tensor: Tensor) -> Places:
        image = tensor.image
        per = PER_LW[image.dtype]
        index = image.element_index().reshape(-1)
        lw, low = np.divmod(index, per)
        group, lw = np.divmod(lw, image.group_size)
        inside = per - 1 - low
        lines, shares = -(-image.group_size // LINE), -(-image.group_size // SHARE)
        if image.l1b_spread:
            share, l1b = group * shares + lw // SHARE, lw // 8 % 8
            in_share = (lw // 64 % 4 * 8 + lw % 8) * per + inside
        else:
            share, l1b, in_share = np.full(lw.shape, -1), np.zeros_like(lw), np.zeros_like(lw)
        small = [(group * lines + lw // LINE), lw % LINE * per + inside, share, in_share, l1b]
        return cls(*(a.astype(np.int32) for a in small), lines, shares, not image.l2b_spread, tensor.symbol)


@dataclass(frozen=True)
class Chosen:
    """The pieces of one pass and where they come to lie. `address`: the LM0 word of each place of the tile, or -1."""

    shares: tuple[np.ndarray, ...]  # of each L2B
    lines: tuple[np.ndarray, ...]  # of each L1B of the chip
    address: np.ndarray
    used_shares: tuple[tuple[int, ...], ...]  # of each round, the groups of 4 LW that some PE needs
    used_lines: tuple[tuple[int, ...], ...]


class Pieces:
    def __init__(self, asm: Asm, sources: Sequence[Tensor], dtype: str):
        self.asm, self.dtype, self.per = asm, dtype, PER_LW[dtype]
        self.places = [Places.of(s) for s in sources]
        self.line_base = np.cumsum([0] + [4 * p.lines for p in self.places])
        self.share_base = np.cumsum([0] + [4 * p.shares for p in self.places])
        self.spread = 2 if dtype == "half" else 1  # words of LM0 for a word of DRAM

    # ---- which pieces -----------------------------------------------------------------------------------------

    def choose(self, source: np.ndarray, element: np.ndarray) -> list[Chosen]:
        """The passes that bring what the places [64][64][..] of a tile need (`source` -1: nothing)."""
        shape = source.shape
        share, line = np.full(shape, -1, np.int64), np.full(shape, -1, np.int64)
        inside = np.zeros(shape, np.int64)
        own = (np.arange(64) % 8).reshape(64, *(1,) * (len(shape) - 1))
        for number, place in enumerate(self.places):
            here = source == number
            found = np.where(here, element, 0)
            shared = here & (place.share[found] >= 0) & (place.l1b[found] == own)
            lined = here & ~shared
            share[shared] = place.share[found[shared]] + self.share_base[number]
            inside[shared] = place.in_share[found[shared]]
            line[lined] = place.line[found[lined]] + self.line_base[number]
            inside[lined] = place.in_line[found[lined]]
        shares = [np.unique(part[part >= 0]) for part in share.reshape(8, -1)]
        lines = [np.unique(part[part >= 0]) for part in line.reshape(64, -1)]
        share_words, line_words = 2 * SHARE_LB * self.spread, 2 * LINE * self.spread
        rounds_s, rounds_l = max(map(len, shares)), max(map(len, lines))
        most = (FILL - 4) // line_words * line_words
        passes = []
        at_s = at_l = 0
        while at_s < rounds_s or at_l < rounds_l or not passes:
            take_s = min(rounds_s - at_s, most // share_words, LC_SIZE // SHARE, LB_SIZE // SHARE_LB)
            room = most - take_s * share_words
            lb_room = LB_SIZE - take_s * SHARE_LB
            lc_room = LC_SIZE - take_s * SHARE
            take_l = min(rounds_l - at_l, room // line_words, lb_room // LINE, lc_room // LINE // 8)
            passes.append(
                self._chosen(
                    [x[at_s : at_s + take_s] for x in shares],
                    [x[at_l : at_l + take_l] for x in lines],
                    (share, line, inside),
                )
            )
            at_s, at_l = at_s + take_s, at_l + take_l
        return passes

    def _chosen(self, shares, lines, where) -> Chosen:
        share, line, inside = where
        address = np.full(share.shape, -1, np.int64)
        rounds_s, rounds_l = max(map(len, shares)), max(map(len, lines))
        used_s, used_l = np.zeros((rounds_s, SHARE_LB // 4), bool), np.zeros((rounds_l, LINE // 4), bool)
        base = rounds_s * 2 * SHARE_LB * self.spread
        for lists, wanted, used, start, words, span in (
            (shares, share.reshape(8, 8, *share.shape[1:]), used_s, 0, 2 * SHARE_LB * self.spread, 8),
            (lines, line, used_l, base, 2 * LINE * self.spread, 1),
        ):
            for number, mine in enumerate(lists):
                if not len(mine):
                    continue
                part = wanted[number]
                rank = np.minimum(np.searchsorted(mine, part), len(mine) - 1)
                hit = mine[rank] == part
                spot = (number * span, (number + 1) * span) if span > 1 else number
                into = address[spot[0] : spot[1]] if span > 1 else address[spot]
                lanes = inside[spot[0] : spot[1]] if span > 1 else inside[spot]
                into[hit] = start + rank[hit] * words + self._word(lanes[hit])
                used[rank[hit], lanes[hit] // self.per // 4] = True
        groups = [tuple(tuple(np.flatnonzero(row).tolist()) for row in used) for used in (used_s, used_l)]
        return Chosen(tuple(shares), tuple(lines), address, *groups)

    def _word(self, inside: np.ndarray) -> np.ndarray:
        """LM0 word, from the piece's first on, of an element of the piece."""
        if self.dtype == "half":  # LW j is spread over words 4 j ..: first halves of its words, then second halves
            return inside // 4 * 4 + inside % 2 * 2 + inside // 2 % 2
        return inside * (2 if self.dtype == "double" else 1)

    # ---- DRAM -> LM0 ------------------------------------------------------------------------------------------

    def bring(self, chosen: Chosen) -> None:
        """Everything of a pass to its place in LM0."""
        asm = self.asm
        rounds_s = len(chosen.used_shares)
        share_slots = []
        for r in range(rounds_s):
            share_slots.append(np.array([int(x[r]) if r < len(x) else -1 for x in chosen.shares]))
        line_slots: list[tuple[int, int | None, np.ndarray]] = []  # (round, L1B or all, line of each L2B)
        need = np.full((8, 8, max(1, len(chosen.used_lines))), -1, np.int64)
        for xb, mine in enumerate(chosen.lines):
            need[xb // 8, xb % 8, : len(mine)] = mine
        for r in range(len(chosen.used_lines)):
            column = need[:, :, r]
            best = column.max(axis=1)
            if ((column == best[:, None]) | (column < 0)).all():
                line_slots.append((r, None, best))
            else:
                line_slots += [(r, b, column[:, b]) for b in range(8) if (column[:, b] >= 0).any()]
        lines_lc = rounds_s * SHARE
        tags = fill_slots(asm, [self._slot(x, SHARE) for x in share_slots], SHARE, 0)
        tags += fill_slots(asm, [self._slot(x, LINE) for _, _, x in line_slots], LINE, lines_lc)
        asm.wait(*tags)

        lines_lb = rounds_s * SHARE_LB
        first = [f"l2bmd $lc{SHARE * r} $lb{SHARE_LB * r}" for r in range(rounds_s)]
        done: dict[int, int] = {}
        for index, (r, b, _) in enumerate(line_slots):
            at = "" if b is None else f"@{b}"
            first.append(f"l2bmb{at} $lc{lines_lc + LINE * index} $lb{lines_lb + LINE * r}")
            done[r] = len(first)
        second: list[tuple[int, int, int]] = []  # (L1BM address, LM0 word, lines of `first` that it needs)
        words = 8 * self.spread
        for r, groups in enumerate(chosen.used_shares):
            second += [(SHARE_LB * r + 4 * j, (r * SHARE_LB // 4 + j) * words, r + 1) for j in groups]
        base = rounds_s * 2 * SHARE_LB * self.spread
        for r, groups in enumerate(chosen.used_lines):
            second += [(lines_lb + LINE * r + 4 * j, base + (r * LINE // 4 + j) * words, done[r]) for j in groups]
        if self.dtype == "half":
            for text in first:
                asm.pe(text)
            for lb, word, _ in second:
                asm.pe(f"l1bmp $lb{lb} $nowrite")
                asm.pe(f"iand $lbf $ls{HIGH} {vec(m.LM0, [word + 4 * c for c in range(4)], 2)}")
                asm.pe(f"ilsl $lbf $ls{HALF} {vec(m.LM0, [word + 4 * c + 2 for c in range(4)], 2)}")
            return
        pipeline(asm, first, [(f"l1bmp $lb{lb} $lm{word}v", n) for lb, word, n in second], distance=2)

    def _slot(self, pieces: np.ndarray, size: int) -> Slot:
        """Where the pieces that the L2Bs want lie."""
        base = self.share_base if size == SHARE else self.line_base
        where: dict[int, tuple[int, int, str]] = {}
        for l2b, number in enumerate(pieces.tolist()):
            if number >= 0:
                source = int(np.searchsorted(base, number, side="right")) - 1
                place = self.places[source]
                group, piece = divmod(number - int(base[source]), place.shares if size == SHARE else place.lines)
                where[l2b] = (l2b >> 1 if place.everywhere else group, piece * size, place.symbol)
        return where
