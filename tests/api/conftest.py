"""Devices, stores and programs for the tests of the public API."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from mlsdk import Context, MNDevice


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(autouse=True)
def surroundings(shared_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One store for all tests, boards of the test's own, and the same random numbers each time."""
    monkeypatch.setenv("MLSDK_STORE", str(shared_store))
    monkeypatch.setenv("MLSDK_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("MLSDK_BOARDS", raising=False)
    torch.manual_seed(0)


@pytest.fixture
def context() -> Iterator[Context]:
    """A Context on a board that keeps nothing."""
    with Context(MNDevice("emu2")) as made:
        yield made


@pytest.fixture(params=["emu2", "pfvm:cpu"])
def any_context(request: pytest.FixtureRequest) -> Iterator[Context]:
    """The same program on the board and on the reference functions."""
    with Context(MNDevice(request.param)) as made:
        yield made


@pytest.fixture
def host() -> Iterator[Context]:
    with Context(MNDevice("pfvm:cpu")) as made:
        yield made


@pytest.fixture
def run_program(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the text of a program in a process of its own, with this test's store and boards."""

    def run(text: str, *arguments: str, ok: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "program.py"
        file.write_text(text)
        done = subprocess.run(
            [sys.executable, str(file), *arguments],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert not ok or done.returncode == 0, done.stderr
        return done

    return run


def add(inputs):
    return {"sum": inputs["a"] + inputs["b"]}


@pytest.fixture
def pair() -> dict[str, torch.Tensor]:
    return {"a": torch.randn(3, 4), "b": torch.randn(3, 4)}
