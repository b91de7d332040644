"""A copy inside DRAM: from the place of one value to another of the same layout, through L2BM."""

from __future__ import annotations

from mlsdk.device.isa import model as m
from mlsdk.pipeline.ops.emitters.asm import Asm
from mlsdk.pipeline.ops.emitters.fragment import Call

CHUNK = 8192  # LW


def emit_copy(call: Call) -> Asm:
    source, out = call.inputs[0], call.outputs[0]
    assert source is not None
    asm = Asm()
    size = out.image.group_size
    size += -size % 64
    flying: list[int] = []
    for index, at in enumerate(range(0, size, CHUNK)):
        n = min(CHUNK, size - at)
        lc = m.Operand(m.L2BM, index % 2 * CHUNK, m.LW, block=0)
        if len(flying) == 2:
            asm.wait(flying.pop(0))
        asm.wait(asm.move("mvp", m.Operand(m.DRAM, at, m.LW, symbol=source.symbol), lc, n))
        flying.append(asm.move("mvp", lc, m.Operand(m.DRAM, at, m.LW, symbol=out.symbol), n))
    asm.wait(*flying)
    return asm
