"""Check everything in a store, and put right what can be put right without losing anything.

Five classes of findings:

    damaged      an object or a manifest does not hold what its name promises
    missing      a row names an object or has a manifest that is not there
    orphan       an object or a manifest that no row names: left by a killed process, swept by the collector
    stale temp   a temporary file whose process has ended
    unknown      a file that is not one of ours

`repair` moves bad and unknown files to `quarantine/`, deletes rows whose objects are gone (they are built again), and
takes results back into the index whose manifest and objects are whole. It deletes nothing that cannot be built again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import sqlalchemy as sa

from mlsdk.store import actions, locks, owner, rebuild, schema
from mlsdk.store import digest as digests
from mlsdk.store.errors import IndexDamaged, ObjectLost, StoreReadOnly
from mlsdk.store.place import Address
from mlsdk.store.recipe import digest_of_text
from mlsdk.store.store import Store, open_store, put_index_aside
from mlsdk.store.tree import FOLDERS

CLASSES = ("damaged", "missing", "orphan", "stale temp", "unknown")
# Findings that are no harm: killed processes leave them, and the collector sweeps them.
HARMLESS = ("orphan", "stale temp")

_ROOT_FILES = ("gc.lock", "index.lock", "index.sqlite", "index.sqlite-journal")


@dataclass(frozen=True)
class Finding:
    kind: str  # one of CLASSES
    what: str  # path inside the store, or a digest
    detail: str
    done: str = ""  # what repair did


@dataclass
class Report:
    findings: list[Finding] = field(default_factory=list)
    index: list[str] = field(default_factory=list)  # what SQLite's check says
    objects: int = 0
    size: int = 0  # bytes read
    rebuilt: int = 0  # results taken back from manifests
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        """True when nothing is wrong; leftovers of killed processes are not wrong."""
        return not self.index and all(finding.kind in HARMLESS or finding.done for finding in self.findings)


def check(store: Store, repair: bool = False) -> Report:
    """Read every object, and compare rows, manifests and files."""
    if repair and store.read_only:
        raise StoreReadOnly(f"the store {store.where} is read-only; repair it as a user who can write")
    clock = time.perf_counter()
    report = Report(index=store.index.quick_check())
    # A short list under the lock, so that what is being published at this moment is not taken for an orphan.
    with _list_lock(store):
        files = list(store.objects.walk())
        rows = _rows(store)
        manifests = list(actions.manifests(store.tree))
    present = {digest for digest, _name in files if digest}
    report.findings += _bad_objects(store, sorted(present), report)
    bad = {finding.what for finding in report.findings}
    report.findings += _row_findings(store, rows, present)
    report.findings += _manifest_findings(store, manifests, {row.recipe for row in rows})
    named = {row.digest for row in rows}
    report.findings += [Finding("orphan", digest, "an object that no row names") for digest in present - named - bad]
    report.findings += [Finding("unknown", name, "not an object") for digest, name in files if not digest]
    report.findings += _other_files(store)
    if repair:
        report.findings = [_repaired(store, finding) for finding in report.findings]
        # Alone: an object that is seen here must not be collected before its row is written.
        with _list_lock(store), store.index.write() as connection:
            report.rebuilt = rebuild.fill(connection, store.objects)
    report.findings.sort(key=lambda finding: (CLASSES.index(finding.kind), finding.what))
    report.seconds = time.perf_counter() - clock
    return report


def rebuild_index(place: str | os.PathLike[str] | Address | None) -> tuple[int, str | None]:
    """Put a damaged index aside and make a new one from the manifests: (results found, where the old one is)."""
    aside: str | None = None
    try:
        store = open_store(place)
        damage = store.index.quick_check()
        if damage:
            store.close()
    except IndexDamaged as error:
        damage = [str(error)]
    if damage:
        aside = put_index_aside(place)
        store = open_store(place)  # an empty index is filled when it is created
    with _list_lock(store), store.index.write() as connection:
        rebuild.fill(connection, store.objects)
        count = connection.execute(sa.select(sa.func.count()).select_from(schema.actions)).scalar_one()
    store.close()
    return count, aside


@dataclass(frozen=True)
class _Row:
    recipe: str
    name: str
    digest: str
    size: int


def _rows(store: Store) -> list[_Row]:
    query = sa.select(
        schema.actions.c.recipe, schema.artifacts.c.name, schema.artifacts.c.digest, schema.artifacts.c.size
    ).join(schema.artifacts)
    with store.index.read() as connection:
        return [_Row(*row) for row in connection.execute(query)]


def _bad_objects(store: Store, present: list[str], report: Report) -> Iterator[Finding]:
    def look(digest: str) -> tuple[int, str]:
        try:
            return len(store.objects.read(digest)), ""
        except ObjectLost as error:
            # One that was collected while this ran is gone for good reason.
            return 0, "" if store.objects.stat(digest) is None else str(error)

    # Hashing and unpacking leave the interpreter's lock, so two threads read twice as fast.
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        for digest, (size, problem) in zip(present, pool.map(look, present)):
            report.objects += 1
            report.size += size
            if problem:
                yield Finding("damaged", digest, problem)


def _row_findings(store: Store, rows: list[_Row], present: set[str]) -> Iterator[Finding]:
    told = set()
    for row in rows:
        if row.digest not in present and row.digest not in told and store.objects.stat(row.digest) is None:
            told.add(row.digest)
            yield Finding("missing", row.digest, f"{row.name} of {row.recipe[:12]}")
    query = sa.select(schema.actions.c.recipe, schema.actions.c.parts)
    with store.index.read() as connection:
        for recipe, parts in connection.execute(query):
            if digest_of_text(parts) != recipe:
                yield Finding("damaged", recipe, "the row's parts do not give its key")


def _manifest_findings(store: Store, manifests: list[tuple[str, str | None]], recipes: set[str]) -> Iterator[Finding]:
    found = set()
    for name, recipe in manifests:
        if recipe is None:
            yield Finding("unknown", name, "not a manifest")
            continue
        found.add(recipe)
        if actions.read_manifest(store.tree, recipe) is None:
            yield Finding("damaged", name, "a manifest that cannot be read")
        elif recipe not in recipes:
            yield Finding("orphan", name, "a manifest that no row names")
    for recipe in sorted(recipes - found):
        yield Finding("missing", actions.manifest_name(recipe), "the manifest of a row")


def _other_files(store: Store) -> Iterator[Finding]:
    for name, kind in store.tree.names("tmp"):
        who = owner.of_file(name.removeprefix("tmp/"))
        if who is None or kind != "file":
            yield Finding("unknown", name, "not a temporary file of ours")
        elif who.is_gone():
            yield Finding("stale temp", name, f"process {who.pid} has ended")
    for name, _kind in store.tree.names(""):
        if name not in _ROOT_FILES and name not in FOLDERS and not name.startswith("index.bad-"):
            yield Finding("unknown", name, "not a file of a store")


def _repaired(store: Store, finding: Finding) -> Finding:
    done = ""
    if digests.is_digest(finding.what):
        if finding.kind == "damaged" and "row's parts" in finding.detail:
            with store.index.write() as connection:
                actions.delete(connection, [finding.what])
            done = "row deleted"
        elif finding.kind in ("damaged", "missing"):
            store.discard(finding.what, finding.detail)
            done = "moved to quarantine" if finding.kind == "damaged" else "rows deleted"
    elif finding.kind == "missing":
        done = _write_manifest_again(store, finding.what)
    elif finding.kind in ("damaged", "stale temp", "unknown"):
        done = _move(store, finding.what)
    return Finding(finding.kind, finding.what, finding.detail, done)


def _write_manifest_again(store: Store, path: str) -> str:
    recipe = "".join(path.split("/")[-2:])
    with store.index.read() as connection:
        known = actions.load(connection, recipe)
    if known is None:
        return "the row is gone"
    actions.write_manifest(store.tree, known.action)
    return "written again"


def _move(store: Store, name: str) -> str:
    """Into the quarantine, under a name that cannot lead out of it."""
    flat = name.replace("/", "_")
    number = 0
    while store.tree.stat(target := f"quarantine/{flat}.{number}") is not None:
        number += 1
    if not store.tree.move(name, target):
        return "gone"
    if name.startswith("manifests/"):
        _write_manifest_again(store, name)
    return "moved to quarantine"


def _list_lock(store: Store) -> locks.Held:
    if store.read_only:
        return locks.nothing()
    return store.locks.exclusive("gc", "the store (fsck)", store.timeout)
