"""Tiles through LM: while one tile is computed, the next one's data is on its way from DRAM and the last one's on its way
back.

A tile is a range of LM addresses of each operand. L2BM holds two tiles of each operand in either direction, so the moves
of neighbouring tiles overlap with the PE steps; equal tiles become one loop over pairs.

An operand that lives in LM is used there where its space is the one that the computation wants, else copied tile by tile.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from mlsdk.device import spec
from mlsdk.errors import EmitError
from mlsdk.pipeline.ops.emitters.asm import Asm
from mlsdk.pipeline.ops.emitters.home import copy
from mlsdk.pipeline.ops.emitters.transfer import (
    Range,
    Tensor,
    finish_download,
    finish_upload,
    start_download,
    start_upload,
)


@dataclass(frozen=True)
class Feed:
    """A tensor that is read or written tile by tile; `ranges[t]` are its addresses in tile t, kept in `space` at `word`."""

    tensor: Tensor
    ranges: tuple[Range, ...]
    space: str
    word: int

    @property
    def at_home(self) -> bool:
        """Used where it lives."""
        return self.tensor.home is not None and self.tensor.home.space == self.space

    def base(self, t: int) -> int:
        """The word of tile t's first address."""
        if self.at_home:
            return self._home_word(t)
        return self.word

    def _home_word(self, t: int) -> int:
        assert self.tensor.home is not None
        return self.tensor.home.word + 2 * self.ranges[t].lo

    def fetch(self, asm: Asm, t: int) -> None:
        """Tile t from its home to where it is used."""
        if not self.at_home:
            assert self.tensor.home is not None
            copy(asm, self.tensor.home.space, self._home_word(t), self.space, self.word, self.ranges[t].addresses)

    def leave(self, asm: Asm, t: int) -> None:
        """Tile t from where it was made to its home."""
        if self.tensor.home is not None and not self.at_home:
            copy(asm, self.space, self.word, self.tensor.home.space, self._home_word(t), self.ranges[t].addresses)

    @property
    def lc_size(self) -> int:
        """LW of each L2BM, for whole addresses: they pass it in whole lines."""
        return max(r.addresses * r.tensor.image.lw_per_address for r in self.ranges)

    @property
    def lb_size(self) -> int:
        return max(r.lb_size for r in self.ranges)

    @property
    def resident(self) -> bool:
        """The same addresses in every tile: loaded once."""
        return len(set(self.ranges)) == 1 and len(self.ranges) > 1

    def step(self, t: int) -> tuple[int, int, int]:
        """From tile t to the next: how far its addresses move, and how many they are in both."""
        a, b = self.ranges[t], self.ranges[t + 1]
        return b.lo - a.lo, a.addresses, b.addresses


def lc_needed(feeds: Sequence[Feed], drains: Sequence[Feed]) -> int:
    """LW of each L2BM that `stream` takes."""
    feeds, drains = [f for f in feeds if f.tensor.symbol], [d for d in drains if d.tensor.symbol]
    return sum(f.lc_size * (1 if f.resident or len(f.ranges) == 1 else 2) for f in [*feeds, *drains])


