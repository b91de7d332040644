"""The ways in which the matrix unit multiplies, and the order in which weights lie in DRAM for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from mlsdk.errors import EmitError
from mlsdk.pipeline.ir.layout import ADDR, L1B, L2B, MAB, PE, Layout, Sub, W, merged
from mlsdk.pipeline.ir.scheme import BLOCK, LOCAL, Digit


@dataclass(frozen=True)
class Mode:
    """One way to multiply. A *step* is one load of a matrix register: `block_lw` long words of L1BM.

    outs        output groups per block of 16 outputs (an output group is what one step's products add to)
    steps       steps per block of 16 lanes of the contraction
    acc_words   words of accumulator per four rows
    bias_words  words of bias per output group, and of a single or double result
    lead        steps from the first read of L1BM to the first product
    """

    name: str
    outs: int
    steps: int
    block_lw: int
    acc_words: int
    bias_words: int
    lead: int

    def period(self, groups: int) -> int:
        """Steps from one step's first product to the next one's, for `groups` groups of four rows."""
        least = {"h": 2, "hs": 4, "hm": 8, "ht": 6, "hx": 6, "hst": 8, "f": 2, "d": 1}[self.name]
        return max(least, groups) * {"h": 1, "f": 2, "d": 2}[self.letter]

    @property
    def crossed(self) -> bool:
        """Whether weights that lie like those of an update have outputs on their lanes."""
        return self.name.endswith("t")

    @property
    def across(self) -> bool:
        """Whether the weights' lanes are outputs: blocks are transposed on their way."""
        return self.crossed or self.name == "hx"

    @property
    def floats(self) -> int:
        """LW of a PE that a block of 16 lanes takes as block floats."""
        return {"h": 1, "f": 2, "d": 4}[self.letter]

    @property
    def letter(self) -> str:
        """The precision of its instructions."""
        return self.name[0]


MODES = {
    "h": Mode("h", 1, 1, 64, 16, 4, 4),
    "hs": Mode("hs", 1, 1, 128, 16, 4, 6),
    "hm": Mode("hm", 1, 1, 128, 16, 4, 11),
    "ht": Mode("ht", 1, 1, 64, 16, 4, 7),
    "hx": Mode("hx", 1, 1, 64, 16, 4, 7),
    "hst": Mode("hst", 1, 1, 128, 16, 4, 15),
    "f": Mode("f", 2, 2, 32, 8, 2, 6),
    "d": Mode("d", 4, 4, 16, 8, 2, 3),
}


def mode_of(a: str, b: str, half_products: bool) -> Mode:
    """The mode for operands of device dtypes `a` and `b`; `half_products`: singles are multiplied as halves (mixed)."""
    if "double" in (a, b):
        if a != b:
            raise EmitError(f"a product of {a} and {b} has no mode; cast one of them")
        return MODES["d"]
    if half_products or "half" in (a, b):
        return MODES["h"] if b == "half" else MODES["hs"]
    return MODES["f"]


def weights_layout(
    mode: Mode,
    k: int,
    n: int,
    *,
    n_digits: Sequence[Digit] = (),
    batch: Sequence[Sequence[Sub]] = (),
    n_first: bool = False,
    taps: Sequence[int] = (),
    copied: Sequence[Sub] = (),
    k_digits: Sequence[Digit] = (),
) -> Layout:
    """The layout of B (axes batch.., k, n; or batch.., n, k with `n_first`) in the order in which `mode` streams it.

    `taps`: the extents of further axes of the contraction behind n and k (the window of a convolution, axes n, k, taps..),
    outside the blocks of k. `copied`: parts of a level that hold copies although n uses the level too.
    `n_digits`: the digits of n in the result's scheme, of which the spatial ones say that each L2B or L1B computes other
    outputs; `k_digits`: those of the contraction, of which each then sums a part. `batch`: the subaxes of each batch axis, with
    Addr strides counted in whole matrices."""
    shared = [Sub(d.n, d.level, d.stride) for d in k_digits if d.level != LOCAL and d.n > 1]
    kb, window = -(-k // BLOCK // prod(s.n for s in shared)), prod(taps)
    spatial = [d for d in n_digits if d.level != LOCAL and d.n > 1]
    parts = 1
    for d in spatial:
        parts *= d.n
    blocks = -(-n // BLOCK)
    nb = -(-blocks // parts)
    per_block = mode.block_lw // 4 * mode.steps * mode.outs  # LM addresses of 16 outputs x 16 lanes
    if mode.name == "h":
        lanes_n, lanes_k = [Sub(16, ADDR, 1)], [Sub(kb, ADDR, 16), Sub(4, PE), Sub(4, W)]
    elif mode.name == "hs":
        lanes_n, lanes_k = [Sub(16, ADDR, 2)], [Sub(kb, ADDR, 32), Sub(4, PE), Sub(2, ADDR, 1), Sub(2, W)]
    elif mode.name == "hx":
        lanes_n, lanes_k = [Sub(4, PE), Sub(4, W)], [Sub(kb, ADDR, 16), Sub(16, ADDR, 1)]
    elif mode.name == "f":
        lanes_n = [Sub(4, ADDR, 2), Sub(2, ADDR, 16 * kb * window), Sub(2, ADDR, 1)]
        lanes_k = [Sub(kb, ADDR, 16), Sub(4, PE), Sub(2, ADDR, 8), Sub(2, W)]
    else:
        lanes_n = [Sub(4, ADDR, 1), Sub(4, ADDR, 16 * kb * window)]
        lanes_k = [Sub(kb, ADDR, 16), Sub(4, PE), Sub(4, ADDR, 4)]
    axis_n = [Sub(d.n, d.level, d.stride) for d in spatial] + [Sub(nb, ADDR, per_block * kb * window), *lanes_n]
    matrix = (tuple(s for s in axis_n if s.n > 1), tuple(s for s in (*shared, *lanes_k) if s.n > 1))
    size = per_block * kb * nb * window
    tap_axes: list[tuple[Sub, ...]] = []
    step = per_block // mode.outs * kb
    for extent in reversed(taps):
        tap_axes.insert(0, (Sub(extent, ADDR, step),) if extent > 1 else ())
        step *= extent
    outer = tuple(
        tuple(Sub(s.n, s.level, s.stride * size) if s.level == ADDR else s for s in axis if s.n > 1) for axis in batch
    )
    levels = {s.level for axis in (*matrix, *outer) for s in axis}
    copies = tuple(Sub(0, level) for level in (L2B, L1B, MAB) if level not in levels) + tuple(copied)
    return Layout(outer + (matrix if n_first else matrix[::-1]) + tuple(tap_axes), copies)


def in_quarters(layout: Layout) -> Layout:
    """Weights of which the two L2Bs of each group take other halves, all groups the same, as they lie in DRAM once: a quarter
    of each line of L2BM in each group, as the move `mvb4` takes them: long word 64 i + 16 g + j of the L2BMs l stands in DRAM g
    at 32 i + 16 l + j."""
    spread = bool(layout.subs(L1B))

    def places(s: Sub) -> list[Sub]:
        if s.level == L2B:
            return [Sub(s.n, ADDR, 4)]
        if s.level == ADDR and s.stride >= (2 if spread else 16):  # beyond a line
            return [Sub(s.n, ADDR, s.stride * 4 if spread else s.stride // 2)]
        if s.level not in (ADDR, L1B):
            return [s]
        low, count = s.stride.bit_length() - 1, s.n.bit_length() - 1
        return [_in_quarter(_bit_of_l2bm(s.level, bit, spread)) for bit in reversed(range(low, low + count))]

    axes = tuple(tuple(merged([place for s in axis for place in places(s)])) for axis in layout.axes)
    return Layout(axes, (Sub(0, L1B), Sub(0, MAB)))


def _bit_of_l2bm(level: str, bit: int, spread: bool) -> int:
    """Which bit of a long word's number in L2BM a bit of its address, or of its L1B, is (`ir/image.py`)."""
    if level == L1B:
        return 3 + bit
    return bit + 5 if spread and bit else bit + 2


def _in_quarter(bit: int) -> Sub:
    """Where the places go that a bit of the number in L2BM tells apart."""
    if bit in (4, 5):
        return Sub(2, L2B, 2 << (bit - 4))
    return Sub(2, ADDR, 1 << (bit - 2 if bit < 4 else bit - 3))
