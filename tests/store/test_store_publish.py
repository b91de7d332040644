from __future__ import annotations

import errno
import os
import resource
import subprocess
import time
from pathlib import Path

import invariants
import pytest

from mlsdk import store as stores
from mlsdk.store import (
    BadName,
    Build,
    NonDeterministic,
    NotAStore,
    ObjectLost,
    Recipe,
    StoreFull,
    StoreReadOnly,
    digest_of,
    files,
    fsck,
    query,
)

RECIPE = Recipe("Upper", 1, {"locale": "C"}, {"text": digest_of(b"x")})
OUTPUTS = {"result.txt": b"X" * 5000, "log.txt": b"took a while"}


def publish(store, outputs=OUTPUTS, recipe=RECIPE, **more):
    return store.publish(recipe, outputs, volatile=("log.txt",), label="test", **more)


def test_a_published_result_is_found_and_read(store):
    action = publish(store, kinds={"result.txt": "text"})
    assert store.get(RECIPE) == action
    assert store.get(RECIPE.digest).recipe == RECIPE
    assert {name: store.read(output) for name, output in action.outputs.items()} == OUTPUTS
    assert action.outputs["result.txt"].kind == "text"
    assert action.outputs["log.txt"].volatile


def test_nothing_published_is_a_miss(store):
    assert store.get(RECIPE) is None


def test_a_result_outlives_the_process(root):
    with stores.open(root) as first:
        action = publish(first)
    with stores.open(root) as second:
        assert second.get(RECIPE) == action
    invariants.check(root)


def test_the_same_result_again_is_the_first_one(store):
    first = publish(store)
    assert publish(store, {**OUTPUTS, "log.txt": b"took longer"}) == first


def test_another_result_for_the_same_key_is_refused(store, root):
    first = publish(store)
    with pytest.raises(NonDeterministic, match=r"Upper is not deterministic: result\.txt was .* make the phase"):
        publish(store, {**OUTPUTS, "result.txt": b"Y" * 5000})
    assert store.get(RECIPE) == first
    assert store.objects.stat(digest_of(b"Y" * 5000)) is None
    assert len(list(store.tree.names("quarantine"))) == 1
    invariants.check(root)


@pytest.mark.parametrize(
    "damage",
    [lambda path: invariants.overwrite(path, b""),
     lambda path: invariants.overwrite(path, bytes(path.stat().st_size)),
     lambda path: invariants.flip(path, 30),
     lambda path: path.unlink()],
    ids=["empty", "zeros", "bit", "gone"],
)  # fmt: skip
def test_damage_is_a_miss_and_the_next_publish_is_good(store, root, damage, caplog):
    action = publish(store)
    damage(store.objects.path(action.outputs["result.txt"].digest))
    assert store.get(RECIPE) is None
    assert len(caplog.records) == 1
    assert "will be built again" in caplog.text
    assert store.reason(RECIPE, "test").startswith("its result was ")
    publish(store)
    assert store.read(store.get(RECIPE).outputs["result.txt"]) == OUTPUTS["result.txt"]
    invariants.check(root)


def test_damage_found_while_reading_is_a_miss_too(store):
    action = publish(store)
    invariants.flip(store.objects.path(action.outputs["result.txt"].digest), 30)
    with pytest.raises(ObjectLost, match=r"result\.txt: .* it will be built again"):
        store.read(action.outputs["result.txt"])
    assert store.get(RECIPE) is None


def test_a_file_that_did_not_change_is_not_read_again(store, root, monkeypatch):
    action = publish(store)
    old = time.time_ns() - 10**10
    path = store.objects.path(action.outputs["result.txt"].digest)
    os.utime(path, ns=(old, old))
    time.sleep(2.1)  # the change of the file has to be old enough to be believed
    assert store.get(RECIPE)
    store.record(Build("test", time.time(), 0.1))
    with stores.open(root) as other:
        reads = []
        monkeypatch.setattr(other.objects, "read", lambda *arguments: reads.append(arguments))
        assert other.get(RECIPE)
        assert not reads
    invariants.flip(path, 30)
    os.utime(path, ns=(old, old))  # as a copy that keeps times does: only the time of the change tells
    with stores.open(root) as other:
        assert other.get(RECIPE) is None


