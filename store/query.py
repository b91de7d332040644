"""Questions to a store. Each answer is plain data, so that the command line, the dashboard and tests read the same."""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mlsdk.store import actions, causes, codec, schema
from mlsdk.store import digest as digests
from mlsdk.store.actions import Action, Output
from mlsdk.store.errors import NotFound
from mlsdk.store.history import ended
from mlsdk.store.recipe import changes
from mlsdk.store.store import Store

_A, _F, _I, _O, _B, _E = (
    schema.actions,
    schema.artifacts,
    schema.inputs,
    schema.objects,
    schema.builds,
    schema.events,
)


# -- ls --------------------------------------------------------------------------------------------------------------


def ls(
    store: Store,
    kind: str | None = None,
    phase: str | None = None,
    label: str | None = None,
    name: str | None = None,
    since: float | None = None,
    until: float | None = None,
    larger: int | None = None,
    options: Mapping[str, Any] | None = None,
    limit: int | None = 50,
) -> list[dict[str, Any]]:
    """Artifacts, the newest first."""
    query = (
        sa.select(
            _F.c.name, _F.c.kind, _A.c.phase, _A.c.label, _F.c.size, _O.c.stored, _A.c.created, _F.c.digest, _A.c.recipe
        )
        .select_from(_A.join(_F).outerjoin(_O, _O.c.digest == _F.c.digest))
        .order_by(_A.c.created.desc(), _A.c.id.desc(), _F.c.name)
    )
    for column, value in ((_F.c.kind, kind), (_A.c.phase, phase), (_A.c.label, label), (_F.c.name, name)):
        if value is not None:
            query = query.where(column == value)
    if since is not None:
        query = query.where(_A.c.created >= since)
    if until is not None:
        query = query.where(_A.c.created <= until)
    if larger is not None:
        query = query.where(_F.c.size >= larger)
    for option, value in (options or {}).items():
        # The stored text is canonical, so equal values are equal text.
        text = codec.canonical({option: value}).decode()[1:-1]
        query = query.where(_holds(store, _A.c.parts, text))
    if limit is not None:
        query = query.limit(limit)
    with store.index.read() as connection:
        return [dict(row._mapping) for row in connection.execute(query)]


# -- names -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ref:
    """What a name on the command line means: an action, or one artifact of it."""

    action: Action
    output: Output | None

    @property
    def digest(self) -> str:
        if self.output is not None:
            return self.output.digest
        return self.action.digest


def find(store: Store, text: str) -> Ref:
    """A result. `text` is the start of a key or of a digest, `key:artifact`, a tag, a label, `label/phase`,
    `label/phase/artifact`, or `@12`, `@12/phase`, `@12/phase/artifact` with the number of a build."""
    head, _colon, name = text.partition(":")
    with store.index.read() as connection:
        found = _by_digest(connection, head) if is_start_of_digest(head) else _by_words(connection, text)
    if name:
        return Ref(found.action, _output(found.action, name))
    return found


def cat(store: Store, text: str) -> bytes:
    """The bytes of an artifact."""
    ref = find(store, text)
    output = ref.output
    if output is None:
        names = sorted(ref.action.outputs)
        if len(names) != 1:
            raise NotFound(
                f"{text} has {len(names)} artifacts; write {ref.action.digest[:12]}:NAME, NAME one of "
                f"{', '.join(names)}"
            )
        output = ref.action.outputs[names[0]]
    return store.read(output)


def is_start_of_digest(text: str) -> bool:
    return 4 <= len(text) <= digests.LENGTH and not set(text) - set("0123456789abcdef")


def _by_digest(connection: sa.Connection, start: str) -> Ref:
    recipes = set(connection.execute(sa.select(_A.c.recipe).where(_between(_A.c.recipe, start)).limit(9)).scalars())
    objects = set(connection.execute(sa.select(_F.c.digest).where(_between(_F.c.digest, start)).limit(9)).scalars())
    if len(recipes | objects) > 1:
        shown = ", ".join(sorted(digest[: len(start) + 4] for digest in recipes | objects))
        raise NotFound(f"{start} is the start of {len(recipes | objects)} digests ({shown}, ...); give more digits")
    if recipes:
        return Ref(_action(connection, recipes.pop()), None)
    if objects:
        digest = objects.pop()
        row = connection.execute(
            sa.select(_A.c.recipe, _F.c.name).join(_F).where(_F.c.digest == digest).order_by(_A.c.created.desc())
        ).first()
        assert row is not None
        action = _action(connection, row.recipe)
        return Ref(action, action.outputs[row.name])
    raise NotFound(f"no key and no digest starts with {start}; `mlsdk store ls` lists what there is")


