from __future__ import annotations

import contextlib
import hashlib
import os
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
import servers

from mlsdk import store as stores
from mlsdk.store import Address, Store, failpoints

# The whole suite runs on each of these: on a disk of our own; with index and locks in PostgreSQL, and the files in S3, in
# a shared folder, or behind fsspec.
BACKENDS = (
    "folder",
    pytest.param("postgres+s3", marks=pytest.mark.shared),
    pytest.param("postgres+folder", marks=pytest.mark.slow),
    pytest.param("postgres+fsspec", marks=pytest.mark.slow),
)

# What only a disk of our own has: temporary files, links, inodes, and steps within a write.
OF_A_DISK = (
    "stale temp",
    "foreign in tmp",
    "object.fsynced",
    "test_leftovers_go_after_the_grace",
    "test_a_link_is_not_followed",
    "test_other_folders_are_not_taken_for_a_store",
)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    if servers.postgres_programs() is None:
        pytest.skip("no PostgreSQL server is installed (Debian: postgresql)")
    with servers.postgres() as database:
        yield database


@pytest.fixture(scope="session")
def bucket() -> Iterator[str]:
    with servers.s3():
        yield "s3://stores"


@pytest.fixture(autouse=True, params=BACKENDS)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """On a shared backend, each folder that a test opens is a schema of the database and its files' place."""
    name: str = request.param
    only = request.node.get_closest_marker("backends")
    if only is not None and name not in only.args:
        pytest.skip(f"not on {name}")
    if name in ("postgres+fsspec", "postgres+s3") and any(text in request.node.name for text in OF_A_DISK):
        pytest.skip("about files on a disk")
    if name == "folder":
        return name
    database = request.getfixturevalue("server")
    bucket = request.getfixturevalue("bucket") if name == "postgres+s3" else ""
    original = stores.location

    def location(place=None):
        where = original(place)
        if isinstance(where, Address):
            return where
        path = os.path.abspath(where)
        schema = "s" + hashlib.sha256(path.encode()).hexdigest()[:24]
        files = {"postgres+folder": path, "postgres+fsspec": f"file://{path}"}.get(name, f"{bucket}/{schema}")
        return Address.parse(f"{database}&schema={schema}&objects={files}")

    monkeypatch.setattr("mlsdk.store.store.location", location)
    return name


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test that works on the files themselves has nothing to do where there are none."""
    outcome = yield
    with contextlib.suppress(AttributeError):
        error = outcome.excinfo[1] if outcome.excinfo else None
        no_folder = isinstance(error, stores.StoreError) and "is no folder on this machine" in str(error)
        # `root` names nothing here when the files are in S3; damage there is made in test_store_shared.py.
        no_files = isinstance(error, FileNotFoundError) and "[postgres+s3" in item.name and "/store" in str(error)
        if (no_folder or no_files) and not _of_the_store(error):
            outcome.force_exception(pytest.skip.Exception("works on files", _use_item_location=True))


def _of_the_store(error: BaseException | None) -> bool:
    """True when the store itself, and not a test, asked for a path."""
    frames = traceback.extract_tb(error.__traceback__ if error else None)
    inside = os.path.dirname(stores.__file__) + os.sep
    return any(frame.filename.startswith(inside) and frame.name not in ("path", "root") for frame in frames)


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
