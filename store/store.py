"""The store: what was computed, under the key of everything that it depends on.

Object first, row last: a row never names an object that is not there. Every read is verified, and what fails the test
is a miss, never an answer.
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from mlsdk.store import actions, files, history, locks, owner, rebuild, schema
from mlsdk.store import digest as digests
from mlsdk.store.actions import Action, Output
from mlsdk.store.errors import BadName, NonDeterministic, NotAStore, ObjectLost, StoreError, StoreReadOnly
from mlsdk.store.failpoints import hit
from mlsdk.store.index import TIMEOUT, Index
from mlsdk.store.lease import FileLeases, Leases
from mlsdk.store.memory import Memory
from mlsdk.store.objects import Objects
from mlsdk.store.place import Address, location
from mlsdk.store.questions import Questions
from mlsdk.store.recipe import Recipe
from mlsdk.store.tree import FOLDERS, FolderTree, Stat, Tree

logger = logging.getLogger("mlsdk.store")

PRODUCT = "0.1.0"


class Store(Questions):
    """One store. Usable from several threads and processes at once."""

    def __init__(
        self, place: str | os.PathLike[str] | Address, read_only: bool | None = None, timeout: float = TIMEOUT
    ) -> None:
        self.timeout = timeout
        where = location(place)
        parts = _on_server(where, read_only) if isinstance(where, Address) else _in_folder(where, read_only)
        self.where = str(where.absolute())  # for messages, and the same for the same store
        self.tree, self.locks, self.leases = parts.tree, parts.locks, parts.leases
        self.objects = Objects(self.tree)
        self.index = parts.index(self._fill_empty_index, timeout)
        self.read_only = self.index.read_only
        weakref.finalize(self, self.leases.close)  # a store that nobody closes must not hold its results for ever
        self._verified: dict[str, Stat] = {}
        self._fresh_verified: dict[str, Stat] = {}
        self._used: set[str] = set()
        with self.index.read():
            pass  # creates, migrates or refuses now, not in the middle of a build

    @property
    def root(self) -> Path:
        """The folder of a store that is one."""
        return self.tree.path("")

    # -- look up and read --------------------------------------------------------------------------------------------

    def get(self, key: str | Recipe) -> Action | None:
        """The action under a recipe's digest, if all its objects are there and whole; None is a miss."""
        key = key.digest if isinstance(key, Recipe) else key
        with self._using():
            # Leased before it is looked up: a collector that comes between sees the lease or has already finished.
            self._take_lease([key])
            hit("hit.leased")
            with self.index.read() as connection:
                known = actions.load(connection, key)
        if known is None:
            return None
        for output in known.action.outputs.values():
            problem = self._problem(output, known.verified.get(output.digest))
            if problem is not None:
                self.discard(output.digest, problem)
                return None
        self._used.add(key)
        return known.action

    def read(self, output: Output) -> bytes:
        """The bytes of an artifact, verified. ObjectLost: its rows are gone, build it again."""
        try:
            return self.objects.read(output.digest, output.size)
        except ObjectLost as error:
            self.discard(output.digest, str(error))
            raise type(error)(f"{output.name}: {error}; it will be built again", output.digest) from None

    def discard(self, digest: str, why: str) -> None:
        """Turn a bad object into a miss: its rows go, its file moves to quarantine."""
        if self.read_only:
            logger.warning("%s (the store is read-only, so it stays)", why)
            return
        with self._alone("a damaged object is moved"):
            try:
                self.objects.read(digest)
                return  # another process has put a good one in its place
            except ObjectLost as error:
                why = str(error)
            present = self.objects.stat(digest) is not None
            with self.index.write() as connection:
                recipes = actions.naming(connection, digest)
                note_incidents(connection, "damaged" if present else "missing", recipes, why)
                actions.delete(connection, recipes)
                connection.execute(schema.objects.delete().where(schema.objects.c.digest == digest))
            hit("damage.rows_deleted")
            for recipe in recipes:
                self.tree.remove(actions.manifest_name(recipe))
            kept = self.objects.move_to_quarantine(digest)
            hit("damage.quarantined")
        self._verified.pop(digest, None)
        where = f"; kept as {kept}" if kept else ""
        logger.warning("%s%s; %d result(s) will be built again", why, where, len(recipes))

    def _problem(self, output: Output, verified: str | None) -> str | None:
        """Why an object cannot be used. A file that did not change since it was last found whole is not read again."""
        stat = self.objects.stat(output.digest)
        if stat is not None and (self._verified.get(output.digest) == stat or verified == _stat_text(stat)):
            return None
        try:
            self.objects.read(output.digest, output.size)
        except ObjectLost as error:
            return str(error)
        if stat is not None and self.tree.settled(stat):
            self._verified[output.digest] = self._fresh_verified[output.digest] = stat
        return None

    # -- publish -----------------------------------------------------------------------------------------------------

    def publish(
        self,
        recipe: Recipe,
        outputs: Mapping[str, bytes],
        *,
        kinds: Mapping[str, str] | None = None,
        volatile: Collection[str] = (),
        label: str = "",
        seconds: float = 0.0,
    ) -> Action:
        """Make `outputs` the result of `recipe`: all of them, on the disk, or nothing."""
        if self.read_only:
            raise StoreReadOnly(
                f"the store {self.where} is read-only, and {recipe.phase} has a new result; "
                "set MLSDK_STORE to a folder that you can write"
            )
        for name in outputs:
            check_name(name)
        described = {
            name: Output(name, (kinds or {}).get(name, "data"), digests.of_bytes(data), len(data), name in volatile)
            for name, data in outputs.items()
        }
        me = owner.current()
        action = Action(
            recipe.digest, recipe.text, recipe.phase, label, described, time.time(), seconds, me.host, me.pid, PRODUCT
        )
        with self._using():
            self._take_lease([action.digest, *(output.digest for output in described.values())])
            hit("publish.leased")
            stored = self.objects.put_many(list(outputs.values()))
            hit("publish.objects")
            try:
                with self.index.write() as connection:
                    known = actions.load(connection, action.digest)
                    if known is None:
                        actions.insert(
                            connection, action, {one.digest: one.stored for one in stored}, actions.epoch(connection)
                        )
                        hit("index.inserted")
                        # Inside the transaction, so that manifests of one recipe are written one after the other.
                        actions.write_manifest(self.tree, action)
            except OSError as error:
                raise self.tree.explain(error) from error
        if known is not None:
            self._compare(known.action, action)
            action = known.action
        self._used.add(action.digest)
        return action

    def _compare(self, first: Action, second: Action) -> None:
        """The same recipe was published before: the results must agree."""
        for name in sorted(first.outputs.keys() | second.outputs.keys()):
            one, other = first.outputs.get(name), second.outputs.get(name)
            if one and other and (one.digest == other.digest or one.volatile):
                continue
            if other is not None:
                self._set_aside(other.digest)
            raise NonDeterministic(
                f"{first.phase} is not deterministic: {name} was {_short(one)} and is now {_short(other)} for the same "
                f"key {first.digest[:12]}; the first is kept, the second is in quarantine/; "
                "make the phase repeatable, or put what differs into its options"
            )

    def _set_aside(self, digest: str) -> None:
        with self._alone("a differing result is moved"):
            with self.index.read() as connection:
                if actions.naming(connection, digest):
                    return
            self.objects.move_to_quarantine(digest)

    # -- locks and leases --------------------------------------------------------------------------------------------

    @contextmanager
    def lock(
        self, key: str, what: str, timeout: float | None = None, on_wait: Callable[[str], None] | None = None
    ) -> Iterator[None]:
        """Hold the lock of a key: who computes it, computes it alone."""
        if self.read_only:
            yield
            return
        with self.locks.exclusive(f"key-{key}", what, timeout, on_wait):
            hit("lock.taken")
            yield

    def release(self) -> None:
        """Nothing that this process used so far is needed any more."""
        self.leases.close()

    def _take_lease(self, keys: list[str]) -> None:
        if self.read_only:
            return
        try:
            self.leases.add(keys)
        except OSError as error:
            raise self.tree.explain(error) from error

    @contextmanager
    def using(self, keys: list[str]) -> Iterator[None]:
        """Hold off the collector, and lease keys that are about to be written or used."""
        with self._using():
            self._take_lease(keys)
            yield

    def _using(self) -> locks.Held:
        """Hold off the collector. A reader without write permission cannot; it may see a miss instead."""
        if self.read_only and not self.locks.usable("gc"):
            return locks.nothing()
        return self.locks.shared("gc", "the store's collector lock", self.timeout)

    def _alone(self, what: str) -> locks.Held:
        """Hold off everybody who publishes or looks up; for short work only, never inside _using()."""
        return self.locks.exclusive("gc", f"the store ({what})", self.timeout)

    # -- history and memory ------------------------------------------------------------------------------------------

    def began(self, build: history.Build) -> None:
        """Write that a build computes something, so that it leaves a trace if it is killed; `record` ends it."""
        if not self.read_only:
            with self.index.write() as connection:
                history.start(connection, build)

    def record(self, build: history.Build) -> int | None:
        """Write what a build did, and what it used. A read-only store writes nothing."""
        if self.read_only:
            return None
        with self.index.write() as connection:
            self._touch(connection)
            return history.insert(connection, build)

    def reason(self, recipe: Recipe, label: str) -> str:
        """Why a recipe has to be computed, in words."""
        with self.index.read() as connection:
            return history.reason(connection, recipe, label)

    def memory(self, kind: str, afresh: bool = False) -> Memory:
        """Remembered answers of a kind; see memory.py. `afresh`: what was remembered before is not recalled."""
        return Memory(self.index, kind, afresh=afresh)

    def _touch(self, connection: sa.Connection) -> None:
        used, self._used = self._used, set()
        verified, self._fresh_verified = self._fresh_verified, {}
        if used:
            now = actions.epoch(connection)
            table = schema.actions
            connection.execute(
                table.update().where(table.c.recipe.in_(sorted(used)), table.c.epoch < now).values(epoch=now)
            )
        if verified:
            table = schema.objects
            connection.execute(
                table.update().where(table.c.digest == sa.bindparam("key")).values(verified=sa.bindparam("stat")),
                [{"key": digest, "stat": _stat_text(stat)} for digest, stat in verified.items()],
            )

    def _fill_empty_index(self, connection: sa.Connection) -> None:
        found = rebuild.fill(connection, self.objects)
        present = sum(1 for digest, _name in self.objects.walk() if digest)
        if present:
            logger.warning(
                "the index of %s was missing or empty, %d objects present: %d results taken from the manifests",
                self.where,
                present,
                found,
            )

    # -- end ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self.release()
        self.index.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({self.where!r}{', read_only=True' if self.read_only else ''})"


