"""What the planner decides: where nodes wait, what becomes one node, which results are halves."""

import numpy as np

from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.layout import LayoutOptions, plan
from mlsdk.pipeline.ops.emitters.fused import FUSED

SHAPE = (256, 1024)


def graph(nodes, inputs, outputs, shapes=None, constants=None):
    constants, shapes = constants or {}, shapes or {}
    names = {name for node in nodes for name in (*node.inputs, *node.outputs)} | set(inputs)
    values = {n: Value(n, "float32", tuple(shapes.get(n, SHAPE))) for n in names}
    values |= {n: Value(n, str(a.dtype), a.shape) for n, a in constants.items()}
    return Graph("g", tuple(inputs), tuple(outputs), tuple(nodes), values, constants)


def placed(g, float_dtype="mixed"):
    return plan(g, LayoutOptions(float_dtype))[0]


def test_state_lies_like_its_gradient():
    """momentum * 0.9 is planned when the sum wants it, so that nothing has to be laid out anew."""
    nodes = [
        Node("decay", "Mul", ("momentum", "rate"), ("kept",)),
        Node("gradient", "MatMul", ("a", "b"), ("g",)),
        Node("sum", "Add", ("kept", "g"), ("next",)),
    ]
    shapes = {"a": (256, 64), "b": (64, 1024), "rate": ()}
    found = placed(graph(nodes, ("momentum", "a", "b"), ("next",), shapes, {"rate": np.array(0.9, np.float32)}))
    assert not [n for n in found.nodes if n.node.op == "MNCoreLayoutSwitch"]
    assert found.values["momentum"].scheme == found.values["next"].scheme


def test_a_node_that_waits_and_nothing_reads_is_planned_too():
    nodes = [Node("twice", "Mul", ("x", "rate"), ("y",)), Node("copy", "Neg", ("y",), ("z",))]
    found = placed(graph(nodes, ("x",), ("z",), {"rate": ()}, {"rate": np.array(2.0, np.float32)}))
    assert {"x", "z"} <= set(found.values)


def test_elementwise_nodes_become_one():
    nodes = [Node("add", "Add", ("x", "y"), ("s",)), Node("relu", "Relu", ("s",), ("r",))]
    found = placed(graph(nodes, ("x", "y"), ("r",)))
    assert [(n.node.name, n.kernel) for n in found.nodes] == [("relu", FUSED)] and "s" not in found.values


def test_a_value_that_others_read_stays():
    nodes = [
        Node("add", "Add", ("x", "y"), ("s",)),
        Node("relu", "Relu", ("s",), ("r",)),
        Node("mul", "Mul", ("s", "r"), ("p",)),
    ]
    found = placed(graph(nodes, ("x", "y"), ("p",)))
    assert "s" in found.values and found.nodes[-1].node.outputs == ("p",)
    found = placed(graph(nodes[:2], ("x", "y"), ("r", "s")))
    assert {"r", "s"} <= set(found.values)


def conv(relu_is_read_alone):
    nodes = [Node("conv", "Conv", ("x", "w"), ("c",), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)})]
    nodes.append(Node("relu", "Relu", ("c",), ("r",)))
    shape = (1, 16, 8, 8)
    shapes = dict.fromkeys(("x", "c", "r"), shape)
    outputs = ("r",) if relu_is_read_alone else ("r", "c")
    return graph(nodes, ("x",), outputs, shapes, {"w": np.ones((16, 16, 3, 3), np.float32)})


def test_relu_is_computed_by_the_convolution_before_it():
    found = placed(conv(True))
    assert [n.node.outputs for n in found.nodes if n.emitter == "conv"] == [("r",)]
    assert "c" not in found.values


def test_a_convolution_whose_result_is_an_output_keeps_it():
    found = placed(conv(False))
    assert [n.node.outputs for n in found.nodes if n.emitter == "conv"] == [("c",)]