def _by_words(connection: sa.Connection, text: str) -> Ref:
    if text.startswith("@"):
        return _of_build_number(connection, text)
    tag = connection.execute(sa.select(schema.tags.c.recipe).where(schema.tags.c.name == text)).scalar()
    if tag is not None:
        return Ref(_action(connection, tag), None)
    parts = text.split("/")
    # A label and an artifact's name may hold slashes, a phase does not.
    for at in range(1, len(parts)):
        label, phase, name = "/".join(parts[:at]), parts[at], "/".join(parts[at + 1 :])
        recipe = _newest(connection, label, phase)
        if recipe is not None:
            action = _action(connection, recipe)
            return Ref(action, _output(action, name) if name else None)
    for only_label, only_phase in ((text, None), (None, text)):
        recipe = _newest(connection, only_label, only_phase)
        if recipe is not None:
            return Ref(_action(connection, recipe), None)
    raise NotFound(
        f"nothing in the store is named {text!r}{_near(connection, text)}; "
        "`mlsdk store ls` and `mlsdk store log` list what there is"
    )


def check_label(store: Store, label: str) -> None:
    """NotFound for a name that no workflow, program or function in the history has."""
    with store.index.read() as connection:
        for known in (_B.c.label, _E.c.label, _A.c.label):
            if connection.execute(sa.select(known).where(known == label).limit(1)).first():
                return
        told = _near(connection, label)
    raise NotFound(f"no workflow and no function here is named {label!r}{told}; `mlsdk store log` lists what there is")


def _near(connection: sa.Connection, text: str) -> str:
    """`; did you mean 'digits/Emit'?`, for another case of the letters above all."""
    known = connection.execute(sa.select(_E.c.label, _E.c.phase).distinct().limit(10_000)).all()
    names = {name for label, phase in known for name in (label, phase, f"{label}/{phase}") if name}
    by_case = {name.lower(): name for name in sorted(names)}
    head = text.lower()
    for at in (len(head), *(place for place in range(len(head) - 1, 0, -1) if head[place] == "/")):
        if head[:at] in by_case and by_case[head[:at]] != text[:at]:
            return f"; did you mean {by_case[head[:at]] + text[at:]!r}?"
    close = difflib.get_close_matches(head, by_case, n=1)
    return f"; did you mean {by_case[close[0]]!r}?" if close and by_case[close[0]] != text else ""


def _of_build_number(connection: sa.Connection, text: str) -> Ref:
    build, _slash, rest = text[1:].partition("/")
    phase, _slash, name = rest.partition("/")
    query = sa.select(_E.c.recipe).where(_E.c.build_id == _number(text, build))
    if phase:
        query = query.where(_E.c.phase == phase)
    recipe = connection.execute(query.order_by(_E.c.position.desc()).limit(1)).scalar()
    if recipe is None:
        raise nothing_of(connection, text)
    action = _action(connection, recipe)
    return Ref(action, _output(action, name) if name else None)


def nothing_of(connection: sa.Connection, text: str) -> NotFound:
    """Why `@12` or `@12/PHASE` names no result."""
    build, _slash, phase = text[1:].partition("/")
    number = _number(text, build)
    if connection.execute(sa.select(_B.c.id).where(_B.c.id == number)).first() is None:
        return NotFound(f"{text}: there is no such build; `mlsdk store log` lists them")
    phases = connection.execute(sa.select(_E.c.phase).where(_E.c.build_id == number).order_by(_E.c.position)).scalars()
    told = ", ".join(dict.fromkeys(phases))
    if phase and told:
        return NotFound(f"{text}: there is no such phase in it; it has {told}")
    return NotFound(f"{text}: it ended before it had a result, or runs; `mlsdk store log` tells how it ended")


def _number(text: str, digits: str) -> int:
    if not digits.isdecimal() or len(digits) > 15:
        raise NotFound(f"{text}: write @ and the number of a build, as `mlsdk store log` shows it")
    return int(digits)


