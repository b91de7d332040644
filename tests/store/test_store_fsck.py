from __future__ import annotations

import os

import invariants
import pytest

from mlsdk import store as stores
from mlsdk.store import Recipe, actions, failpoints, fsck, owner

RECIPES = [Recipe("Phase", 1, {"number": number}) for number in range(4)]


@pytest.fixture
def filled(root):
    with stores.open(root) as store:
        for recipe in RECIPES:
            store.publish(recipe, {"out": b"result %d " % recipe.options["number"] * 50})
        yield store


def kinds(report):
    return [finding.kind for finding in report.findings]


def object_of(store, recipe):
    return store.objects.path(store.get(recipe).outputs["out"].digest)


def test_a_good_store_is_clean(filled):
    report = fsck.check(filled)
    assert report.clean
    assert (report.findings, report.objects, report.index) == ([], 4, [])
    assert report.size == 4 * len(b"result 0 " * 50)


DAMAGE = {
    "damaged object": (lambda store, root: invariants.flip(object_of(store, RECIPES[0]), 40), "damaged"),
    "missing object": (lambda store, root: object_of(store, RECIPES[0]).unlink(), "missing"),
    "damaged manifest": (
        lambda store, root: invariants.flip(root / actions.manifest_name(RECIPES[0].digest), 40), "damaged"),
    "missing manifest": (lambda store, root: (root / actions.manifest_name(RECIPES[0].digest)).unlink(), "missing"),
    "orphan": (lambda store, root: store.objects.put_many([b"nobody names me"]), "orphan"),
    "stale temp": (
        lambda store, root: (root / "tmp" / f"{owner.host_name()}-4194305-1-0123456789abcdef").touch(), "stale temp"),
    "foreign file": (lambda store, root: (root / "objects" / "README").write_text("hello"), "unknown"),
    "foreign in a folder": (
        lambda store, root: (object_of(store, RECIPES[0]).parent / "x.txt").write_text("hello"), "unknown"),
    "foreign in tmp": (lambda store, root: (root / "tmp" / "note").write_text("hello"), "unknown"),
    "foreign at the root": (lambda store, root: (root / "note").write_text("hello"), "unknown"),
    "planted link": (lambda store, root: (root / "objects" / "ab").symlink_to("/etc"), "unknown"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_each_class_is_found_and_repaired(filled, root, name):
    damage, kind = DAMAGE[name]
    damage(filled, root)
    report = fsck.check(filled)
    assert kinds(report) == [kind]
    assert report.clean == (kind in fsck.HARMLESS)
    assert fsck.check(filled, repair=True).clean
    after = fsck.check(filled)
    assert after.clean
    assert set(kinds(after)) <= {"orphan"}
    assert os.path.exists("/etc/passwd")
    invariants.check(root)


def test_results_that_only_the_manifests_know_come_back(filled, root):
    with filled.index.write() as connection:
        actions.delete(connection, [RECIPES[0].digest])
    assert kinds(fsck.check(filled)) == ["orphan", "orphan"]
    assert fsck.check(filled, repair=True).rebuilt == 1
    assert filled.get(RECIPES[0])
    invariants.check(root)


def test_every_name_of_a_fail_point_is_passed_somewhere():
    """The registry and the source agree."""
    import re
    from pathlib import Path

    import mlsdk.store
    import mlsdk.tasks

    said = set()
    for package in (mlsdk.store, mlsdk.tasks):
        for path in Path(package.__file__).parent.rglob("*.py"):
            said.update(re.findall(r'hit\("([a-z_.]+)"\)', path.read_text()))
    steps = {f"{kind}.{step}" for kind in ("object", "manifest") for step in failpoints._WRITE_STEPS}
    assert said | steps == set(failpoints.NAMES)


@pytest.mark.parametrize(
    "text", ["nothing:kill", "gc.marked", "gc.marked:explode", "gc.marked:0x:kill", "gc.marked:pause"]
)
def test_a_wrong_fail_point_is_refused(text):
    with pytest.raises(ValueError, match=r"MLSDK_FAILPOINT|fail point"):
        failpoints.parse(text)


def test_a_fail_point_acts_on_its_pass():
    failpoints.configure("gc.marked:3:raise")
    failpoints.hit("gc.marked")
    failpoints.hit("gc.unlinked")
    failpoints.hit("gc.marked")
    with pytest.raises(failpoints.FailPoint):
        failpoints.hit("gc.marked")
    failpoints.hit("gc.marked")
    with pytest.raises(KeyError):
        failpoints.hit("no such place")
