"""Random graphs give the same results before and after optimisation, and the same graph each time."""

from __future__ import annotations

import warnings

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlsdk.pipeline.ir.graph import Graph
from mlsdk.pipeline.ops.check import check
from mlsdk.pipeline.ops.interpreter import run_reference
from mlsdk.pipeline.optimize import optimize
from mlsdk.pipeline.trace.builder import Builder

EXTENTS = st.sampled_from([1, 2, 3])
UNARY = ("Neg", "Relu", "Abs", "Exp", "Tanh", "Identity", "Floor")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")


class Maker:
    """Draws nodes over the values so far; all are float32."""

    def __init__(self, draw):
        self.draw = draw
        self.b = Builder()
        self.pool = [
            self.b.input(f"x{i}", "float32", draw(st.lists(EXTENTS, max_size=3)))
            for i in range(draw(st.integers(1, 2)))
        ]
        for _ in range(draw(st.integers(0, 2))):
            self.pool.append(self.constant(tuple(draw(st.lists(EXTENTS, max_size=3)))))

    def constant(self, shape):
        fill = self.draw(st.sampled_from(["zeros", "ones", "numbers"]))
        if fill == "numbers":
            data = np.random.default_rng(self.draw(st.integers(0, 99))).standard_normal(shape)
        else:
            data = getattr(np, fill)(shape)
        return self.b.constant(data, "float32", name="c")

    def pick(self):
        return self.draw(st.sampled_from(self.pool))

    def step(self):
        kind = self.draw(st.sampled_from(sorted(k for k in dir(self) if k.startswith("make_"))))
        made = getattr(self, kind)()
        if made is not None:
            self.pool.append(made)

    def make_unary(self):
        return self.b.op(self.draw(st.sampled_from(UNARY)), self.b.op("Clip", self.pick(), *self.limits()))

    def limits(self):
        return self.b.scalar(-4, "float32"), self.b.scalar(4, "float32")

    def make_plain(self):
        return self.b.op(self.draw(st.sampled_from(("Neg", "Relu", "Abs", "Identity"))), self.pick())

    def make_binary(self):
        a, c = self.pick(), self.pick()
        try:
            np.broadcast_shapes(a.shape, c.shape)
        except ValueError:
            return None
        return self.b.op(self.draw(st.sampled_from(BINARY)), a, c)

    def make_reshape(self):
        x = self.pick()
        shapes = [(x.size,), (1, x.size), (*x.shape, 1), (1, *x.shape)]
        return self.b.op("Reshape", x, self.b.ints(self.draw(st.sampled_from(shapes))))

    def make_transpose(self):
        x = self.pick()
        return self.b.op("Transpose", x, perm=tuple(self.draw(st.permutations(range(len(x.shape))))))

    def make_expand(self):
        x = self.pick()
        return self.b.op("Expand", x, self.b.ints((self.draw(EXTENTS), *x.shape))) if len(x.shape) < 4 else None

    def make_reduce(self):
        x = self.pick()
        if not x.shape:
            return None
        axis = self.draw(st.integers(0, len(x.shape) - 1))
        op = self.draw(st.sampled_from(("ReduceSum", "ReduceMax", "ReduceMean")))
        return self.b.op(op, x, self.b.ints([axis]), keepdims=self.draw(st.integers(0, 1)))

    def make_product(self):
        x = self.pick()
        if len(x.shape) < 2:
            return None
        y = self.constant((x.shape[-1], self.draw(EXTENTS)))
        if self.draw(st.booleans()):
            y = self.b.op("Transpose", self.b.op("Transpose", y, perm=(1, 0)), perm=(1, 0))
        product = self.b.op("MatMul", x, y)
        return self.b.op("Add", product, self.constant((product.shape[-1],))) if self.draw(st.booleans()) else product

    def make_slice(self):
        x = self.pick()
        if not x.shape:
            return None
        axis = self.draw(st.integers(0, len(x.shape) - 1))
        start = self.draw(st.integers(0, x.shape[axis] - 1))
        return self.b.op("Slice", x, self.b.ints([start]), self.b.ints([9]), self.b.ints([axis]))

    def make_concat(self):
        x = self.pick()
        return self.b.op("Concat", x, x, axis=0) if x.shape and x.size < 200 else None

    def make_cast(self):
        return self.b.op("Cast", self.b.op("Cast", self.pick(), to=self.draw(st.sampled_from([11, 10]))), to=1)

    def make_where(self):
        x = self.pick()
        condition = self.b.op("Less", x, self.b.scalar(self.draw(st.sampled_from([-1e9, 0, 1e9])), "float32"))
        return self.b.where(condition, x, self.b.op("Neg", x))


@st.composite
def graphs(draw):
    maker = Maker(draw)
    for _ in range(draw(st.integers(1, 9))):
        maker.step()
    made = [value for value in maker.pool if value.name not in maker.b.inputs and value.name not in maker.b.constants]
    if not made:
        made = [maker.b.op("Identity", maker.pool[0])]
    outputs = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique_by=lambda value: value.name))
    return maker.b.graph("random", outputs)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs(), st.integers(0, 3))
def test_optimisation_keeps_results(graph, seed):
    after = optimize(graph)
    check(after)
    assert {node.name for node in after.nodes} <= {node.name for node in graph.nodes}
    generator = np.random.default_rng(seed)
    inputs = {name: generator.standard_normal(graph.values[name].shape).astype(np.float32) for name in graph.inputs}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, second = run_reference(graph, inputs), run_reference(after, inputs)
    for name, array in first.items():
        np.testing.assert_allclose(second[name], array, rtol=1e-4, atol=1e-4)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_optimisation_is_deterministic_and_final(graph):
    once = optimize(graph)
    assert optimize(Graph.from_onnx(graph.to_onnx())).to_onnx() == once.to_onnx()
    assert optimize(once) is once
