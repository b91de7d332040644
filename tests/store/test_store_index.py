from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import threading
import time

import invariants
import pytest

from mlsdk import store as stores
from mlsdk.store import Build, Event, IndexDamaged, IndexNewer, NotAStore, Recipe, StoreBusy, fsck, query, schema

sqlite_only = pytest.mark.backends("folder")  # the same for PostgreSQL stands in test_store_shared.py
RECIPES = [Recipe("Phase", 1, {"number": number}) for number in range(5)]


def fill(root):
    with stores.open(root) as store:
        for recipe in RECIPES:
            store.publish(recipe, {"out": b"result %d " % recipe.options["number"] * 50}, label="test")
        return invariants.results(store)


def pragma(store, name):
    with store.index.read() as connection:
        return connection.exec_driver_sql(f"PRAGMA {name}").scalar()


@sqlite_only
def test_the_index_is_opened_as_the_contract_says(store):
    assert pragma(store, "journal_mode") == "truncate"
    assert pragma(store, "synchronous") == 2
    assert pragma(store, "foreign_keys") == 1
    assert pragma(store, "busy_timeout") >= 1000
    assert pragma(store, "application_id") == schema.APPLICATION_ID
    assert pragma(store, "user_version") == schema.VERSION


@sqlite_only
def test_a_lost_index_is_made_again_and_said(root, caplog):
    before = fill(root)
    (root / "index.sqlite").unlink()
    with caplog.at_level(logging.WARNING), stores.open(root) as store:
        assert invariants.results(store) == before
        assert [event["phase"] for build in query.log(store) for event in build["phases"]] == ["Phase"] * 5
    assert "5 objects present: 5 results taken from the manifests" in caplog.text
    invariants.check(root)


@sqlite_only
def test_an_empty_index_is_a_lost_one(root):
    before = fill(root)
    os.truncate(root / "index.sqlite", 0)
    with stores.open(root) as store:
        assert invariants.results(store) == before


@sqlite_only
def test_an_older_copy_of_the_index_loses_nothing_for_good(root, tmp_path):
    with stores.open(root) as store:
        store.publish(RECIPES[0], {"out": b"first"})
    shutil.copy(root / "index.sqlite", tmp_path / "old.sqlite")
    before = fill_rest(root)
    shutil.copy(tmp_path / "old.sqlite", root / "index.sqlite")
    with stores.open(root) as store:
        assert store.get(RECIPES[1]) is None  # computed again, or taken back:
        report = fsck.check(store, repair=True)
        assert report.rebuilt == 4
        assert invariants.results(store) == before
    invariants.check(root)


def fill_rest(root):
    with stores.open(root) as store:
        for recipe in RECIPES[1:]:
            store.publish(recipe, {"out": b"result %d" % recipe.options["number"]})
        return invariants.results(store)


def test_a_row_whose_object_is_gone_is_a_miss(root):
    fill(root)
    shutil.rmtree(root / "objects")
    (root / "objects").mkdir()
    with stores.open(root) as store:
        assert all(store.get(recipe) is None for recipe in RECIPES)
        assert invariants.results(store) == {}


@sqlite_only
def test_an_overwritten_header_is_put_aside(root, caplog):
    before = fill(root)
    with open(root / "index.sqlite", "r+b") as file:
        file.write(b"not a database at all")
    with stores.open(root) as store:
        assert invariants.results(store) == before
    assert (root / "index.bad-1").exists()
    assert "kept as" in caplog.text
    invariants.check(root)


@sqlite_only
def test_damage_in_the_middle_is_found_by_fsck_and_rebuilt(root):
    before = fill(root)
    size = (root / "index.sqlite").stat().st_size
    with open(root / "index.sqlite", "r+b") as file:
        for offset in range(4096 + 2, size, 4096):  # the cell count of every page but the first
            file.seek(offset)
            file.write(b"\xff\xff\xff\xff")
    with pytest.raises(IndexDamaged, match="mlsdk store fsck --rebuild"), stores.open(root) as store:
        if store.index.quick_check():
            raise IndexDamaged("mlsdk store fsck --rebuild")
    count, aside = fsck.rebuild_index(root)
    assert count == 5
    assert aside == str(root / "index.bad-1")
    with stores.open(root) as store:
        assert invariants.results(store) == before
    invariants.check(root)


@sqlite_only
def test_a_newer_index_is_refused_and_not_touched(root):
    fill(root)
    with sqlite3.connect(root / "index.sqlite") as raw:
        raw.execute("PRAGMA user_version = 999")
    raw.close()
    before = (root / "index.sqlite").read_bytes()
    with pytest.raises(IndexNewer, match="has schema 999, this version knows"):
        stores.open(root)
    assert (root / "index.sqlite").read_bytes() == before


@sqlite_only
def test_a_database_of_another_program_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / "index.sqlite") as raw:
        raw.execute("PRAGMA application_id = 77")
        raw.execute("CREATE TABLE mine (x)")
    raw.close()
    with pytest.raises(NotAStore, match="is a database of another program"):
        stores.open(tmp_path)


@sqlite_only
def test_an_older_schema_is_migrated(root, monkeypatch):
    fill(root)
    newer = schema.VERSION + 1
    monkeypatch.setattr(schema, "VERSION", newer)
    monkeypatch.setitem(schema.MIGRATIONS, newer, ("ALTER TABLE action ADD COLUMN extra TEXT",))
    with stores.open(root) as store:
        assert pragma(store, "user_version") == newer
        assert store.get(RECIPES[0])


def test_many_processes_open_a_new_store_at_once(root):
    def opens():
        for _ in range(12):
            with stores.open(root) as store:
                store.index.close()

    children = [invariants.start_child(opens) for _ in range(8)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 8
    invariants.check(root)


def test_four_writers_at_once(root):
    def writes(number):
        with stores.open(root) as store:
            for count in range(6):
                store.publish(Recipe("W", 1, {"writer": number, "count": count}), {"out": b"%d" % count})
                store.record(Build("w", time.time(), 0.0, events=[Event("W", "w", "0" * 64, "{}", "built")]))

    children = [invariants.start_child(lambda number=number: writes(number)) for number in range(4)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    with stores.open(root) as store:
        assert len(invariants.results(store)) == 24
    invariants.check(root)


@sqlite_only
def test_a_long_reader_makes_a_writer_say_so(root):
    fill(root)
    with stores.open(root, timeout=0.2) as store:
        reader = sqlite3.connect(root / "index.sqlite", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM action").fetchone()
        with pytest.raises(StoreBusy, match="was locked by another process for 0.2 s; try again later"):
            store.publish(Recipe("New", 1), {"out": b"x"})
        reader.close()
        store.publish(Recipe("New", 1), {"out": b"x"})
    invariants.check(root)


@sqlite_only
def test_a_replaced_index_is_noticed(root, tmp_path):
    before = fill(root)
    with stores.open(root) as store:
        shutil.copy(root / "index.sqlite", tmp_path / "copy")
        os.rename(tmp_path / "copy", root / "index.sqlite")
        store.publish(Recipe("New", 1), {"out": b"x"})
    with stores.open(root) as store:
        assert len(invariants.results(store)) == len(before) + 1


def test_each_thread_has_its_own_connection(store):
    found = []
    store.publish(RECIPES[0], {"out": b"x"})

    def look():
        found.append(store.get(RECIPES[0]))
        store.index.close()

    threads = [threading.Thread(target=look) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert all(found)
