"""Lanes: the 4 PEs and the words of a MAB that hold one lane block. Masks over them, and sums and maxima across them."""

from __future__ import annotations

from collections.abc import Sequence

from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.transfer import Tensor

SCRATCH = 448  # words 448.. of GRF0 and GRF1 are temporaries


def tail_masks(asm: Asm, dtype: str, keep: int, first: int = 1) -> list[int]:
    """Mask entries (from `first` on) that select the lanes q >= keep of a block of 16: one for each LW of a quad.

    Element q = 4 p + e of the block lies in PE p; LW a of a quad holds e = 2a, 2a + 1 (single), all four (half), e = a
    (double)."""
    c = SCRATCH
    if dtype == "half":
        asm.pe(f'imm us"2" $lr{c}')
        asm.pe(f"slsl $subpeid $lr{c} $ls{c + 2}")  # 4 p
        asm.pe('imm ui"0x00000001" $lt')  # 0 1 0 1
        asm.pe(f"sadd $ls{c + 2} $lt $ls{c + 4}")
        asm.pe(f"sadd $ls{c + 4} $lr{c} $ls{c + 6}")  # + 2
        asm.pe('immu ui"0x00020002" $lt')  # 2 2 0 0
        asm.pe(f"ssub $ls{c + 6} $lt $ls{c + 8}")  # 4 p + (0 1 2 3)
        asm.pe(f'imm us"{keep}" $lt')
        asm.pe(f"ssub $ls{c + 8} $lt $omr{first}")
        return [first]
    asm.pe(f'imm ui"2" $ls{c}')
    asm.pe(f"ilsl $subpeid $ls{c} $ls{c + 2}")
    if dtype == "double":
        for a in range(4):
            asm.pe(f'imm i"{keep - a}" $lt')
            asm.pe(f"isub $ls{c + 2} $lt $omr{first + a}")
        return [first + a for a in range(4)]
    asm.pe('immu ui"1" $lt')  # 1 0
    asm.pe(f"isub $ls{c + 2} $lt $ls{c + 4}")  # 4 p - 1, 4 p
    for a in range(2):
        asm.pe(f'imm i"{keep - 2 * a - 1}" $lt')
        asm.pe(f"isub $ls{c + 4} $lt $omr{first + a}")
    return [first, first + 1]


def clear_tail(asm: Asm, tensor: Tensor, space: str, words: Sequence[int], keep: int) -> None:
    """Zero the lanes from `keep` on in the quads that start at these words."""
    width = 2
    for a, entry in enumerate(tail_masks(asm, tensor.dtype, keep)):
        for at in range(0, len(words), 4):
            asm.pe(f"zero {vec(space, [w + 2 * a for w in words[at : at + 4]], width)}/$imr{entry}")
