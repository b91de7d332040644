"""The parts below the pages, each against another way to the same answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import astuple

import numpy as np
import onnx
import pytest
from dashboard_sample import graph
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from mlsdk.cli.dashboard import emitters, formats, vsm, words
from mlsdk.cli.dashboard.flops import flops
from mlsdk.cli.dashboard.hierarchy import LEVELS, read_layout
from mlsdk.cli.dashboard.layers import Joiner, bound_of, busy_steps
from mlsdk.cli.dashboard.onnx_nodes import read_onnx
from mlsdk.cli.dashboard.pages import advice, memory, search
from mlsdk.cli.dashboard.pages.logs import level_of
from mlsdk.cli.dashboard.problems import Problem
from mlsdk.cli.dashboard.tables import Column, as_csv
from mlsdk.pipeline.ir.layout import Layout

LAYOUTS = [
    ("((8_L2B:1,8_L1B:1),(4:2,4_PE:1,2:1,2_W:1);B@[MAB])", (64, 64)),
    ("((4:128,16:2),(4:32,4_PE:1,2:1,2_W:1);B@[L2B,L1B,MAB])", (64, 64)),
    ("((16_MAB:1,3:4),(2:2,2:1),(4_PE:1);B@[2_L1B:4])", (40, 3, 4)),
    ("((2_Time:1,8_L2B:1),(5:1))", (15, 5)),
]


@pytest.mark.parametrize(("text", "shape"), LAYOUTS)
def test_places_are_those_of_the_compilers_own_layouts(text, shape):
    ours, theirs = read_layout(text), Layout.parse(text)
    for level in LEVELS:
        wanted = theirs.positions(shape, level)
        assert ours.span(level) == theirs.span(level)
        for index in np.ndindex(*shape):
            assert ours.position(index)[level] == wanted[index]


@pytest.mark.parametrize(("text", "shape"), LAYOUTS)
def test_what_a_place_holds_is_what_lies_there(text, shape):
    spread = read_layout(text)
    for level in ("L2B", "L1B", "MAB", "PE"):
        there = {spread.position(index)[level] for index in np.ndindex(*shape)}
        for place in range(8 if level in ("L2B", "L1B") else 16 if level == "MAB" else 4):
            kind = spread.held(level, place, shape).kind
            assert (kind == "holds") == (place in there), (level, place, kind)


@pytest.mark.parametrize("text", ["", "x", "((8_L9B:1))", "((a))", "(" * 1000, "((1),(2)"])
def test_other_texts_are_no_layouts(text):
    with pytest.raises(Problem):
        read_layout(text)


def test_the_wire_format_is_read_as_onnx_reads_it():
    data = graph().to_onnx()
    ours, theirs = read_onnx(data, "x.onnx"), onnx.load_from_string(data).graph
    assert [(n.name, n.op, n.inputs, n.outputs) for n in ours.nodes] == [
        (n.name, n.op_type, list(n.input), list(n.output)) for n in theirs.node
    ]
    for mine, other in zip(ours.nodes, theirs.node):
        assert mine.attrs == {a.name: helper.get_attribute_value(a) for a in other.attribute}
    assert ours.inputs == [i.name for i in theirs.input]
    assert ours.initializers == len(theirs.initializer)


def test_attributes_of_every_kind():
    node = helper.make_node(
        "Op", ["a"], ["b"], name="n", domain="mlsdk", i=-3, f=0.5, s="text", ints=[1, -2], floats=[0.25], empty=[0],
        t=helper.make_tensor("t", TensorProto.FLOAT, [2], [1.0, 2.0]), strings=["x", "y"],
    )  # fmt: skip
    model = helper.make_model(helper.make_graph([node], "g", [], []))
    found = read_onnx(model.SerializeToString(), "x.onnx").nodes[0]
    assert found.domain == "mlsdk"
    assert found.attrs == {
        "i": -3, "f": 0.5, "s": "text", "ints": [1, -2], "floats": [0.25], "empty": [0], "t": "tensor float32[2]",
        "strings": ["x", "y"],
    }  # fmt: skip


@pytest.mark.parametrize("cut", [0, 1, 7, 100, -1])
def test_what_is_no_onnx_is_said(cut):
    with pytest.raises(Problem, match=r"x\.onnx is not an ONNX model"):
        read_onnx(graph().to_onnx()[:cut], "x.onnx")


def test_flops():
    assert flops("Gemm", {"transA": 1}, [[8, 4], [8, 2]], [[4, 2]]) == 2 * 4 * 2 * 8
    assert flops("MatMul", {}, [[3, 4, 5], [5, 6]], [[3, 4, 6]]) == 2 * 3 * 4 * 6 * 5
    assert flops("Conv", {}, [[1, 4, 9, 9], [8, 2, 3, 3]], [[1, 8, 7, 7]]) == 2 * 8 * 49 * 2 * 9
    assert flops("Relu", {}, [[3]], [[3]]) == 3
    assert flops("Transpose", {}, [[3, 4]], [[4, 3]]) == 0
    assert flops("Relu", {}, [None], [None]) == 0
    fused = {"steps": ['["Add", [0, 1], {}]', '["Cast", [2], {"to": 10}]', '["Relu", [3], {}]']}
    assert flops("Relu", fused, [[3, 4], [3, 4]], [[3, 4]]) == 2 * 12


def test_bounds():
    assert bound_of(100, 90, 0, 10)[:2] == ("compute", 0.9)
    assert bound_of(100, 10, 256 * 80, 90)[:2] == ("DRAM", 0.8)
    assert bound_of(100, 10, 256 * 10, 90)[:2] == ("moves", 0.9)
    flows = [
        {"node": "a", "start": 0, "end": 40},
        {"node": "a", "start": 20, "end": 60},
        {"node": "a", "start": 80, "end": 84},
    ]
    assert busy_steps(flows) == {"a": 16.0}


def joined() -> Joiner:
    """`a` runs twice; its first result stays in lm1 and is read by `b`, through a view of it, and by `b` a second time."""
    layout = "((4:2,4_PE:1,2:1,2_W:1))"
    values = [
        {"name": name, "dtype": "float32", "device_dtype": "single", "shape": [64], "layout": layout, "origin": "node",
         "pad": "zero"} for name in ("x", "p", "v", "y")
    ]  # fmt: skip

    def node(name, op, inputs, outputs, emitter):
        return {"name": name, "op": op, "inputs": inputs, "outputs": outputs, "attrs": {}, "emitter": emitter, "kernel": "",
                "batches": 1}  # fmt: skip

    nodes = [
        node("a", "Relu", ["x"], ["p"], "elementwise"),
        node("view", "Reshape", ["p"], ["v"], "view"),
        node("b", "Add", ["v", "p"], ["y"], "elementwise"),
    ]
    steps = [
        ["a", "p stays in lm1 for 2 reads", [], [[0, "lm1", 96]], [0]],
        ["view", ""],
        ["b", "", [[0, "lm1", 96], [1, "lm1", 96]], [], []],
        ["a", "computed again"],
    ]

    def row(name, start, end):
        return {
            "node": name,
            "op": "Op",
            "start": start,
            "end": end,
            "pe_steps": 2,
            "stall": 4,
            "moves": 1,
            "dram_lw": 8,
        }

    simulation = {"rows": [row("a", 0, 40), row("b", 40, 100), row("a", 100, 120)], "steps": 30, "flows": []}
    placed = {"values": values, "nodes": nodes}
    return Joiner(placed, {"steps": steps, "slots": {"y": ["work", 0]}}, simulation, None, {})


def test_a_node_that_runs_twice_is_one_layer():
    joiner = joined()
    layers = [joiner.layer(at) for at in range(len(joiner.order))]
    assert [(one["name"], one["turns"], one["steps"], one["moves"]) for one in layers] == [
        ("a", 2, 15, 2),
        ("view", 1, None, None),
        ("b", 1, 15, 1),
    ]
    assert sum(one["steps"] or 0 for one in layers) == joiner.total
    assert sum(one["share"] or 0 for one in layers) == 1
    assert [(turn.layer, turn.start, turn.end) for turn in joiner.turns] == [
        (0, 0, 40), (1, 40, 40), (2, 40, 100), (0, 100, 120),
    ]  # fmt: skip
    assert layers[0]["note"] == "p stays in lm1 for 2 reads; computed again"


def test_what_takes_no_steps_has_no_bound():
    joiner = joined()
    joiner.rows["a"].update(start=0, end=0, pe_steps=0, moves=0)  # as the simulation writes a node on the host
    assert [(one["bound"], one["limits"]) for one in (joiner.layer(0), joiner.layer(1))] == [(None, {}), (None, {})]
    assert joiner.layer(2)["bound"] is not None


def test_values_that_stay_in_local_memory():
    joiner = joined()
    # 64 singles over 4 PEs, two in a long word: 8 long words, 16 words
    assert [astuple(stay) for stay in joiner.stays] == [("p", "lm1", 96, 16, 0, 2, True, 2)]
    assert joiner.held == {
        (0, "output", "p"): "lm1+96",
        (2, "input", "v"): "lm1+96",
        (2, "input", "p"): "lm1+96",
    }
    assert [joiner.layer(at)["location"] for at in range(3)] == ["lm1+96", "", "DRAM work+0"]


@given(
    st.lists(st.tuples(st.integers(0, 4000), st.integers(1, 90)), min_size=1, max_size=12),
    st.integers(4096, 9000),
)
def test_a_picture_of_memory_keeps_the_order_of_addresses(boxes, top):
    """What is left out is used by nobody; every box keeps its height by one factor, and nothing leaves the picture."""
    drawn = [{"y0": low, "y1": low + size} for low, size in boxes]
    scale = memory.Scale.of(drawn, top)
    assert all(box["y1"] <= scale.low or box["y0"] >= scale.high for box in drawn)
    places = sorted(
        {0, top, *(box[key] for box in drawn for key in ("y0", "y1"))} - {a for a in (top,) if scale.high == top}
    )
    heights = [scale.y(address) for address in places]
    assert heights == sorted(heights, reverse=True)
    assert all(8 - 1e-6 <= height <= memory.HEIGHT - memory.BOTTOM for height in heights)
    factors = {round((scale.y(box["y0"]) - scale.y(box["y1"])) / (box["y1"] - box["y0"]), 6)
               for box in drawn if box["y1"] < scale.high or box["y0"] >= scale.high}  # fmt: skip
    assert len(factors) <= 1


def test_rows_of_the_planners_history():
    assert search.trial_of("Gemm", "tried and kept: 120 -> 100 steps") == search.Trial("Gemm", "kept", 100, 120)
    assert search.trial_of("Gemm", "tried and dropped: 130 steps, not 100") == search.Trial("Gemm", "dropped", 130, 100)
    impossible = search.trial_of("Gemm", "tried, and not possible: no room\nin LM0")
    assert impossible == search.Trial("Gemm", "impossible", why="no room\nin LM0")
    assert search.trial_of("x", "result of Gemm") is None


def test_the_advice_knows_how_far_the_planner_looks():
    from mlsdk.pipeline.layout import TRIALS

    assert {**advice.TRIALS, "full": TRIALS["full"]} == TRIALS
    assert all(TRIALS[farther] > TRIALS[mode] for mode, farther in advice.FARTHER.items())


def test_each_way_to_multiply_has_a_meaning():
    from mlsdk.pipeline.ir.placed import ON_HOST, VIEW
    from mlsdk.pipeline.ops.emitters.gemm_modes import MODES

    assert emitters.PRODUCTS.keys() == MODES.keys()
    assert {ON_HOST, VIEW} <= emitters.EMITTERS.keys()
    crossed = {name for name in MODES if "across (transposed" in emitters.meaning(f"gemm:{name}")}
    assert crossed == {name for name, mode in MODES.items() if mode.across}
    assert (
        emitters.meaning("elementwise:Add") == emitters.EMITTERS["elementwise"] != emitters.meaning("elementwise:fused")
    )
    assert emitters.meaning("softmax") == ""


def test_program_parts():
    text = b"nop\n#@ a\nfvadd $lm0v $ln[0,2,4,100] $lr0\nd\n#@ b\nipassa $mt8 $llm4080v # note\n"
    found = list(vsm.parts(text[i : i + 7] for i in range(0, len(text), 7)))
    assert [(p.node, p.first_line, p.lines) for p in found] == [("", 1, 1), ("a", 2, 3), ("b", 5, 2)]
    assert found[1].high == {"m": 8, "n": 102}
    assert found[2].indirect and found[2].high == {"m": 4096}
    assert list(vsm.runs(found[1].touched["n"])) == [(0, 16), (96, 112)]
    assert list(vsm.runs(0b1101)) == [(0, 16), (32, 64)]
    assert found[2].mix == {"ipassa": 1}


def test_csv_is_no_formula():
    text = as_csv([Column("a", "A"), Column("b", "B")], [{"a": "=1+1", "b": 2}, {"a": 'x,"y"', "b": None}])
    assert text == 'A,B\r\n\'=1+1,2\r\n"x,""y""",\r\n'


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("E1129 12:00:00.0 1 x.cc:1] no", "ERROR"),
        ("2026-11-29 Emit: built", "INFO"),
        ("WARNING:root:x", "WARNING"),
        ("2026-11-29 Emit: failed", "ERROR"),
    ],
)
def test_levels_of_lines(text, level):
    assert level_of(text) == level