def build_number(store: Store, text: str) -> int | None:
    """The number of a build, given `@12` or the label of a workflow or program (its newest build); None otherwise."""
    if text.startswith("@") and "/" not in text:
        return _number(text, text[1:])
    with store.index.read() as connection:
        for choice in (_B.c.label == text, _E.c.label == text):
            query = sa.select(sa.func.max(_E.c.build_id)).select_from(_E.join(_B, _B.c.id == _E.c.build_id))
            number: int | None = connection.execute(query.where(choice)).scalar()
            if number is not None:
                return number
    return None


def ancestors(connection: sa.Connection, recipe: str) -> list[Action]:
    """Everything that a result was made from, the nearest first."""
    found: dict[str, Action] = {}
    waiting = [recipe]
    near = _of_same_build(connection, recipe)
    while waiting:
        row = connection.execute(sa.select(_A.c.id).where(_A.c.recipe == waiting.pop(0))).one()
        for _name, _digest, other in _makers(connection, row.id, near):
            if other is not None and other != recipe and other not in found:
                found[other] = _action(connection, other)
                waiting.append(other)
    return list(found.values())


def _newest(connection: sa.Connection, label: str | None, phase: str | None) -> str | None:
    query = sa.select(_E.c.recipe).join(_A, _A.c.recipe == _E.c.recipe)
    if label is not None:
        query = query.where(_E.c.label == label)
    if phase is not None:
        query = query.where(_E.c.phase == phase)
    return connection.execute(query.order_by(_E.c.build_id.desc(), _E.c.position.desc()).limit(1)).scalar()


def _between(column: Any, start: str) -> Any:
    # Not LIKE: a range uses the column's index.
    return sa.and_(column >= start, column < start + "g")


def _action(connection: sa.Connection, recipe: str) -> Action:
    known = actions.load(connection, recipe)
    if known is None:
        raise NotFound(f"the result under {recipe[:12]} is gone; build it again")
    return known.action


def _output(action: Action, name: str) -> Output:
    if name not in action.outputs:
        raise NotFound(
            f"{action.phase} {action.digest[:12]} has no artifact {name}; it has {', '.join(sorted(action.outputs))}"
        )
    return action.outputs[name]


# -- show ------------------------------------------------------------------------------------------------------------


def show(store: Store, text: str) -> dict[str, Any]:
    """Everything that is known about a result."""
    ref = find(store, text)
    action, recipe = ref.action, ref.action.recipe
    with store.index.read() as connection:
        known = actions.load(connection, action.digest)
        others = _phases_of(connection, text) - {action.phase}
    stored = known.stored if known else {}
    return {
        "recipe": action.digest,
        "phase": action.phase,
        "version": recipe.version,
        "label": action.label,
        "created": action.created,
        "seconds": action.seconds,
        "host": action.host,
        "pid": action.pid,
        "product": action.product,
        "options": codec.plain(recipe.options),
        "inputs": dict(recipe.inputs),
        "tools": {name: version for name, version in recipe.tools.items() if name != "artifacts"},
        "outputs": [
            {
                "name": output.name,
                "kind": output.kind,
                "digest": output.digest,
                "size": output.size,
                "stored": stored.get(output.digest),
                "volatile": output.volatile,
            }
            for _name, output in sorted(action.outputs.items())
        ],
        "artifact": ref.output.name if ref.output else None,
        "also": sorted(others),
    }


def _phases_of(connection: sa.Connection, label: str) -> set[str]:
    """The phases that a label alone may mean."""
    return set(connection.execute(sa.select(_E.c.phase).where(_E.c.label == label).distinct()).scalars())


def kinds(store: Store) -> list[str]:
    """All kinds of artifacts."""
    with store.index.read() as connection:
        return list(connection.execute(sa.select(_F.c.kind).distinct().order_by(_F.c.kind)).scalars())


# -- why -------------------------------------------------------------------------------------------------------------


def why(store: Store, text: str = "") -> list[dict[str, Any]]:
    """Why phases were built: for the newest build, or for a label, a phase, `label/phase`, or the start of a key."""
    with store.index.read() as connection:
        rows = _events_for(connection, text)
        if not rows and text.startswith("@"):
            raise nothing_of(connection, text)
        if not rows:
            raise NotFound(f"no build of {text or 'anything'} is in the history; `mlsdk store log` lists what there is")
        whole = _of_build(connection, rows[0].build_id, sa.true())
        answers = [_why(connection, row) for row in whole]
        causes.attach(answers, _givers(connection, [row.recipe for row in whole]))
        wanted = {row.position for row in rows}
        return [answer for row, answer in zip(whole, answers) if row.position in wanted]


