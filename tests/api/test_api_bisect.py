"""`mlsdk bisect`: programs that are right, and programs with one fault that it has to name."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from mlsdk.cli import exit_codes
from mlsdk.cli.dashboard.app import application
from mlsdk.cli.dashboard.guard import hosts_of
from mlsdk.cli.dashboard.sources import Folder
from mlsdk.cli.dashboard.view import Site
from mlsdk.cli.main import run
from mlsdk.pipeline.ir.graph import Graph, Node
from mlsdk.pipeline.ops import emitters
from mlsdk.pipeline.ops.emitters.elementwise import program_of
from mlsdk.pipeline.ops.emitters.kernels import KERNELS
from mlsdk.tasks import codegen_dir, deviation

torch.manual_seed(0)
MODEL = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Sigmoid(), torch.nn.Linear(8, 3))
SAMPLE = {"x": torch.zeros(4, 6), "k": torch.zeros(4, dtype=torch.int64)}


def function(inputs):
    hidden = MODEL(inputs["x"])
    return {"y": hidden.softmax(1), "best": hidden.argmax(1) + inputs["k"]}


@pytest.fixture
def folder(any_context, tmp_path):
    any_context.registry.register("model", MODEL)
    any_context.compile(function, SAMPLE, tmp_path / "f", quiet=True)
    return tmp_path / "f"


@pytest.fixture
def board_folder(context, tmp_path):
    context.registry.register("model", MODEL)
    context.compile(function, SAMPLE, tmp_path / "f", quiet=True)
    return tmp_path / "f"


def found(capsys, *arguments: object) -> tuple[int, dict]:
    code = run(["bisect", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_nothing_differs(folder, capsys):
    code, report = found(capsys, folder)
    assert code == exit_codes.DONE and report["same"], report
    checks = {(check["graph"], check["executor"]): check for check in report["checks"]}
    assert {("compiled", "reference"), ("torch", "board"), ("compiled", "board")} <= checks.keys()
    assert (("program", "board") in checks) == (folder / "model.app.zst").exists()
    for check in checks.values():
        assert check["same"] and not check["trouble"] and {"y", "best"} <= check["outputs"].keys()
    assert list(report["first"].values()) == [None, None, None]


def test_every_node_is_in_the_page_of_the_dashboard(board_folder, capsys):
    found(capsys, board_folder)
    graph = Graph.from_onnx((board_folder / "model.onnx").read_bytes())
    rows = json.loads((board_folder / "accuracy.json").read_text())["rows"]
    assert [row["node"] for row in rows] == [node.name for node in graph.nodes]
    assert all(row["max_rel"] <= row["allowed"] for row in rows)
    assert sum(row["max_abs"] > 0 for row in rows) >= 2  # products and sigmoids are not exact
    site = Site(Folder(board_folder), (), None)
    client = TestClient(application(site, hosts_of(8327)), base_url="http://127.0.0.1:8327")
    shown = client.get("/accuracy.json").json()["sheet"]["rows"]
    site.close()
    assert {row["node"]: row["max_abs"] for row in shown} == {row["node"]: row["max_abs"] for row in rows}


@pytest.fixture
def wrong_sigmoid(monkeypatch):
    """From now on the board computes sigmoid(x) + 1 / 4."""

    def spoil():
        row = KERNELS["Sigmoid", "single"]
        wrong = replace(row, formula=lambda f, x: f.add(row.formula(f, x), 0.25))
        monkeypatch.setitem(KERNELS, ("Sigmoid", "single"), wrong)
        monkeypatch.setattr(emitters, "_KNOWN", {})  # what was emitted before is not emitted again
        program_of.cache_clear()

    yield spoil
    program_of.cache_clear()


def test_a_wrong_emitter_is_named_and_what_follows_it_is_not(board_folder, capsys, wrong_sigmoid):
    wrong_sigmoid()
    code, report = found(capsys, board_folder)
    assert code == exit_codes.FOUND and not report["same"]
    for where in ("torch graph on the board", "compiled graph on the board"):
        first = report["first"][where]
        assert (first["op"], first["deviation"]["wrong"]) == ("Sigmoid", 32)
        assert first["deviation"]["found"] == pytest.approx(first["deviation"]["wanted"] + 0.25)
        assert "test_api_bisect.py" in first["source"]
    assert report["first"]["optimizer"] is None
    worst = max(json.loads((board_folder / "accuracy.json").read_text())["rows"], key=lambda row: row["max_rel"])
    assert worst["op"] == "Sigmoid"
    run(["bisect", str(board_folder)])
    text = capsys.readouterr().out
    assert "the first node that differs is sigmoid (Sigmoid) at" in text and "32 of 32 elements differ" in text


def test_a_wrong_optimizer_is_named(board_folder, capsys):
    graph = Graph.from_onnx((board_folder / "model.onnx").read_bytes())
    place = next(i for i, node in enumerate(graph.nodes) if node.op == "Sigmoid")
    old = graph.nodes[place]
    nodes = [*graph.nodes[:place], Node(old.name, "Tanh", old.inputs, old.outputs), *graph.nodes[place + 1 :]]
    changed = Graph(graph.name, graph.inputs, graph.outputs, tuple(nodes), graph.values, graph.constants)
    codegen_dir.add(board_folder, "model.onnx", changed.to_onnx())
    code, report = found(capsys, board_folder)
    assert code == exit_codes.FOUND
    assert report["first"]["optimizer"]["node"] == old.name
    assert (
        report["first"]["torch graph on the board"] is None and report["first"]["compiled graph on the board"] is None
    )
    same = {(check["graph"], check["executor"]): check["same"] for check in report["checks"]}
    assert same == {
        ("compiled", "reference"): False,
        ("torch", "board"): True,
        ("compiled", "board"): False,
        ("program", "board"): True,  # it was compiled before
    }


def test_inputs_of_ones_own(board_folder, capsys, tmp_path):
    """Numbers for which the first layer overflows the exponential, and classes that random inputs do not have."""
    x, k = np.linspace(-400, 400, 24, dtype=np.float32).reshape(4, 6), np.arange(4) * 1000
    np.savez(tmp_path / "inputs.npz", x=x, k=k)
    code, report = found(capsys, board_folder, "--inputs", tmp_path / "inputs.npz")
    assert code == exit_codes.DONE
    best = next(c for c in report["checks"] if c["graph"] == "compiled" and c["executor"] == "board")["outputs"]["best"]
    assert best["elements"] == 4 and best["largest"] == 0


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((4, 6))}, "input k: expected int64[4], got nothing"),
        ({"x": np.zeros((4, 5)), "k": np.zeros(4)}, "input x: expected float32[4,6], got float64[4,5]"),
        ({"x": np.zeros((4, 6)), "k": np.zeros(4), "z": np.zeros(1)}, "there is no input z; the inputs are x, k"),
    ],
)
def test_inputs_that_do_not_fit(board_folder, capsys, tmp_path, arrays, message):
    np.savez(tmp_path / "inputs.npz", **arrays)
    assert run(["bisect", str(board_folder), "--inputs", str(tmp_path / "inputs.npz")]) == exit_codes.FAILED
    assert message in capsys.readouterr().err


def test_a_folder_that_is_none_or_was_changed(board_folder, capsys, tmp_path):
    assert run(["bisect", str(tmp_path / "nothing")]) == exit_codes.FAILED
    assert "manifest.json is missing" in capsys.readouterr().err
    assert run(["bisect", str(board_folder), "--inputs", str(tmp_path / "no.npz")]) == exit_codes.FAILED
    assert "no.npz: No such file" in capsys.readouterr().err
    with open(board_folder / "model.onnx", "ab") as file:
        file.write(b"\0")
    assert run(["bisect", str(board_folder)]) == exit_codes.FAILED
    assert "model.onnx was changed or is damaged" in capsys.readouterr().err


def test_the_next_compile_takes_the_old_accuracy_away(context, board_folder, capsys):
    found(capsys, board_folder)
    assert (board_folder / "accuracy.json").exists()
    codegen_dir.verify(board_folder)
    context.compile(lambda i: {"y": i["x"] + 1}, SAMPLE, board_folder, quiet=True)
    assert not (board_folder / "accuracy.json").exists()


def test_numbers_that_are_none():
    """JSON has no infinity, and where torch gives none there is nothing to compare."""
    wanted = np.array([1.0, np.nan, np.inf, 2.0], np.float32)
    fine = deviation.deviation(np.array([1.0, 5.0, 6.0, 2.0], np.float32), wanted, 0.0, 2.0)
    assert fine.same and fine.largest == 0
    bad = deviation.deviation(np.array([1.0, 5.0, 6.0, np.inf], np.float32), wanted, 1.0, 2.0)
    assert (bad.wrong, bad.place, bad.largest) == (1, (3,), deviation.LARGEST)
    whole = deviation.deviation(np.array([3, 4]), np.array([3, 5]), 0.5, 100.0)
    assert (whole.wrong, whole.largest) == (1, 1)
    assert deviation.deviation(np.zeros((0, 2)), np.zeros((0, 2)), 0.0, 0.0).same


def test_a_program_of_another_version_is_the_one_thing_that_is_not_run(board_folder, capsys):
    from mlsdk.pipeline.ir import archive

    codegen_dir.add(board_folder, "model.app.zst", archive.compress(b"open-mlsdk application 0\n"))
    code, report = found(capsys, board_folder)
    troubles = {(check["graph"], check["executor"]): check["trouble"] for check in report["checks"]}
    assert code == exit_codes.FOUND and "compile the function again" in troubles.pop(("program", "board"))
    assert not any(troubles.values()) and not any(report["first"].values())


@pytest.mark.slow
@pytest.mark.parametrize("float_dtype", ["mixed", "float", "half", "double"])
def test_no_false_alarm_in_any_precision(float_dtype, context, tmp_path, capsys):
    """Values of every float, among them those that the board rounds less often than the reference does."""
    torch.manual_seed(3)
    convolution = torch.nn.Conv2d(2, 4, 3, padding=1)
    context.registry.register("convolution", convolution)

    def several(inputs):
        x = inputs["x"]
        short, wide = x.half(), x.double()
        return {
            "image": torch.nn.functional.silu(convolution(x)),
            "short": (short * 3 + short).softmax(-1).float(),
            "wide": (wide @ wide.mT).exp().sum((1, 2, 3)) + wide.sin().mean(),
            "norm": torch.nn.functional.layer_norm(x, (6, 6)).var((2, 3)),
            "order": x.flatten(1).sort(1).values.cumsum(1),
        }

    sample = {"x": torch.zeros(2, 2, 6, 6)}
    context.compile(several, sample, tmp_path / "f", options={"float_dtype": float_dtype}, quiet=True)
    for seed in range(2):
        code, report = found(capsys, tmp_path / "f", "--seed", seed)
        assert code == exit_codes.DONE, report
