"""Graph: validation, text, ONNX form."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsdk.errors import GraphError
from mlsdk.pipeline.ir.graph import DTYPES, Graph, Node, Value, sources, text, with_sources
from mlsdk.pipeline.ir.onnx_io import IR_VERSION, OPSET, from_onnx, read_parts, to_onnx


def value(name, shape=(2, 3), dtype="float32"):
    return Value(name, dtype, shape)


def linear(**changes):
    parts = {
        "name": "linear",
        "inputs": ("x",),
        "outputs": ("y",),
        "nodes": (
            Node("product", "MatMul", ("x", "w"), ("p",), {}, "model.py:3", "net.fc"),
            Node("sum", "Add", ("p", "b"), ("y",), {}, "model.py:4", "net"),
        ),
        "values": {
            v.name: v
            for v in (value("x"), value("w", (3, 4)), value("b", (4,)), value("p", (2, 4)), value("y", (2, 4)))
        },
        "constants": {"w": np.ones((3, 4), np.float32), "b": np.arange(4, dtype=np.float32)},
    }
    return Graph(**{**parts, **changes})


def test_graph_answers_questions():
    graph = linear()
    assert graph.producers["y"].name == "sum"
    assert [node.name for node in graph.consumers["p"]] == ["sum"]
    assert graph.operands(graph.nodes[0]) == [graph.values["x"], graph.values["w"]]
    assert graph.results(graph.nodes[0]) == [graph.values["p"]]
    assert value("x").size == 6 and value("x").nbytes == 24 and value("s", ()).size == 1


def test_text_is_canonical():
    assert text(linear()) == (
        "graph linear\n"
        "input x: float32[2,3]\n"
        "const w: float32[3,4] = [1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0]\n"
        "const b: float32[4] = [0.0,1.0,2.0,3.0]\n"
        "p: float32[2,4] = MatMul(x, w)\n"
        "y: float32[2,4] = Add(p, b)\n"
        "return y\n"
    )
    assert "# model.py:3 net.fc" in text(linear(), sources=True)


def test_a_graph_cannot_be_written_through():
    array = np.ones((3, 4), np.float32)
    graph = linear(constants={"w": array, "b": np.zeros(4, np.float32)})
    with pytest.raises(ValueError):
        graph.constants["w"][0, 0] = 2
    with pytest.raises(TypeError):
        graph.values["z"] = value("z")
    with pytest.raises(TypeError):
        graph.nodes[0].attrs["axis"] = 1


two = Node("two", "Add", ("x", "x"), ("y",))
BROKEN = {
    "value twice": (dict(nodes=(*linear().nodes, Node("n", "Add", ("p", "b"), ("y",)))), "value y is defined twice"),
    "node twice": (dict(nodes=(linear().nodes[0], Node("product", "Add", ("p", "b"), ("y",)))), "used twice"),
    "order": (dict(nodes=linear().nodes[::-1]), "reads p before it is defined"),
    "unknown": (dict(outputs=("z",)), "output z is not defined"),
    "output twice": (dict(outputs=("y", "y")), "listed twice"),
    "dtype": (dict(values={**linear().values, "p": value("p", (2, 4), "int8")}), "has dtype int8"),
    "shape": (dict(values={**linear().values, "p": value("p", (2, -4))}), "extents are integers"),
    "data": (dict(constants={"w": np.ones((3, 4)), "b": np.zeros(4, np.float32)}), "declared float32"),
    "stray": (dict(values={**linear().values, "q": value("q")}), "value q is not an input"),
    "untyped": (dict(values={k: v for k, v in linear().values.items() if k != "p"}), "has no dtype and shape"),
    "no output": (dict(nodes=(*linear().nodes, Node("n", "Add", ("p", "b"), ()))), "has no output"),
    "renamed": (dict(values={**linear().values, "p": value("q", (2, 4))}), "stored under the name p"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_graph_is_refused(name):
    changes, message = BROKEN[name]
    with pytest.raises(GraphError, match=message):
        linear(**changes)


def test_attributes_are_canonical():
    node = Node("n", "Op", ("x",), ("y",), {"b": [1, 2], "a": 0.1, "c": True, "d": [1, 0.5], "e": np.int32(3)})
    assert list(node.attrs) == ["a", "b", "c", "d", "e"]
    assert node.attrs["a"] == 0.1 and node.attrs["b"] == (1, 2)
    assert node.attrs["c"] == 1 and node.attrs["d"] == (1.0, 0.5) and type(node.attrs["e"]) is int
    with pytest.raises(GraphError, match="attribute a is object"):
        Node("n", "Op", ("x",), ("y",), {"a": object()})


def test_a_graph_holds_the_attributes_that_onnx_stores():
    x = Value("x", "float32", (2,))
    attrs = {"alpha": 0.1, "scales": [0.1, 2.0], "axis": 1, "name": "s", "value": np.arange(3)}
    graph = Graph(
        "g", ("x",), ("y",), (Node("n", "Op", ("x",), ("y",), attrs),), {"x": x, "y": Value("y", "float32", (2,))}
    )
    (node,) = graph.nodes
    assert node.attrs["alpha"] == float(np.float32(0.1)) and node.attrs["scales"] == (float(np.float32(0.1)), 2.0)
    assert node.attrs["axis"] == 1 and node.attrs["name"] == "s" and node.attrs["value"].tolist() == [0, 1, 2]


def test_nodes_are_equal_by_content():
    def node(data):
        return Node("n", "Op", ("x",), ("y",), {"t": np.array(data)})

    assert node([1, 2]) == node([1, 2]) and hash(node([1, 2])) == hash(node([1, 2]))
    assert node([1, 2]) != node([1, 3])
    assert Node("n", "Op", ("x",), ("y",), {"a": 1}) != Node("n", "Op", ("x",), ("y",), {"a": 1.0})


# --- ONNX ---


def test_onnx_round_trip_keeps_everything_but_sources():
    graph = linear()
    again = from_onnx(to_onnx(graph))
    assert text(again) == text(graph)
    assert to_onnx(again) == to_onnx(graph)
    assert all(node.source == "" for node in again.nodes)
    assert text(with_sources(again, sources(graph)), sources=True) == text(graph, sources=True)


def test_onnx_is_valid_and_plain():
    model = onnx.load_from_string(to_onnx(linear()))
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == IR_VERSION and [e.version for e in model.opset_import] == [OPSET]
    assert not model.producer_name and not model.metadata_props and not model.doc_string
    assert not any(node.doc_string or node.metadata_props for node in model.graph.node)


def test_sources_do_not_enter_the_bytes():
    plain = linear(nodes=tuple(Node(n.name, n.op, n.inputs, n.outputs, n.attrs) for n in linear().nodes))
    assert to_onnx(plain) == to_onnx(linear())


def test_our_operators_have_our_domain():
    graph = Graph("g", ("x",), ("y",), (Node("n", "Silu", ("x",), ("y",)),), {"x": value("x"), "y": value("y")})
    model = onnx.load_from_string(to_onnx(graph))
    assert model.graph.node[0].domain == "mlsdk"
    assert {e.domain: e.version for e in model.opset_import} == {"": OPSET, "mlsdk": 1}
    assert text(from_onnx(to_onnx(graph))) == text(graph)


def test_every_dtype_and_attribute_kind_survives():
    values = {name: Value(name, name, (2,)) for name in DTYPES}
    values["z"], values["s"] = Value("z", "float32", ()), Value("s", "float32", (0, 3))
    constants = {name: np.array([0, 1]).astype(dtype) for name, dtype in DTYPES.items()}
    constants |= {"z": np.array(2.5, np.float32), "s": np.zeros((0, 3), np.float32)}
    attrs = {"i": -3, "f": 0.1, "s": "ü", "is": (1, 2), "fs": (1.0, 2.5), "ss": ("a", "b"), "t": np.eye(2), "e": ()}
    node = Node("n", "Custom", tuple(values), ("y",), attrs)
    graph = Graph("g", (), ("y",), (node,), {**values, "y": value("y", ())}, constants)
    again = from_onnx(to_onnx(graph))
    assert text(again) == text(graph) and again.nodes == graph.nodes
    assert all(again.constants[name].tobytes() == constants[name].tobytes() for name in constants)


def test_bytes_do_not_depend_on_process_or_hash_seed(tmp_path):
    script = tmp_path / "build.py"
    script.write_text(
        "import hashlib, numpy as np\n"
        "from mlsdk.pipeline.ir.graph import Graph, Node, Value\n"
        "v = {n: Value(n, 'float32', (2,)) for n in ('x', 'w', 'y')}\n"
        "n = Node('n', 'Add', ('x', 'w'), ('y',), {})\n"
        "g = Graph('g', ('x',), ('y',), (n,), v, {'w': np.ones(2, np.float32)})\n"
        "print(hashlib.sha256(g.to_onnx()).hexdigest())\n"
    )
    found = set()
    for seed in ("0", "7"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, cwd=tmp_path)
        found.add(run.stdout.strip())
    assert len(found) == 1 and len(found.pop()) == 64


def edited(edit):
    model = onnx.load_from_string(to_onnx(linear()))
    edit(model)
    return model.SerializeToString()


def _external(model):
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")


def _symbolic(model):
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"


def _subgraph(model):
    attribute = model.graph.node[0].attribute.add(name="body", type=onnx.AttributeProto.GRAPH)
    attribute.g.name = "inner"


MALFORMED = {
    "empty": (b"", "the file is empty"),
    "text": (b"hello, this is text", "not an ONNX model"),
    "truncated": (to_onnx(linear())[:100], "not an ONNX model"),
    "no graph": (onnx.ModelProto(ir_version=10).SerializeToString(), "no graph"),
    "opset": (edited(lambda m: setattr(m.opset_import[0], "version", 21)), "opset is 21"),
    "domain": (edited(lambda m: m.opset_import.add(domain="com.evil", version=1)), "operator domain 'com.evil'"),
    "node domain": (edited(lambda m: setattr(m.graph.node[0], "domain", "com.evil")), "operator domain 'com.evil'"),
    "external data": (edited(_external), "lies in another file"),
    "short data": (edited(lambda m: setattr(m.graph.initializer[0], "raw_data", b"1234")), "has 4 bytes"),
    "symbolic": (edited(_symbolic), "'batch', not a number"),
    "negative": (
        edited(lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", -1)),
        "extent of -1",
    ),
    "huge": (
        edited(lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", 2**63 - 1)),
        "extent of 9223372036854775807",
    ),
    "dtype": (edited(lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 16)), "dtype BFLOAT16"),
    "cycle": (edited(lambda m: m.graph.node.reverse()), "before it is defined"),
    "duplicate": (edited(lambda m: m.graph.node.add().CopyFrom(m.graph.node[1])), "defined twice"),
    "untyped": (edited(lambda m: m.graph.ClearField("value_info")), "no dtype and shape"),
    "subgraph": (edited(_subgraph), "is a graph"),
    "initializers": (
        edited(lambda m: m.graph.initializer.add().CopyFrom(m.graph.initializer[0])),
        "two initializers have the same name",
    ),
    "functions": (edited(lambda m: m.functions.add(name="f")), "holds functions"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_model_is_refused(name):
    data, message = MALFORMED[name]
    with pytest.raises(GraphError, match=message):
        from_onnx(data)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_bytes_never_crash(data):
    good = bytearray(to_onnx(linear()))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        from_onnx(bytes(good))
    except GraphError:
        pass


def test_constant_nodes_become_constants():
    model = onnx.load_from_string(to_onnx(linear()))
    tensor = model.graph.initializer.pop(1)
    node = onnx.helper.make_node("Constant", [], ["b"], value=tensor)
    model.graph.node.insert(0, node)
    parts = read_parts(model.SerializeToString())
    assert set(parts.constants) == {"w", "b"} and [node.op for node in parts.nodes] == ["MatMul", "Add"]


def test_a_graph_beyond_two_gibibytes_is_refused():
    huge = np.broadcast_to(np.zeros((), np.float32), (2**15, 2**15))
    view = Value("w", "float32", huge.shape)

    class Big(Graph):
        def __post_init__(self):
            pass

    graph = Big("g", (), ("w",), (), {"w": view}, {"w": huge})
    with pytest.raises(GraphError, match="do not fit into one ONNX file"):
        to_onnx(graph)


def test_ten_thousand_nodes_are_quick():
    names = [f"v{index}" for index in range(10_001)]
    nodes = tuple(Node(f"n{i}", "Relu", (names[i],), (names[i + 1],)) for i in range(10_000))
    graph = Graph("long", (names[0],), (names[-1],), nodes, {name: value(name) for name in names})
    digest = hashlib.sha256(graph.to_onnx()).hexdigest()
    assert hashlib.sha256(Graph.from_onnx(graph.to_onnx()).to_onnx()).hexdigest() == digest
