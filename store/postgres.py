"""The index, the locks and the leases of a store in PostgreSQL, for several machines.

The same promises as in one folder, kept by the server: a write transaction begins with a lock, so that writers come one
after the other as in SQLite; the locks are advisory locks, which end with their session, however that ends; a lease is
rows under a number whose advisory lock its process holds.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from mlsdk.store import owner, schema
from mlsdk.store.errors import (
    BadQuery,
    IndexNewer,
    NotAStore,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreReadOnly,
)
from mlsdk.store.failpoints import hit
from mlsdk.store.index import BAD_QUERY, TIMEOUT
from mlsdk.store.locks import Held, OnWait, poll
from mlsdk.store.place import Address

_LEASE_CLASS = schema.APPLICATION_ID  # of the advisory locks with two numbers
_abandoned: list[Any] = []  # a child must not close what its parent opened

# SQLSTATE -> what it means to a user
_FULL = ("53100", "53200")
_BUSY = ("55P03", "57014", "40001", "40P01")
_READ_ONLY = ("25006", "42501")


class Server:
    """Connections to one schema of one database: one for each thread, none across a fork."""

    def __init__(self, address: Address) -> None:
        self.where = str(address).partition("&objects=")[0]
        self.schema = address.schema
        try:
            self._engine = sa.create_engine(
                address.database,
                poolclass=NullPool,
                connect_args={
                    "application_name": f"mlsdk {owner.host_name()[:30]} {os.getpid()}",
                    "options": f"-csearch_path={address.schema}",
                    "connect_timeout": 10,
                },
            )
        except ModuleNotFoundError as error:
            raise StoreError(f"{self.where}: {error}; pip install 'open-mlsdk[shared]'") from None
        except sa.exc.ArgumentError as error:
            raise StoreError(f"{self.where}: {error}; check the URL") from None
        self._local = threading.local()

    def connect(self, isolation: str) -> sa.Connection:
        """A new connection of its own."""
        with self.told():
            return self._engine.connect().execution_options(isolation_level=isolation)

    def of_thread(self, name: str, isolation: str = "AUTOCOMMIT") -> sa.Connection:
        """This thread's connection under a name."""
        local = self._local
        if getattr(local, "pid", None) != os.getpid():
            _abandoned.append(dict(vars(local)))
            vars(local).clear()
            local.pid, local.open = os.getpid(), {}
        found: sa.Connection | None = local.open.get(name)
        if found is None or found.closed or found.invalidated:
            found = local.open[name] = self.connect(isolation)
        return found

    def close(self) -> None:
        """Close this thread's connections."""
        if getattr(self._local, "pid", None) == os.getpid():
            for connection in self._local.open.values():
                connection.close()
            self._local.open.clear()

    def number(self, name: str) -> int:
        """The advisory lock of a name in this schema: 63 bits."""
        digest = hashlib.sha256(f"{self.schema}\0{name}".encode()).digest()
        return int.from_bytes(digest[:8], "big", signed=True)

    @contextmanager
    def told(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            raise self.explained(error) from error

    def explained(self, error: sa.exc.DBAPIError) -> StoreError:
        state = getattr(error.orig, "sqlstate", None) or ""
        reason = str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else type(error.orig).__name__
        if state in _FULL:
            return StoreFull(f"no space left for {self.where}: {reason}; free some and run the same command again")
        if state in _BUSY:
            return StoreBusy(f"the index {self.where} was busy for too long: {reason}; try again later")
        if state in _READ_ONLY:
            return StoreReadOnly(f"the index {self.where} cannot be written: {reason}; ask for the permission")
        if not state or state.startswith(("08", "57P", "28", "3D")):
            return StoreError(f"{self.where} cannot be reached: {reason}; check the server and MLSDK_STORE")
        return StoreError(f"the index {self.where}: {reason}; run `mlsdk store fsck`")


class PostgresIndex:
    """The index in PostgreSQL; see index.py for the one in SQLite."""

    position = "strpos"

    def __init__(
        self,
        server: Server,
        read_only: bool | None,
        on_empty: Callable[[sa.Connection], None],
        timeout: float = TIMEOUT,
    ) -> None:
        self.path = server.where  # in messages
        self.timeout = timeout
        self._server = server
        self.read_only = bool(read_only)
        version = self._version()
        if read_only is None:
            self.read_only = version is not None and not self._may_write()
        if version != schema.VERSION:
            self._settle(version, on_empty)

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A connection in a transaction that sees one moment."""
        with self._server.told():
            connection = self._server.of_thread("read", "REPEATABLE READ")
            with connection.begin():
                yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A connection in a write transaction: all of it, or nothing. One writer at a time."""
        if self.read_only:
            raise StoreReadOnly(f"the store {self.path} is read-only; ask for the permission to write")
        with self._server.told():
            connection = self._server.of_thread("write", "READ COMMITTED")
            with connection.begin():
                self._lock_writers(connection)
                hit("index.begin")
                yield connection
            hit("index.committed")

    def query(self, text: str, seconds: float, rows: int) -> tuple[list[str], list[tuple[Any, ...]]]:
        """One statement of a user: in a transaction that cannot write, and not for longer than `seconds`."""
        connection = self._server.connect("READ COMMITTED")
        try:
            raw: Any = connection.connection.driver_connection
            raw.rollback()
            raw.read_only = True
            with raw.cursor() as cursor:
                cursor.execute(f"SET LOCAL statement_timeout = {int(seconds * 1000)}")
                cursor.execute(text, prepare=True)  # a prepared statement is one statement
                if not cursor.description:
                    raise BadQuery(f"that asks for nothing; {BAD_QUERY}")
                return [column.name for column in cursor.description], cursor.fetchmany(rows)
        except BadQuery:
            raise
        except Exception as error:
            if getattr(error, "sqlstate", "") == "57014":
                raise StoreBusy(f"the query took more than {seconds:g} s; ask for less, or give it more time") from None
            raise BadQuery(f"{' '.join(str(error).split())}; {BAD_QUERY}") from None
        finally:
            connection.close()

    def size(self) -> int:
        """Bytes of the index."""
        query = sa.text("SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c "
                        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :name AND c.relkind = 'r'")  # fmt: skip
        with self.read() as connection:
            return int(connection.execute(query, {"name": self._server.schema}).scalar_one())

    def quick_check(self) -> list[str]:
        """Nothing: the server checks its own pages."""
        return []

    def close(self) -> None:
        """Close this thread's connections."""
        self._server.close()

    # -- schema ------------------------------------------------------------------------------------------------------

    def _version(self) -> int | None:
        """The schema's version; None when there are no tables yet."""
        with self.read() as connection:
            names = set(sa.inspect(connection).get_table_names(schema=self._server.schema))
            if not names:
                return None
            if schema.facts.name not in names:
                raise NotAStore(f"{self.path} holds other tables and no store; give another schema=NAME")
            version = connection.execute(
                sa.select(schema.facts.c.value).where(schema.facts.c.name == "schema")
            ).scalar()
        if version is not None and version > schema.VERSION:
            raise IndexNewer(
                f"{self.path} has schema {version}, this version knows {schema.VERSION}; "
                "use the newer Open MLSDK, or set MLSDK_STORE to another one"
            )
        return version

    def _may_write(self) -> bool:
        query = "SELECT has_table_privilege('action', 'INSERT') AND NOT pg_is_in_recovery() AND " \
                "current_setting('transaction_read_only') = 'off'"  # fmt: skip
        with self.read() as connection:
            return bool(connection.execute(sa.text(query)).scalar())

    def _settle(self, version: int | None, on_empty: Callable[[sa.Connection], None]) -> None:
        if self.read_only:
            raise StoreReadOnly(f"the index {self.path} is empty or old, and the store is read-only; open it to write")
        table = schema.facts
        with self._server.told():
            connection = self._server.of_thread("write", "READ COMMITTED")
            with connection.begin():
                self._lock_writers(connection)
                if version is None:
                    connection.execute(sa.schema.CreateSchema(self._server.schema, if_not_exists=True))
                    if sa.inspect(connection).has_table(table.name, schema=self._server.schema):
                        return  # another process was faster
                    schema.create(connection)
                    schema.leases.create(connection)
                    connection.execute(table.insert().values(name="schema", value=schema.VERSION))
                    on_empty(connection)
                else:
                    now = connection.execute(sa.select(table.c.value).where(table.c.name == "schema")).scalar_one()
                    schema.migrate(connection, now)
                    connection.execute(table.update().where(table.c.name == "schema").values(value=schema.VERSION))

    def _lock_writers(self, connection: sa.Connection) -> None:
        connection.execute(sa.text(f"SET LOCAL lock_timeout = {int(self.timeout * 1000)}"))
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(self._server.number("writers"))))