def stream(
    asm: Asm,
    feeds: Sequence[Feed],
    drains: Sequence[Feed],
    compute: Callable[[int], None],
    patterns: Sequence[Hashable],
    prepare: Callable[[], None],
) -> None:
    """Run `compute(t)` for each tile t with its operands in place. `compute` writes the same for tiles of equal `patterns`.
    `prepare` is called once while the first operands are on their way."""
    tiles = len((*feeds, *drains)[0].ranges)
    living = [f for f in feeds if f.tensor.home is not None]
    results, stored = drains, [d for d in drains if d.tensor.symbol]
    feeds, drains = [f for f in feeds if f.tensor.home is None], stored
    if living or any(d.tensor.home for d in results):
        patterns = range(tiles)  # each tile has LM addresses of its own
    feeds_once = [f for f in feeds if f.resident or tiles == 1]
    feeds_each = [f for f in feeds if not (f.resident or tiles == 1)]
    copies = 1 if tiles == 1 else 2

    place: dict[int, list[int]] = {}
    at = 0
    for feed in [*feeds_once, *feeds_each, *drains]:
        n = 1 if feed in feeds_once else copies
        place[id(feed)] = [at + i * feed.lc_size for i in range(n)] * (1 if n == 2 else 2)
        at += n * feed.lc_size
    if at > spec.L2BM_LW:
        raise EmitError(f"tiles need {at} LW of L2BM, the chip has {spec.L2BM_LW}; make the tiles smaller")
    lb_at: dict[int, int] = {}
    free = 0
    for feed in [*feeds, *drains]:
        lb_at[id(feed)] = free
        free += -(-feed.lb_size // 64) * 64
    if free > spec.L1BM_LW:
        raise EmitError(f"tiles need {free} LW of L1BM, the chip has {spec.L1BM_LW}; make the tiles smaller")

    def tags_for(feed: Feed) -> list[tuple[int, ...]]:
        return [tuple(asm.tag_reserved() for _ in range(feed.tensor.image.l2bs_used)) for _ in range(copies)]

    tags = {id(f): tags_for(f) for f in [*feeds_once, *feeds_each, *drains]}

    def load(feed: Feed, t: int, strides: tuple[int, ...] = ()) -> None:
        start_download(asm, feed.ranges[t], place[id(feed)][t % 2], strides, tags[id(feed)][t % copies])

    def arrive(feed: Feed, t: int) -> None:
        asm.wait(*tags[id(feed)][t % copies])
        finish_download(asm, feed.ranges[t], place[id(feed)][t % 2], lb_at[id(feed)], feed.space, feed.word)

    def tile(t: int, prefetch: bool, reuse: bool, strides: dict[int, tuple[int, ...]]) -> None:
        if prefetch:
            for feed in feeds_each:
                load(feed, t + 1, strides.get(id(feed), ()))
        for feed in feeds_each:
            arrive(feed, t)
        for feed in living:
            feed.fetch(asm, t)
        compute(t)
        for feed in results:
            feed.leave(asm, t)
        for feed in drains:
            if reuse:
                asm.wait(*tags[id(feed)][t % copies])
            finish_upload(asm, feed.ranges[t], place[id(feed)][t % 2], lb_at[id(feed)], feed.space, feed.base(t))
        for feed in drains:
            start_upload(
                asm, feed.ranges[t], place[id(feed)][t % 2], strides.get(id(feed), ()), tags[id(feed)][t % copies]
            )

    for feed in feeds_once:
        load(feed, 0)
    for feed in feeds_each:
        load(feed, 0)
    prepare()
    for feed in feeds_once:
        arrive(feed, 0)

    t = 0
    while t < tiles:
        pairs = _pairs(t, tiles, [*feeds_each, *drains], patterns)
        if t >= 2 and pairs > 1:
            depth = asm.depth
            strides = {id(f): (0,) * depth + (2 * f.step(t)[0],) for f in [*feeds_each, *drains]}
            with asm.loop(pairs):
                tile(t, True, True, strides)
                tile(t + 1, True, True, strides)
            t += 2 * pairs
        else:
            tile(t, t + 1 < tiles, t >= 2, {})
            t += 1
    for feed in drains:
        for last in range(max(0, tiles - copies), tiles):
            asm.wait(*tags[id(feed)][last % copies])
    for all_tags in tags.values():
        for group in all_tags:
            asm.tag_release(*group)


def _pairs(t: int, tiles: int, feeds: Sequence[Feed], patterns: Sequence[Hashable]) -> int:
    """How many pairs of tiles from t on are equal but for their addresses (each also loads the tile after it)."""
    last = t
    while last < tiles - 1 and all(f.step(last) == f.step(t) and f.step(t)[1] == f.step(t)[2] for f in feeds):
        last += 1
    pairs = 0
    while t + 2 * pairs + 2 <= last and patterns[t + 2 * pairs : t + 2 * pairs + 2] == patterns[t : t + 2]:
        pairs += 1
    return pairs
