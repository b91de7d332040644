from __future__ import annotations

import os
import time

import invariants
import pytest
import sqlalchemy as sa

from mlsdk import store as stores
from mlsdk.store import Build, Recipe, StoreReadOnly, failpoints, fsck, gc, schema

FIRST = Recipe("First", 1, {"x": 1})


def publish(store, recipe, data=b"data" * 100):
    return store.publish(recipe, {"out": data}, label="test")


def chain(store):
    """first -> second -> third, each made from the one before."""
    first = publish(store, FIRST, b"first")
    second = publish(store, Recipe("Second", 1, {}, {"in": first.outputs["out"].digest}), b"second")
    third = publish(store, Recipe("Third", 1, {}, {"in": second.outputs["out"].digest}), b"third")
    return first, second, third


def fresh(root):
    """A store of a process that has used nothing yet."""
    return stores.open(root)


def test_what_was_not_used_for_so_many_collections_goes(root):
    with fresh(root) as store:
        chain(store)
    with fresh(root) as store:
        assert len(gc.collect(store, grace=2).deleted) == 0
        assert len(gc.collect(store, grace=2).deleted) == 0
        report = gc.collect(store, grace=2)
        assert (len(report.deleted), report.objects, report.kept) == (3, 3, 0)
        assert report.freed > 0
        assert store.get(FIRST) is None
        assert "collected" in store.reason(FIRST, "test")
        assert not list(store.objects.walk())
        assert not list(root.glob("locks/*"))
    invariants.check(root)


def test_what_is_used_stays_and_so_does_what_it_was_made_from(root):
    with fresh(root) as store:
        first, _second, third = chain(store)
        publish(store, Recipe("Other", 1))
    for _ in range(4):
        with fresh(root) as store:
            assert store.get(third.digest)
            store.record(Build("test", time.time(), 0.0))
        with fresh(root) as store:
            gc.collect(store, grace=1)
    with fresh(root) as store:
        assert store.get(first.digest)
        assert store.get(Recipe("Other", 1)) is None
    invariants.check(root)


def test_a_running_process_keeps_what_it_uses(root):
    with fresh(root) as user:
        publish(user, FIRST)
        with fresh(root) as store:
            for _ in range(3):
                assert not gc.collect(store, grace=0).deleted
        assert user.get(FIRST)
    with fresh(root) as store:
        assert gc.collect(store, grace=0).deleted == (FIRST.digest,)


def test_the_lease_of_a_killed_process_ends_with_it(root, backend):
    def killed():
        store = fresh(root)
        publish(store, FIRST)
        os.kill(os.getpid(), 9)

    assert invariants.in_child(killed) == 9
    with fresh(root) as store:
        assert len(list(root.glob("leases/*"))) == (backend == "folder")
        assert gc.collect(store, grace=0).deleted == (FIRST.digest,)
        assert not list(root.glob("leases/*"))


def test_a_tag_keeps(root):
    with fresh(root) as store:
        _first, _second, third = chain(store)
        with store.index.write() as connection:
            connection.execute(schema.tags.insert().values(name="release", recipe=third.digest))
    with fresh(root) as store:
        assert not gc.collect(store, grace=0).deleted


def test_a_shared_object_stays_while_one_result_names_it(root):
    with fresh(root) as store:
        publish(store, FIRST, b"shared")
    with fresh(root) as store:
        gc.collect(store, grace=2)
        gc.collect(store, grace=2)
        publish(store, Recipe("Second", 1), b"shared")
    with fresh(root) as store:
        report = gc.collect(store, grace=1)
        assert (report.deleted, report.objects) == ((FIRST.digest,), 0)
        assert store.get(Recipe("Second", 1))
    invariants.check(root)


def test_a_dry_run_changes_nothing_and_says_the_same(root):
    with fresh(root) as store:
        chain(store)
    with fresh(root) as store:
        gc.collect(store, grace=1)
        before = sorted(str(path) for path in root.rglob("*"))
        told = gc.collect(store, grace=1, dry_run=True)
        assert sorted(str(path) for path in root.rglob("*")) == before
        done = gc.collect(store, grace=1)
    assert (told.deleted, told.objects, told.freed) == (done.deleted, done.objects, done.freed)
    assert len(told.deleted) == 3


