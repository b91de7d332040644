"""The index: one SQLite file, opened so that it survives crashes, forks and other processes.

Rollback journal (TRUNCATE) and synchronous FULL: WAL has a corruption race in the SQLite that Python 3.11 carries, and
a reader without write permission cannot open it. Writers begin with BEGIN IMMEDIATE, so that a lock is waited for at
the start and never in the middle. The file is never opened by hand: closing it would drop SQLite's own locks.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.pool import NullPool

from mlsdk.store import files, locks, schema
from mlsdk.store.errors import (
    BadQuery,
    IndexDamaged,
    IndexNewer,
    NotAStore,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreReadOnly,
)
from mlsdk.store.failpoints import hit

logger = logging.getLogger("mlsdk.store")

TIMEOUT = 60.0
BAD_QUERY = "write one SELECT over the views artifacts, actions, runs and node_simulations (`mlsdk store query --help`)"

_abandoned: list[sa.Connection] = []  # a child must not close what its parent opened


class Index:
    """Connections to the index of one store: one for each thread, none across a fork."""

    position = "instr"  # the function that finds a text in a text

    def __init__(
        self, root: Path, read_only: bool, on_empty: Callable[[sa.Connection], None], timeout: float = TIMEOUT
    ) -> None:
        self.root = root
        self.path = root / "index.sqlite"
        self.read_only = read_only
        self.timeout = timeout
        self._on_empty = on_empty
        self._local = threading.local()
        self._engine = sa.create_engine("sqlite://", creator=self._connect, poolclass=NullPool)
        event.listen(self._engine, "begin", _begin)

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A connection in a read transaction."""
        connection = self._connection()
        with self._translated(), connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A connection in a write transaction: all of it, or nothing."""
        if self.read_only:
            raise StoreReadOnly(f"the store {self.root} is read-only; set MLSDK_STORE to a folder that you can write")
        connection = self._connection().execution_options(mlsdk_begin="BEGIN IMMEDIATE")
        try:
            with self._translated():
                with connection.begin():
                    hit("index.begin")
                    yield connection
                hit("index.committed")
        finally:
            _roll_back(connection)
            connection.execution_options(mlsdk_begin="BEGIN")

    def close(self) -> None:
        """Close this thread's connection."""
        connection = getattr(self._local, "connection", None)
        self._local.connection = None
        if connection is not None:
            connection.close()

    def quick_check(self) -> list[str]:
        """What SQLite's own check says; empty when the index is whole."""
        with self.read() as connection:
            rows = connection.exec_driver_sql("PRAGMA quick_check").scalars().all()
        return [] if rows == ["ok"] else [str(row) for row in rows]

    def query(self, text: str, seconds: float, rows: int) -> tuple[list[str], list[tuple[Any, ...]]]:
        """One statement of a user: on a connection of its own that cannot write, and not for longer than `seconds`."""
        with self._translated():
            raw = sqlite3.connect(f"file:{_quoted(self.path)}?mode=ro", uri=True, timeout=seconds, isolation_level=None)
        until = time.monotonic() + seconds
        try:
            raw.execute("PRAGMA query_only = ON")
            raw.set_authorizer(_only_reads)
            raw.set_progress_handler(lambda: time.monotonic() > until, 10_000)
            cursor = raw.execute(text)
            if cursor.description is None:
                raise BadQuery(f"that asks for nothing; {BAD_QUERY}")
            return [column[0] for column in cursor.description], cursor.fetchmany(rows)
        except (sqlite3.Error, sqlite3.Warning) as error:
            if _code(error) == sqlite3.SQLITE_INTERRUPT:
                raise StoreBusy(f"the query took more than {seconds:g} s; ask for less, or give it more time") from None
            raise BadQuery(f"{error}; {BAD_QUERY}") from None
        finally:
            raw.close()

    def size(self) -> int:
        """Bytes of the index."""
        return os.stat(self.path).st_size

    def put_aside(self) -> Path | None:
        """Rename a damaged index and its journal to `index.bad-<n>`: a journal left behind would spoil the new one."""
        self.close()
        if not self.path.exists():
            return None
        number = 1
        while (target := self.root / f"index.bad-{number}").exists():
            number += 1
        journal = Path(f"{self.path}-journal")
        if journal.exists():
            os.rename(journal, f"{target}-journal")
        os.rename(self.path, target)
        return target

    # -- connections -------------------------------------------------------------------------------------------------

    def _connection(self) -> sa.Connection:
        local = self._local
        connection: sa.Connection | None = getattr(local, "connection", None)
        if connection is not None:
            if local.pid != os.getpid():
                _abandoned.append(connection)
                connection = None
            elif local.file != self._identity():
                # The file was replaced (rebuilt, restored): what this connection reads is no longer the index.
                connection.close()
                connection = None
        if connection is None:
            with self._translated():
                connection = self._open()
            local.connection, local.pid, local.file = connection, os.getpid(), self._identity()
        return connection

    def _identity(self) -> tuple[int, int] | None:
        try:
            facts = os.stat(self.path)
        except FileNotFoundError:
            return None
        return (facts.st_dev, facts.st_ino)

    def _open(self) -> sa.Connection:
        try:
            return self._prepared()
        except sa.exc.DatabaseError as error:
            if self.read_only or _code(error) != sqlite3.SQLITE_NOTADB:
                raise
        # The header is overwritten: no transaction can be running on it, so it is put aside by one process at a time.
        with locks.exclusive(self.root / "index.lock", "the index", self.timeout):
            try:
                return self._prepared()
            except sa.exc.DatabaseError as error:
                if _code(error) != sqlite3.SQLITE_NOTADB:
                    raise
            logger.warning("%s is no database any more: kept as %s", self.path, self.put_aside())
            return self._prepared()

    def _prepared(self) -> sa.Connection:
        connection = self._engine.connect()
        try:
            application, version = _marks(connection)
            if (application, version) != (schema.APPLICATION_ID, schema.VERSION):
                self._settle(connection, application, version)
        except BaseException:
            connection.close()
            raise
        return connection

    def _settle(self, connection: sa.Connection, application: int, version: int) -> None:
        """Create, migrate or refuse."""
        if application not in (0, schema.APPLICATION_ID):
            raise NotAStore(f"{self.path} is a database of another program; set MLSDK_STORE to another folder")
        if version > schema.VERSION:
            raise IndexNewer(
                f"{self.path} has schema {version}, this version knows {schema.VERSION}; "
                "use the newer Open MLSDK, or set MLSDK_STORE to another folder"
            )
        if self.read_only:
            raise StoreReadOnly(
                f"the index {self.path} is empty or old, and the store is read-only; "
                "open it once as a user who can write"
            )
        writer = connection.execution_options(mlsdk_begin="BEGIN EXCLUSIVE")
        try:
            with writer.begin():
                application, version = _marks(writer)  # another process may have been faster
                if version == 0:
                    schema.create(writer)
                    writer.exec_driver_sql(f"PRAGMA application_id = {schema.APPLICATION_ID}")
                    # In the same transaction: an index without the rows of existing manifests is never seen.
                    self._on_empty(writer)
                elif version < schema.VERSION:
                    schema.migrate(writer, version)
                writer.exec_driver_sql(f"PRAGMA user_version = {schema.VERSION}")
        finally:
            connection.execution_options(mlsdk_begin="BEGIN")

    def _connect(self) -> sqlite3.Connection:
        mode = "ro" if self.read_only else "rwc"
        raw = sqlite3.connect(
            f"file:{_quoted(self.path)}?mode={mode}",
            uri=True,
            timeout=self.timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        for pragma in self._pragmas():
            raw.execute(pragma)
        return raw

    def _pragmas(self) -> list[str]:
        # busy_timeout first: every other statement may meet a lock.
        pragmas = [f"PRAGMA busy_timeout = {int(self.timeout * 1000)}"]
        if not self.read_only:
            pragmas += ["PRAGMA journal_mode = TRUNCATE", "PRAGMA synchronous = FULL"]
        return [*pragmas, "PRAGMA foreign_keys = ON"]

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DatabaseError as error:
            raise self._explained(error) from error
        except sqlite3.DatabaseError as error:
            raise self._explained(error) from error
        except OSError as error:
            raise files.explain(error, self.root) from error

    def _explained(self, error: Any) -> Exception:
        code = _code(error)
        reason = str(getattr(error, "orig", error))
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreBusy(
                f"the index {self.path} was locked by another process for {self.timeout:g} s; try again later"
            )
        if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and "read" not in _name(error)):
            return StoreFull(
                f"no space left in {self.root} ({reason}, free {_bytes(files.free_bytes(self.root))}); "
                "free some and run the same command again"
            )
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
            return StoreReadOnly(
                f"the index {self.path} cannot be opened or written: {reason}; "
                "check the permissions, or set MLSDK_STORE to a folder that you can write"
            )
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return IndexDamaged(f"the index {self.path} is damaged: {reason}; run `mlsdk store fsck --rebuild`")
        return StoreError(f"the index {self.path}: {reason}; run `mlsdk store fsck`")


_READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


def _bytes(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,} bytes"


def _only_reads(action: int, one: str | None, other: str | None, *_: object) -> int:
    forbidden = action == sqlite3.SQLITE_FUNCTION and other == "load_extension"
    return sqlite3.SQLITE_OK if action in _READS and not forbidden else sqlite3.SQLITE_DENY


def _begin(connection: sa.Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("mlsdk_begin", "BEGIN"))


def _roll_back(connection: sa.Connection) -> None:
    """A COMMIT that failed (a reader, a full disk) leaves SQLite's transaction open."""
    raw = connection.connection.driver_connection
    if raw is not None and raw.in_transaction:
        raw.rollback()


def _marks(connection: sa.Connection) -> tuple[int, int]:
    """application_id and user_version, outside of SQLAlchemy's transactions when there is none."""
    cursor = connection.connection.cursor()
    application = cursor.execute("PRAGMA application_id").fetchone()[0]
    version = cursor.execute("PRAGMA user_version").fetchone()[0]
    cursor.close()
    return application, version


def _code(error: Any) -> int:
    original = getattr(error, "orig", None) or error
    return getattr(original, "sqlite_errorcode", 0) & 0xFF


def _name(error: Any) -> str:
    original = getattr(error, "orig", None) or error
    return getattr(original, "sqlite_errorname", "").lower()


def _quoted(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
