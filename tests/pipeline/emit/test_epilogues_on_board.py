"""What a convolution computes on its way: the nodes behind it, on the board against torch in double."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from emulated import compiled, execute_plan

from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.layout import LayoutOptions, plan
from mlsdk.pipeline.ops.table import run as reference

#: relative to the largest value on the way: its rounding, and that of the products' operands
BOUND = {"float": 4e-6, "double": 4e-7, "mixed": 2**-7, "half": 2**-7}
#: nodes behind a convolution: (operator, kind of its other operand, attributes)
NORM, BIAS, GAIN, REST = (
    ("BatchNormalization", "norm", {}),
    ("Add", "channel", {}),
    ("Mul", "channel", {}),
    ("Add", "plane", {}),
)
RELU, RELU6, DOUBLED = ("Relu", "", {}), ("Clip", "limits", {}), ("Mul", "number", {})
SILU, LEAKY, LESS = ("Silu", "", {}), ("LeakyRelu", "", {"alpha": 0.25}), ("Sub", "plane", {})


@dataclass(frozen=True)
class Case:
    """`x`: the input's shape; `depth`: whether each channel is on its own."""

    x: tuple[int, ...]
    outputs: int
    kernel: int
    behind: tuple
    stride: int = 1
    bias: bool = False
    depth: bool = False
    constant: bool = False  # weights and values of channels

    @property
    def y(self) -> tuple[int, ...]:
        return (*self.x[:1], self.outputs, *((n - 1) // self.stride + 1 for n in self.x[2:]))


CASES = {
    "normalised": Case((1, 24, 9, 9), 40, 3, (NORM, RELU)),
    "in two halves": Case((2, 16, 20, 72), 32, 3, (NORM, REST, RELU), 2),
    "rows of a plane": Case((1, 16, 20, 150), 16, 3, (REST, LEAKY), bias=True),
    "many channels": Case((1, 32, 5, 5), 528, 1, (NORM, REST, RELU6)),
    "all of it": Case((3, 20, 6, 7), 20, 3, (GAIN, BIAS, DOUBLED, LESS, RELU), bias=True),
    "long formula": Case((1, 16, 12, 12), 32, 3, (NORM, SILU)),
    "constants": Case((1, 16, 12, 12), 20, 3, (GAIN, BIAS, RELU6), constant=True),
    "line": Case((2, 16, 50), 24, 3, (NORM, REST, RELU)),
    "depthwise": Case((1, 40, 14, 14), 40, 3, (NORM, RELU6), depth=True),
    "depthwise, tiles and a plane": Case((2, 24, 40, 21), 24, 3, (NORM, REST, SILU)[:2], depth=True, bias=True),
}


def build(case: Case, seed: int = 0) -> tuple[Graph, dict[str, np.ndarray], int]:
    """The graph, its inputs, and the number of nodes of which only the convolution is to be left."""
    rng, rank = np.random.default_rng(seed), len(case.x)
    c, ones = case.outputs, (1,) * (rank - 2)
    window = {"strides": (case.stride,) * (rank - 2), "pads": (case.kernel // 2,) * 2 * (rank - 2)}
    weights = (c, 1 if case.depth else case.x[1], *(case.kernel,) * (rank - 2))
    given = {"x": rng.standard_normal(case.x), "w": rng.standard_normal(weights) * 0.1}
    if case.bias:
        given["b"] = rng.standard_normal(c)
    nodes = [Node("conv", "Conv", tuple(given), ("v0",), {**window, "group": case.x[1] if case.depth else 1})]
    more: dict[str, np.ndarray] = {}
    constants: dict[str, np.ndarray] = {}
    for i, (op, kind, attrs) in enumerate(case.behind):
        names = {"norm": ("scale", "shift", "mean", "variance"), "limits": ("low", "high"), "": ()}.get(kind, (kind,))
        operands = [kind] if kind == "plane" else [f"{name}{i}" for name in names]
        for name in operands if kind != "plane" else ():
            if kind == "limits":
                constants[name] = np.array({"l": 0, "h": 1.5}[name[0]], np.float32)
            elif kind == "number":
                constants[name] = np.array([2], np.float32)
            else:
                more[name] = rng.uniform(0.5, 1.5, (c,) if kind == "norm" else (c, *ones))
        nodes.append(Node(f"n{i}", op, (f"v{i}", *operands), (f"v{i + 1}",), attrs))
    given |= more
    if case.constant:
        constants |= {name: given.pop(name).astype(np.float32) for name in list(given) if name != "x"}
    first = [Node("first", "Conv", ("x", "w"), ("plane",), nodes[0].attrs)]  # is computed before
    arrays = {name: np.asarray(a, np.float32) for name, a in given.items()}
    values = {name: Value(name, "float32", a.shape) for name, a in (arrays | constants).items()}
    made = [o for n in (*first, *nodes) for o in n.outputs]
    values |= {name: Value(name, "float32", case.y) for name in made}
    graph = Graph("g", tuple(arrays), (nodes[-1].outputs[0],), (*first, *nodes), values, constants)
    return graph, arrays, len(case.behind)


def in_double(graph: Graph, inputs: dict[str, np.ndarray]) -> tuple[np.ndarray, float]:
    """The result, and the largest value on the way to it."""
    known = {name: np.asarray(a, np.float64) for name, a in ({**inputs, **graph.constants}).items()}
    for node in graph.nodes:
        if node.op == "Conv":
            x, w, *b = (torch.from_numpy(known[name]) for name in node.inputs)
            function = torch.nn.functional.conv1d if x.ndim == 3 else torch.nn.functional.conv2d
            pads = node.attrs["pads"][0]
            result = function(x, w, b[0] if b else None, node.attrs["strides"][0], pads, 1, node.attrs["group"]).numpy()
        else:
            result = reference(node, [known[name] for name in node.inputs])[0]
        known[node.outputs[0]] = result
    return known[graph.outputs[0]], max(np.abs(known[o]).max() for n in graph.nodes for o in n.outputs)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, dtype) for name in CASES for dtype in ("mixed", "float")]
    + [("normalised", "half"), ("all of it", "double")],
)
def test_a_convolution_computes_what_stands_behind_it(name, dtype):
    graph, inputs, behind = build(CASES[name])
    found = compiled(graph, dtype)
    left = {p.node.outputs[0] for p in found[0].nodes}
    assert f"v{behind}" in left and not left & {f"v{i}" for i in range(behind)}, left
    want, scale = in_double(graph, inputs)
    result, _ = execute_plan(graph, inputs, *found)
    got = result[graph.outputs[0]]
    assert np.abs(got - want).max() <= BOUND[dtype] * scale


def test_what_others_read_or_what_lies_elsewhere_ends_it():
    """The result of the normalisation is an output; the next plane is computed later than the convolution."""
    graph, _, _ = build(CASES["normalised"])
    seen = Graph(graph.name, graph.inputs, ("v1", "v2"), graph.nodes, graph.values, graph.constants)
    nodes = {p.node.name: p for p in plan(seen, LayoutOptions("mixed"))[0].nodes}
    assert nodes["conv"].node.outputs == ("v1",) and nodes["n1"].emitter == "elementwise"
    graph, _, _ = build(CASES["line"])
    first, conv, norm, *rest = graph.nodes
    moved = Graph(graph.name, graph.inputs, graph.outputs, (conv, norm, first, *rest), graph.values, graph.constants)
    nodes = {p.node.name: p for p in plan(moved, LayoutOptions("mixed"))[0].nodes}
    assert nodes["conv"].node.outputs == ("v1",) and nodes["first"].node.outputs == ("v3",)
