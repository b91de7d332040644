"""Races are arranged with fifos: a process stops at a fail point until the test lets it go."""

from __future__ import annotations

import errno
import os
import threading
import time

import invariants
import pytest

from mlsdk import store as stores
from mlsdk.store import NonDeterministic, Recipe, StoreBusy, failpoints, locks

RECIPE = Recipe("Phase", 1)


def paused(root, fifo, point, work):
    """A process that stops at `point`; (pid, what to close to let it go)."""
    os.mkfifo(fifo)

    def child():
        failpoints.configure(f"{point}:pause:{fifo}")
        with stores.open(root) as store:
            work(store)

    pid = invariants.start_child(child)
    return pid, invariants.open_gate(fifo)


@pytest.mark.parametrize("point", ["object.temp_created", "object.fsynced", "publish.objects"])
def test_two_writers_of_equal_results_both_succeed(root, tmp_path, point):
    with stores.open(root):
        pass
    writers = [
        paused(root, tmp_path / f"fifo{number}", point, lambda store: store.publish(RECIPE, {"out": b"same" * 100}))
        for number in range(2)
    ]
    for _pid, gate in writers:
        invariants.let_go(gate)
    assert [os.waitpid(pid, 0)[1] for pid, _gate in writers] == [0, 0]
    with stores.open(root) as store:
        assert len(list(store.objects.walk())) == 1
        assert store.read(store.get(RECIPE).outputs["out"]) == b"same" * 100
    invariants.check(root)


@pytest.mark.parametrize("point", ["object.fsynced", "publish.objects"])
def test_of_two_differing_results_the_first_is_kept(root, tmp_path, point):
    with stores.open(root):
        pass

    def second(store):
        with pytest.raises(NonDeterministic, match="Phase is not deterministic"):
            store.publish(RECIPE, {"out": b"second" * 100})

    slow, slow_gate = paused(root, tmp_path / "slow", point, second)
    fast, fast_gate = paused(
        root, tmp_path / "fast", point, lambda store: store.publish(RECIPE, {"out": b"first" * 100})
    )
    invariants.let_go(fast_gate)
    assert os.waitpid(fast, 0)[1] == 0
    invariants.let_go(slow_gate)
    assert os.waitpid(slow, 0)[1] == 0
    with stores.open(root) as store:
        assert store.read(store.get(RECIPE).outputs["out"]) == b"first" * 100
        assert len(list(store.tree.names("quarantine"))) == 1
    invariants.check(root)


def test_the_lock_of_a_key_has_one_holder_and_says_who(root, tmp_path):
    with stores.open(root):
        pass

    def hold(store):
        with store.lock(RECIPE.digest, "Phase of test"):
            pass

    pid, gate = paused(root, tmp_path / "fifo", "lock.taken", hold)
    with stores.open(root) as store:
        busy = pytest.raises(StoreBusy, match=rf"is held by process {pid} on .* \(Phase of test, since")
        with busy, store.lock(RECIPE.digest, "Phase of test", timeout=0.05):
            pass
        heard = []
        opener = threading.Thread(target=lambda: (time.sleep(0.4), invariants.let_go(gate)))
        opener.start()
        with store.lock(RECIPE.digest, "Phase of test", on_wait=heard.append):
            pass
        opener.join()
        assert len(heard) == 1
        assert str(pid) in heard[0]
    assert os.waitpid(pid, 0)[1] == 0


def test_the_lock_of_a_killed_process_is_free(root):
    with stores.open(root) as store:

        def killed():
            with store.lock(RECIPE.digest, "x"):
                os.kill(os.getpid(), 9)

        assert invariants.in_child(killed) == 9
        with store.lock(RECIPE.digest, "x", timeout=0):
            pass


def test_a_lock_file_that_is_removed_never_has_two_holders(tmp_path):
    """A waiter that wins a file which is no longer under its name tries again."""
    path = tmp_path / "lock"
    inside = []

    def wait():
        with locks.exclusive(path, "x"):
            inside.append(locks.is_free(path))

    with locks.exclusive(path, "x"):
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.05)
        path.unlink()
    thread.join()
    assert inside == [False]
    assert locks.remove_if_free(path)
    assert not path.exists()


def test_a_busy_lock_file_is_not_removed(tmp_path):
    with locks.exclusive(tmp_path / "lock", "x"):
        assert not locks.remove_if_free(tmp_path / "lock")
    assert not locks.remove_if_free(tmp_path / "absent")


def test_a_lock_is_not_inherited_by_other_programs(tmp_path):
    import subprocess
    import sys

    with locks.exclusive(tmp_path / "lock", "x"):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    until = time.monotonic() + 5
    while not locks.is_free(tmp_path / "lock") and time.monotonic() < until:
        time.sleep(0.01)  # the kernel closes the descriptor a moment after the program has started
    assert locks.is_free(tmp_path / "lock")
    assert child.poll() is None
    child.communicate(b"\n")


@pytest.mark.backends("folder")
def test_a_file_system_without_locks_is_refused(root, monkeypatch):
    """Silence would mean two holders of one lock."""
    with stores.open(root) as store:

        def flock(descriptor, mode):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr("mlsdk.store.locks.fcntl.flock", flock)
        with pytest.raises(stores.StoreError, match=r"this file system has no file locks \(flock\)"):
            store.get(Recipe("P", 1))
        monkeypatch.undo()


@pytest.mark.backends("folder")
def test_a_planted_temporary_file_is_not_followed(root, tmp_path, monkeypatch):
    target = tmp_path / "target"
    target.write_bytes(b"mine")
    with stores.open(root) as store:
        monkeypatch.setattr("mlsdk.store.owner.Owner.file_name", lambda self: "h-1-1-0123456789abcdef")
        store.leases.close()
        (root / "tmp" / "h-1-1-0123456789abcdef").symlink_to(target)
        with pytest.raises(OSError, match="File exists"):
            store.objects.put_many([b"content"])
    assert target.read_bytes() == b"mine"