def open_store(
    place: str | os.PathLike[str] | Address | None = None, *, read_only: bool | None = None, timeout: float = TIMEOUT
) -> Store:
    """The store at `place`, else at $MLSDK_STORE, else in ~/.cache/open-mlsdk. It is created when it is not there."""
    return Store(location(place), read_only, timeout)


def put_index_aside(place: str | os.PathLike[str] | Address | None) -> str | None:
    """Rename the damaged index of a folder, so that a new one is made when the store is opened."""
    where = location(place)
    if isinstance(where, Address):
        return None  # the server looks after its own pages
    root = where.absolute()
    with locks.exclusive(root / "index.lock", "the index", TIMEOUT):
        aside = Index(root, False, lambda connection: None).put_aside()
    return str(aside) if aside else None


@dataclass(frozen=True)
class _Parts:
    """What a store is made of."""

    tree: Tree
    locks: locks.Locks
    leases: Leases
    index: Callable[[Callable[[sa.Connection], None], float], Any]


def _in_folder(where: Path, read_only: bool | None) -> _Parts:
    root = Path(os.path.abspath(where))
    read_only = _prepare(root, read_only)

    def index(on_empty: Callable[[sa.Connection], None], timeout: float) -> Index:
        return Index(root, read_only, on_empty, timeout)

    return _Parts(FolderTree(root), locks.FileLocks(root), FileLeases(root), index)


