"""What differs between two builds, or between two results and what they were made from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mlsdk.store import actions, codec, query, schema
from mlsdk.store.actions import Action
from mlsdk.store.errors import ObjectLost
from mlsdk.store.recipe import changes
from mlsdk.store.store import Store

# Artifacts whose numbers on the top level are worth a line: what the compile costs, what a run took.
MEASURED = ("report.json", "run.json")


@dataclass(frozen=True)
class Part:
    """One phase on one side."""

    parts: str
    seconds: float
    outcome: str
    action: Action | None  # None when the result was collected since


@dataclass(frozen=True)
class Side:
    facts: dict[str, Any]
    phases: dict[str, Part]


def diff(store: Store, one: str, other: str) -> dict[str, Any]:
    """Options, inputs, artifacts, seconds and measured numbers of two builds (`@12`, a label) or results."""
    a, b = side(store, one), side(store, other)
    both = [name for name in a.phases if name in b.phases]
    found = [(name, change) for name in both for change in changes(a.phases[name].parts, b.phases[name].parts)]
    rows = [
        {"phase": name, "part": change.part, "a": codec.plain(change.before), "b": codec.plain(change.after)}
        for name, change in found
    ]
    return {
        "a": a.facts,
        "b": b.facts,
        "only_a": [name for name in a.phases if name not in b.phases],
        "only_b": [name for name in b.phases if name not in a.phases],
        "options": _given(a.facts, b.facts) + [row for row in rows if not row["part"].startswith("input ")],
        "inputs": [row for row in rows if row["part"].startswith("input ")],
        "artifacts": [row for name in both for row in _artifacts(name, a.phases[name], b.phases[name])],
        "seconds": sorted((_seconds(name, a.phases[name], b.phases[name]) for name in both), key=_effect),
        "numbers": _numbers(store, a, b),
    }


def side(store: Store, text: str) -> Side:
    """What a reference means here: a build with its phases, or a result with everything that it was made from."""
    number = query.build_number(store, text)
    if number is not None:
        return _of_build(store, number, text)
    action = query.find(store, text).action
    with store.index.read() as connection:
        found = [action, *(one for one in query.ancestors(connection, action.digest))]
    parts = {one.phase: Part(one.parts, one.seconds, "built", one) for one in reversed(found)}
    facts = {"ref": text, "build": None, "label": action.label, "started": action.created, "seconds": action.seconds}
    return Side({**facts, "host": action.host, "device": "", "preset": None, "options": {}}, parts)


def _of_build(store: Store, number: int, text: str) -> Side:
    build = query.builds(store, [number])[0]
    label = "" if text.startswith("@") else text
    parts: dict[str, Part] = {}
    programs = {event["label"] for event in build["phases"]}
    with store.index.read() as connection:
        for event in build["phases"]:
            if label and label != build["label"] and event["label"] != label:
                continue
            known = actions.load(connection, event["recipe"])
            action = known.action if known else None
            name = event["phase"]
            if name in parts:
                name = f"{event['label'].rpartition('/')[2]}/{name}" if len(programs) > 1 else f"{name} {len(parts)}"
            seconds = action.seconds if action and event["outcome"] == "cached" else event["seconds"]
            parts[name] = Part(event["parts"], seconds, event["outcome"], action)
    names = ("label", "started", "seconds", "host", "device", "preset", "options")
    return Side({"ref": text, "build": number, **{name: build[name] for name in names}}, parts)


def _given(a: dict[str, Any], b: dict[str, Any]) -> list[dict[str, Any]]:
    """Differences in what the user asked for, and where it was computed."""
    rows = [
        {"phase": "", "part": name, "a": a[name], "b": b[name]}
        for name in ("preset", "device", "host")
        if a[name] != b[name]
    ]
    names = sorted(a["options"].keys() | b["options"].keys())
    return rows + [
        {"phase": "", "part": f"given option {name}", "a": a["options"].get(name), "b": b["options"].get(name)}
        for name in names
        if a["options"].get(name) != b["options"].get(name)
    ]


def _artifacts(phase: str, a: Part, b: Part) -> list[dict[str, Any]]:
    if a.action is None or b.action is None:
        return []
    one, other = a.action.outputs, b.action.outputs
    rows = []
    for name in sorted(one.keys() | other.keys()):
        left, right = one.get(name), other.get(name)
        if left and right and left.digest == right.digest:
            continue
        rows.append(
            {
                "phase": phase,
                "name": name,
                "a": left.digest if left else None,
                "b": right.digest if right else None,
                "size_a": left.size if left else None,
                "size_b": right.size if right else None,
            }
        )
    return rows


def _seconds(phase: str, a: Part, b: Part) -> dict[str, Any]:
    """What a phase takes to compute, and whether that was done here or came from the store."""
    return {"phase": phase, "a": a.seconds, "b": b.seconds, "outcome_a": a.outcome, "outcome_b": b.outcome}


def _effect(row: dict[str, Any]) -> float:
    """Sorts first what makes the greatest difference to the time that the two took."""
    a, b = (row[side] if row[f"outcome_{side}"] != "cached" else 0.0 for side in ("a", "b"))
    return -abs(b - a)


def _numbers(store: Store, a: Side, b: Side) -> list[dict[str, Any]]:
    one, other = measured(store, a), measured(store, b)
    return [
        {"artifact": artifact, "name": name, "a": one.get((artifact, name)), "b": other.get((artifact, name))}
        for artifact, name in sorted(one.keys() | other.keys())
        if one.get((artifact, name)) != other.get((artifact, name))
    ]


def measured(store: Store, of: Side) -> dict[tuple[str, str], float]:
    """(artifact, name) -> number."""
    found: dict[tuple[str, str], float] = {}
    for phase, part in of.phases.items():
        for name in MEASURED if part.action is not None else ():
            output = part.action.outputs.get(name) if part.action else None
            if output is None:
                continue
            program = phase.rpartition("/")[0]
            for key, value in numbers(store, output.digest, output.size).items():
                found[f"{program}/{name}" if program else name, key] = value
    return found


def numbers(store: Store, digest: str, size: int) -> dict[str, float]:
    """The numbers on the top level of a JSON artifact; nothing when it is lost or no such thing."""
    try:
        data = json.loads(store.objects.read(digest, size))
    except (ObjectLost, ValueError, RecursionError):
        return {}
    if not isinstance(data, dict):
        return {}
    return {
        key: value for key, value in data.items() if isinstance(value, (int, float)) and not isinstance(value, bool)
    }


def steps(store: Store, recipes: list[str]) -> dict[str, float]:
    """Simulated steps by recipe, for the recipes that have a report."""
    table, owner = schema.artifacts, schema.actions
    rows = sa.select(owner.c.recipe, table.c.digest, table.c.size).join(table).where(table.c.name == MEASURED[0])
    with store.index.read() as connection:
        found = [row for start in range(0, len(recipes), 500)
                 for row in connection.execute(rows.where(owner.c.recipe.in_(recipes[start : start + 500])))]  # fmt: skip
    answers = {row.recipe: numbers(store, row.digest, row.size).get("steps") for row in found}
    return {recipe: answer for recipe, answer in answers.items() if answer is not None}
