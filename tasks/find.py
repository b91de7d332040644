"""From what a user types to a workflow: a name, a module, a file, and its parameters as text."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import luigi
from luigi.parameter import MissingParameterException

from mlsdk.tasks.errors import WorkflowError
from mlsdk.tasks.options import nearest
from mlsdk.tasks.workflow import Workflow

PACKAGE = "mlsdk.workflows"


def workflow_class(text: str) -> type[Workflow]:
    """`digits`, `mlsdk.workflows.digits`, `path/to/file.py`, each with `:Class` where there are several."""
    where, colon, name = text.rpartition(":")
    if not colon:
        where, name = text, ""
    module = _module(where)
    found = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Workflow) and value.__module__ == module.__name__
    }
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
        except (ValueError, TypeError) as error:
            raise WorkflowError(
                f"parameter {name} of {of.__name__}: {text!r} is no {_kind(known[name])} ({error})"
            ) from None
    try:
        return of(**values)
    except MissingParameterException as error:
        raise WorkflowError(f"{error}; give it with --param NAME=VALUE") from None


def names() -> list[str]:
    """The workflows that come with Open MLSDK."""
    package = importlib.import_module(PACKAGE)
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_"))


def _module(text: str) -> ModuleType:
    if text.endswith(".py") or os.sep in text:
        return _from_file(Path(text))
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    for name in (text,) if "." in text else (f"{PACKAGE}.{text}", text):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            # Only the module itself may be absent; what it imports may not.
            if error.name is None or not (name + ".").startswith(error.name + "."):
                raise WorkflowError(f"{name} imports {error.name}, which is not installed") from error
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
    module = importlib.import_module(".".join(parts))
    if Path(module.__file__ or "").resolve() != path:
        raise WorkflowError(f"{path}: another module is named {'.'.join(parts)} ({module.__file__}); rename the file")
    return module


def _kind(parameter: luigi.Parameter[Any]) -> str:
    return type(parameter).__name__.removesuffix("Parameter").lower() or "text"
