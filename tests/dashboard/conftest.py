"""A codegen_dir of a real compile, once for all tests, with names that would be trouble in a page that does not escape."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from dashboard_sample import ADDRESS, CLOSING, PORT, graph, signature
from starlette.testclient import TestClient

from mlsdk.cli.dashboard.app import application
from mlsdk.cli.dashboard.guard import hosts_of
from mlsdk.cli.dashboard.sources import Folder
from mlsdk.cli.dashboard.view import Site
from mlsdk.tasks import codegen_dir
from mlsdk.tasks.chain import build_chain

#: of folder a: all values go to DRAM; of b: values stay in LM, and the order was searched
OPTIONS = {
    "a": {"float_dtype": "mixed", "scheduler": "always_from_dram"},
    "b": {"float_dtype": "float", "scheduler": "auto_recompute_sa", "sa_expected_run_iters": 30},
}


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compile with two sets of options, in one store: folders `a` and `b`, and `store`."""
    root = tmp_path_factory.mktemp("compiled")
    before = os.environ.get("MLSDK_STORE")
    os.environ["MLSDK_STORE"] = str(root / "store")
    try:
        traced = {
            "exported.onnx": graph().to_onnx(),
            "signature.json": signature(),
            "sources.json": json.dumps({"fc2": {"source": f"net.py:7{CLOSING}", "scope": "Net.fc2"}}).encode(),
        }
        for name, options in OPTIONS.items():
            codegen_dir.materialise(build_chain(traced, options), root / name)
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
