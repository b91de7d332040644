"""Run a graph of one node on the machine and by the operators' reference functions, and compare."""

from __future__ import annotations

import numpy as np
from emulated import run

from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.ops import infer
from mlsdk.pipeline.ops.interpreter import run_reference
from mlsdk.pipeline.ops.table import Operand

#: float_dtype of the board, dtype of the tensors
DTYPES = [("float", "float32"), ("half", "float32"), ("double", "float64"), ("float", "int32"), ("float", "int64"),
          ("float", "uint8"), ("float", "bool")]  # fmt: skip


def numbers(rng, shape, dtype, low=-200, high=200):
    """Numbers that every device dtype holds exactly."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0 if dtype == "uint8" else low, high, shape).astype(dtype)


def node_graph(op, operands, outputs=1, attrs=None):
    """A graph of one node. `operands`: in order, name -> array (constant), (array,) (run-time input) or None (absent)."""
    constants = {n: a for n, a in operands.items() if isinstance(a, np.ndarray)}
    inputs = {n: a[0] for n, a in operands.items() if isinstance(a, tuple)}
    names = tuple("" if a is None else n for n, a in operands.items())
    values = {n: Value(n, str(a.dtype), a.shape) for n, a in {**constants, **inputs}.items()}
    outs = tuple(f"y{i}" for i in range(outputs))
    node = Node(op, op, names, outs, attrs or {})
    known = [Operand(n, values[n].dtype, values[n].shape, constants.get(n)) if n else None for n in names]
    for name, (dtype, shape) in zip(outs, infer(node, known)):
        values[name] = Value(name, dtype, shape)
    return Graph("g", tuple(inputs), outs, (node,), values, constants), inputs


def agree(op, operands, outputs=1, attrs=None, float_dtype="float", compare=None):
    """The board's results equal the reference's (`compare(board, reference)` for a weaker sense). Counted steps."""
    graph, inputs = node_graph(op, operands, outputs, attrs)
    want = run_reference(graph, inputs)
    got, stats = run(graph, inputs, float_dtype)
    for name in graph.outputs:
        assert got[name].dtype == want[name].dtype and got[name].shape == want[name].shape
        if compare is None:
            np.testing.assert_array_equal(got[name], want[name], err_msg=f"{op} {name}")
        else:
            compare(got[name], want[name])
    return stats.total_steps