def _givers(connection: sa.Connection, recipes: Sequence[str]) -> dict[str, str]:
    """Digest of an artifact -> key, for the results of a build."""
    query = sa.select(_F.c.digest, _A.c.recipe).join(_A).where(_A.c.recipe.in_(list(recipes)))
    return {digest: recipe for digest, recipe in connection.execute(query)}


_EVENT = sa.select(_E, _B.c.started).join(_B, _B.c.id == _E.c.build_id)


def _events_for(connection: sa.Connection, text: str) -> list[Any]:
    if is_start_of_digest(text):
        query = _EVENT.where(_between(_E.c.recipe, text)).order_by(_E.c.build_id.desc())
        row = connection.execute(query.limit(1)).first()
        return [row] if row else []
    if not text:
        newest = connection.execute(sa.select(sa.func.max(_E.c.build_id))).scalar()
        return _of_build(connection, newest, sa.true())
    choices = [_E.c.label == text, _E.c.phase == text]
    if "/" in text:
        label, _slash, phase = text.rpartition("/")
        choices.insert(1, sa.and_(_E.c.label == label, _E.c.phase == phase))
        # All programs of a workflow: digits/train and digits/infer for digits.
    choices.append(_E.c.label.startswith(text + "/", autoescape=True))
    for choice in choices:
        newest = connection.execute(sa.select(sa.func.max(_E.c.build_id)).where(choice)).scalar()
        if newest is not None:
            return _of_build(connection, newest, choice)
    return []


def _of_build(connection: sa.Connection, build: int | None, choice: Any) -> list[Any]:
    query = _EVENT.where(_E.c.build_id == build, choice).order_by(_E.c.position)
    return list(connection.execute(query).all())


def _why(connection: sa.Connection, row: Any) -> dict[str, Any]:
    built, built_at = row, row.started
    if row.outcome == "cached":
        # The newest build of this very key tells why it exists. One that was killed is not in the history.
        query = _EVENT.where(_E.c.recipe == row.recipe, _E.c.outcome == "built").order_by(_E.c.build_id.desc())
        built = connection.execute(query.limit(1)).first()
        created = sa.select(_A.c.created).where(_A.c.recipe == row.recipe)
        built_at = built.started if built else connection.execute(created).scalar()
    answer: dict[str, Any] = {
        "phase": row.phase,
        "label": row.label,
        "recipe": row.recipe,
        "outcome": row.outcome,
        "at": row.started,
        "built_at": built_at,
        "reason": built.reason if built else "",
        "previous": None,
        "changes": [],
        "since": [],  # what changed since the build before this one, also where the store had the result
    }
    before = _before(connection, row)
    if before is not None and before.recipe != row.recipe:
        answer["since"] = _changes(before, row)
    before = _before(connection, built, _E.c.recipe != built.recipe) if built is not None else None
    if before is not None:
        answer["previous"] = before.recipe
        answer["changes"] = _changes(before, built)
    if row.outcome != "cached":
        answer["since"] = answer["changes"] if _changed_key(answer["reason"]) else []
    return answer


def _changed_key(reason: str) -> bool:
    """False where something else than its key made a phase run: what was before says nothing then."""
    return not reason.startswith(("forced", "its result was", "first build"))


def _before(connection: sa.Connection, row: Any, *only: Any) -> Any:
    """The newest event of the same phase and label in an earlier build."""
    query = _EVENT.where(_E.c.label == row.label, _E.c.phase == row.phase, _E.c.build_id < row.build_id, *only)
    return connection.execute(query.order_by(_E.c.build_id.desc(), _E.c.position.desc()).limit(1)).first()


def _changes(before: Any, after: Any) -> list[dict[str, Any]]:
    return [
        {"part": change.part, "before": codec.plain(change.before), "after": codec.plain(change.after)}
        for change in changes(before.parts, after.parts)
    ]


# -- log -------------------------------------------------------------------------------------------------------------


