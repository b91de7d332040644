from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mlsdk import store as stores
from mlsdk.store import Store, failpoints


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with stores.open(root) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _no_fail_points() -> Iterator[None]:
    yield
    failpoints.configure(None)
