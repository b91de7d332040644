"""A codegen_dir: the artifacts of a build as plain files, complete in itself.

Files are copied out of the store, never linked, each written aside and renamed. `manifest.json` is written last and
names every file with its SHA-256; so a directory that was moved is still good, and one that was changed, half copied or
interrupted is found, file by file. Files that nobody compiled (a checkpoint beside them) are left alone.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlsdk.store import StoreError, StoreFull, digest_of, owner
from mlsdk.store.codec import plain
from mlsdk.store.failpoints import hit
from mlsdk.store.files import explain, read_regular, remove, write_aside_plain
from mlsdk.store.store import check_name
from mlsdk.tasks import presets
from mlsdk.tasks.errors import CodegenDirError

if TYPE_CHECKING:
    from mlsdk.tasks.chain import BuildResult

MANIFEST = "manifest.json"
FORMAT = 1


def materialise(
    build: BuildResult, directory: str | os.PathLike[str], extra: Mapping[str, bytes] | None = None
) -> Path:
    """Make `directory` hold the artifacts of a build, and nothing of an earlier build. `extra` are further files."""
    root = Path(directory)
    contents: dict[str, bytes] = {**reports(build), **(extra or {})}
    wanted = {name: output.digest for name, output in build.outputs.items()}
    wanted.update({name: digest_of(data) for name, data in contents.items()})
    for name in wanted:
        check_name(name)
    before = _listed(root)
    try:
        root.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(root)
        for name, digest in sorted(wanted.items()):
            # What is there already is hashed, not believed: the user may have edited it.
            if _digest_of_file(root / name) != digest:
                _write(root, name, contents[name] if name in contents else build.read(name))
        for name in sorted(before - wanted.keys()):
            remove(root / name)
        hit("directory.stale_removed")
        manifest = {
            "format": FORMAT,
            "label": build.label,
            "command": _command(),
            "files": dict(sorted(wanted.items())),
            "recipes": {phase: action.digest for phase, action in build.actions.items()},
        }
        _write(root, MANIFEST, _json(manifest))
        hit("directory.done")
    except OSError as error:
        told = explain(error, root)
        raise (told if isinstance(told, StoreFull) else _unwritable(root, error.strerror)) from error
    return root


def check_place(directory: str | os.PathLike[str]) -> None:
    """Raise CodegenDirError where no folder can be made or written: before a compile, not at its end. Makes nothing."""
    root = Path(directory).absolute()
    there = next(path for path in (root, *root.parents) if os.path.lexists(path))
    if not there.is_dir():
        raise _unwritable(root, "it is no folder" if there == root else f"{there} is no folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise _unwritable(root, f"nothing may be written into {there}")


def _unwritable(root: Path, why: str | None) -> CodegenDirError:
    return CodegenDirError(f"codegen_dir {root}: {why}; give a folder that can be made and written")


def add(directory: str | os.PathLike[str], name: str, data: bytes) -> None:
    """Put a file about a compile into its folder; the next compile into it removes it with all others."""
    root = Path(directory)
    manifest = read_manifest(root)
    try:
        _write(root, check_name(name), data)
        _write(root, MANIFEST, _json({**manifest, "files": {**manifest["files"], name: digest_of(data)}}))
    except OSError as error:
        raise CodegenDirError(f"{root}: {name} cannot be written ({error.strerror})") from error


def verify(directory: str | os.PathLike[str], names: Collection[str] | None = None) -> dict[str, Path]:
    """The files of a codegen_dir by name, each with the content that its compile gave. Else: which one is not.

    With `names`, those of them that the compile wrote; the others may be as they like."""
    root = Path(directory)
    manifest = read_manifest(root)
    found = {}
    for name, digest in manifest["files"].items():
        if names is not None and name not in names:
            continue
        path = root / check_name(name)
        actual = _digest_of_file(path)
        if actual is None:
            raise CodegenDirError(f"{path} is missing (SHA-256 {digest}); compile again into {root}")
        if actual != digest:
            raise CodegenDirError(
                f"{path} was changed or is damaged: its SHA-256 is {actual}, the compile gave {digest}; "
                f"compile again into {root}"
            )
        found[name] = path
    return found


def read_manifest(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of a codegen_dir."""
    path = Path(directory) / MANIFEST
    try:
        manifest = json.loads(read_regular(path))
    except FileNotFoundError:
        raise CodegenDirError(
            f"{path} is missing: {directory} is no codegen_dir, or its compile did not finish; compile into it"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise CodegenDirError(f"{path} cannot be read ({error}); compile again into {directory}") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise CodegenDirError(f"{path} is not a manifest; compile again into {directory}")
    if manifest.get("format") != FORMAT:
        raise CodegenDirError(
            f"{directory} has format {manifest.get('format')}, this version reads {FORMAT}; compile again into it"
        )
    return manifest


def reports(build: BuildResult) -> dict[str, bytes]:
    """Files about this build that are no phase's result: the options with their origins, and two logs."""
    return {
        "option.json": _json(
            {
                **presets.written(build.options.values, build.options.preset or build.label),
                "options": plain(build.options.values),
                "origins": dict(build.options.origins),
            }
        ),
        "CLOG.log": _log(build),
        "glog/codegen.INFO.log": _details(build),
    }


def _log(build: BuildResult) -> bytes:
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    lines = [f"{now} compile of {build.label or 'a function'}: {build.seconds:.3f} s"]
    for phase, outcome in build.phases.items():
        seconds = f" {build.times[phase]:.3f} s" if phase in build.times else ""
        reason = f" ({build.reasons[phase]})" if build.reasons.get(phase) else ""
        lines.append(f"{now} {phase}: {outcome}{seconds}{reason} key {build.actions[phase].digest}")
    return ("\n".join(lines) + "\n").encode()


def _details(build: BuildResult) -> bytes:
    """The long log, in glog's format: every option with its origin, every key with its parts, every artifact."""
    now = time.strftime("I%m%d %H:%M:%S.000000")
    lines = [
        f"options] {name}={value!r} ({build.options.origins[name]})" for name, value in build.options.values.items()
    ]
    for phase, action in build.actions.items():
        recipe = action.recipe
        lines.append(f"{phase}] {build.phases[phase]} key {action.digest} in {action.seconds:.3f} s on {action.host}")
        lines += [f"{phase}] option {name}={plain(value)!r}" for name, value in sorted(recipe.options.items())]
        lines += [f"{phase}] input {name} {digest}" for name, digest in sorted(recipe.inputs.items())]
        lines += [f"{phase}] tool {name} {version}" for name, version in sorted(recipe.tools.items())]
        lines += [f"{phase}] gave {one.name} {one.size} bytes {one.digest}" for one in action.outputs.values()]
    return "".join(f"{now} {os.getpid()} {line}\n" for line in lines).encode()


def _command() -> str:
    """What was started, without the folder that it stands in."""
    return shlex.join([os.path.basename(sys.argv[0]), *sys.argv[1:]])[:2000] if sys.argv else ""


def _write(root: Path, name: str, data: bytes) -> None:
    target = root / name
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = write_aside_plain(target.parent, data)
    try:
        hit("directory.file_written")
        os.replace(temporary, target)
        hit("directory.file_renamed")
    finally:
        remove(temporary)


def _remove_leftovers(root: Path) -> None:
    """Temporary files of processes that were killed."""
    for path in [*root.glob(".*-*-*-*"), *root.glob("glog/.*-*-*-*")]:
        who = owner.of_file(path.name[1:])
        if who is not None and who.is_gone():
            remove(path)


def _listed(root: Path) -> set[str]:
    """Names in an earlier manifest that are safe to remove."""
    try:
        names = json.loads(read_regular(root / MANIFEST))["files"]
        return {check_name(name) for name in names}
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError, StoreError):
        return set()  # damaged: then nothing of it is believed, and nothing removed


def _digest_of_file(path: Path) -> str | None:
    try:
        return digest_of(read_regular(path))
    except OSError:
        return None


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
