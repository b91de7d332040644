"""A store that several machines share: what is true of PostgreSQL, fsspec and the address alone."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import time

import invariants
import pytest
import sqlalchemy as sa

from mlsdk import store as stores
from mlsdk.store import (
    Address,
    BadName,
    IndexNewer,
    NotAStore,
    Recipe,
    StoreError,
    StoreReadOnly,
    failpoints,
    fsck,
    gc,
    query,
    schema,
)
from mlsdk.store.remote import RemoteTree

RECIPES = [Recipe("Phase", 1, {"number": number}) for number in range(3)]
shared = pytest.mark.backends("postgres+folder", "postgres+fsspec", "postgres+s3")
here = pytest.mark.backends("folder")


def fill(store):
    return [store.publish(one, {"out": b"x" * 100 + str(one.options).encode()}, label="net") for one in RECIPES]


@here
def test_an_address_names_database_schema_and_files():
    one = Address.parse(
        "postgresql://me:secret@db:5433/builds?schema=team&sslmode=require&objects=s3://bucket/path?x=1"
    )
    assert one.database == "postgresql+psycopg://me:secret@db:5433/builds?sslmode=require"
    assert (one.schema, one.files) == ("team", "s3://bucket/path?x=1")
    assert str(one) == "postgresql://me@db:5433/builds?sslmode=require&schema=team&objects=s3://bucket/path?x=1"
    assert Address.parse("postgresql:///x?objects=/shared").schema == "mlsdk"
    assert stores.location(one) is one


@here
@pytest.mark.parametrize(
    "text", ["s3://bucket/x", "postgresql://db/x", "postgresql://db/x?objects=", "mysql://me:secret@db/x?objects=/y"]
)
def test_what_is_no_address_is_said(text):
    with pytest.raises(StoreError, match="this is no store; write postgresql://") as info:
        stores.location(text)
    assert "secret" not in str(info.value)


@here
@pytest.mark.parametrize("name", ["", "A", "a-b", "1a", 'x"; DROP', "x" * 64])
def test_a_schema_has_a_plain_name(name):
    with pytest.raises(BadName, match="lower-case letters"):
        stores.location(f"postgresql://db/x?schema={name}&objects=/y")


@here
def test_a_server_that_is_not_there_is_said(tmp_path):
    pytest.importorskip("psycopg")
    with pytest.raises(StoreError, match="cannot be reached"):
        stores.open(f"postgresql://127.0.0.1:1/none?objects={tmp_path}")


@here
def test_the_files_behind_a_url(tmp_path):
    tree = RemoteTree(f"memory://{tmp_path}")
    tree.write([("objects/aa/bb", [b"one", b"two"]), ("objects/aa/cc", [b"3"])], "object")
    assert tree.read("objects/aa/bb") == b"onetwo"
    assert tree.read("objects/aa/bb", 3) == b"one"
    assert list(tree.names("objects")) == [("objects/aa", "folder")]
    assert list(tree.names("objects/aa")) == [("objects/aa/bb", "file"), ("objects/aa/cc", "file")]
    assert (tree.size_of("objects/aa"), tree.size_of("nothing")) == (7, 0)
    assert tree.move("objects/aa/cc", "quarantine/cc")
    assert not tree.move("objects/aa/cc", "quarantine/cc")
    assert tree.stat("objects/aa/cc") is None
    tree.remove("objects/aa/cc")
    with pytest.raises(FileNotFoundError):
        tree.read("objects/aa/cc")
    with pytest.raises(StoreError, match="is no folder on this machine"):
        tree.path("objects")
    with pytest.raises(StoreError, match="nothing://x"):
        RemoteTree("nothing://x").read("y")


@here
@pytest.mark.parametrize(("told", "settled"), [
    ({"ETag": '"d41d8"'}, True),  # made of the content: S3
    ({"etag": "abc", "updated": "text"}, True),  # GCS
    ({"ino": 7, "mtime": 1e9, "created": 1e9}, True),  # a disk, long ago
    ({"ino": 7, "mtime": 1e9, "created": "now"}, False),  # the inode changed now, with a time that was set back
    ({"ino": 7, "mtime": "now", "created": 1e9}, False),
    ({"mtime": datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)}, True),
    ({"created": datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)}, False),  # nothing tells of a change
    ({"ino": 7}, False),
    ({}, False),
])  # fmt: skip
def test_what_proves_that_a_file_did_not_change(tmp_path, monkeypatch, told, settled):
    tree = RemoteTree(f"memory://{tmp_path}")
    told = {name: time.time() if value == "now" else value for name, value in told.items()}
    monkeypatch.setattr(tree.fs, "info", lambda path: {"size": 3, **told}, raising=False)
    known = tree.stat("x")
    assert known[1] == 3
    assert tree.settled(known) is settled
    for name in told.keys() - {"updated"}:
        monkeypatch.setattr(tree.fs, "info", lambda path, name=name: {"size": 3, **told, name: 8}, raising=False)
        assert tree.stat("x") != known


@shared
def test_a_lost_schema_is_made_again_from_the_manifests(root):
    with stores.open(root) as store:
        fill(store)
        name = store.index._server.schema
        with store.index.write() as connection:
            connection.execute(sa.schema.DropSchema(name, cascade=True))
    with stores.open(root) as store:
        assert all(store.get(recipe) for recipe in RECIPES)
    invariants.check(root)


@shared
def test_a_newer_schema_is_refused_and_an_older_one_migrated(root, monkeypatch):
    with stores.open(root) as store:
        fill(store)
    with monkeypatch.context() as patch:
        patch.setattr(schema, "VERSION", schema.VERSION + 1)
        patch.setitem(schema.MIGRATIONS, schema.VERSION, ("ALTER TABLE action ADD COLUMN extra TEXT",))
        with stores.open(root) as store:
            assert store.get(RECIPES[0])
    with pytest.raises(IndexNewer, match="this version knows"):
        stores.open(root)


@shared
def test_other_tables_are_refused(root):
    with stores.open(root) as store, store.index.write() as connection:
        name = store.index._server.schema
        connection.execute(sa.schema.DropSchema(name, cascade=True))
        connection.execute(sa.schema.CreateSchema(name))
        connection.execute(sa.text("CREATE TABLE mine (x integer)"))
    with pytest.raises(NotAStore, match="holds other tables and no store"):
        stores.open(root)


@shared
def test_a_reader_reads_and_does_not_write(root):
    with stores.open(root) as store:
        first = fill(store)[0]
    with stores.open(root, read_only=True) as store:
        assert store.get(RECIPES[0]) == first
        assert store.read(first.outputs["out"])
        with pytest.raises(StoreReadOnly):
            store.publish(Recipe("New", 1), {"out": b"x"})
        with pytest.raises(StoreReadOnly, match="is read-only; collect as a user who can write"):
            gc.collect(store)
        with pytest.raises(StoreReadOnly, match="is read-only; repair it as a user who can write"):
            fsck.check(store, repair=True)


@shared
def test_a_user_without_the_permission_is_a_reader(root):
    with stores.open(root) as store:
        first = fill(store)[0]
        server, name = store.index._server, store.index._server.schema
        with store.index.write() as connection:
            for text in ("DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN", f"GRANT USAGE ON SCHEMA {name} TO guest",
                         f"GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO guest"):  # fmt: skip
                connection.execute(sa.text(text))
        url = server._engine.url.set(drivername="postgresql", username="guest").render_as_string(hide_password=False)
        place = f"{url}&schema={name}&objects={store.tree.where}"
    try:
        with stores.open(place) as guest:
            assert guest.read_only
            assert guest.get(RECIPES[0]) == first
            assert len(guest.ls()) == 3
    finally:
        with stores.open(root) as store, store.index.write() as connection:
            connection.execute(sa.text("DROP OWNED BY guest; DROP ROLE guest"))


@shared
def test_a_killed_writer_leaves_nothing_locked(root):
    with stores.open(root):
        pass
    for point in ("object.renamed", "index.inserted", "manifest.renamed", "index.committed", "lock.taken"):

        def killed(point=point):
            failpoints.configure(f"{point}:kill")
            with stores.open(root) as store, store.lock(RECIPES[0].digest, "x"):
                fill(store)

        assert invariants.in_child(killed) == 9
        with stores.open(root) as store, store.lock(RECIPES[0].digest, "x", timeout=5):
            pass
        invariants.check(root)
    with stores.open(root) as store:
        fill(store)


@shared
def test_two_processes_with_separate_homes_share_one_build(root, tmp_path):
    """Nothing on this machine is needed beside the address: each has a home and a working folder of its own."""
    with stores.open(root) as store:
        place = f"{store.index._server._engine.url.set(drivername='postgresql').render_as_string(hide_password=False)}"
        place += f"&schema={store.index._server.schema}&objects={store.tree.where}"
    tasks = os.path.join(os.path.dirname(__file__), "..", "tasks")
    command = [sys.executable, os.path.join(tasks, "with_standins.py"), "mlsdk", "build", "example_workflow", "--json"]
    workers = []
    for name in ("one", "other"):
        home = tmp_path / name
        home.mkdir()
        environment = {**os.environ, "MLSDK_STORE": place, "HOME": str(home), "PYTHONPATH": tasks}
        workers.append(subprocess.Popen(command, env=environment, cwd=home, stdout=subprocess.PIPE, text=True))
    answers = [json.loads(worker.communicate(timeout=240)[0]) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    outcomes = [list(answer["phases"].values()) for answer in answers]
    assert sum(one.count("built") for one in outcomes) == 10, "each phase was computed once"
    with stores.open(root) as store:
        assert len(query.log(store)) == 2
    invariants.check(root)


@shared
@pytest.mark.parametrize("damage", ["flipped", "cut", "emptied", "longer", "gone"])
def test_damage_behind_a_url_is_a_miss_and_kept(root, damage):
    with stores.open(root) as store:
        name = store.objects.name(fill(store)[0].outputs["out"].digest)
        data = store.tree.read(name)
        flipped = bytes([*data[:40], data[40] ^ 1, *data[41:]])
        bad = {"flipped": flipped, "cut": data[:-1], "emptied": b"", "longer": data + b"x"}.get(damage)
        store.tree.remove(name)
        if bad is not None:
            store.tree.write([(name, [bad])], "object")
        kinds = [finding.kind for finding in store.fsck().findings]
        assert kinds == ["missing" if bad is None else "damaged"]
        assert store.get(RECIPES[0]) is None
        assert len(list(store.tree.names("quarantine"))) == (bad is not None)
        fill(store)
        assert store.get(RECIPES[0])
    invariants.check(root)


@shared
def test_foreign_files_behind_a_url_are_found_and_moved(root):
    with stores.open(root) as store:
        fill(store)
        for name in ("objects/README", "manifests/aa/x", "note"):
            store.tree.write([(name, [b"hello"])], "object")
        assert [finding.kind for finding in store.fsck().findings] == ["unknown"] * 3
        assert store.fsck(repair=True).clean
        assert store.fsck().findings == []
    invariants.check(root)
