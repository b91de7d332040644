"""Fill an index from the manifests: what is true about the files can be learned from the files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa

from mlsdk.store import actions, history, objects, schema
from mlsdk.store.failpoints import hit


def fill(connection: sa.Connection, root: Path, store_objects: objects.Objects) -> int:
    """Insert every action whose manifest is whole and whose objects are there; the number of actions inserted."""
    if not any(actions.manifest_paths(root)):
        return 0
    hit("rebuild.begin")
    known = set(connection.execute(sa.select(schema.actions.c.recipe)).scalars())
    epoch = actions.epoch(connection)
    found = [action for action in _manifests(root) if action.digest not in known]
    count = 0
    for action in sorted(found, key=lambda action: action.created):
        stored = _stored(action, store_objects)
        if stored is None:
            continue
        actions.insert(connection, action, stored, epoch)
        event = history.Event(action.phase, action.label, action.digest, action.parts, "built", "", action.seconds)
        history.insert(connection, history.Build(action.label, action.created, action.seconds, events=[event]))
        count += 1
    return count


def _manifests(root: Path) -> Iterator[actions.Action]:
    for path in actions.manifest_paths(root):
        action = actions.read_manifest(path)
        if action is not None:
            yield action


def _stored(action: actions.Action, store_objects: objects.Objects) -> dict[str, int] | None:
    """Bytes of each object's file; None when one is missing or plainly of another size."""
    stored = {}
    for output in action.outputs.values():
        path = store_objects.path(output.digest)
        try:
            size, _codec = objects.sizes(path)
            stored[output.digest] = os.lstat(path).st_size
        except (OSError, ValueError):
            return None
        if size != output.size:
            return None
    return stored
