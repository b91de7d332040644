"""Each rewrite on a small graph: before -> after, as text."""

from __future__ import annotations

import numpy as np
import pytest

from mlsdk.errors import GraphError
from mlsdk.pipeline.ir.graph import Graph, Node, Value, text
from mlsdk.pipeline.ops.interpreter import run_reference
from mlsdk.pipeline.optimize import PASSES, optimize
from mlsdk.pipeline.trace.builder import Builder


def built(make, *shapes, dtype="float32"):
    """The graph of `make(b, *inputs) -> value or values`."""
    b = Builder()
    inputs = [b.input(f"x{index}", dtype, shape) for index, shape in enumerate(shapes)]
    results = make(b, *inputs)
    return b.graph("g", list(results) if isinstance(results, (list, tuple)) else [results])


def ops(graph):
    return [node.op for node in graph.nodes]


def const(b, data, dtype="float32"):
    return b.constant(data, dtype, name="c")


def guarded(b, x):
    """As torch's _safe_softmax."""
    nothing = b.op("Equal", b.reduce("ReduceMax", x, [-1], True), b.scalar(-np.inf, x.dtype))
    return b.where(nothing, b.scalar(0, x.dtype), b.op("Softmax", x, axis=len(x.shape) - 1))


def mask(b, seen):
    return const(b, np.where(seen, 0, -np.inf))