def test_numbers_for_people():
    assert formats.shown(None) == "–"
    assert formats.shown(1536, "bytes") == "1.5 KiB"
    assert formats.shown(0.5, "percent") == "50.0 %"
    assert formats.shown(614_000, "scaled") == "614 k"
    assert formats.shown(float("inf"), "int") == "inf"
    assert formats.shown(2500.0, "us") == "2.5 ms"
    assert formats.shown([1, 2]) == "[1, 2]"


def test_languages():
    assert words.language_of("ja") == "ja"
    assert words.language_of("en;q=0.2,ja-JP;q=0.9") == "ja"
    assert words.language_of("ja;q=0, de") == "en"
    assert words.language_of(";q=x,,") == "en"


def test_nothing_large_is_imported():
    code = (
        "import sys, mlsdk.cli.dashboard.server, mlsdk.cli.dashboard.build_index\n"
        "print([m for m in ('torch', 'numpy', 'onnx', 'luigi', 'sqlalchemy', 'numba') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_old_indexes_go(folder, monkeypatch):
    from mlsdk.cli.dashboard import index
    from mlsdk.cli.dashboard.sources import Folder

    monkeypatch.setattr(index, "KEPT", 2)
    indexes = index.Indexes()
    paths = []
    for number in range(4):
        (folder / "sources.json").write_text(json.dumps({"a": {"source": f"a.py:{number}", "scope": ""}}))
        paths.append(indexes.of(Folder(folder), 60).path)
    assert len(set(paths)) == 4
    for thread in list(indexes._making.values()):
        thread.join()
    assert [os.path.exists(path) for path in paths] == [False, False, True, True]
    indexes.close()


def test_a_process_of_its_own_makes_the_same_index(folder, monkeypatch):
    from mlsdk.cli.dashboard import index
    from mlsdk.cli.dashboard.sources import Folder

    first, second = index.Indexes(), index.Indexes()
    inside = first.of(Folder(folder), 60)
    monkeypatch.setattr(index, "INSIDE", -1)
    outside = second.of(Folder(folder), 60)
    for table in ("layer", "value", "usage", "part", "node", "fact"):
        assert inside.rows(f"SELECT * FROM {table}") == outside.rows(f"SELECT * FROM {table}")
    with pytest.raises(Problem, match="being indexed"):
        (folder / "sources.json").write_text("{}")
        second.of(Folder(folder), 0)
    first.close()
    second.close()
