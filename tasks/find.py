"""From what a user types to a workflow: a name, a module, a file, and its parameters as text."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from luigi.parameter import MissingParameterException

from mlsdk.errors import MLSDKError
from mlsdk.tasks.errors import WorkflowError, cause, place_in
from mlsdk.tasks.options import nearest
from mlsdk.tasks.parameters import wrong
from mlsdk.tasks.static import may_hold_workflow
from mlsdk.tasks.workflow import Workflow

PACKAGE = "mlsdk.workflows"


def workflow_class(text: str) -> type[Workflow]:
    """`digits`, `mlsdk.workflows.digits`, `path/to/file.py`, each with `:Class` where there are several."""
    if not text.strip():
        raise WorkflowError(f"the workflow's name is empty; give one of {', '.join(names())}, a module or a .py file")
    where, colon, name = text.rpartition(":")
    if not colon:
        where, name = text, ""
    module = _module(where)
    found = _workflows(module)
    if name:
        if name not in found:
            raise WorkflowError(
                f"{where} has no workflow {name}{nearest(name, found)}; it has {', '.join(found) or 'none'}"
            )
        return found[name]
    if len(found) != 1:
        told = f"several: {', '.join(f'{text}:{key}' for key in found)}" if found else "none"
        raise WorkflowError(f"{text}: a module with one subclass of Workflow is needed, and it has {told}")
    return next(iter(found.values()))


def instance(of: type[Workflow], parameters: Mapping[str, str], options: Mapping[str, Any], device: str) -> Workflow:
    """A workflow with parameters as text, parsed by their own types."""
    known = dict(of.get_params())
    values: dict[str, Any] = {"options": dict(options)}
    if device:
        values["device"] = device
    for name, text in parameters.items():
        if name not in known or name == "options":
            own = sorted(set(known) - {"options"})
            raise WorkflowError(
                f"{of.__name__} has no parameter {name!r}{nearest(name, own)}; it has {', '.join(own) or 'none'}"
            )
        try:
            values[name] = known[name].parse(text)
        except (ValueError, TypeError):
            raise wrong(of, name, known[name], text) from None
    try:
        return of(**values)
    except MissingParameterException as error:
        raise WorkflowError(f"{error}; give it with --param NAME=VALUE") from None


def names() -> list[str]:
    """The workflows that come with Open MLSDK."""
    package = importlib.import_module(PACKAGE)
    folder = Path(package.__path__[0])
    return sorted(
        module.name
        for module in pkgutil.iter_modules(package.__path__)
        if not module.name.startswith("_") and _is_listed(folder / f"{module.name}.py", f"{PACKAGE}.{module.name}")
    )


def _is_listed(path: Path, module: str) -> bool:
    if not path.is_file() or not may_hold_workflow(path):
        return False
    return len(_workflows(importlib.import_module(module))) == 1


def _module(text: str) -> ModuleType:
    if text.endswith(".py") or os.sep in text:
        return _from_file(Path(text))
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    for name in (text,) if "." in text else (f"{PACKAGE}.{text}", text):
        path = _source(name)
        if path is not None:
            return _imported(name, path)
    raise WorkflowError(
        f"no workflow {text!r}{nearest(text, names())}; give one of {', '.join(names()) or '(none yet)'}, "
        "a module, or the path of a .py file"
    )


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise WorkflowError(f"{path} is no file; give the path of a workflow's .py file")
    path = path.resolve()
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    module = _imported(".".join(parts), path)
    if Path(module.__file__ or "").resolve() != path:
        raise WorkflowError(f"{path}: another module is named {'.'.join(parts)} ({module.__file__}); rename the file")
    return module


def _workflows(module: ModuleType) -> dict[str, type[Workflow]]:
    """Those of the module that can be built. A base of several declares what each of them gives."""
    return {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Workflow)
        and value.__module__ == module.__name__
        and all(hasattr(value, name) for name in value.__annotations__)
    }


def _source(name: str) -> Path | None:
    """The file of a module, without executing it; None when there is no such module."""
    try:
        spec = importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin and spec.has_location else None


def _imported(name: str, path: Path) -> ModuleType:
    """Execute a module that holds a workflow. What it raises is told with its file and line."""
    if path.suffix == ".py" and not may_hold_workflow(path):
        raise WorkflowError(
            f"{path}: a module with one subclass of Workflow is needed, and it has none; it was not executed"
        )
    try:
        return importlib.import_module(name)
    except MLSDKError:
        raise
    except ModuleNotFoundError as error:
        raise WorkflowError(f"{name} imports {error.name}, which is not installed") from error
    except (Exception, SystemExit) as error:
        raise WorkflowError(f"{place_in(error, path) or path}: {cause(error)}, while it was imported") from error
