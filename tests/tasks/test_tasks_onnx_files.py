"""A model whose constants lie in other files is refused before any other file is looked at."""

from __future__ import annotations

import os
import sys

import numpy as np
import onnx
import pytest

from mlsdk.errors import GraphError
from mlsdk.pipeline.ir.graph import Graph

# name -> the entries of external_data; {outside} is a file beside the model's folder, {inside} one in it
EXTERNAL = {
    "above": {"location": "../outside.bin"},
    "absolute": {"location": "{outside}"},
    "symbolic link": {"location": "link.bin"},
    "hard link": {"location": "hard.bin"},
    "missing": {"location": "absent.bin"},
    "offset outside": {"location": "inside.bin", "offset": "4096", "length": "16"},
    "negative offset": {"location": "inside.bin", "offset": "-16", "length": "16"},
    "length outside": {"location": "inside.bin", "offset": "0", "length": str(1 << 40)},
    "length too short": {"location": "inside.bin", "offset": "0", "length": "4"},
    "as it should be": {"location": "inside.bin", "offset": "0", "length": "16"},
}

watched: list[str] | None = None


def _watch(event: str, arguments: tuple) -> None:
    if watched is not None and event == "open":
        watched.append(str(arguments[0]))


sys.addaudithook(_watch)


def model(**changes):
    tensor = onnx.numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4])
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4])
    node = onnx.helper.make_node("Add", ["x", "w"], ["y"], name="add")
    graph = onnx.helper.make_graph([node], "g", [value], [output], [tensor])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    for name, entry in changes.items():
        setattr(made.graph.initializer[0], name, entry)
    return made


@pytest.mark.parametrize("kind", EXTERNAL)
def test_external_data_is_refused_and_no_file_is_opened(kind, tmp_path, monkeypatch):
    global watched
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(b"secret" * 100)
    (folder / "inside.bin").write_bytes(bytes(16))
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    os.link(tmp_path / "outside.bin", folder / "hard.bin")
    monkeypatch.chdir(folder)
    made = model()
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, text in EXTERNAL[kind].items():
        tensor.external_data.add(key=key, value=text.format(outside=tmp_path / "outside.bin"))
    data = made.SerializeToString()
    watched = []
    try:
        with pytest.raises(GraphError, match="constant w lies in another file; load it with its data inside"):
            Graph.from_onnx(data)
        assert [name for name in watched if name.endswith(".bin")] == []
    finally:
        watched = None


def test_data_that_is_too_short_for_its_shape_is_refused():
    with pytest.raises(GraphError, match=r"constant w has 12 bytes, its shape \(4,\) needs 16"):
        Graph.from_onnx(model(raw_data=bytes(12)).SerializeToString())


def test_saved_twice_it_is_the_same():
    once = Graph.from_onnx(model().SerializeToString()).to_onnx()
    assert Graph.from_onnx(once).to_onnx() == once