class PostgresLocks:
    """Locks by name as advisory locks of this thread's session."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def exclusive(self, name: str, what: str, timeout: float | None = None, on_wait: OnWait | None = None) -> Held:
        return self._held(name, "", what, timeout, on_wait)

    def shared(self, name: str, what: str, timeout: float | None = None) -> Held:
        return self._held(name, "_shared", what, timeout, None)

    def usable(self, name: str) -> bool:
        return False  # a standby server has no advisory locks

    def sweep(self, keys: Container[str]) -> None:
        """Nothing: a lock that nobody holds leaves nothing behind."""

    @contextmanager
    def _held(self, name: str, kind: str, what: str, timeout: float | None, on_wait: OnWait | None) -> Iterator[None]:
        number = self._server.number(name)
        take = sa.text(f"SELECT pg_try_advisory_lock{kind}(:number)")
        give = sa.text(f"SELECT pg_advisory_unlock{kind}(:number)")
        with self._server.told():
            connection = self._server.of_thread("locks")

        def attempt() -> bool:
            with self._server.told():
                return bool(connection.execute(take, {"number": number}).scalar())

        poll(attempt, lambda: self._holder(number, what), what, timeout, on_wait)
        try:
            yield
        finally:
            with self._server.told():
                connection.execute(give, {"number": number})

    def _holder(self, number: int, what: str) -> str:
        query = sa.text(
            "SELECT a.application_name, to_char(a.state_change, 'YYYY-MM-DD HH24:MI:SS') "
            "FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory'"
            " AND l.granted AND l.objsubid = 1 AND l.classid = :high AND l.objid = :low LIMIT 1"
        )
        high, low = (number >> 32) & 0xFFFFFFFF, number & 0xFFFFFFFF
        with self._server.told():
            connection = self._server.of_thread("locks")
            found = connection.execute(query, {"high": high, "low": low}).first()
        name, since = found or ("", "")
        _mlsdk, _space, rest = name.partition(" ")
        host, _space, pid = rest.rpartition(" ")
        return f"process {pid} on {host} ({what}, since {since})" if pid else "another process"


class PostgresLeases:
    """Leases as rows; their owner holds the advisory lock of their number while it runs."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection: sa.Connection | None = None
        self._number, self._pid = 0, 0
        self._keys: set[str] = set()
        self._guard = threading.Lock()

    def add(self, keys: Iterable[str]) -> None:
        with self._guard, self._server.told():
            if self._pid != os.getpid():
                _abandoned.append(self._connection)
                self._connection, self._pid, self._keys = None, os.getpid(), set()
            fresh = [key for key in keys if key not in self._keys]
            if not fresh:
                return
            if self._connection is None:
                self._connection = self._server.connect("AUTOCOMMIT")
                self._number = secrets.randbits(31)
                lock = sa.select(sa.func.pg_advisory_lock(_LEASE_CLASS, self._number))
                self._connection.execute(lock)
            rows = [{"owner": self._number, "key": key} for key in fresh]
            self._connection.execute(schema.insert_new(self._connection, schema.leases), rows)
            self._keys.update(fresh)

    def close(self) -> None:
        with self._guard:
            connection, self._connection, self._keys = self._connection, None, set()
            if connection is None or self._pid != os.getpid():
                return
            try:
                connection.execute(schema.leases.delete().where(schema.leases.c.owner == self._number))
                connection.close()
            except sa.exc.SQLAlchemyError:
                pass  # the collector removes the rows: their session has ended

    def held(self) -> set[str]:
        with self._server.told():
            connection = self._server.of_thread("locks")
            return set(connection.execute(sa.select(schema.leases.c.key).where(self._alive())).scalars())

    def drop_ended(self) -> None:
        with self._server.told():
            self._server.of_thread("locks").execute(schema.leases.delete().where(~self._alive()))

    def _alive(self) -> sa.ColumnElement[bool]:
        lock = sa.table("pg_locks", *map(sa.column, ("locktype", "classid", "objid", "objsubid")), schema="pg_catalog")
        same = sa.and_(
            lock.c.locktype == "advisory",
            lock.c.objsubid == 2,
            sa.cast(lock.c.classid, sa.BigInteger) == _LEASE_CLASS,
            sa.cast(lock.c.objid, sa.BigInteger) == schema.leases.c.owner,
        )
        return sa.exists(sa.select(sa.literal(1)).select_from(lock).where(same))