def test_statistics_that_live_on_the_board_cost_no_pass():
    """The convolution computes a factor and a shift for each channel, applies them, and rectifies; nothing is laid out anew."""
    nodes = [
        Node("conv", "Conv", ("x", "w"), ("c",), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}),
        Node("norm", "BatchNormalization", ("c", "scale", "bias", "mean", "variance"), ("n",), {"epsilon": 1e-5}),
        Node("relu", "Relu", ("n",), ("r",)),
    ]
    numbers = ("scale", "bias", "mean", "variance")
    shapes = dict.fromkeys(("x", "c", "n", "r"), (1, 16, 8, 8)) | dict.fromkeys(numbers, (16,)) | {"w": (16, 16, 3, 3)}
    found = placed(graph(nodes, ("x", "w", *numbers), ("r",), shapes))
    assert [n.emitter for n in found.nodes if n.emitter != "view"] == ["conv"]
    assert found.nodes[-1].node.outputs == ("r",)


def test_a_volume_is_convolved_as_planes():
    nodes = [Node("conv", "Conv", ("x", "w"), ("c",), {"kernel_shape": (3, 3, 3), "pads": (1,) * 6})]
    shapes = dict.fromkeys(("x", "c"), (1, 16, 4, 8, 8)) | {"w": (16, 16, 3, 3, 3)}
    found = placed(graph(nodes, ("x", "w"), ("c",), shapes))
    assert [n.emitter for n in found.nodes if n.node.op in ("Conv", "MatMul")] == ["conv"]


def test_what_only_products_read_is_stored_as_half():
    nodes = [
        Node("exp", "Exp", ("x",), ("e",)),
        Node("square", "Mul", ("e", "e"), ("s",)),
        Node("product", "MatMul", ("s", "w"), ("y",)),
    ]
    shapes = {"y": (256, 32)}
    weights = {"w": np.ones((1024, 32), np.float32)}
    found = placed(graph(nodes, ("x",), ("y",), shapes, weights))
    assert found.values["s"].device_dtype == "half"
    found = placed(graph(nodes, ("x",), ("y", "s"), shapes, weights))
    assert found.values["s"].device_dtype == "single"
    found = placed(graph(nodes, ("x",), ("y",), shapes, weights), "float")
    assert found.values["s"].device_dtype == "single"


def test_axes_of_size_one_are_dropped_where_they_lie():
    """Also when the other axis has padding, and when the reduced axis left copies in the levels it used."""
    axes = {"axes": np.array([0]), "shape": np.array([10])}
    nodes = [
        Node("sum", "ReduceSum", ("x", "axes"), ("s",), {"keepdims": 1}),
        Node("flat", "Reshape", ("s", "shape"), ("y",)),
    ]
    found = placed(graph(nodes, ("x",), ("y",), {"x": (64, 10), "s": (1, 10), "y": (10,)}, axes))
    assert [n.emitter for n in found.nodes] == ["reduce", "view"]


def test_a_softmax_shares_the_powers_of_the_log_softmax_before_it():
    nodes = [Node("log", "LogSoftmax", ("x",), ("y",), {"axis": 1}), Node("gradient", "Exp", ("y",), ("z",))]
    found = placed(graph(nodes, ("x",), ("y", "z")))
    ops = [n.node.op for n in found.nodes]
    assert ops.count("Exp") == 1 and ops.count("Log") == 1 and ops.count("Div") == 1
    assert {n.node.op for n in found.nodes if "z" in n.node.outputs} <= {"Div", "Identity"}


def test_a_result_of_steps_that_has_its_dtype_is_not_cast():
    nodes = [Node("log", "LogSoftmax", ("x",), ("y",), {"axis": 1})]
    found = placed(graph(nodes, ("x",), ("y",), dict.fromkeys("xy", (64, 10))), "float")
    assert not [n for n in found.nodes if n.kernel.startswith("Cast")]


def test_x_minus_its_maximum_needs_no_place():
    """Exp and the last difference compute it on their way."""
    nodes = [Node("log", "LogSoftmax", ("x",), ("y",), {"axis": 1})]
    found = placed(graph(nodes, ("x",), ("y",), dict.fromkeys("xy", (64, 10))), "float")
    assert [n.kernel or n.emitter for n in found.nodes] == ["reduce", FUSED, "reduce", "Log", FUSED, "view"]
