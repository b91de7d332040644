"""Elementwise nodes in one formula: constants of one value, truth values between floats, and lanes that are cleared."""

from dataclasses import replace

import numpy as np
import pytest
from emulated import compiled, execute_plan, fetch, run

from mlsdk.pipeline.ir.graph import Graph, Node, Value


def chain(nodes, inputs, constants, outputs, shape, dtypes):
    values = {n: Value(n, dtypes.get(n, "float32"), shape) for node in nodes for n in (*node.inputs, *node.outputs)}
    values |= {n: Value(n, str(a.dtype), a.shape) for n, a in constants.items()}
    return Graph("chain", inputs, outputs, tuple(nodes), values, constants)


@pytest.mark.parametrize("dtype", ["float", "mixed", "half", "double"])
@pytest.mark.parametrize("shape", [(7, 10), (64,), (33, 48)])
def test_labels_that_are_ignored(shape, dtype):
    """where(t == -100, 0.5, x * 3) and the labels with 0 in their place."""
    nodes = (
        Node("equal", "Equal", ("t", "ignored"), ("hit",)),
        Node("not", "Not", ("hit",), ("kept",)),
        Node("scaled", "Mul", ("x", "three"), ("y",)),
        Node("chosen", "Where", ("kept", "y", "half"), ("out",)),
        Node("labels", "Where", ("kept", "t", "zeros"), ("label",)),
    )
    constants = {
        "ignored": np.array(-100, np.int64),
        "three": np.full(shape, 3, np.float32),
        "half": np.array([0.5], np.float32),
        "zeros": np.zeros(shape, np.int64),
    }
    dtypes = {"t": "int64", "label": "int64", "hit": "bool", "kept": "bool"}
    graph = chain(nodes, ("t", "x"), constants, ("out", "label"), shape, dtypes)
    rng = np.random.default_rng(0)
    t = rng.integers(0, 9, shape)
    t[rng.random(shape) < 0.3] = -100
    x = rng.integers(-40, 40, shape).astype(np.float32)
    found, _ = run(graph, {"t": t, "x": x}, dtype)
    np.testing.assert_array_equal(found["out"], np.where(t == -100, np.float32(0.5), 3 * x))
    np.testing.assert_array_equal(found["label"], np.where(t == -100, 0, t))
    placed = compiled(graph, dtype)[0]
    assert not {"ignored", "zeros"} & set(placed.values)
    assert sum(n.emitter == "elementwise" for n in placed.nodes) <= (4 if dtype == "double" else 3)


@pytest.mark.parametrize("dtype", ["float", "mixed", "half", "double"])
@pytest.mark.parametrize("shape", [(10,), (5, 10), (130, 21), (3, 40, 9)])
def test_lanes_that_a_program_hands_on_are_zero(shape, dtype):
    """The new value of w lies like w, with zeros where nothing of it lies, and nothing is moved for that."""
    graph = chain((Node("exp", "Exp", ("w",), ("next",)),), ("w",), {}, ("next",), shape, {})
    w = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    placed, plan, program, tables = compiled(graph, dtype, fixed={"next": "w"})
    found, _ = execute_plan(graph, {"w": w}, placed, plan, program, tables)
    np.testing.assert_allclose(found["next"], np.exp(w), rtol=2**-8)
    value, slot = placed.values[placed.outputs[0]], plan.slots[placed.outputs[0]]
    image = fetch(program.addresses()[slot.segment] + slot.offset, value.image.group_size)
    whole = replace(value.image, shape=value.scheme.extents).unpack(image)
    inside = np.zeros(whole.shape, bool)
    inside[tuple(map(slice, shape))] = True
    assert value.pad == "zero" and not whole[~inside].any() and (~inside).any()
    assert [n.emitter for n in placed.nodes].count("move") == (len(shape) > 1)  # more than lanes is padding
