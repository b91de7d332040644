from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "tasks"))

import standins

from mlsdk import store as stores
from mlsdk.store import Store
from mlsdk.tasks import adapters


@pytest.fixture(autouse=True)
def phases(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Stand-in phases; the list of those that were called."""
    for name, function in standins.FUNCTIONS.items():
        monkeypatch.setattr(adapters, name, function)
    standins.calls.clear()
    yield standins.calls


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLSDK_STORE", str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with stores.open(root) as opened:
        yield opened


class Answer:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        import json

        return json.loads(self.out)


@pytest.fixture
def mlsdk(root, capfd):
    """Run a command line: exit code, standard output, standard error."""
    from mlsdk.cli import main

    def call(*arguments: str) -> Answer:
        capfd.readouterr()
        code = main.run(list(arguments))
        out, err = capfd.readouterr()
        return Answer(code, out, err)

    return call
