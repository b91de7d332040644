"""OneHot: each index compared with the numbers along the new axis."""

from __future__ import annotations

import numpy as np

from mlsdk.pipeline.ops.emitters.asm import Asm
from mlsdk.pipeline.ops.emitters.elementwise import compute_dtype, emit_formula
from mlsdk.pipeline.ops.emitters.formula import Formula, Op, Value
from mlsdk.pipeline.ops.emitters.fragment import Call


def one_hot(f: Formula, index: Value, number: Value, depth: int, on: float | int, off: float | int) -> Op:
    """on where the index, counted from the end if it is negative, is the number."""
    if f.double:  # integers lie in the upper words
        depth <<= 32
    start = f.iadd(f.iand(f.right(index, f.bits - 1), depth), index)
    return f.where(f.ixor(start, number), on, off)


def emit_one_hot(call: Call) -> tuple[Asm, dict[str, np.ndarray]]:
    """Attributes of the node: `depth`, and `values` (off, on)."""
    attrs, out = call.node.attrs, call.outputs[0]
    off, on = (int(v) if out.dtype == "int" else float(v) for v in np.asarray(attrs["values"]).reshape(2))
    inputs = [t for t in call.inputs if t is not None]
    compute = compute_dtype([t.dtype for t in (*inputs, out)])
    values = {"depth": int(attrs["depth"]), "on": on, "off": off}  # type: ignore[arg-type]
    return emit_formula(call, one_hot, inputs, out, compute, values)
