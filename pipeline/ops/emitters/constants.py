"""Constants of kernels: one small table in DRAM, the same for every PE, brought to GRF1 and LM0 at the start of a node."""

from __future__ import annotations

from collections.abc import Sequence

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


__all__ = ["f32", "f64", "load_table", "m", "w32"]
