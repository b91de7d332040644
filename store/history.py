"""What ran when: builds, and in each the phases with their outcome and the reason."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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


def insert(connection: sa.Connection, build: Build) -> int:
    """Write a build with its events."""
    key: Any = connection.execute(
        schema.builds.insert().values(
            label=build.label,
            started=build.started,
            seconds=build.seconds,
            status=build.status,
            error=build.error,
            command=build.command,
            host=owner.host_name(),
            pid=os.getpid(),
            facts=json.dumps(build.facts, sort_keys=True, allow_nan=False),
        )
    ).inserted_primary_key
    number = key[0]
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
    return int(number)


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