def _on_server(where: Address, read_only: bool | None) -> _Parts:
    from mlsdk.store import postgres  # the libraries behind it are optional

    server = postgres.Server(where)

    def index(on_empty: Callable[[sa.Connection], None], timeout: float) -> postgres.PostgresIndex:
        return postgres.PostgresIndex(server, read_only, on_empty, timeout)

    return _Parts(
        _shared_files(where.files, read_only), postgres.PostgresLocks(server), postgres.PostgresLeases(server), index
    )


def _shared_files(place: str, read_only: bool | None) -> Tree:
    if "://" in place:
        from mlsdk.store.remote import RemoteTree

        return RemoteTree(place)
    root = Path(os.path.abspath(os.path.expanduser(place)))
    _prepare(root, read_only, ("objects", "manifests", "tmp", "quarantine"))
    return FolderTree(root)


def check_name(name: str) -> str:
    """An artifact's name: a relative path of plain words, because it becomes a file of a codegen_dir."""
    parts = name.split("/")
    plain = all(part and part not in (".", "..") and part[0] != "-" for part in parts)
    if not plain or len(name) > 200 or not name.isascii() or not name.isprintable() or set(name) & set('\\:*?"<>|'):
        raise BadName(f"{name!r:.80} is no name for an artifact; use letters, digits, dots, dashes and slashes")
    return name


def note_incidents(connection: sa.Connection, kind: str, recipes: list[str], detail: str) -> None:
    """Remember why results are gone, for `why`."""
    if recipes:
        now = time.time()
        rows = [{"at": now, "kind": kind, "recipe": recipe, "detail": detail} for recipe in recipes]
        connection.execute(schema.incidents.insert(), rows)


def _prepare(root: Path, read_only: bool | None, folders: tuple[str, ...] = FOLDERS) -> bool:
    """Create the folders; True when the store can only be read."""
    try:
        if not root.exists():
            if read_only:
                raise NotAStore(f"there is no store at {root}; check MLSDK_STORE")
            root.mkdir(parents=True, exist_ok=True)
        if read_only is None:
            read_only = not os.access(root, os.W_OK | os.X_OK)
        names = set(os.listdir(root))
        if names and not names & {*FOLDERS, "index.sqlite"}:
            raise NotAStore(f"{root} holds other files and no store; set MLSDK_STORE to a new or empty folder")
        if not read_only and not names.issuperset(folders):
            for name in folders:
                (root / name).mkdir(exist_ok=True)
            files.fsync_folder(root)
    except NotADirectoryError:
        raise NotAStore(f"{root} is not a folder; set MLSDK_STORE to a folder") from None
    except FileExistsError:
        raise NotAStore(f"{root} is not a folder; set MLSDK_STORE to a folder") from None
    except OSError as error:
        told = files.explain(error, root)
        if isinstance(told, StoreError):
            raise told from error
        raise NotAStore(f"{root}: {error.strerror}; set MLSDK_STORE to a folder that can be written") from error
    return read_only


def _stat_text(stat: Stat) -> str:
    return " ".join(map(str, stat))


def _short(output: Output | None) -> str:
    return output.digest[:12] if output else "absent"
