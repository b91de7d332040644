"""Constants of kernels, the same for every PE: a small table in DRAM that is brought to the memories that need it at the start of
a node, or instructions that write them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import ADDR, L1B, L2B, MAB, PE, Layout, Sub, W
from mlsdk.pipeline.ops.emitters.asm import Asm
from mlsdk.pipeline.ops.emitters.transfer import Range, Tensor, finish_download, start_download


def f32(value: float) -> int:
    """A single as the long word that holds it twice."""
    word = int(np.float32(value).view(np.uint32))
    return word << 32 | word


def w32(word: int) -> int:
    """A 32-bit word as the long word that holds it twice."""
    return word << 32 | word


def f64(value: float) -> int:
    return int(np.float64(value).view(np.uint64))


def load_table(
    asm: Asm, symbol: str, values: Sequence[int], places: Sequence[tuple[str, int]], lc: int = 0, lb: int = 0
) -> np.ndarray:
    """Bring the long words `values` to each (space, word) of `places`; gives the DRAM data of the constant `symbol`."""
    words = np.array([w for v in values for w in (v >> 32, v & 0xFFFFFFFF)], np.uint32)
    levels = tuple(Sub(0, level) for level in (L2B, L1B, MAB, PE))
    image = Image(Layout(((Sub(len(values), ADDR), Sub(2, W)),), levels), "int", (len(words),))
    part = Range.of(Tensor(image, symbol), 0, image.addresses)
    asm.wait(*start_download(asm, part, lc))
    for space, word in places:
        finish_download(asm, part, lc, lb, space, word)
    return image.pack(words)


def load_constants(
    asm: Asm, held: Mapping[int, Collection[str]], bases: Mapping[str, int], lc: int, symbol: str = "const0"
) -> dict[str, np.ndarray]:
    """Bring constants to the memories that must hold them: the i-th long word to word `bases[space] + 2 i`, a table by way of
    L2BM at `lc`.

    Few are written by instructions of their own, many come in a table; gives the table's data in DRAM, under `symbol`."""
    lines = [line for i, (value, spaces) in enumerate(held.items()) for line in _written(i, value, spaces, bases)]
    spaces = {space for where in held.values() for space in where}
    if len(lines) > 20 + (2 + len(held) // 8) * len(spaces):
        return {symbol: load_table(asm, symbol, list(held), [(s, bases[s]) for s in sorted(spaces)], lc)}
    for line in lines:
        asm.pe(line)
    return {}


_LETTERS = {m.GRF0: "r", m.GRF1: "s", m.LM0: "m", m.LM1: "n"}


def _written(index: int, value: int, spaces: Collection[str], bases: Mapping[str, int]) -> list[str]:
    """Instructions that write one constant: to the GRFs by imm, from there to LM."""
    grfs = [s for s in (m.GRF0, m.GRF1) if s in spaces] or [m.GRF1]
    high, low = value >> 32, value & 0xFFFFFFFF

    def places(width: str, more: int = 0) -> str:
        return " ".join(f"${width}{_LETTERS[s]}{bases[s] + 2 * index + more}" for s in grfs)

    if high == low:
        lines = [f'imm ui"{high}" {places("l")}']
    elif low == 0:
        lines = [f'immu ui"{high}" {places("l")}']
    else:
        lines = [f'imm ui"{high}" {places("")}', f'imm ui"{low}" {places("", 1)}']
    source = f"$l{_LETTERS[grfs[0]]}{bases[grfs[0]] + 2 * index}"
    for space in (m.LM0, m.LM1):
        if space in spaces:
            lines.append(f"lpassa {source} $l{_LETTERS[space]}{bases[space] + 2 * index}")
    return lines
