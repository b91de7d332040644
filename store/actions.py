"""Actions: a recipe and the outputs that it gave. Rows in the index, and the same facts in `manifests/`.

A manifest is one line of JSON and one line with its SHA-256. The index can be made again from the manifests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mlsdk.store import digest as digests
from mlsdk.store import schema
from mlsdk.store.recipe import Recipe, digest_of_text
from mlsdk.store.tree import Tree, plain_files


@dataclass(frozen=True)
class Output:
    """One artifact of an action. A volatile one (a log, a wall time) may differ when the action is repeated."""

    name: str
    kind: str
    digest: str
    size: int
    volatile: bool = False


@dataclass(frozen=True)
class Action:
    digest: str  # of the recipe
    parts: str  # the recipe's canonical text
    phase: str
    label: str
    outputs: Mapping[str, Output]
    created: float
    seconds: float
    host: str
    pid: int
    product: str

    @property
    def recipe(self) -> Recipe:
        return Recipe.from_text(self.parts)

    def facts(self) -> dict[str, Any]:
        """What a manifest holds."""
        outputs = [[o.name, o.kind, o.digest, o.size, o.volatile] for _name, o in sorted(self.outputs.items())]
        return {
            "schema": schema.VERSION,
            "recipe": self.digest,
            "parts": self.parts,
            "phase": self.phase,
            "label": self.label,
            "outputs": outputs,
            "created": self.created,
            "seconds": self.seconds,
            "host": self.host,
            "pid": self.pid,
            "product": self.product,
        }


@dataclass(frozen=True)
class Known:
    """A row as it stands in the index, with what the index knows about the files."""

    action: Action
    stored: Mapping[str, int]  # digest -> bytes of the file
    verified: Mapping[str, str]  # digest -> the file's stat when it was last found whole
    epoch: int


_SELECT = (
    sa.select(
        schema.actions,
        schema.artifacts.c.name,
        schema.artifacts.c.kind,
        schema.artifacts.c.digest,
        schema.artifacts.c.size,
        schema.artifacts.c.volatile,
        schema.objects.c.stored,
        schema.objects.c.verified,
    )
    .select_from(
        schema.actions.outerjoin(schema.artifacts).outerjoin(
            schema.objects, schema.objects.c.digest == schema.artifacts.c.digest
        )
    )
    .where(schema.actions.c.recipe == sa.bindparam("recipe"))
)


def load(connection: sa.Connection, recipe: str) -> Known | None:
    """The row of a recipe."""
    rows = connection.execute(_SELECT, {"recipe": recipe}).all()
    if not rows:
        return None
    outputs = {
        row.name: Output(row.name, row.kind, row.digest, row.size, row.volatile) for row in rows if row.name is not None
    }
    first = rows[0]
    action = Action(
        first.recipe,
        first.parts,
        first.phase,
        first.label,
        outputs,
        first.created,
        first.seconds,
        first.host,
        first.pid,
        first.product,
    )
    stored = {row.digest: row.stored for row in rows if row.stored is not None}
    verified = {row.digest: row.verified for row in rows if row.verified is not None}
    return Known(action, stored, verified, first.epoch)


# Made once: building a statement costs more than running it.
_INSERT_ACTION = schema.actions.insert()
_INSERT_ARTIFACTS = schema.artifacts.insert()
_INSERT_INPUTS = schema.inputs.insert()
_EPOCH = sa.select(schema.facts.c.value).where(schema.facts.c.name == "epoch")


def insert(connection: sa.Connection, action: Action, stored: Mapping[str, int], epoch: int) -> None:
    """All rows of an action."""
    row = {
        "recipe": action.digest,
        "phase": action.phase,
        "label": action.label,
        "parts": action.parts,
        "created": action.created,
        "seconds": action.seconds,
        "host": action.host,
        "pid": action.pid,
        "product": action.product,
        "epoch": epoch,
    }
    primary: Any = connection.execute(_INSERT_ACTION, row).inserted_primary_key
    key = primary[0]
    outputs = list(action.outputs.values())
    if outputs:
        artifacts = [
            {
                "action_id": key,
                "name": output.name,
                "kind": output.kind,
                "digest": output.digest,
                "size": output.size,
                "volatile": output.volatile,
            }
            for output in outputs
        ]
        sizes = {output.digest: output.size for output in outputs}
        objects = [
            {"digest": digest, "size": size, "stored": stored[digest], "verified": None}
            for digest, size in sizes.items()
        ]
        connection.execute(_INSERT_ARTIFACTS, artifacts)
        connection.execute(schema.insert_new(connection, schema.objects), objects)
    inputs = [{"action_id": key, "name": name, "digest": digest} for name, digest in action.recipe.inputs.items()]
    if inputs:
        connection.execute(_INSERT_INPUTS, inputs)


def delete(connection: sa.Connection, recipes: list[str]) -> None:
    """The rows of these recipes; artifacts and inputs go with them."""
    for start in range(0, len(recipes), 500):
        connection.execute(schema.actions.delete().where(schema.actions.c.recipe.in_(recipes[start : start + 500])))


def naming(connection: sa.Connection, digest: str) -> list[str]:
    """Recipes of the actions that have this object as an output."""
    query = (
        sa.select(schema.actions.c.recipe).join(schema.artifacts).where(schema.artifacts.c.digest == digest).distinct()
    )
    return list(connection.execute(query).scalars())


def epoch(connection: sa.Connection) -> int:
    return connection.execute(_EPOCH).scalar_one()


# -- manifests -------------------------------------------------------------------------------------------------------


def manifest_name(recipe: str) -> str:
    """Its name inside the store."""
    return f"manifests/{recipe[:2]}/{recipe[2:]}"


def manifest_text(action: Action) -> bytes:
    """A line with the facts, and a line that seals it."""
    line = json.dumps(action.facts(), sort_keys=True, allow_nan=False, separators=(",", ":")).encode()
    return line + b"\n" + digests.of_bytes(line).encode() + b"\n"


def write_manifest(tree: Tree, action: Action) -> None:
    """Put the facts on the disk. A manifest may replace an older one of the same recipe."""
    tree.write([(manifest_name(action.digest), [manifest_text(action)])], "manifest")


def read_manifest(tree: Tree, recipe: str) -> Action | None:
    """The action of a manifest; None when the file is damaged or not a manifest."""
    try:
        action = from_manifest(tree.read(manifest_name(recipe)))
    except OSError:
        return None
    return action if action is not None and action.digest == recipe else None


def from_manifest(text: bytes) -> Action | None:
    """The action that a manifest's bytes describe; None when they are damaged."""
    try:
        line, seal, rest = text.split(b"\n")
        if rest or digests.of_bytes(line).encode() != seal:
            return None
        facts = json.loads(line)
        if digest_of_text(facts["parts"]) != facts["recipe"]:
            return None
        outputs = {row[0]: Output(*row) for row in facts["outputs"]}
        names = ("phase", "label", "created", "seconds", "host", "pid", "product")
        rest_of = {name: facts[name] for name in names}
        return Action(digest=facts["recipe"], parts=facts["parts"], outputs=outputs, **rest_of)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None


def manifests(tree: Tree) -> Iterator[tuple[str, str | None]]:
    """(name, recipe) of every file in `manifests`; the recipe is None where the name is not one of ours."""
    for name, recipe in plain_files(tree, "manifests"):
        yield name, recipe if digests.is_digest(recipe) else None
