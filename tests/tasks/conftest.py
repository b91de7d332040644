from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import standins

from mlsdk import store as stores
from mlsdk.store import Store, failpoints
from mlsdk.tasks import adapters

# The invariant of the store is checked here too.
sys.path.append(str(Path(__file__).parent.parent / "store"))


@pytest.fixture(autouse=True)
def phases(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Stand-in phases; the list of those that were called."""
    for name, function in standins.FUNCTIONS.items():
        monkeypatch.setattr(adapters, name, function)
    standins.calls.clear()
    yield standins.calls
    failpoints.configure(None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("MLSDK_STORE", str(root))
    with stores.open(root) as opened:
        yield opened