@pytest.mark.parametrize(
    "name",
    ["", "/etc/passwd", "../up", "a/../b", "a//b", ".", "a\0b", "a\nb", "-rf", "x" * 300, "a\\b", "ünicode", "a:b"],
)
def test_a_name_never_becomes_a_path_outside(store, name):
    with pytest.raises(BadName, match="is no name for an artifact"):
        store.publish(RECIPE, {name: b"x"})
    assert store.get(RECIPE) is None


def test_odd_labels_are_only_text(store):
    for label in ("../../x", "<img src=x>", "a\nb", "x" * 300, "'; drop table action; --", "\u202e"):
        store.publish(Recipe("P", 1, {"label": label}), {"a": b"x"}, label=label)
    assert len(query.ls(store, limit=None)) == 6


@pytest.mark.backends("folder")  # of a database see test_store_shared.py
def test_a_read_only_store_serves_hits_and_says_so(root):
    with stores.open(root) as store:
        publish(store)
        store.record(Build("test", time.time(), 0.1))

    def as_nobody():
        os.setgid(65534)
        os.setuid(65534)
        with stores.open(root) as readable:
            assert readable.read_only
            action = readable.get(RECIPE)
            assert readable.read(action.outputs["result.txt"]) == OUTPUTS["result.txt"]
            assert readable.record(Build("test", time.time(), 0.1)) is None
            with pytest.raises(StoreReadOnly, match="is read-only, and Upper has a new result; set MLSDK_STORE"):
                publish(readable, recipe=Recipe("Upper", 2))

    if os.geteuid() == 0:
        for folder in [root, *root.parents]:
            if str(folder).startswith(("/tmp/", os.environ.get("TMPDIR", "/tmp"))):
                folder.chmod(folder.stat().st_mode | 0o055)
        before = sorted(path.name for path in root.iterdir())
        assert invariants.in_child(as_nobody) == 0
        assert sorted(path.name for path in root.iterdir()) == before
    with stores.open(root, read_only=True) as readable:
        assert readable.get(RECIPE)
        with pytest.raises(StoreReadOnly):
            publish(readable, recipe=Recipe("Upper", 2))


@pytest.mark.backends("folder", "postgres+folder")
def test_a_full_disk_is_said_and_leaves_nothing(root):
    with stores.open(root):
        pass

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        with (
            stores.open(root) as store,
            pytest.raises(StoreFull, match=r"limit of this process .* \(need 400,000 bytes, free"),
        ):
            store.publish(RECIPE, {"big": os.urandom(400_000)})

    assert invariants.in_child(limited) == 0
    assert not list(root.glob("tmp/*"))
    with stores.open(root) as store:
        assert store.get(RECIPE) is None
        publish(store)
    invariants.check(root)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 1 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting is not allowed here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.backends("folder", "postgres+folder")
@pytest.mark.parametrize("size", [700_000, 3_000], ids=["object", "many small"])
def test_a_disk_that_really_is_full(small_disk, size):
    """Whichever write hits the end, of an object, a manifest or the index, the store stays whole."""
    root = small_disk / "store"
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(300_000))
    good = []
    with stores.open(root) as store, pytest.raises(StoreFull, match="no space left in"):
        for number in range(1000):
            recipe = Recipe("Fill", 1, {"number": number})
            publish(store, {"out": os.urandom(size)}, recipe)
            good.append(recipe)
    assert not list(root.glob("tmp/*"))
    with stores.open(root) as store:
        assert all(store.get(recipe) for recipe in good)
        assert store.get(Recipe("Fill", 1, {"number": len(good)})) is None
        ballast.unlink()
        publish(store, {"out": os.urandom(3000)}, Recipe("Fill", 1, {"number": len(good)}))
        assert fsck.check(store).clean


CALLS = ("write", "fsync", "rename")


