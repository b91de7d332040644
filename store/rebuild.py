"""Fill an index from the manifests: what is true about the files can be learned from the files."""

from __future__ import annotations

import sqlalchemy as sa

from mlsdk.store import actions, history, objects, schema
from mlsdk.store.failpoints import hit


def fill(connection: sa.Connection, store_objects: objects.Objects) -> int:
    """Insert every action whose manifest is whole and whose objects are there; the number of actions inserted."""
    tree = store_objects.tree
    recipes = [recipe for _name, recipe in actions.manifests(tree) if recipe is not None]
    if not recipes:
        return 0
    hit("rebuild.begin")
    known = set(connection.execute(sa.select(schema.actions.c.recipe)).scalars())
    epoch = actions.epoch(connection)
    read = [actions.read_manifest(tree, recipe) for recipe in recipes if recipe not in known]
    count = 0
    for action in sorted((one for one in read if one is not None), key=lambda action: action.created):
        stored = _stored(action, store_objects)
        if stored is None:
            continue
        insert(connection, action, stored, epoch, "")
        count += 1
    return count


def insert(connection: sa.Connection, action: actions.Action, stored: dict[str, int], epoch: int, reason: str) -> None:
    """The rows of a result that was not built here and now, and a build of it in the history."""
    actions.insert(connection, action, stored, epoch)
    event = history.Event(action.phase, action.label, action.digest, action.parts, "built", reason, action.seconds)
    history.insert(connection, history.Build(action.label, action.created, action.seconds, events=[event]))


def _stored(action: actions.Action, store_objects: objects.Objects) -> dict[str, int] | None:
    """Bytes of each object's file; None when one is missing or plainly of another size."""
    stored = {}
    for output in action.outputs.values():
        try:
            size = objects.size_in_header(store_objects.tree, store_objects.name(output.digest))
            facts = store_objects.stat(output.digest)
        except (OSError, ValueError):
            return None
        if size != output.size or facts is None:
            return None
        stored[output.digest] = facts[1]
    return stored