@pytest.mark.parametrize("shift", [86_400, -10 * 365 * 86_400])
def test_clocks_decide_nothing(root, shift):
    with fresh(root) as store:
        publish(store, FIRST)
        with store.index.write() as connection:
            connection.execute(sa.update(schema.actions).values(created=schema.actions.c.created + shift))
    for path in root.rglob("*"):
        at = time.time() + shift
        os.utime(path, (at, at), follow_symlinks=False)
    with fresh(root) as store:
        assert not gc.collect(store, grace=2).deleted
        assert store.get(FIRST)
    invariants.check(root)


def test_leftovers_go_after_the_grace(root):
    with fresh(root) as store:
        store.objects.put_many([b"orphan" * 100])
        (root / "tmp" / "vm-999999-1-0123456789abcdef").write_text("half")
        (root / "quarantine" / "bad").write_text("kept")
    stale = root / "tmp" / "vm-999999-1-0123456789abcdef"
    stale.rename(stale.with_name(f"{stores.owner.host_name()}-4194305-1-0123456789abcdef"))
    with fresh(root) as store:
        first = gc.collect(store, grace=2)
        assert (first.leftovers, first.young_leftovers) == (0, 3)
        assert gc.collect(store, grace=2).leftovers == 0
        assert gc.collect(store, grace=2).leftovers == 3
        assert gc.collect(store, grace=2).young_leftovers == 0
        report = fsck.check(store)
        assert not report.findings


def test_a_collection_between_lookup_and_use_is_seen(root, tmp_path):
    """The collector has marked; a user hits the key in the gap. The result survives, because the user leased it."""
    with fresh(root) as store:
        publish(store, FIRST)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def collects():
        failpoints.configure(f"gc.marked:pause:{fifo}")
        with fresh(root) as store:
            gc.collect(store, grace=0)

    collector = invariants.start_child(collects)
    gate = invariants.open_gate(fifo)  # returns when the collector has marked
    with fresh(root) as user:
        action = user.get(FIRST)
        assert action is not None
        invariants.let_go(gate)
        assert os.waitpid(collector, 0)[1] == 0
        assert user.read(action.outputs["out"]) == b"data" * 100
    invariants.check(root)


def test_a_user_that_has_leased_is_seen_by_the_sweep(root, tmp_path):
    """The user stands between its lease and its lookup; the collector, which marks and sweeps now, waits for it."""
    with fresh(root) as store:
        publish(store, FIRST)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def uses():
        failpoints.configure(f"hit.leased:pause:{fifo}")
        with fresh(root) as store:
            assert store.read(store.get(FIRST).outputs["out"]) == b"data" * 100

    user = invariants.start_child(uses)
    gate = invariants.open_gate(fifo)
    collector = invariants.start_child(lambda: gc.collect(fresh(root), grace=0))
    invariants.let_go(gate)
    assert [os.waitpid(child, 0)[1] for child in (user, collector)] == [0, 0]
    invariants.check(root)


def test_a_result_can_be_built_again_after_it_was_collected(root):
    with fresh(root) as store:
        publish(store, FIRST)
    with fresh(root) as store:
        gc.collect(store, grace=0)
        assert store.get(FIRST) is None
        publish(store, FIRST)
        assert store.get(FIRST)
    invariants.check(root)


def test_a_read_only_store_is_not_collected(root):
    with fresh(root) as store:
        publish(store, FIRST)
    with stores.open(root, read_only=True) as store:
        with pytest.raises(StoreReadOnly):
            gc.collect(store)
        assert gc.collect(store, grace=0, dry_run=True).deleted == (FIRST.digest,)
        with pytest.raises(StoreReadOnly):
            fsck.check(store, repair=True)


@pytest.mark.backends("folder", "postgres+folder", "postgres+fsspec")  # hundreds of results
def test_many_results_are_collected_in_batches(root):
    with fresh(root) as store:
        with store.index.write() as connection:
            for number in range(600):
                recipe = Recipe("Many", 1, {"number": number})
                connection.execute(
                    schema.actions.insert().values(
                        recipe=recipe.digest, phase="Many", label="", parts=recipe.text, created=0.0, seconds=0.0,
                        host="h", pid=1, product="0", epoch=0,
                    )
                )  # fmt: skip
        assert len(gc.collect(store, grace=0).deleted) == 600
    invariants.check(root)
