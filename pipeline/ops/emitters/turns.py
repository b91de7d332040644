"""Operands that are broadcast, brought to each PE in the order in which it meets them (`seen.Turns`).

All PEs take the whole operand to LM0; a table says for each of them which long words it wants, and it reads these through T.
"""

from __future__ import annotations

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import ADDR, L1B, L2B, MAB, PE, Layout, Sub, W
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.seen import Turns
from mlsdk.pipeline.ops.emitters.transfer import Range, Tensor, finish_download, start_download

VALUES = 1024  # words of LM0, behind a tile
TABLE = 0  # words of GRF0, where the result comes later


def bring(asm: Asm, found: dict[int, tuple[Turns, str, int]]) -> dict[str, np.ndarray]:
    """Each of these from word .. of a memory on; gives their tables, by symbol, in DRAM."""
    data: dict[str, np.ndarray] = {}
    moves = []
    lc = 0
    for number, (turns, _, _) in found.items():
        symbol = f"turns{number}"
        table, data[symbol] = table_of(turns, symbol)
        parts = (Range.of(turns.tensor, 0, turns.tensor.image.addresses), Range.of(table, 0, table.image.addresses))
        places = []
        for part in parts:
            places.append((part, lc, start_download(asm, part, lc)))
            lc += -(-part.addresses * part.tensor.image.lw_per_address // 64) * 64
        moves.append(places)
    for (turns, space, word), ((values, lc_values, tags), (indices, lc_indices, more)) in zip(found.values(), moves):
        asm.wait(*tags)
        finish_download(asm, values, lc_values, 0, m.LM0, VALUES)
        asm.wait(*more)
        finish_download(asm, indices, lc_indices, 0, m.GRF0, TABLE)
        count = turns.index.shape[-1]
        for at in range(0, count, 4):
            words = [2 * min(at + c, count - 1) for c in range(4)]
            asm.pe(f"lpassa {vec(m.GRF0, [TABLE + w for w in words], 2)} $lt")
            asm.pe(f"lpassa $lmt{VALUES} $nowrite")
            asm.pe(f"lpassa $aluf {vec(space, [word + w for w in words], 2)}")
    return data


def table_of(turns: Turns, symbol: str, count: int = 0) -> tuple[Tensor, np.ndarray]:
    """Two words for each value that each PE wants, or for `count` of them, turn after turn: where it lies from the first on."""
    count = count or turns.index.shape[-1]
    index = turns.index[..., np.arange(count) % turns.index.shape[-1]]
    of_l2b = ((Sub(8, L2B),),) if index.ndim > 3 else ()
    everywhere = (Sub(0, PE), Sub(0, W)) if of_l2b else (Sub(0, L2B), Sub(0, PE), Sub(0, W))
    layout = Layout((*of_l2b, (Sub(8, L1B),), (Sub(16, MAB),), (Sub(count, ADDR),)), everywhere)
    image = Image(layout, "int", index.shape)
    return Tensor(image, symbol), image.pack((2 * index).astype(np.uint32))
