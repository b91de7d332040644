"""A small program whose names would be trouble in a page that does not escape."""

from __future__ import annotations

import json

import numpy as np

from mlsdk.pipeline.ir.graph import Graph, Node, Value

PORT = 8327
ADDRESS = f"http://127.0.0.1:{PORT}"
EVIL = "<img src=x onerror=alert(1)>"
CLOSING = "</script><script>alert(2)</script>"


def graph() -> Graph:
    """Two products with a ReLU between them; one node is named like an attack."""
    rng = np.random.default_rng(0)
    shapes = {"x": (64, 64), EVIL: (64, 64), "r": (64, 64), "y": (64, 10)}
    constants = {
        name: rng.standard_normal(s).astype(np.float32)
        for name, s in {"w1": (64, 64), "b1": (64,), "w2": (10, 64), "b2": (10,)}.items()
    }
    values = {n: Value(n, "float32", s) for n, s in shapes.items()}
    values |= {n: Value(n, "float32", a.shape) for n, a in constants.items()}
    nodes = (
        Node(EVIL, "Gemm", ("x", "w1", "b1"), (EVIL,), {"transB": 1}),
        Node("softmax", "Softmax", (EVIL,), ("r",), {"axis": 1}),
        Node("fc2", "Gemm", ("r", "w2", "b2"), ("y",), {"transB": 1}),
    )
    return Graph("mlp", ("x",), ("y",), nodes, values, constants)


def signature() -> bytes:
    inputs = [{"key": "x", "dtype": "float32", "shape": [64, 64], "value": "x"}]
    outputs = [{"key": "y", "dtype": "float32", "shape": [64, 10], "value": "y"}]
    whole = {"format": 1, "inputs": inputs, "outputs": outputs, "state": [], "call_spec": None, "result_spec": None}
    return json.dumps(whole).encode()
