"""The tables of the index, and how an older index becomes a newer one.

Everything here can be made again: actions and their artifacts from the manifests, objects from their headers,
remembered simulations by simulating. Only the history of builds lives here alone.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import sqlalchemy as sa

APPLICATION_ID = 0x4D4C5344  # "MLSD", so that `file index.sqlite` and we recognise it
VERSION = 4

metadata = sa.MetaData()

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")  # in the order of its bytes, on every engine
REAL: Any = sa.Double()

actions = sa.Table(
    "action",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("recipe", TEXT, nullable=False, unique=True),
    sa.Column("phase", TEXT, nullable=False),
    sa.Column("label", TEXT, nullable=False),  # of the build that made it
    sa.Column("parts", TEXT, nullable=False),  # canonical text of the recipe
    sa.Column("created", REAL, nullable=False),
    sa.Column("seconds", REAL, nullable=False),
    sa.Column("host", TEXT, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("product", TEXT, nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False),  # the collector's epoch of the last use
    sa.Index("action_phase_label", "phase", "label"),
    sa.Index("action_created", "created"),
)

artifacts = sa.Table(
    "artifact",
    metadata,
    sa.Column("action_id", sa.ForeignKey("action.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("name", TEXT, primary_key=True),
    sa.Column("kind", TEXT, nullable=False),
    sa.Column("digest", TEXT, nullable=False, index=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("volatile", sa.Boolean, nullable=False),
    sqlite_with_rowid=False,
)

inputs = sa.Table(
    "input",
    metadata,
    sa.Column("action_id", sa.ForeignKey("action.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("name", TEXT, primary_key=True),
    sa.Column("digest", TEXT, nullable=False, index=True),
    sqlite_with_rowid=False,
)

objects = sa.Table(
    "object",
    metadata,
    sa.Column("digest", TEXT, primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("stored", sa.BigInteger, nullable=False),
    sa.Column("verified", TEXT),  # the file's stat when it was last read and found whole
    sqlite_with_rowid=False,
)

builds = sa.Table(
    "build",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("label", TEXT, nullable=False, index=True),
    sa.Column("started", REAL, nullable=False),
    sa.Column("seconds", REAL, nullable=False),
    sa.Column("status", TEXT, nullable=False),  # running, ok, failed, interrupted
    sa.Column("error", TEXT, nullable=False),
    sa.Column("command", TEXT, nullable=False),
    sa.Column("host", TEXT, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    # JSON for people and for questions: the options that were given, the preset, the device; while it runs, since when
    # its process does
    sa.Column("facts", TEXT, nullable=False, server_default="{}"),
)

events = sa.Table(
    "event",
    metadata,
    sa.Column("build_id", sa.ForeignKey("build.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("phase", TEXT, nullable=False),
    sa.Column("label", TEXT, nullable=False),
    sa.Column("recipe", TEXT, nullable=False, index=True),
    sa.Column("parts", TEXT, nullable=False),
    sa.Column("outcome", TEXT, nullable=False),  # built, cached, failed
    sa.Column("reason", TEXT, nullable=False),  # why it was not reused, in words; "" when it was
    sa.Column("seconds", REAL, nullable=False),
    sa.Index("event_label", "label", "phase", "build_id"),
    sqlite_with_rowid=False,
)

incidents = sa.Table(
    "incident",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("at", REAL, nullable=False),
    sa.Column("kind", TEXT, nullable=False),  # damaged, missing, collected
    sa.Column("recipe", TEXT, nullable=False, index=True),
    sa.Column("detail", TEXT, nullable=False),
)

memories = sa.Table(
    "memory",
    metadata,
    sa.Column("kind", TEXT, primary_key=True),
    sa.Column("key", sa.LargeBinary, primary_key=True),
    sa.Column("parts", TEXT, nullable=False),
    sa.Column("value", TEXT, nullable=False),
    sa.Column("seal", sa.LargeBinary, nullable=False),  # over key and value: SQLite has no checksums of its own
    sa.Column("epoch", sa.Integer, nullable=False, server_default="0"),  # the collector's epoch of the last use
    sqlite_with_rowid=False,
)

tags = sa.Table(
    "tag",
    metadata,
    sa.Column("name", TEXT, primary_key=True),
    sa.Column("recipe", TEXT, nullable=False),
    sqlite_with_rowid=False,
)

sightings = sa.Table(
    "sighting",  # files that nothing names, and the epoch in which the collector first saw them
    metadata,
    sa.Column("path", TEXT, primary_key=True),
    sa.Column("epoch", sa.Integer, nullable=False),
    sqlite_with_rowid=False,
)

facts = sa.Table(
    "fact",
    metadata,
    sa.Column("name", TEXT, primary_key=True),
    sa.Column("value", sa.Integer, nullable=False),
    sqlite_with_rowid=False,
)

# Only where the processes share no file system: in a folder a lease is a locked file.
leases = sa.Table(
    "lease",
    sa.MetaData(),
    sa.Column("owner", sa.BigInteger, primary_key=True),
    sa.Column("key", TEXT, primary_key=True),
)

# What `query` and other programs may rely on; the tables behind them may change. One row each: name -> SELECT.
# {json} is the dialect's way to take a member of a JSON text.
VIEWS: dict[str, str] = {
    "artifacts": """
        SELECT artifact.name, artifact.kind, artifact.size, object.stored, action.phase, action.label AS workflow,
               action.created, artifact.digest, action.recipe AS key
        FROM artifact JOIN action ON action.id = artifact.action_id LEFT JOIN object ON object.digest = artifact.digest
    """,
    "actions": """
        SELECT recipe AS key, phase, label AS workflow, created, seconds, {options} AS options, {inputs} AS inputs,
               host, pid, product
        FROM action
    """,
    "runs": """
        SELECT build.id AS build, build.label AS workflow, event.label AS program, event.phase, event.outcome,
               event.reason, event.seconds, build.started, build.seconds AS build_seconds, build.status,
               {device} AS device, {preset} AS preset, {given} AS options, event.recipe AS key, build.host,
               build.command
        FROM event JOIN build ON build.id = event.build_id
    """,
    "node_simulations": """
        SELECT {op} AS op, CAST({steps} AS BIGINT) AS steps, CAST({dram_lw} AS BIGINT) AS dram_lw, parts AS node
        FROM memory WHERE kind = 'node_simulation'
    """,
}

_MEMBERS = {"options": ("action.parts", "options"), "inputs": ("action.parts", "inputs"),
            "device": ("build.facts", "device"), "preset": ("build.facts", "preset"),
            "given": ("build.facts", "options"), "op": ("memory.parts", "op"),
            "steps": ("memory.value", "steps"), "dram_lw": ("memory.value", "dram_lw")}  # fmt: skip
_MEMBER_SQL = {"sqlite": "json_extract({}, '$.{}')", "postgresql": "CAST({} AS json) ->> '{}'"}

# version -> statements that lead to it from the version before; the views are made anew after the last one
MIGRATIONS: dict[int, tuple[str, ...]] = {
    2: ("ALTER TABLE build ADD COLUMN facts TEXT NOT NULL DEFAULT '{}'",),
    3: (),  # the view node_simulations has columns for what it is asked for
    4: ("ALTER TABLE memory ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0",),
}


def create(connection: sa.Connection) -> None:
    """All tables and views in an empty index."""
    metadata.create_all(connection)
    connection.execute(facts.insert().values(name="epoch", value=0))
    create_views(connection)


def migrate(connection: sa.Connection, version: int) -> None:
    """From `version` to VERSION, one step after the other, in the caller's transaction."""
    for step in range(version + 1, VERSION + 1):
        for statement in MIGRATIONS[step]:
            connection.exec_driver_sql(statement)
    create_views(connection)


def create_views(connection: sa.Connection) -> None:
    """The views of this version."""
    pattern = _MEMBER_SQL[connection.dialect.name]
    members = {name: pattern.format(*of) for name, of in _MEMBERS.items()}
    for name, text in VIEWS.items():
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")
        connection.exec_driver_sql(f"CREATE VIEW {name} AS {text.format(**members)}")


def insert_new(connection: sa.Connection, table: sa.Table) -> sa.Insert:
    """INSERT that leaves a row that is there as it is."""
    return _insert(connection.dialect.name, table, False)


def insert_over(connection: sa.Connection, table: sa.Table) -> sa.Insert:
    """INSERT that replaces a row that is there."""
    return _insert(connection.dialect.name, table, True)


@cache  # building a statement costs more than running it
def _insert(dialect: str, table: sa.Table, replace: bool) -> Any:
    # Imported by name: only the one that is used.
    insert = importlib.import_module(f"sqlalchemy.dialects.{dialect}").insert(table)
    if not replace:
        return insert.on_conflict_do_nothing()
    keys = [column.name for column in table.primary_key]
    values = {column.name: insert.excluded[column.name] for column in table.columns if column.name not in keys}
    return insert.on_conflict_do_update(index_elements=keys, set_=values)
