"""The one statement that must hold after every fault, and helpers to make faults."""

from __future__ import annotations

import itertools
import os
import shutil
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mlsdk import store as stores
from mlsdk.store import ObjectDamaged, Store, actions, failpoints, fsck, locks, query


def check(root: Path, allow_damaged_orphans: bool = False) -> None:
    """Every row has its objects and its manifest; every object hashes to its name; nothing else lies among the objects;
    no lock is held; fsck finds nothing but leftovers; an index made from the manifests has every row."""
    with stores.open(root) as store:
        rows = results(store)
        for recipe, outputs in rows.items():
            for digest, size in outputs.values():
                store.objects.read(digest, size)
            manifest = actions.read_manifest(store.tree, recipe)
            assert manifest is not None, f"the manifest of {recipe} is missing or damaged"
            assert {name: (one.digest, one.size) for name, one in manifest.outputs.items()} == outputs
        named = {digest for outputs in rows.values() for digest, _size in outputs.values()}
        for digest, name in store.objects.walk():
            assert digest is not None, f"a foreign file among the objects: {name}"
            try:
                store.objects.read(digest)
            except ObjectDamaged:
                assert allow_damaged_orphans and digest not in named
        if (root / "locks").is_dir():
            held = [path for path in (root / "locks").iterdir() if not locks.is_free(path)]
            assert not held, f"locks are held: {held}"
            assert locks.is_free(root / "gc.lock")
        report = fsck.check(store)
        bad = [one for one in report.findings if one.kind not in fsck.HARMLESS]
        assert not report.index
        assert not bad or (allow_damaged_orphans and all(one.kind == "damaged" for one in bad)), bad
    copy = root.with_name(
        f"{root.name}.copy-{next(_copies)}"
    )  # a new name is a new schema where the index is elsewhere
    if root.is_dir():
        shutil.copytree(root, copy, symlinks=True, ignore=shutil.ignore_patterns("index.*", "leases", "quarantine"))
        try:
            with stores.open(copy) as rebuilt:
                found = results(rebuilt)
            assert {recipe: found.get(recipe) for recipe in rows} == rows
        finally:
            shutil.rmtree(copy)


def results(store: Store) -> dict[str, dict[str, tuple[str, int]]]:
    """recipe -> artifact -> (digest, size), as the index says."""
    found: dict[str, dict[str, tuple[str, int]]] = {}
    for row in query.ls(store, limit=None):
        found.setdefault(row["recipe"], {})[row["name"]] = (row["digest"], row["size"])
    return found


_copies = itertools.count()


@contextmanager
def failing(text: str | None) -> Iterator[None]:
    """A fail point, for this block."""
    failpoints.configure(text)
    try:
        yield
    finally:
        failpoints.configure(None)


def in_child(work: Callable[[], object]) -> int:
    """Run in a forked process; its wait status (9 when it was killed)."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]


_gates: set[int] = set()


def open_gate(fifo: Path) -> int:
    """Wait until a process has stopped at the fail point that pauses on `fifo`; what lets it go on."""
    gate = os.open(fifo, os.O_WRONLY)
    _gates.add(gate)
    return gate


def let_go(gate: int) -> None:
    """The stopped process goes on."""
    _gates.discard(gate)
    os.close(gate)


def start_child(work: Callable[[], object]) -> int:
    """Start a forked process; its pid."""
    pid = os.fork()
    if pid:
        return pid
    for gate in _gates:
        os.close(gate)  # else the other stopped processes would wait for this one as well
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def flip(path: Path, offset: int, bit: int = 0) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[offset % len(data)] ^= 1 << bit
    overwrite(path, bytes(data))


def overwrite(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    with open(path, "r+b") as file:
        file.truncate(0)
        file.write(data)


def positions(length: int, count: int = 50) -> list[int]:
    """Evenly spread offsets, both ends included."""
    return sorted({round(at * (length - 1) / (count - 1)) for at in range(count)})
