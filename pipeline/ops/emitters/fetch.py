"""Reading few rows of a large tensor where they lie in DRAM, at indices that are computed at run time.

A row is a whole piece of each group's DRAM. The PEs compute the rows' addresses, which become entries of the DAR, and one move
takes the rows from there to L2BM, where they are what the result is in DRAM: its rows, one behind the other.
"""

from __future__ import annotations

from mlsdk.device import spec
from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.indices import Constants, nearest, scaled
from mlsdk.pipeline.ops.emitters.transfer import Range, Tensor, download, finish_upload

ENTRIES, ROWS = 0, 4096  # L2BM: addresses of rows; rows
RAW, DONE, BASE = 0, 0, 448  # words of LM1 and LM0: indices, and entries of the DAR; of GRF1: the address of the data
ENTRIES_OF_ONE, WRITTEN = 512, 4  # entries that l2bmdars takes, and that l2bmdarw sets
MOST = 8192  # indices that LM holds


def emit_fetch(call: Call) -> Asm:
    """Attributes of the node: `rows` of the data; `row_lw`, what one takes of each group's DRAM."""
    data, index = call.inputs
    out = call.outputs[0]
    assert data is not None and index is not None
    if not data.symbol or not out.symbol or out.home is not None:
        raise EmitError(f"{call.node.name}: rows are fetched from DRAM to DRAM; the operands cannot live in LM")
    rows, row_lw = int(call.node.attrs["rows"]), int(call.node.attrs["row_lw"])  # type: ignore[arg-type]
    asm = Asm()
    _entries(asm, index, data.symbol, rows, row_lw)
    count = out.image.group_size // row_lw
    for first in range(0, count, ENTRIES_OF_ONE):
        _rows(asm, first, min(ENTRIES_OF_ONE, count - first), row_lw, out.symbol)
    return asm


def _entries(asm: Asm, index: Tensor, data: str, rows: int, row_lw: int) -> None:
    """The rows' addresses in units of the DAR to L2BM, two in a long word."""
    constants, whole = Constants(asm), Range.of(index, 0, index.image.addresses)
    download(asm, whole, m.LM1, RAW, 0, 0)
    unit = row_lw // spec.DAR_UNIT_LW
    asm.bundle((m.Instruction("imm", (m.Immediate("ui", "0", data), m.Operand(m.GRF1, BASE, m.LW))),))
    for a in range(0, whole.addresses, 4):
        words = [2 * (a + c) for c in range(4)]
        nearest(asm, constants, vec(m.LM1, [RAW + w for w in words], 2), rows, "$lr0v")
        scaled(asm, constants, "$lr0v", unit, "$lr8v")
        asm.pe(f"iadd $lr8v $ls{BASE} {vec(m.LM0, [DONE + w for w in words], 2)}")
    finish_upload(asm, whole, ENTRIES, 0, m.LM0, DONE)


def _rows(asm: Asm, first: int, count: int, row_lw: int, out: str) -> None:
    """Rows `first`.. of the result: their entries, and as many at a time as fit L2BM there and to DRAM."""
    asm.pe(f"l2bmdars $lc{ENTRIES + first // 2}@.0 $dar0")
    for _ in range(-(-count // WRITTEN)):
        asm.pe("l2bmdarw")
    most = (spec.L2BM_LW - ROWS) // row_lw
    for at in range(0, count, most):
        size = min(most, count - at) * row_lw
        source, here = m.Operand(m.DRAM_INDIRECT, at, m.LW), m.Operand(m.L2BM, ROWS, m.LW, block=0)
        asm.wait(asm.move("mvp", source, here, size, nd=row_lw // spec.DAR_UNIT_LW))
        asm.wait(asm.move("mvp", here, m.Operand(m.DRAM, (first + at) * row_lw, m.LW, symbol=out), size))
