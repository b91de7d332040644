"""The collector: what nothing uses any more goes, and nothing goes that somebody uses.

Age is counted in epochs: each collection begins a new one, and each use moves a result into the current one. No clock
decides, so a clock that jumps deletes nothing. Kept are results used in the last `grace` epochs, those that a running
process has leased, those with a tag, and everything that these were made from; of remembered answers those that were
used in these epochs. Rows go first, then files: whoever is
killed in between leaves files that nothing names, and the next collection finds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import sqlalchemy as sa

from mlsdk.store import actions, locks, owner, schema
from mlsdk.store.errors import StoreReadOnly
from mlsdk.store.failpoints import hit
from mlsdk.store.store import Store, note_incidents

GRACE = 2
_BATCH = 256


@dataclass(frozen=True)
class Report:
    """What a collection did, or would do."""

    dry_run: bool
    epoch: int
    kept: int  # actions
    deleted: tuple[str, ...]  # recipes
    objects: int  # files of deleted actions
    leftovers: int  # files that nothing names, old enough to go
    young_leftovers: int  # and those that are not
    freed: int  # bytes
    memories: int  # remembered answers


def collect(store: Store, grace: int = GRACE, dry_run: bool = False) -> Report:
    """Delete what was not used in the last `grace` collections."""
    if store.read_only and not dry_run:
        raise StoreReadOnly(f"the store {store.where} is read-only; collect as a user who can write")
    with _alone(store, dry_run):
        epoch, doomed, kept = _mark(store, grace, dry_run)
    hit("gc.marked")
    deleted: list[str] = []
    count = freed = 0
    for start in range(0, len(doomed), _BATCH):
        # Publishers wait for one batch at most; a lease taken in between is seen.
        with _alone(store, dry_run):
            gone, digests = _delete_rows(store, doomed[start : start + _BATCH], dry_run)
            deleted += gone
            names = [actions.manifest_name(recipe) for recipe in gone] + [store.objects.name(one) for one in digests]
            count += len(digests)
            freed += _remove(store, names, dry_run)
    with _alone(store, dry_run):
        old, young = _leftovers(store, epoch, grace, set(deleted) if dry_run else set(), dry_run)
        freed += _remove(store, old, dry_run)
        forgotten = _forget(store, epoch - grace, dry_run)
        if not dry_run:
            _remove_locks(store)
    left = kept + len(doomed) - len(deleted)
    return Report(dry_run, epoch, left, tuple(deleted), count, len(old), young, freed, forgotten)


def _alone(store: Store, dry_run: bool) -> locks.Held:
    if dry_run:
        return locks.nothing()
    return store.locks.exclusive("gc", "the store (a collection)", store.timeout)


def _mark(store: Store, grace: int, dry_run: bool) -> tuple[int, list[str], int]:
    """(the epoch that ends, recipes to delete, number of those kept)."""
    held = store.leases.held()
    if dry_run:
        with store.index.read() as connection:
            return _chosen(connection, grace, held)
    store.leases.drop_ended()
    with store.index.write() as connection:
        found = _chosen(connection, grace, held)
        table = schema.facts
        connection.execute(table.update().where(table.c.name == "epoch").values(value=table.c.value + 1))
    return found


def _chosen(connection: sa.Connection, grace: int, held: set[str]) -> tuple[int, list[str], int]:
    epoch = actions.epoch(connection)
    rows = connection.execute(sa.select(schema.actions.c.id, schema.actions.c.recipe, schema.actions.c.epoch)).all()
    tagged = set(connection.execute(sa.select(schema.tags.c.recipe)).scalars())
    kept = {row.id for row in rows if row.epoch > epoch - grace or row.recipe in held or row.recipe in tagged}
    _add_ancestors(connection, kept)
    doomed = [row.recipe for row in rows if row.id not in kept]
    return epoch, doomed, len(kept)


def _add_ancestors(connection: sa.Connection, kept: set[int]) -> None:
    """What the kept results were made from is kept as well."""
    makers: dict[str, list[int]] = {}
    for key, digest in connection.execute(sa.select(schema.artifacts.c.action_id, schema.artifacts.c.digest)):
        makers.setdefault(digest, []).append(key)
    takes: dict[int, list[str]] = {}
    for key, digest in connection.execute(sa.select(schema.inputs.c.action_id, schema.inputs.c.digest)):
        takes.setdefault(key, []).append(digest)
    waiting = list(kept)
    while waiting:
        for digest in takes.get(waiting.pop(), ()):
            for maker in makers.get(digest, ()):
                if maker not in kept:
                    kept.add(maker)
                    waiting.append(maker)


def _delete_rows(store: Store, doomed: list[str], dry_run: bool) -> tuple[list[str], list[str]]:
    """(recipes whose rows are gone, digests that nothing names any more)."""
    held = store.leases.held()
    gone = [recipe for recipe in doomed if recipe not in held]
    if dry_run:
        with store.index.read() as connection:
            return gone, [digest for digest in _digests(connection, gone) if digest not in held]
    with store.index.write() as connection:
        digests = _digests(connection, gone)
        actions.delete(connection, gone)
        note_incidents(connection, "collected", gone, "not used for a while")
        unnamed = [digest for digest in _unnamed(connection, digests) if digest not in held]
        for start in range(0, len(unnamed), 500):
            table = schema.objects
            connection.execute(table.delete().where(table.c.digest.in_(unnamed[start : start + 500])))
        hit("gc.rows_deleted")
    hit("gc.committed")
    return gone, unnamed


def _digests(connection: sa.Connection, recipes: list[str]) -> list[str]:
    query = sa.select(schema.artifacts.c.digest).join(schema.actions).where(schema.actions.c.recipe.in_(recipes))
    return list(connection.execute(query.distinct()).scalars())


def _unnamed(connection: sa.Connection, digests: list[str]) -> list[str]:
    named: set[str] = set()
    for start in range(0, len(digests), 500):
        part = digests[start : start + 500]
        query = sa.select(schema.artifacts.c.digest).where(schema.artifacts.c.digest.in_(part))
        named.update(connection.execute(query).scalars())
    return [digest for digest in digests if digest not in named]


def _remove(store: Store, names: Iterable[str], dry_run: bool) -> int:
    """Remove files; the number of bytes."""
    freed = 0
    for name in names:
        facts = store.tree.stat(name)
        if facts is None:
            continue
        freed += facts[1]
        if not dry_run:
            store.tree.remove(name)
            hit("gc.unlinked")
    return freed


def _leftovers(store: Store, epoch: int, grace: int, deleted: set[str], dry_run: bool) -> tuple[list[str], int]:
    """(files that nothing names since `grace` epochs, number of younger ones). Sightings are written down."""
    held = store.leases.held()
    with store.index.read() as connection:
        named = set(connection.execute(sa.select(schema.artifacts.c.digest).distinct()).scalars())
        recipes = set(connection.execute(sa.select(schema.actions.c.recipe)).scalars())
        table = schema.sightings
        seen = {row.path: row.epoch for row in connection.execute(sa.select(table.c.path, table.c.epoch))}
    found = list(_unnamed_files(store, named | held, recipes | held))
    first = {name: seen.get(name, epoch) for name in found}
    old = [name for name in found if first[name] <= epoch - grace]
    if not dry_run and first != seen:
        young = [{"path": name, "epoch": at} for name, at in first.items() if at > epoch - grace]
        with store.index.write() as connection:
            connection.execute(schema.sightings.delete())
            if young:
                connection.execute(schema.sightings.insert(), young)
    return old, len(found) - len(old)


def _unnamed_files(store: Store, digests: set[str], recipes: set[str]) -> Iterator[str]:
    for digest, name in store.objects.walk():
        if digest is not None and digest not in digests:
            yield name
    for name, recipe in actions.manifests(store.tree):
        if recipe not in recipes:
            yield name
    for name, _kind in store.tree.names("tmp"):
        who = owner.of_file(name.removeprefix("tmp/"))
        # On this host a living owner is still writing; of other hosts' owners only the epochs can tell.
        if who is not None and (who.is_gone() or who.host != owner.host_name()):
            yield name
    for name, _kind in store.tree.names("quarantine"):
        yield name


def _forget(store: Store, epoch: int, dry_run: bool) -> int:
    """The number of remembered answers that were last used in `epoch` or before; unless it is a dry run, they go."""
    old = schema.memories.c.epoch <= epoch
    with store.index.read() if dry_run else store.index.write() as connection:
        count: int = connection.execute(sa.select(sa.func.count()).select_from(schema.memories).where(old)).scalar_one()
        if count and not dry_run:
            connection.execute(schema.memories.delete().where(old))
    return count


def _remove_locks(store: Store) -> None:
    """Lock files of keys that are gone. A holder keeps its own, and a waiter notices that the file was replaced."""
    with store.index.read() as connection:
        store.locks.sweep(set(connection.execute(sa.select(schema.actions.c.recipe)).scalars()))
