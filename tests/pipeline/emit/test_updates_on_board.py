"""Weights that a step reads and writes: the forward product, both gradients and the update, against numpy."""

import emulated
import numpy as np
import pytest
from emulated import run

from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.layout import LayoutOptions, plan
from mlsdk.pipeline.schedule import ScheduleOptions
from mlsdk.pipeline.simulate import measure

RATE = 0.25
TOLERANCE = 2**-7  # of block floats and of halves as results, relative to |a| |b|


def step(m, k, n, bias):
    """y = x w^T + b, dw = dy^T x, dx = dy w, next = w - rate dw."""
    inputs = {"x": (m, k), "dy": (m, n), "w": (n, k), **({"b": (n,)} if bias else {})}
    shapes = {**inputs, "y": (m, n), "dw": (n, k), "dx": (m, k), "scaled": (n, k), "next": (n, k)}
    values = {name: Value(name, "float32", shape) for name, shape in shapes.items()}
    values["rate"] = Value("rate", "float32", ())
    nodes = (
        Node("forward", "Gemm", ("x", "w", "b") if bias else ("x", "w"), ("y",), {"transB": 1}),
        Node("back", "MatMul", ("dy", "w"), ("dx",)),
        Node("gradient", "Gemm", ("dy", "x"), ("dw",), {"transA": 1}),
        Node("scale", "Mul", ("dw", "rate"), ("scaled",)),
        Node("update", "Sub", ("w", "scaled"), ("next",)),
    )
    constants = {"rate": np.array(RATE, np.float32)}
    return Graph("step", tuple(inputs), ("y", "dx", "next"), nodes, values, constants)


def placed(graph, dtype="mixed"):
    return plan(graph, LayoutOptions(dtype, {"next": "w"}))[0]


def close(result, a, b, rest=0.0, scale=1.0):
    exact = scale * (a.astype(np.float64) @ b.astype(np.float64)) + rest
    largest = np.abs(a).max() * np.abs(b).max() * a.shape[1] ** 0.5 + np.abs(rest).max()
    np.testing.assert_allclose(result, exact, rtol=0, atol=TOLERANCE * largest)


STEPS = [
    (64, 256, 128, True), (64, 128, 16, False), (7, 128, 10, True), (20, 48, 40, True), (30, 32, 256, False),
    (100, 384, 100, True), (600, 640, 32, True), (16, 1024, 128, True), (13, 16, 8, False), (200, 256, 24, True),
    (1100, 1152, 16, True), (90, 64, 32, True), (16, 256, 336, True), (40, 2048, 128, False),
]  # fmt: skip


def slow(m, k, n, dtype):
    """Many moves to overlap; of each kind a smaller one is left."""
    long = k * n >= 1024 * 128 or m > 600 or (m, dtype) == (600, "half")
    return [pytest.mark.slow] if long else []


@pytest.mark.parametrize(
    ("m", "k", "n", "bias", "dtype"),
    [pytest.param(*shape, dtype, marks=slow(*shape[:3], dtype)) for shape in STEPS for dtype in ("mixed", "half")],
)
def test_a_step_matches_numpy(monkeypatch, m, k, n, bias, dtype):
    monkeypatch.setattr(emulated, "plan", lambda g, o: plan(g, LayoutOptions(o.float_dtype, {"next": "w"})))
    rng = np.random.default_rng(m + k + n)
    graph = step(m, k, n, bias)
    data = {name: rng.standard_normal(graph.values[name].shape).astype(np.float32) for name in graph.inputs}
    found, _ = run(graph, data, dtype)
    again, _ = run(graph, data, dtype, ScheduleOptions("spill_opt", measure, merge=True))
    assert all(found[name].tobytes() == again[name].tobytes() for name in found)
    close(found["y"], data["x"], data["w"].T, data["b"] if bias else np.zeros(1))
    close(found["dx"], data["dy"], data["w"])
    close(found["next"], data["dy"].T, data["x"], data["w"], -RATE)