@pytest.mark.backends("folder", "postgres+folder")  # where the calls are ours
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["full", "io"])
def test_the_nth_call_fails(root, call, code, monkeypatch):
    """Every call of the operating system fails once; afterwards the same command gives the same bytes."""
    with stores.open(root) as store:
        expected = publish(store, recipe=Recipe("Other", 1))
    number = 0
    while True:
        number += 1
        with stores.open(root) as store:
            calls = Failing(number, code, call)
            with monkeypatch.context() as patch:
                patch.setattr(files, "os", calls)
                try:
                    action = publish(store)
                    break
                except (OSError, stores.StoreError):
                    assert calls.count >= number
            assert store.get(RECIPE) is None
        invariants.check(root)
        assert not list(root.glob("tmp/*"))
    assert number > 2
    assert {name: one.digest for name, one in action.outputs.items()} == {
        name: one.digest for name, one in expected.outputs.items()
    }
    invariants.check(root)


class Failing:
    """The module `os`, with one function that fails at its n-th call."""

    def __init__(self, number, code, name):
        self.number, self.code, self.name, self.count = number, code, name, 0

    def __getattr__(self, name):
        real = getattr(os, name)
        if name != self.name:
            return real

        def call(*arguments, **named):
            self.count += 1
            if self.count == self.number:
                raise OSError(self.code, os.strerror(self.code))
            return real(*arguments, **named)

        return call


def test_other_folders_are_not_taken_for_a_store(tmp_path):
    (tmp_path / "thesis.tex").write_text("...")
    with pytest.raises(NotAStore, match="holds other files and no store"):
        stores.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(NotAStore, match="is not a folder"):
        stores.open(tmp_path / "thesis.tex")


def test_a_moved_store_is_the_same_store(root, tmp_path):
    with stores.open(root) as store:
        action = publish(store)
    os.rename(root, tmp_path / "moved")
    with stores.open(tmp_path / "moved") as store:
        assert store.get(RECIPE) == action
    invariants.check(tmp_path / "moved")


def test_the_place_of_the_store(monkeypatch, tmp_path):
    monkeypatch.setenv("MLSDK_STORE", str(tmp_path / "here"))
    assert stores.location() == tmp_path / "here"
    monkeypatch.setenv("MLSDK_STORE", "")
    assert stores.location().parts[-2:] == (".cache", "open-mlsdk")
    with pytest.raises(stores.StoreError, match="this is no store; write postgresql://"):
        stores.location("s3://bucket/x")
    with pytest.raises(BadName):
        stores.location("a\0b")


def test_a_child_process_has_its_own_connection(store, root):
    action = publish(store)

    def child():
        assert store.get(RECIPE) == action
        publish(store, recipe=Recipe("Child", 1))

    assert invariants.in_child(child) == 0
    assert store.get(Recipe("Child", 1))
    assert store.get(RECIPE) == action
    invariants.check(root)


@pytest.mark.backends("folder")
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/etc/passwd")])
@pytest.mark.parametrize("what", ["object", "manifest"])
def test_what_is_no_file_in_place_of_one_is_rebuilt(root, make, what):
    with stores.open(root) as store:
        action = publish(store)
        output = next(iter(action.outputs.values()))
        manifest = root / "manifests" / action.digest[:2] / action.digest[2:]
        path = store.objects.path(output.digest) if what == "object" else manifest
        path.unlink()
        make(path)
        before = len(os.listdir("/proc/self/fd"))
        if what == "object":
            assert store.get(RECIPE) is None
            assert os.listdir(root / "quarantine")
            publish(store)
        else:
            store.fsck(repair=True)
        assert len(os.listdir("/proc/self/fd")) == before
    with stores.open(root) as store:
        if store.get(RECIPE) is None:
            publish(store)
        assert store.read(output)
        assert store.fsck().clean
    invariants.check(root)


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.ENOSPC, "no space left in"),
        (errno.EDQUOT, "the disk quota is used up for"),
        (errno.EFBIG, "ulimit -f"),
    ],
)
def test_the_true_cause_of_a_failed_write_is_said(tmp_path, number, told):
    told_of = str(files.explain(OSError(number, "x"), tmp_path / "not" / "there", 5))
    assert told in told_of and "need 5 bytes, free" in told_of and "free 0" not in told_of
    assert "need" not in str(files.explain(OSError(number, "x"), tmp_path))