# name: (make, input shapes, operators after)
CASES = {
    "constants fold": (lambda b, x: b.op("Add", x, b.op("Mul", const(b, [2, 3]), const(b, [4, 5]))), [(2,)], ["Add"]),
    "a fill stays a node": (
        lambda b, x: b.op("Concat", x, b.full((4096,), 1, "float32"), axis=0),
        [(2,)],
        ["Expand", "Concat"],
    ),
    "size folds": (lambda b, x: b.op("Mul", x, b.cast(b.op("Size", x), "float32")), [(2, 3)], ["Mul"]),
    "dead code goes": (lambda b, x: (b.op("Exp", x), b.op("Relu", x))[1], [(2,)], ["Relu"]),
    "unused statistics go": (
        lambda b, x: b.nodes_of("LayerNormalization", x, const(b, [1]), outputs=3)[0],
        [(2, 3)],
        ["LayerNormalization"],
    ),
    "equal nodes are shared": (lambda b, x: b.op("Sub", b.op("Exp", x), b.op("Exp", x)), [(2,)], ["Exp", "Sub"]),
    "equal outputs stay two": (lambda b, x: [b.op("Exp", x), b.op("Exp", x)], [(2,)], ["Exp", "Identity"]),
    "attention that sees all": (
        lambda b, x, y: guarded(b, b.op("MatMul", x, y)),
        [(3, 4), (4, 5)],
        ["MatMul", "Softmax"],
    ),
    "attention that sees the past": (
        lambda b, x, y: guarded(b, b.op("Add", b.op("MatMul", x, y), mask(b, np.tri(5)))),
        [(2, 5, 4), (2, 4, 5)],
        ["MatMul", "Add", "Softmax"],
    ),
    "a query that may see nothing": (
        lambda b, x, y: guarded(b, b.op("Add", b.op("MatMul", x, y), mask(b, np.tri(5, k=-1)))),
        [(2, 5, 4), (2, 4, 5)],
        ["MatMul", "Add", "ReduceMax", "Equal", "Softmax", "Where"],
    ),
    "a mask that is not known": (
        lambda b, x, y, z: guarded(b, b.op("Add", b.op("MatMul", x, y), z)),
        [(2, 5, 4), (2, 4, 5), (5, 5)],
        ["MatMul", "Add", "ReduceMax", "Equal", "Softmax", "Where"],
    ),
    "double negation": (lambda b, x: b.op("Exp", b.op("Neg", b.op("Neg", x))), [(2,)], ["Exp"]),
    "relu of relu": (lambda b, x: b.op("Relu", b.op("Relu", x)), [(2,)], ["Relu"]),
    "a product of copies": (
        lambda b, x, y: b.op("MatMul", x, b.op("Expand", y, b.ints([3, 4, 5]))),
        [(3, 2, 4), (4, 5)],
        ["MatMul"],
    ),
    "a product of reshaped copies": (
        lambda b, x, y: b.op(
            "MatMul",
            b.reshape(b.op("Expand", b.reshape(y, (1, 1, 2, 4)), b.ints([2, 3, 2, 4])), (6, 2, 4)),
            x,
        ),
        [(6, 4, 3), (2, 4)],
        ["MatMul"],
    ),
    "a product of equal constants": (
        lambda b, x: b.op("MatMul", x, const(b, np.stack([np.arange(6.0).reshape(3, 2)] * 2))),
        [(2, 4, 3)],
        ["MatMul"],
    ),
    "a product of copies in all images": (
        lambda b, x, y: b.op("MatMul", b.op("Expand", x, b.ints([3, 2, 4])), b.op("Expand", y, b.ints([3, 4, 5]))),
        [(2, 4), (4, 5)],
        ["Expand", "MatMul"],
    ),
    "copies that meet a vector stay": (
        lambda b, x, y: b.op("MatMul", b.op("Expand", x, b.ints([3, 2, 4])), y),
        [(2, 4), (4,)],
        ["Expand", "MatMul"],
    ),
    "rows that are copies stay": (
        lambda b, x, y: b.op("MatMul", x, b.op("Expand", y, b.ints([3, 4, 5]))),
        [(3, 2, 4), (1, 5)],
        ["Expand", "MatMul"],
    ),
    "neutral elements": (
        lambda b, x: b.op("Exp", b.op("Mul", b.op("Sub", b.op("Add", x, const(b, 0)), const(b, 0)), const(b, 1))),
        [(2,)],
        ["Exp"],
    ),
    "a neutral element that broadcasts stays": (
        lambda b, x: b.op("Add", x, const(b, np.zeros((3, 2)))),
        [(2,)],
        ["Add"],
    ),
    "where all true": (
        lambda b, x: b.op("Exp", b.where(const(b, True, "bool"), x, b.op("Neg", x))),
        [(2,)],
        ["Exp"],
    ),
    "cast there and back": (
        lambda b, x: b.op("Exp", b.op("Cast", b.op("Cast", x, to=11), to=1)),
        [(2,)],
        ["Exp"],
    ),
    "a narrowing cast stays": (lambda b, x: b.op("Cast", b.op("Cast", x, to=10), to=1), [(2,)], ["Cast", "Cast"]),
    "reshapes merge": (
        lambda b, x: b.op("Reshape", b.op("Unsqueeze", b.op("Flatten", x), b.ints([0])), b.ints([3, 2])),
        [(2, 3)],
        ["Reshape"],
    ),
    "transposes merge": (
        lambda b, x: b.op("Transpose", b.op("Transpose", x, perm=(1, 2, 0)), perm=(1, 0, 2)),
        [(2, 3, 4)],
        ["Transpose"],
    ),
    "transposes cancel": (
        lambda b, x: b.op("Exp", b.op("Transpose", b.op("Transpose", x, perm=(1, 2, 0)), perm=(2, 0, 1))),
        [(2, 3, 4)],
        ["Exp"],
    ),
    "transpose of ones": (lambda b, x: b.op("Transpose", x, perm=(1, 0, 2)), [(1, 3, 4)], ["Reshape"]),
    "reduction of ones": (lambda b, x: b.op("ReduceSum", x, b.ints([0]), keepdims=0), [(1, 3)], ["Reshape"]),
    "expand before broadcast": (
        lambda b, x, y: b.op("Add", b.op("Expand", x, b.ints([2, 3])), y),
        [(3,), (2, 3)],
        ["Add"],
    ),
    "expand that is needed": (
        lambda b, x: b.op("Add", b.op("Expand", x, b.ints([2, 3])), x),
        [(3,)],
        ["Expand", "Add"],
    ),
    "slice of everything": (lambda b, x: b.op("Exp", b.op("Slice", x, b.ints([0]), b.ints([9]))), [(3,)], ["Exp"]),
    "flip twice stays": (
        lambda b, x: b.op("Slice", x, b.ints([-1]), b.ints([-9]), b.ints([0]), b.ints([-1])),
        [(3,)],
        ["Slice"],
    ),
    "pad by nothing": (lambda b, x: b.op("Exp", b.op("Pad", x, b.ints([0, 0]))), [(3,)], ["Exp"]),
    "bias joins the product": (
        lambda b, x, y: b.op("Add", const(b, np.ones(4)), b.op("MatMul", x, y)),
        [(2, 3), (3, 4)],
        ["Gemm"],
    ),
    "a product with two readers stays": (
        lambda b, x, y: [b.op("Add", b.op("MatMul", x, y), const(b, np.ones(4))), b.op("Exp", b.op("MatMul", x, y))],
        [(2, 3), (3, 4)],
        ["MatMul", "Add", "Exp"],
    ),
    "a bias that broadcasts the product stays": (
        lambda b, x, y: b.op("Add", b.op("MatMul", x, y), const(b, np.ones((5, 2, 4)))),
        [(2, 3), (3, 4)],
        ["MatMul", "Add"],
    ),
    "transposes join the product": (
        lambda b, x, y: b.op("MatMul", b.transpose(x, [1, 0]), b.transpose(y, [1, 0])),
        [(3, 2), (4, 3)],
        ["Gemm"],
    ),
    "an input as output stays": (lambda b, x: [b.op("Identity", x), b.op("Exp", x)], [(2,)], ["Identity", "Exp"]),
    "an output takes the name": (lambda b, x: b.op("Identity", b.op("Exp", x)), [(2,)], ["Exp"]),
}