def log(
    store: Store,
    label: str | None = None,
    limit: int | None = 20,
    *,
    since: float | None = None,
    preset: str | None = None,
    options: Mapping[str, Any] | None = None,
    status: str | None = None,
) -> list[dict[str, Any]]:
    """Builds, the newest first, each with its phases, the device and the simulated steps of its programs.

    `label` is that of a workflow or of a program; `options` are looked for in the keys of the phases.
    """
    query = sa.select(_B.c.id).order_by(_B.c.id.desc())
    unsure = status in ("running", "interrupted")  # a killed build's row says that it is running
    if label is not None:
        query = query.where(
            sa.or_(_B.c.label == label, _B.c.id.in_(sa.select(_E.c.build_id).where(_E.c.label == label)))
        )
    if since is not None:
        query = query.where(_B.c.started >= since)
    if status is not None:
        query = query.where(_B.c.status.in_({status, "running"} if unsure else {status}))
    if preset is not None:
        query = query.where(_holds(store, _B.c.facts, f'"preset": {json.dumps(preset)}'))
    for option, value in (options or {}).items():
        text = codec.canonical({option: value}).decode()[1:-1]
        query = query.where(_B.c.id.in_(sa.select(_E.c.build_id).where(_holds(store, _E.c.parts, text))))
    if limit is not None and not unsure:
        query = query.limit(limit)
    with store.index.read() as connection:
        numbers = list(connection.execute(query).scalars())
    found = builds(store, numbers)
    return [build for build in found if build["status"] == status][:limit] if unsure else found


