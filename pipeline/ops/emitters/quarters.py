"""Sums over all L2Bs, left in quarters: each group's DRAM takes one quarter of every line of the sum (`mvr`).

What all L2Bs hold in one scheme, each a part of the sum, lies in DRAM afterwards in another scheme, in which the groups share the
rows: of the numbers of a row's L1B and MAB (bits b2 b1 b0, m3 m2 m1 m0)

    group    b2 b1
    MAB      m2 m1 b0 m0
    LM       m3, the most significant

as `l2bmd` brings them to a line of L2BM, and a line's quarters go to the groups.
"""

from __future__ import annotations

from dataclasses import replace

from mlsdk.device.isa import model as m
from mlsdk.pipeline.ir.layout import EXTENT, L1B, L2B, MAB, merged
from mlsdk.pipeline.ir.scheme import LOCAL, Digit, Scheme
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.transfer import Tensor, pipeline

#: where the bits of a row's place go: (level, stride) of the bit -> the same of where it is then; None: LM
_BITS = {
    (L1B, 1): (MAB, 2), (L1B, 2): (L2B, 2), (L1B, 4): (L2B, 4),
    (MAB, 1): (MAB, 1), (MAB, 2): (MAB, 4), (MAB, 4): (MAB, 8), (MAB, 8): None,
}  # fmt: skip
LINE = 256  # LW of a line of L2BM; the quarters of each group together
#: moves in flight
FLYING = 3


def quartered(scheme: Scheme) -> Scheme | None:
    """Where the sum lies of what all L2Bs hold in `scheme`; None if it has no form for that: rows over L1Bs and MABs, in powers
    of two."""
    if scheme.copies or scheme.lane is None:
        return None
    levels = {d.level for axis in scheme.axes for d in axis if d.level != LOCAL and d.n > 1}
    if levels != {L1B, MAB}:
        return None
    top = 1 + max((d.stride for axis in scheme.axes for d in axis if d.level == LOCAL), default=0)
    axes = []
    for axis in scheme.axes:
        found: list[Digit] = []
        for position, d in enumerate(axis):
            if d.level == LOCAL or d.n == 1:
                found.append(d)
                continue
            bits = (d.n - 1).bit_length()
            if (d.n != 1 << bits and position) or d.stride & (d.stride - 1):
                return None
            for bit in reversed(range(bits)):
                place = _BITS.get((d.level, d.stride << bit), ())
                if place == ():
                    return None
                found.append(Digit(2, *place) if place else Digit(2, LOCAL, top))
        axes.append(tuple(merged(found, LOCAL)))
    return replace(scheme, axes=tuple(axes))


def upload_sums(
    asm: Asm, c: Tensor, parts: Scheme, l2bs: int, at: int, count: int, word: int,
    lc: int, lc_size: int, lb: int, lb_size: int, strides: tuple[int, ...] = (),
) -> None:  # fmt: skip
    """The addresses [at, at + count) of what each L2B holds in the scheme `parts`, which lie in LM1 from `word` on, summed in
    DRAM. `l2bs`: how many hold a part; `c`: the sum, in `quartered(parts)`. By way of L2BM from `lc` and L1BM from `lb` on; waits
    until all is there."""
    per, total = c.image.lw_per_address, parts.addresses(c.dtype)
    halves = c.image.addresses // total  # of the MABs, which lie behind each other then
    reduction = {"single": "mvrffadd", "double": "mvrdfadd"}[c.dtype]
    each = min(lc_size // FLYING // (LINE * halves), lb_size // 64) // 4 * 4
    if l2bs < EXTENT[L2B]:
        _clear_others(asm, l2bs, word, count)
    flying: list[list[int]] = []
    for number, first in enumerate(range(0, count, each)):
        size, place = min(each, count - first), lc + number % FLYING * each * halves * LINE
        if len(flying) == FLYING:
            asm.wait(*flying.pop(0))
        _lines(asm, size, halves, place, lb, word + 2 * first)
        tags = []
        for half in range(halves):
            to = (half * total + at + first) * per
            dst = m.Operand(m.DRAM, to, m.LW, symbol=c.symbol, strides=tuple(s * per for s in strides))
            src = m.Operand(m.L2BM, place + half * size * LINE, m.LW)
            tags.append(asm.move(reduction, src, dst, size * LINE))
        flying.append(tags)
    for tags in flying:
        asm.wait(*tags)


def _clear_others(asm: Asm, l2bs: int, word: int, count: int) -> None:
    """Zeros in place of `count` addresses of LM1 in the L2Bs behind the first ones: they hold anything."""
    asm.pe(f'imm i"{l2bs}" $lr0')
    asm.pe("isub $l2bid $lr0 $omr1")
    for a in range(0, count, 8):
        words = [word + 2 * i for i in range(a, min(a + 8, count), 2)]
        asm.pe(f"zero {vec(m.LM1, words, 4)}/$llimr1")


def _lines(asm: Asm, size: int, halves: int, lc: int, lb: int, word: int) -> None:
    """`size` addresses of LM1 from `word` on, through L1BM at `lb`, to lines of L2BM from `lc` on: of the first half of the
    MABs, then of the second one."""
    words = [word + 2 * a for a in range(size)]
    first = [f"l1bmd {vec(m.LM1, words[a : a + 4], 2)} $lb{lb + 64 * a}" for a in range(0, size, 4)]
    second = [
        (f"l2bmd $lb{lb + 64 * a + 32 * half} $lc{lc + (half * size + a) * LINE}", a // 4 + 1)
        for a in range(size)
        for half in range(halves)
    ]
    pipeline(asm, first, second, distance=3)
