"""What ran when: builds, and in each the phases with their outcome and the reason.

A build that computes something has a row from its first phase on, so that one that is killed leaves a trace: a row that
says `running`, of a process that is gone.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa

from mlsdk.store import owner, schema
from mlsdk.store.recipe import Recipe, changes, digest_of_text

OUTCOMES = ("built", "cached", "failed")


@dataclass(frozen=True)
class Event:
    """One phase in one build."""

    phase: str
    label: str
    recipe: str  # digest
    parts: str  # canonical text of the recipe
    outcome: str
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Build:
    label: str
    started: float  # wall clock, for people; durations are measured with a monotonic one
    seconds: float
    status: str = "ok"
    error: str = ""
    command: str = ""
    events: Sequence[Event] = field(default_factory=tuple)
    facts: Mapping[str, Any] = field(default_factory=dict)  # the options given, the preset, the device: JSON data
    pid: int = field(default_factory=os.getpid)  # of the process that began it


def start(connection: sa.Connection, build: Build) -> int:
    """Write that a build has begun; `insert` of the same build ends it. Its workers may say so too."""
    born = {"process_started": owner.of_process(build.pid).start}
    known = _running(connection, build)
    return known or _row(connection, replace(build, status="running", facts={**build.facts, **born}), None)


def insert(connection: sa.Connection, build: Build) -> int:
    """Write a build with its events, in the row with which it began if there is one."""
    number = _row(connection, build, _running(connection, build))
    if build.events:
        rows = [
            {
                "build_id": number,
                "position": position,
                "phase": event.phase,
                "label": event.label,
                "recipe": event.recipe,
                "parts": event.parts,
                "outcome": event.outcome,
                "reason": event.reason,
                "seconds": event.seconds,
            }
            for position, event in enumerate(build.events)
        ]
        connection.execute(schema.events.insert(), rows)
    return number


def _running(connection: sa.Connection, build: Build) -> int | None:
    """The row with which this build began."""
    table = schema.builds
    query = sa.select(table.c.id).where(
        table.c.started == build.started,
        table.c.pid == build.pid,
        table.c.host == owner.host_name(),
        table.c.status == "running",
    )
    return connection.execute(query).scalar()


def _row(connection: sa.Connection, build: Build, number: int | None) -> int:
    table = schema.builds
    values = {
        "label": build.label,
        "started": build.started,
        "seconds": build.seconds,
        "status": build.status,
        "error": build.error,
        "command": build.command,
        "host": owner.host_name(),
        "pid": build.pid,
        "facts": json.dumps(build.facts, sort_keys=True, allow_nan=False),
    }
    if number is None:
        key: Any = connection.execute(table.insert().values(values)).inserted_primary_key
        return int(key[0])
    connection.execute(table.update().where(table.c.id == number).values(values))
    return number


def ended(host: str, pid: int, facts: Mapping[str, Any]) -> bool:
    """Whether a running build's process is gone, as far as this host can tell."""
    return owner.Owner(host, pid, facts.get("process_started", 0)).is_gone()


def previous_parts(connection: sa.Connection, phase: str, label: str, other_than: str) -> str | None:
    """The newest recipe text of this phase and label whose digest is not `other_than`."""
    table = schema.events
    query = (
        sa.select(table.c.parts)
        .where(table.c.label == label, table.c.phase == phase, table.c.recipe != other_than)
        .order_by(table.c.build_id.desc(), table.c.position.desc())
        .limit(1)
    )
    return connection.execute(query).scalar()


def reason(connection: sa.Connection, recipe: Recipe, label: str) -> str:
    """Why a phase is not reused, in words."""
    incidents = schema.incidents
    lost = connection.execute(
        sa.select(incidents.c.kind, incidents.c.detail, incidents.c.at)
        .where(incidents.c.recipe == recipe.digest)
        .order_by(incidents.c.id.desc())
        .limit(1)
    ).first()
    if lost is not None:
        return f"its result was {lost.kind} ({lost.detail}, {time.strftime('%Y-%m-%d %H:%M', time.localtime(lost.at))})"
    before = previous_parts(connection, recipe.phase, label, recipe.digest)
    if before is None:
        return f"first build of {recipe.phase} for {label}" if label else f"first build of {recipe.phase}"
    return "; ".join(map(str, changes(before, recipe.text))) or f"new key {digest_of_text(recipe.text)[:12]}"