def builds(store: Store, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Builds by their numbers, in that order."""
    from mlsdk.store import compare

    found: list[dict[str, Any]] = []
    with store.index.read() as connection:
        for number in numbers:
            row = connection.execute(sa.select(_B).where(_B.c.id == number)).first()
            if row is None:
                raise NotFound(f"there is no build @{number}; `mlsdk store log` lists them")
            build = dict(row._mapping)
            facts = json.loads(build.pop("facts"))
            if build["status"] == "running":
                build.update(_running(connection, build, facts))
            build.update(
                device=facts.get("device", ""), preset=facts.get("preset"), options=facts.get("options", {}), steps={}
            )
            events = sa.select(_E.c.phase, _E.c.label, _E.c.outcome, _E.c.seconds, _E.c.reason, _E.c.recipe, _E.c.parts)
            events = events.where(_E.c.build_id == number).order_by(_E.c.position)
            build["phases"] = [dict(event._mapping) for event in connection.execute(events)]
            found.append(build)
    steps = compare.steps(store, sorted({event["recipe"] for build in found for event in build["phases"]}))
    for build in found:
        for event in build["phases"]:
            if event["recipe"] in steps:
                build["steps"][event["label"]] = steps[event["recipe"]]
    return found


def _running(connection: sa.Connection, build: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a build that began and did not end has come to."""
    if not ended(build["host"], build["pid"], facts):
        return {"seconds": max(0.0, time.time() - build["started"])}
    query = sa.select(_A.c.phase).order_by(_A.c.id)
    query = query.where(_A.c.host == build["host"], _A.c.pid == build["pid"], _A.c.created >= build["started"])
    done = ", ".join(dict.fromkeys(connection.execute(query).scalars()))
    told = f"after {done}, which is kept" if done else "before its first phase was done"
    return {
        "status": "interrupted",
        "error": f"its process {build['pid']} was killed {told}; run the same command again",
    }


def _holds(store: Store, column: Any, text: str) -> Any:
    """True where a text holds another one, letter by letter (LIKE would not tell A from a)."""
    return getattr(sa.func, store.index.position)(column, text) > 0


# -- deps ------------------------------------------------------------------------------------------------------------


def deps(store: Store, text: str, down: bool = False, depth: int = 32) -> dict[str, Any]:
    """What a result was made from (or, down, what was made from it), as a tree."""
    ref = find(store, text)
    with store.index.read() as connection:
        near = _of_same_build(connection, ref.action.digest, text)
        return _tree(connection, ref.action.digest, down, depth, set(), near)


def _of_same_build(connection: sa.Connection, recipe: str, text: str = "") -> set[str]:
    """Keys of all results of a build that has this one: of the build that `text` names, or of the newest."""
    build = sa.select(sa.func.max(_E.c.build_id)).where(_E.c.recipe == recipe).scalar_subquery()
    number: Any = _number(text, text[1:].partition("/")[0]) if text.startswith("@") else build
    return set(connection.execute(sa.select(_E.c.recipe).where(_E.c.build_id == number)).scalars())


def _tree(
    connection: sa.Connection, recipe: str, down: bool, depth: int, seen: set[str], near: set[str]
) -> dict[str, Any]:
    row = connection.execute(sa.select(_A.c.id, _A.c.phase, _A.c.label).where(_A.c.recipe == recipe)).one()
    node: dict[str, Any] = {"recipe": recipe, "phase": row.phase, "label": row.label}
    if recipe in seen or depth == 0:
        node["seen"] = True  # shown in full elsewhere in the tree
        return node
    seen.add(recipe)
    node["down" if down else "up"] = [
        {
            "name": name,
            "digest": digest,
            "action": _tree(connection, other, down, depth - 1, seen, near) if other is not None else None,
        }
        for name, digest, other in (_users(connection, row.id) if down else _makers(connection, row.id, near))
    ]
    return node


def _makers(connection: sa.Connection, action: int, near: set[str]) -> list[tuple[str, str, str | None]]:
    """(input name, digest, the action that gave it). Equal bytes may have several makers: one of `near`, else the newest."""
    query = (
        sa.select(_I.c.name, _I.c.digest, _A.c.recipe)
        .select_from(_I.outerjoin(_F, _F.c.digest == _I.c.digest).outerjoin(_A, _A.c.id == _F.c.action_id))
        .where(_I.c.action_id == action)
        .order_by(_I.c.name, _A.c.created.desc())
    )
    found: dict[str, tuple[str, str, str | None]] = {}
    for name, digest, recipe in connection.execute(query):
        if name not in found or (recipe in near and found[name][2] not in near):
            found[name] = (name, digest, recipe)
    return list(found.values())


def _users(connection: sa.Connection, action: int) -> list[tuple[str, str, str | None]]:
    """(artifact name, digest, an action that takes it)."""
    query = (
        sa.select(_F.c.name, _F.c.digest, _A.c.recipe)
        .select_from(_F.join(_I, _I.c.digest == _F.c.digest).join(_A, _A.c.id == _I.c.action_id))
        .where(_F.c.action_id == action)
        .order_by(_F.c.name, _A.c.created)
    )
    return [(name, digest, recipe) for name, digest, recipe in connection.execute(query)]


def dot(tree: Mapping[str, Any]) -> str:
    """A tree of `deps` as a graph for Graphviz."""
    lines = ["digraph deps {", "  rankdir=LR;", "  node [shape=box];"]
    done: set[str] = set()

    def visit(node: Mapping[str, Any]) -> None:
        name = node["recipe"][:12]
        if name not in done:
            done.add(name)
            lines.append(f'  "{name}" [label="{_quoted(node["phase"])}\\n{name}"];')
        for edge in node.get("up", ()):
            other = edge["action"]
            start = other["recipe"][:12] if other else edge["digest"][:12]
            lines.append(f'  "{start}" -> "{name}" [label="{_quoted(edge["name"])}"];')
            if other:
                visit(other)
        for edge in node.get("down", ()):
            lines.append(f'  "{name}" -> "{edge["action"]["recipe"][:12]}" [label="{_quoted(edge["name"])}"];')
            visit(edge["action"])

    visit(tree)
    return "\n".join([*dict.fromkeys(lines), "}"])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


# -- du --------------------------------------------------------------------------------------------------------------


def du(store: Store) -> dict[str, Any]:
    """Sizes by kind, and what sharing and compression save."""
    by_kind = (
        sa.select(
            _F.c.kind,
            sa.func.count().label("artifacts"),
            sa.func.sum(_F.c.size).label("size"),
        )
        .group_by(_F.c.kind)
        .order_by(sa.func.sum(_F.c.size).desc())
    )
    totals = sa.select(sa.func.count(), sa.func.sum(_O.c.size), sa.func.sum(_O.c.stored))
    with store.index.read() as connection:
        kinds = [dict(row._mapping) for row in connection.execute(by_kind)]
        objects, unique, stored = connection.execute(totals).one()
        counts = {
            "actions": connection.execute(sa.select(sa.func.count()).select_from(_A)).scalar_one(),
            "memories": connection.execute(sa.select(sa.func.count()).select_from(schema.memories)).scalar_one(),
        }
    size = sum(kind["size"] for kind in kinds)
    unique, stored = unique or 0, stored or 0
    return {
        "root": store.where,
        "kinds": kinds,
        "artifacts": sum(kind["artifacts"] for kind in kinds),
        "objects": objects,
        **counts,
        "size": size,
        "unique": unique,
        "stored": stored,
        "saved_by_sharing": size - unique,
        "saved_by_compression": unique - stored,
        "quarantine": store.tree.size_of("quarantine"),
        "temporary": store.tree.size_of("tmp"),
        "index": store.index.size(),
    }
