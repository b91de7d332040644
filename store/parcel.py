"""Results in one file: `export` writes a build or a result with everything that it was made from, `import` takes it in.

The file is a ZIP archive without compression of its own: the objects are packed already.

    parcel.json          {"format": 1, "results": number, "goals": [keys], "product"}
    manifests/<key>      as in a store: a line of facts, and the line that seals it
    objects/<digest>     as in a store: header and payload

Nothing is believed: each manifest has to carry its seal and its key, each object has to unpack to exactly the size that
its manifest declares and to the digest that is its name, and only then is anything written.
"""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

from mlsdk.store import actions, digest, query, rebuild
from mlsdk.store.actions import Action
from mlsdk.store.errors import BadParcel, NonDeterministic, NotFound, ObjectLost, StoreReadOnly
from mlsdk.store.files import explain, remove, write_aside_plain
from mlsdk.store.objects import HEADER_SIZE, decoded
from mlsdk.store.store import PRODUCT, Store, check_name

FORMAT = 1
# What one manifest and the list may take; objects are bounded by their manifests.
_TEXT = 64 << 20
_DATE = (1980, 1, 1, 0, 0, 0)  # equal results give equal files


def export(store: Store, text: str, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Write everything that a codegen_dir of `text` (a build or a result) needs into one file."""
    goals = _goals(store, text)
    with store.index.read() as connection:
        chosen = {
            action.digest: action for goal in goals for action in (goal, *query.ancestors(connection, goal.digest))
        }
    outputs = {output.digest: output for action in chosen.values() for output in action.outputs.values()}
    target = Path(path)
    head = {"format": FORMAT, "goals": [goal.digest for goal in goals], "results": len(chosen), "product": PRODUCT}
    try:
        temporary = write_aside_plain(target.absolute().parent, b"")
        try:
            with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
                _put(archive, "parcel.json", json.dumps(head, sort_keys=True, indent=1).encode())
                for key in sorted(chosen):
                    _put(archive, f"manifests/{key}", actions.manifest_text(chosen[key]))
                for name in sorted(outputs):
                    store.objects.read(name, outputs[name].size)  # damage is found here and not at the other end
                    _put(archive, f"objects/{name}", store.objects.read_encoded(name))
            os.replace(temporary, target)
        finally:
            remove(temporary)
    except ObjectLost as error:
        store.discard(error.digest, str(error))
        raise ObjectLost(f"{error}; build {text} again and export then", error.digest) from None
    except OSError as error:
        raise explain(error, target.parent) from error
    size = sum(output.size for output in outputs.values())
    return {"path": str(target), **head, "objects": len(outputs), "size": size, "file": target.stat().st_size}


def take_in(store: Store, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Verify an exported file and publish what it holds. {"results", "new", "goals", ...}"""
    if store.read_only:
        raise StoreReadOnly(f"the store {store.where} is read-only; import as a user who can write")
    try:
        with zipfile.ZipFile(path) as archive:
            head, found = _read_head(archive, path)
            known = {key for key in found if _same(store, found[key])}
            for key in sorted(found.keys() - known, key=lambda key: (found[key].created, key)):
                _publish(store, archive, found[key], str(path))
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except (zipfile.BadZipFile, NotImplementedError, EOFError, IsADirectoryError) as error:
        raise BadParcel(f"{path} is no file of `mlsdk store export`, or it is cut off ({error})") from None
    labels = sorted({found[goal].label for goal in head["goals"]})
    return {"path": str(path), "results": len(found), "new": len(found) - len(known), "goals": head["goals"],
            "labels": labels}  # fmt: skip


def _goals(store: Store, text: str) -> list[Action]:
    number = query.build_number(store, text)
    if number is None:
        return [query.find(store, text).action]
    events = query.builds(store, [number])[0]["phases"]
    with store.index.read() as connection:
        if not events:
            raise query.nothing_of(connection, text if text.startswith("@") else f"@{number}")
        rows = [actions.load(connection, event["recipe"]) for event in events]
    lost = [event["phase"] for event, row in zip(events, rows) if row is None]
    if lost:
        raise NotFound(f"{text}: the results of {', '.join(lost)} were collected since; build it again")
    return [row.action for row in rows if row is not None]


def _put(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _DATE), data)


