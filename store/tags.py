"""Names that people give to results. A tagged result, and what it was made from, is never collected."""

from __future__ import annotations

import re
from typing import Any

import sqlalchemy as sa

from mlsdk.store import query, schema
from mlsdk.store.errors import BadName, NotFound
from mlsdk.store.store import Store

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")


def check(name: str) -> str:
    """A tag's name: no slash, no `@`, nothing that reads like the start of a digest."""
    if not _NAME.fullmatch(name) or query.is_start_of_digest(name):
        raise BadName(
            f"{name!r:.80} is no name for a tag; use letters, digits, dots and dashes, and not only hexadecimal digits"
        )
    return name


def put(store: Store, name: str, text: str) -> dict[str, Any]:
    """Give the result `text` a name; a tag of that name moves."""
    check(name)
    action = query.find(store, text).action
    with store.index.write() as connection:
        connection.execute(schema.tags.delete().where(schema.tags.c.name == name))
        connection.execute(schema.tags.insert().values(name=name, recipe=action.digest))
    return {"name": name, "recipe": action.digest, "phase": action.phase, "label": action.label}


def remove(store: Store, name: str) -> None:
    """Take a name away; the result stays until it is collected."""
    with store.index.write() as connection:
        gone = connection.execute(schema.tags.delete().where(schema.tags.c.name == name)).rowcount
    if not gone:
        raise NotFound(f"there is no tag {name!r}; `mlsdk store tag` lists them")


def listed(store: Store) -> list[dict[str, Any]]:
    """All tags; phase and label are None where the result was damaged and not yet built again."""
    tags, actions = schema.tags, schema.actions
    rows = (
        sa.select(tags.c.name, tags.c.recipe, actions.c.phase, actions.c.label, actions.c.created)
        .select_from(tags.outerjoin(actions, actions.c.recipe == tags.c.recipe))
        .order_by(tags.c.name)
    )
    with store.index.read() as connection:
        return [dict(row._mapping) for row in connection.execute(rows)]
