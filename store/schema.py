"""The tables of the index, and how an older index becomes a newer one.

Everything here can be made again: actions and their artifacts from the manifests, objects from their headers,
remembered simulations by simulating. Only the history of builds lives here alone.
"""

from __future__ import annotations

import sqlalchemy as sa

APPLICATION_ID = 0x4D4C5344  # "MLSD", so that `file index.sqlite` and we recognise it
VERSION = 1

metadata = sa.MetaData()

actions = sa.Table(
    "action",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("recipe", sa.Text, nullable=False, unique=True),
    sa.Column("phase", sa.Text, nullable=False),
    sa.Column("label", sa.Text, nullable=False),  # of the build that made it
    sa.Column("parts", sa.Text, nullable=False),  # canonical text of the recipe
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("seconds", sa.Float, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("product", sa.Text, nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False),  # the collector's epoch of the last use
    sa.Index("action_phase_label", "phase", "label"),
    sa.Index("action_created", "created"),
)

artifacts = sa.Table(
    "artifact",
    metadata,
    sa.Column("action_id", sa.ForeignKey("action.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False, index=True),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("volatile", sa.Boolean, nullable=False),
    sqlite_with_rowid=False,
)

inputs = sa.Table(
    "input",
    metadata,
    sa.Column("action_id", sa.ForeignKey("action.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, nullable=False, index=True),
    sqlite_with_rowid=False,
)

objects = sa.Table(
    "object",
    metadata,
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("stored", sa.Integer, nullable=False),
    sa.Column("verified", sa.Text),  # the file's stat when it was last read and found whole
    sqlite_with_rowid=False,
)

builds = sa.Table(
    "build",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("label", sa.Text, nullable=False, index=True),
    sa.Column("started", sa.Float, nullable=False),
    sa.Column("seconds", sa.Float, nullable=False),
    sa.Column("status", sa.Text, nullable=False),  # ok, failed, interrupted
    sa.Column("error", sa.Text, nullable=False),
    sa.Column("command", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
)

events = sa.Table(
    "event",
    metadata,
    sa.Column("build_id", sa.ForeignKey("build.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("phase", sa.Text, nullable=False),
    sa.Column("label", sa.Text, nullable=False),
    sa.Column("recipe", sa.Text, nullable=False, index=True),
    sa.Column("parts", sa.Text, nullable=False),
    sa.Column("outcome", sa.Text, nullable=False),  # built, cached, failed
    sa.Column("reason", sa.Text, nullable=False),  # why it was not reused, in words; "" when it was
    sa.Column("seconds", sa.Float, nullable=False),
    sa.Index("event_label", "label", "phase", "build_id"),
    sqlite_with_rowid=False,
)

incidents = sa.Table(
    "incident",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),  # damaged, missing, collected
    sa.Column("recipe", sa.Text, nullable=False, index=True),
    sa.Column("detail", sa.Text, nullable=False),
)

memories = sa.Table(
    "memory",
    metadata,
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("key", sa.LargeBinary, primary_key=True),
    sa.Column("parts", sa.Text, nullable=False),
    sa.Column("value", sa.Text, nullable=False),
    sa.Column("seal", sa.LargeBinary, nullable=False),  # over key and value: SQLite has no checksums of its own
    sqlite_with_rowid=False,
)

tags = sa.Table(
    "tag",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("recipe", sa.Text, nullable=False),
    sqlite_with_rowid=False,
)

sightings = sa.Table(
    "sighting",  # files that nothing names, and the epoch in which the collector first saw them
    metadata,
    sa.Column("path", sa.Text, primary_key=True),
    sa.Column("epoch", sa.Integer, nullable=False),
    sqlite_with_rowid=False,
)

facts = sa.Table(
    "fact",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Integer, nullable=False),
    sqlite_with_rowid=False,
)

# version -> statements that lead to it from the version before
MIGRATIONS: dict[int, tuple[str, ...]] = {}


def create(connection: sa.Connection) -> None:
    """All tables in an empty index."""
    metadata.create_all(connection)
    connection.execute(facts.insert().values(name="epoch", value=0))
    connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")


def migrate(connection: sa.Connection, version: int) -> None:
    """From `version` to VERSION, one step after the other, in the caller's transaction."""
    for step in range(version + 1, VERSION + 1):
        for statement in MIGRATIONS[step]:
            connection.exec_driver_sql(statement)
    connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")
