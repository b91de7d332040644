"""OneHot: each index compared with the numbers along the new axis."""

from __future__ import annotations

import numpy as np

from mlsdk.pipeline.ir.bits import to_bits
from mlsdk.pipeline.ops.emitters.asm import Asm
from mlsdk.pipeline.ops.emitters.constants import f32, w32
from mlsdk.pipeline.ops.emitters.elementwise import compute_dtype, emit_kernel
from mlsdk.pipeline.ops.emitters.fragment import Call
from mlsdk.pipeline.ops.emitters.kernels import Kernel

#: the index, counted from the start, compared; mask 1 where it is the number
_FOUND = ("ilsr {0} {c:s31} $nowrite", "iand $aluf {c:depth} $nowrite", "iadd $aluf {0} $nowrite")


def emit_one_hot(call: Call) -> Asm:
    """Attributes of the node: `depth`, and `values` (off, on)."""
    attrs, out = call.node.attrs, call.outputs[0]
    off, on = np.asarray(attrs["values"]).reshape(2)
    inputs = [t for t in call.inputs if t is not None]
    constants = {"s31": w32(31), "depth": w32(int(attrs["depth"]))}  # type: ignore[arg-type]
    compute = compute_dtype([t.dtype for t in (*inputs, out)])
    lines: tuple[str, ...]
    if compute == "double":
        words = [int(to_bits(np.array([v]), "double")[0]) for v in (off, on)]
        lines = ("lxor $aluf {1} $omr1", "lpassa {c:off} {out}", "lpassa {c:on} {out}/$imr1")
    elif out.dtype == "half":
        words = [f32(float(v)) for v in (off, on)]
        lines = (
            "ixor $aluf {1} $omr1",
            "ipassa {c:off} {r0}",
            "ipassa {c:on} {r0}/$imr1",
            "fvpassar {r0} {out}",
        )
    else:
        words = [w32(int(to_bits(np.array([v]), out.dtype)[0])) for v in (off, on)]
        lines = ("ixor $aluf {1} $omr1", "ipassa {c:off} {out}", "ipassa {c:on} {out}/$imr1")
    constants |= {"off": words[0], "on": words[1]}
    kernel = Kernel((*_FOUND, *lines), ("m", "n", "r"), False, True, constants)
    return emit_kernel(call, kernel, inputs, out, compute)
