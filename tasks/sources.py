"""Which source files a module's code stands in, found without importing anything.

The Trace of a workflow depends on the workflow's module and on the modules of the same project that it imports. They
are found by reading the import statements of the source text, functions included, so that asking whether something is
cached never imports torch. What is installed (site-packages) counts by its version, the standard library not at all,
and Open MLSDK itself by the versions of its phases. An import that is computed at run time is not seen: name such
modules in `extra_sources` of the task.
"""

from __future__ import annotations

import ast
import importlib.machinery
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from mlsdk.store import digest_of
from mlsdk.tasks.errors import WorkflowError
from mlsdk.tasks.tools import distribution_of, version_of

_INSTALLED = ("site-packages", "dist-packages")
_OURS = "mlsdk"
_OURS_WALKED = "mlsdk.workflows"


@dataclass
class Sources:
    """Module -> digest of its file, and distribution -> version, for all that a module uses."""

    modules: dict[str, str] = field(default_factory=dict)
    distributions: dict[str, str] = field(default_factory=dict)


def of_module(name: str, extra: Iterable[str] = ()) -> Sources:
    """The sources of a module and of all project-local modules that it imports."""
    sources = Sources()
    waiting = [name, *extra]
    for start in waiting:
        if _find(start) is None:
            raise WorkflowError(f"no source file of module {start} is found; save it as a file on the Python path")
    while waiting:
        module = waiting.pop()
        if module in sources.modules:
            continue
        found = _find(module)
        if found is None:
            continue
        sources.modules[module] = found.digest
        for imported in found.imports:
            _sort(imported, waiting, sources)
    return sources


def _sort(imported: str, waiting: list[str], sources: Sources) -> None:
    top = imported.partition(".")[0]
    if top in sys.stdlib_module_names:
        return
    if top == _OURS and not (imported + ".").startswith(_OURS_WALKED + "."):
        return
    spec = _top_level(top)
    if spec is None:
        return
    if top != _OURS and _is_installed(spec):
        distribution = distribution_of(top)
        if distribution is not None:
            sources.distributions[distribution] = version_of(distribution)
        return
    # Importing a.b.c runs the code of a and of a.b as well.
    parts = imported.split(".")
    waiting.extend(".".join(parts[:count]) for count in range(1, len(parts) + 1) if parts[0] != _OURS or count > 1)


@dataclass(frozen=True)
class _Found:
    digest: str
    imports: tuple[str, ...]


def _find(module: str) -> _Found | None:
    path = _path(module)
    if path is None:
        return None
    facts = path.stat()
    return _parsed(module, str(path), facts.st_mtime_ns, facts.st_size, facts.st_ino)


@lru_cache(maxsize=1024)
def _parsed(module: str, path: str, _mtime: int, _size: int, _inode: int) -> _Found:
    text = Path(path).read_bytes()
    package = module if Path(path).name == "__init__.py" else module.rpartition(".")[0]
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise WorkflowError(f"{path}: {error}; correct the file") from None
    names: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(dict.fromkeys(alias.name for alias in node.names))
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, package)
            # `from a import b` may name a module a.b or a name of a: both are tried.
            names.update(dict.fromkeys([base, *(f"{base}.{alias.name}" for alias in node.names)]))
    return _Found(digest_of(text), tuple(name for name in names if name))


def _base(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    parts = parts[: len(parts) - (node.level - 1)]
    return ".".join([*parts, node.module] if node.module else parts)


def _path(module: str) -> Path | None:
    """The source file of a module; None when there is none (a name, an extension, a namespace package)."""
    top, *rest = module.split(".")
    loaded = sys.modules.get("__main__")
    if module == "__main__" and loaded is not None:
        file = getattr(loaded, "__file__", None)
        return Path(file) if file else None
    spec = _top_level(top)
    if spec is None:
        return None
    if not rest:
        return _source(spec.origin)
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    for part in rest[:-1]:
        folders = [folder / part for folder in folders if (folder / part).is_dir()]
    for folder in folders:
        for candidate in (folder / rest[-1] / "__init__.py", folder / f"{rest[-1]}.py"):
            if candidate.is_file():
                return candidate
    return None


def _top_level(name: str) -> importlib.machinery.ModuleSpec | None:
    # Asked of the finders one by one: importlib.util.find_spec would import parents.
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(name, None) if find else None
        if spec is not None:
            return spec
    return None


def _source(origin: str | None) -> Path | None:
    return Path(origin) if origin and origin.endswith(".py") else None


def _is_installed(spec: importlib.machinery.ModuleSpec) -> bool:
    where = spec.origin or next(iter(spec.submodule_search_locations or ()), "")
    return any(part in _INSTALLED for part in Path(where).parts)
