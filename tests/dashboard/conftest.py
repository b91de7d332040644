"""A codegen_dir of a real compile, once for all tests, with names that would be trouble in a page that does not escape."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from mlsdk.cli.dashboard.app import application
from mlsdk.cli.dashboard.guard import hosts_of
from mlsdk.cli.dashboard.sources import Folder
from mlsdk.cli.dashboard.view import Site
from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.tasks import codegen_dir
from mlsdk.tasks.chain import build_chain

PORT = 8327
ADDRESS = f"http://127.0.0.1:{PORT}"
EVIL = "<img src=x onerror=alert(1)>"
CLOSING = "</script><script>alert(2)</script>"


def graph() -> Graph:
    """Two products with a ReLU between them; one node is named like an attack."""
    rng = np.random.default_rng(0)
    shapes = {"x": (64, 64), EVIL: (64, 64), "r": (64, 64), "y": (64, 10)}
    constants = {
        name: rng.standard_normal(s).astype(np.float32)
        for name, s in {"w1": (64, 64), "b1": (64,), "w2": (10, 64), "b2": (10,)}.items()
    }
    values = {n: Value(n, "float32", s) for n, s in shapes.items()}
    values |= {n: Value(n, "float32", a.shape) for n, a in constants.items()}
    nodes = (
        Node(EVIL, "Gemm", ("x", "w1", "b1"), (EVIL,), {"transB": 1}),
        Node("softmax", "Softmax", (EVIL,), ("r",), {"axis": 1}),
        Node("fc2", "Gemm", ("r", "w2", "b2"), ("y",), {"transB": 1}),
    )
    return Graph("mlp", ("x",), ("y",), nodes, values, constants)


def signature() -> bytes:
    inputs = [{"key": "x", "dtype": "float32", "shape": [64, 64], "value": "x"}]
    outputs = [{"key": "y", "dtype": "float32", "shape": [64, 10], "value": "y"}]
    whole = {"format": 1, "inputs": inputs, "outputs": outputs, "state": [], "call_spec": None, "result_spec": None}
    return json.dumps(whole).encode()


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compile in two precisions, in one store: folders `a` and `b`, and `store`."""
    root = tmp_path_factory.mktemp("compiled")
    before = os.environ.get("MLSDK_STORE")
    os.environ["MLSDK_STORE"] = str(root / "store")
    try:
        traced = {
            "exported.onnx": graph().to_onnx(),
            "signature.json": signature(),
            "sources.json": json.dumps({"fc2": {"source": f"net.py:7{CLOSING}", "scope": "Net.fc2"}}).encode(),
        }
        for name, precision in (("a", "mixed"), ("b", "float")):
            codegen_dir.materialise(build_chain(traced, {"float_dtype": precision}), root / name)
    finally:
        if before is None:
            os.environ.pop("MLSDK_STORE")
        else:
            os.environ["MLSDK_STORE"] = before
    return root


@pytest.fixture
def folder(compiled: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(compiled / "a", tmp_path / "dir"))


Client = Callable[..., TestClient]


@pytest.fixture
def client():
    """Make a client of a dashboard."""
    made = []

    def make(folder: Path | None, store: Path | None = None, others: tuple[Path, ...] = ()) -> TestClient:
        shown = Folder(folder) if folder else None
        site = Site(shown, tuple(Folder(o) for o in others), str(store) if store else None)
        made.append(site)
        return TestClient(application(site, hosts_of(PORT)), base_url=ADDRESS, raise_server_exceptions=False)

    yield make
    for site in made:
        site.close()


@pytest.fixture(scope="session")
def whole(compiled: Path):
    """A dashboard of everything; tests only look at it."""
    site = Site(Folder(compiled / "a"), (Folder(compiled / "b"),), str(compiled / "store"))
    yield TestClient(application(site, hosts_of(PORT)), base_url=ADDRESS, raise_server_exceptions=False)
    site.close()