def two_layers(m, sizes):
    """h = x v^T, y = h w^T, and both updates from a dy."""
    k, h, n = sizes
    shapes = {"x": (m, k), "dy": (m, n), "v": (h, k), "w": (n, h), "h": (m, h), "y": (m, n), "dh": (m, h)}
    shapes |= {f"{kind}{name}": shapes[name] for name in "vw" for kind in ("d", "next_")}
    values = {name: Value(name, "float32", shape) for name, shape in shapes.items()}
    nodes = (
        Node("first", "Gemm", ("x", "v"), ("h",), {"transB": 1}),
        Node("second", "Gemm", ("h", "w"), ("y",), {"transB": 1}),
        Node("back", "MatMul", ("dy", "w"), ("dh",)),
        Node("of w", "Gemm", ("dy", "h"), ("dw",), {"transA": 1}),
        Node("of v", "Gemm", ("dh", "x"), ("dv",), {"transA": 1}),
        Node("new w", "Sub", ("w", "dw"), ("next_w",)),
        Node("new v", "Sub", ("v", "dv"), ("next_v",)),
    )
    return Graph("layers", ("x", "dy", "v", "w"), ("y", "next_v", "next_w"), nodes, values, {})


@pytest.mark.parametrize(
    ("m", "sizes"),
    [
        (64, (1024, 256, 10)),
        (20, (128, 128, 128)),
        pytest.param(48, (256, 384, 256), marks=pytest.mark.slow),
        pytest.param(700, (128, 256, 24), marks=pytest.mark.slow),
    ],
)
def test_every_other_layer_sums_between_the_l2bs(m, sizes):
    rng = np.random.default_rng(m)
    graph, fixed = two_layers(m, sizes), {"next_v": "v", "next_w": "w"}
    data = {name: rng.standard_normal(graph.values[name].shape).astype(np.float32) for name in graph.inputs}
    found, _ = run(graph, data, "mixed", fixed=fixed)
    again, _ = run(graph, data, "mixed", ScheduleOptions("spill_opt", measure, merge=True), fixed=fixed)
    assert all(found[name].tobytes() == again[name].tobytes() for name in found)
    h, dh = data["x"] @ data["v"].T, data["dy"] @ data["w"]
    close(found["y"], h, data["w"].T)
    close(found["next_w"], data["dy"].T, h, data["w"], -1)
    close(found["next_v"], dh.T, data["x"], data["v"], -1)
    lying, _ = plan(graph, LayoutOptions("mixed", fixed))
    switched = [n.node.inputs[0] for n in lying.nodes if n.node.op == "MNCoreLayoutSwitch"]
    assert "h" not in switched or m > 512 or m % 16  # it goes on as it was left, unless its padding has to be zero


def kernels(graph, dtype="mixed"):
    return {n.node.name.split(".")[0]: n.kernel for n in placed(graph, dtype).nodes if n.emitter == "gemm"}


def test_weights_and_their_gradient_lie_alike():
    """Nothing of the weights' size is laid out anew where n and k fill the levels."""
    found = placed(step(64, 1024, 256, True))
    sizes = [found.values[n.node.inputs[0]].shape for n in found.nodes if n.node.op == "MNCoreLayoutSwitch"]
    assert sizes.count((256, 1024)) == 1  # what dx wants: w along n, which the L2Bs share out
    assert found.values["next"].layout == found.values["w"].layout
    assert found.values["dw"].scheme == found.values["w"].scheme if "dw" in found.values else True
    assert not found.values["w"].layout.broadcast  # each element is at one place


def test_blocks_are_read_across_where_rows_are_lanes():
    assert kernels(step(64, 1024, 256, True)) == {"forward": "hm", "back": "hs", "gradient": "hst"}
    assert kernels(step(64, 1024, 48, True)) == {"forward": "hm", "back": "hst", "gradient": "hst"}
    assert kernels(step(64, 1024, 48, True), "half") == {"forward": "h", "back": "ht", "gradient": "ht"}


def test_weights_that_nobody_writes_are_only_read():
    graph = step(64, 1024, 256, True)
    found, _ = plan(graph, LayoutOptions("mixed"))
    assert found.values["w"].scheme is None


def test_padding_of_weights_stays_zero_without_another_move():
    """10 of 16 MABs have rows of w; the gradient is computed from a dy whose padding is zero, so that next's is, too."""
    found = placed(step(64, 128, 10, True))
    moved = [found.values[n.node.inputs[0]].shape for n in found.nodes if n.node.op == "MNCoreLayoutSwitch"]
    assert (10, 128) not in moved
    assert found.values[found.outputs[2]].pad == "zero"
