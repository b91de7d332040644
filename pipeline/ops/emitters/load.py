"""A value that lies in DRAM from the start, brought to LM for those that read it there."""

from __future__ import annotations

from mlsdk.device import spec
from mlsdk.errors import EmitError
from mlsdk.pipeline.ops.emitters.asm import Asm
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.home import GRAIN
from mlsdk.pipeline.ops.emitters.transfer import Range, bulk_download

PIECES = 4  # at least, so that one is distributed while the next is on its way
LEAST = 2048  # LW of each L2BM for one


def emit_load(call: Call) -> Asm:
    """Nothing where the value stays in DRAM."""
    source, home = call.inputs[0], call.outputs[0].home
    asm = Asm()
    if home is None:
        return asm
    assert source is not None
    whole = Range.of(source, 0, source.image.addresses)
    if not source.image.addresses:
        raise EmitError(f"{call.node.name}: a value of no elements is not brought to LM")
    lw = source.image.lw_per_address
    one = max(LEAST, GRAIN * lw, -(-whole.addresses * lw // PIECES))
    bulk_download(asm, whole, home.space, home.word, 0, min(2 * one, spec.L2BM_LW), 0, spec.L1BM_LW)
    return asm
