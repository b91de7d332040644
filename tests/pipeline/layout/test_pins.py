"""layout_spec and gemm_layout_spec: what is pinned lies so, what cannot be is said, and results stay right."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from mlsdk.errors import LayoutError
from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.ir.layout import Layout
from mlsdk.pipeline.ir.scheme import Scheme, local_rows, spread
from mlsdk.pipeline.layout import LayoutOptions, pins_of, plan

sys.path.insert(0, str(Path(__file__).parents[1] / "emit"))
from emulated import run

ROWS = "((8_L2B:1,3_L1B:1),(3:2,4_PE:1,2:1,2_W:1);B@[MAB])"  # of singles 24 x 40, whole rows in each MAB
ADD = {"op_type": "Add", "shape": [24, 40], "layout": ROWS}


@pytest.fixture
def graph():
    rng = np.random.default_rng(0)
    w, b = rng.standard_normal((40, 300)).astype(np.float32), rng.standard_normal(40).astype(np.float32)
    shapes = {"x": (24, 40), "s": (24, 40), "t": (24, 40), "y": (24, 300), "w": w.shape, "b": b.shape}
    nodes = (
        Node("Add_0", "Add", ("x", "b"), ("s",)), Node("Tanh_0", "Tanh", ("s",), ("t",)),
        Node("MatMul_0", "MatMul", ("t", "w"), ("y",)),
    )  # fmt: skip
    values = {name: Value(name, "float32", shape) for name, shape in shapes.items()}
    return Graph("g", ("x",), ("y",), nodes, values, {"w": w, "b": b})


def planned(graph, layouts=(), gemms=(), unused=False):
    return plan(graph, LayoutOptions(pins=pins_of(layouts, gemms, unused)))[0]


def layout_of(graph, name, **pins):
    return str(planned(graph, **pins).values[name].layout)


def check(graph, **pins):
    x = np.random.default_rng(1).standard_normal((24, 40)).astype(np.float32)
    pins = {"layouts": (), "gemms": (), "unused_allowed": False, **pins}
    result, _ = run(graph, {"x": x}, pins=pins_of(**pins))
    want = np.tanh(x.astype(np.float64) + graph.constants["b"]) @ graph.constants["w"]
    assert np.abs(result["y"] - want).max() <= 1e-5 * np.abs(want).max()


def test_a_result_lies_where_it_is_fixed(graph):
    fixed = [{"trigger": "FixOutput", "op_type": "Tanh", "shape": [24, 40], "layout": ROWS}]
    assert layout_of(graph, "t") != ROWS
    assert layout_of(graph, "t", layouts=fixed) == ROWS
    check(graph, layouts=fixed)


def test_an_operand_is_switched(graph):
    pins = [{"trigger": "SwitchInput", **ADD}]
    assert layout_of(graph, "x", layouts=pins) == ROWS  # an input lies so from the start
    check(graph, layouts=pins)
    both = [*pins, {"trigger": "SwitchInput", "op_type": "Tanh", "shape": [24, 40],
                    "layout": str(spread((24, 40), 1).layout("single"))}]  # fmt: skip
    assert [n.node.op for n in planned(graph, both).nodes].count("MNCoreLayoutSwitch") >= 1
    check(graph, layouts=both)


def test_a_product_takes_the_way_that_is_pinned(graph):
    first = planned(graph)
    product = next(n for n in first.nodes if n.emitter == "gemm")
    lies = str(first.values[product.node.outputs[0]].layout)
    rows = str(local_rows((24, 300), 1).layout("single"))
    assert lies != rows
    assert layout_of(graph, "y", gemms=[{"key": "w", "C": rows}]) == rows
    check(graph, gemms=[{"key": "w", "C": rows}])
    check(graph, gemms=[{"key": "w", "C": lies}])


@pytest.mark.parametrize(
    ("layouts", "gemms", "told"),
    [
        ([{"trigger": "FixInput", **ADD}], [], "entry 0: trigger is 'FixInput'; write 'SwitchInput' or 'FixOutput'"),
        ([{"op_type": "Add"}], [], "entry 0: missing trigger, shape, layout"),
        ([{"trigger": "FixOutput", **ADD, "dtype": "half"}], [], "entry 0: unknown dtype"),
        ([{"trigger": "FixOutput", **ADD, "shape": "24"}], [], "shape is '24'; write a list of whole numbers"),
        ([{"trigger": "FixOutput", **ADD, "layout": "((8_L2C:1),())"}], [], "entry 0: layout .* expected one of"),
        ([{"trigger": "FixOutput", **ADD, "layout": "((8_L2B:1),(4_PE:1))"}], [], "axis 0 has 24 elements"),
        ([{"trigger": "FixOutput", **ADD, "layout": "((24:40),(40:1))"}], [], "leaves its result in .*;B@"),
        ([{"trigger": "FixOutput", **ADD, "layout": "((8_L2B:1,3_L1B:1),(4_PE:1,5:4,2_W:1))"}], [], "none of the layouts"),
        ([{"trigger": "FixOutput", **ADD, "op_type": "Sub"}], [], "layout_spec FixOutput Sub .*nothing of the graph fits"),
        ([{"trigger": "FixOutput", "op_type": "MatMul", "shape": [24, 300], "layout": "((24:300),(300:1);B@[L2B,L1B,MAB,PE,W])"}],
         [], "leaves its result in"),
        ([], [{"key": "w", "C": ROWS}], "MatMul_0 works with C in"),
        ([], [{"A": ROWS}], "gemm_layout_spec, entry 0: missing key"),
        ([], [{"key": "w", "A": 3}], "a layout is a text"),
        ([], [{"key": "other"}], "gemm_layout_spec other: nothing of the graph fits"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(graph, layouts, gemms, told):
    with pytest.raises(LayoutError, match=told):
        planned(graph, layouts, gemms)


def test_unused_entries_may_be_allowed(graph):
    assert planned(graph, [{"trigger": "FixOutput", **ADD, "op_type": "Sub"}], [{"key": "other"}], unused=True)


@pytest.mark.parametrize("dtype", ["half", "single", "double", "int"])
@pytest.mark.parametrize("shape", [(1,), (5, 24, 40), (3, 1000, 7), (2, 3, 16, 16), ()])
def test_schemes_come_back_from_their_layouts(shape, dtype):
    for lane in (None, *range(len(shape))):
        for build in (spread, local_rows):
            layout = build(shape, lane).layout(dtype)
            assert str(Scheme.of(Layout.parse(str(layout)), dtype).layout(dtype)) == str(layout)


@pytest.mark.parametrize("dtype", ["float", "mixed", "half", "double"])
def test_where_a_result_lies_anyway_it_can_be_pinned(graph, dtype):
    """Also where only products read it, and it is stored as halves."""
    free = plan(graph, LayoutOptions(dtype))[0]
    assert free.values["t"].device_dtype == {"float": "single", "double": "double"}.get(dtype, "half")
    pins = [
        {"trigger": "FixOutput", "op_type": n.op, "shape": list(graph.values[out].shape), "layout": str(free.values[out].layout)}
        for n in graph.nodes for out in n.outputs if out in free.values
    ]  # fmt: skip
    pinned = plan(graph, LayoutOptions(dtype, pins=pins_of(pins, (), False)))[0]
    for pin, out in zip(pins, [out for n in graph.nodes for out in n.outputs if out in free.values]):
        assert str(pinned.values[out].layout) == pin["layout"]
        assert pinned.values[out].device_dtype == free.values[out].device_dtype