@pytest.mark.parametrize("name", CASES)
def test_rewrite(name):
    make, shapes, wanted = CASES[name]
    before = built(make, *shapes)
    after = optimize(before)
    assert ops(after) == wanted
    generator = np.random.default_rng(0)
    inputs = {key: generator.standard_normal(before.values[key].shape).astype(np.float32) for key in before.inputs}
    first, second = run_reference(before, inputs), run_reference(after, inputs)
    for key, array in first.items():
        np.testing.assert_allclose(second[key], array, rtol=1e-5, atol=1e-6)


def test_gemm_keeps_the_products_name_and_source():
    b = Builder()
    x, y = b.input("x", "float32", (2, 3)), b.input("y", "float32", (3, 4))
    b.source, b.scope = "model.py:7", "net.fc"
    product = b.op("MatMul", x, b.constant(np.ones((3, 4)), "float32"))
    b.source, b.scope = "model.py:8", "net"
    graph = b.graph("g", [b.op("Add", product, b.constant(np.ones(4), "float32")), b.op("Exp", y)])
    gemm = optimize(graph).nodes[0]
    assert (gemm.op, gemm.name, gemm.source, gemm.scope) == ("Gemm", "mat_mul", "model.py:7", "net.fc")
    assert gemm.attrs["transB"] == 0 and gemm.outputs == ("add",)


def test_batch_norm_folds_into_the_convolution():
    generator = np.random.default_rng(0)

    def make(b, x):
        w, bias = generator.standard_normal((4, 3, 3, 3)), generator.standard_normal(4)
        y = b.op("Conv", x, const(b, w), const(b, bias))
        vectors = [const(b, generator.uniform(0.5, 2, 4)) for _ in range(4)]
        return b.op("BatchNormalization", y, *vectors)

    before = built(make, (2, 3, 6, 5))
    after = optimize(before)
    assert ops(after) == ["Conv"]
    x = {"x0": generator.standard_normal((2, 3, 6, 5)).astype(np.float32)}
    first, second = (next(iter(run_reference(graph, x).values())) for graph in (before, after))
    np.testing.assert_allclose(second, first, rtol=1e-4, atol=1e-4)


def test_node_names_survive():
    def make(b, x, y):
        return b.op("Add", b.op("MatMul", x, b.transpose(y, [1, 0])), const(b, np.ones(4)))

    graph = built(make, (2, 3), (4, 3))
    assert {node.name for node in optimize(graph).nodes} <= {node.name for node in graph.nodes}


def test_passes_do_not_touch_what_they_get():
    graph = built(lambda b, x: b.op("Relu", b.op("Relu", x)), (2,))
    before = text(graph)
    for run in PASSES.values():
        run(graph)
    assert text(graph) == before


def test_a_pass_that_breaks_a_graph_is_named():
    def wrong(graph):
        node = graph.nodes[0]
        broken = Node(node.name, "Concat", node.inputs * 2, node.outputs, {"axis": 0})
        return Graph(graph.name, graph.inputs, graph.outputs, (broken,), graph.values, graph.constants)

    graph = built(lambda b, x: b.op("Relu", x), (2,))
    with pytest.raises(GraphError, match=r"pass wrong: node relu \(Concat\)"):
        optimize(graph, passes={"wrong": wrong})


def test_a_pass_that_changes_the_interface_is_named():
    def wrong(graph):
        nodes = (Node("n", "Relu", ("x0",), ("other",)),)
        values = {"x0": graph.values["x0"], "other": Value("other", "float32", (2,))}
        return Graph(graph.name, graph.inputs, ("other",), nodes, values)

    graph = built(lambda b, x: b.op("Relu", x), (2,))
    with pytest.raises(GraphError, match="pass wrong changed the inputs or outputs"):
        optimize(graph, passes={"wrong": wrong})


def test_a_wrong_graph_is_refused_with_its_node_and_line():
    graph = Graph(
        "g",
        ("x",),
        ("y",),
        (Node("n", "MatMul", ("x", "x"), ("y",), {}, "model.py:5"),),
        {"x": Value("x", "float32", (2, 3)), "y": Value("y", "float32", (2, 3))},
    )
    with pytest.raises(GraphError, match=r"node n \(MatMul\) at model.py:5: cannot contract"):
        optimize(graph)


def test_observer_sees_each_change():
    seen = []
    graph = built(lambda b, x: b.op("Exp", b.op("Neg", b.op("Neg", x))), (2,))
    optimize(graph, observe=lambda name, before, after: seen.append((name, len(before.nodes), len(after.nodes))))
    assert seen[0][0] == "simplify" and seen[-1][2] == 1