def _read_head(archive: zipfile.ZipFile, path: Any) -> tuple[dict[str, Any], dict[str, Action]]:
    entries = {entry.filename: entry for entry in archive.infolist()}
    if len(entries) != len(archive.infolist()):
        raise BadParcel(f"{path}: a name stands twice; export it again")
    if any(entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 for entry in entries.values()):
        raise BadParcel(f"{path} is packed in another way; it is no file of `mlsdk store export`")
    try:
        head = json.loads(_take(archive, entries, "parcel.json", _TEXT))
        if head["format"] != FORMAT:
            raise BadParcel(f"{path} has format {head['format']}, this version reads {FORMAT}; export it again")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise BadParcel(f"{path} is no file of `mlsdk store export` ({error})") from None
    keys = [name.removeprefix("manifests/") for name in entries if name.startswith("manifests/")]
    found: dict[str, Action] = {}
    for key in keys:
        action = actions.from_manifest(_take(archive, entries, f"manifests/{key}", _TEXT))
        if action is None or action.digest != key:
            raise BadParcel(f"{path}: the manifest {key[:64]} is damaged; nothing was imported, export it again")
        found[key] = action
    wanted = {"parcel.json", *(f"manifests/{key}" for key in keys)}
    for action in found.values():
        for output in action.outputs.values():
            check_name(output.name)
            name = f"objects/{output.digest}"
            # What an object may take when it is unpacked is what its manifest says, and packed not much more.
            entry = entries.get(name) if digest.is_digest(output.digest) else None
            if entry is None or entry.file_size > output.size + HEADER_SIZE:
                raise BadParcel(
                    f"{path}: {output.name} of {action.digest[:12]} is missing or too large; export it again"
                )
            wanted.add(name)
    if entries.keys() - wanted or len(found) != head.get("results") or not found.keys() >= set(head["goals"]):
        raise BadParcel(f"{path}: its parts do not fit together; nothing was imported, export it again")
    _verify(archive, entries, found, path)
    return head, found


def _verify(archive: zipfile.ZipFile, entries: dict[str, Any], found: dict[str, Action], path: Any) -> None:
    sizes = {output.digest: output.size for action in found.values() for output in action.outputs.values()}
    for name, size in sizes.items():
        try:
            decoded(name, archive.read(f"objects/{name}"), size)
        except (ObjectLost, zipfile.BadZipFile) as error:
            raise BadParcel(f"{path}: {error}; nothing was imported, export it again") from None


def _take(archive: zipfile.ZipFile, entries: dict[str, Any], name: str, limit: int) -> bytes:
    if name not in entries or entries[name].file_size > limit:
        raise BadParcel(f"{archive.filename}: {name} is missing or too large; it is no file of `mlsdk store export`")
    return archive.read(name)


def _same(store: Store, action: Action) -> bool:
    """True when the store has this result. Another one for the same key is an error, as when it is built."""
    known = store.get(action.digest)
    if known is None:
        return False
    for name, output in action.outputs.items():
        mine = known.outputs.get(name)
        if not output.volatile and (mine is None or mine.digest != output.digest):
            raise NonDeterministic(
                f"{action.phase} {action.digest[:12]}: {name} differs from the store's own result; nothing was imported"
            )
    return True


def _publish(store: Store, archive: zipfile.ZipFile, action: Action, path: str) -> None:
    """The same order as when a result is built: lease, objects, row with manifest."""
    stored = {}
    with store.using([action.digest, *(output.digest for output in action.outputs.values())]):
        for output in action.outputs.values():
            data = archive.read(f"objects/{output.digest}")
            stored[output.digest] = store.objects.put_encoded(output.digest, data, output.size).stored
        with store.index.write() as connection:
            if actions.load(connection, action.digest) is None:
                rebuild.insert(connection, action, stored, actions.epoch(connection), f"imported from {path}")
                actions.write_manifest(store.tree, action)
