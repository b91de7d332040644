"""What a file says before it is executed: whether it can hold a workflow at all."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from mlsdk.tasks.errors import WorkflowError


def may_hold_workflow(path: Path) -> bool:
    """True when a class of the file can be a subclass of Workflow. WorkflowError for what is not Python.

    A base whose name ends in `Workflow` is one, and so may be a base that a module of our own or of the file's project
    gives.
    """
    tree = _parsed(path)
    own = path.parent
    near = {
        alias.asname or alias.name: node
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for base in node.bases:
            name = _last_name(base)
            source = near.get(name)
            if name.endswith("Workflow") or (source is not None and _is_near(source, own)):
                return True
            if source is not None and any(alias.name.endswith("Workflow") for alias in source.names):
                return True
    return False


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), str(path))
    except SyntaxError as error:
        where = f"{path}, line {error.lineno}" if error.lineno else str(path)
        raise WorkflowError(f"{where}: {error.msg}; correct the file") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise WorkflowError(f"{path} is no Python source ({error or 'nested too deep'}); give a workflow") from None
    except OSError as error:
        raise WorkflowError(f"{path}: {error.strerror}; check the path") from None


def _is_near(node: ast.ImportFrom, folder: Path) -> bool:
    if node.level:
        return True
    top = (node.module or "").partition(".")[0]
    return top not in sys.stdlib_module_names and any(
        (parent / f"{top}.py").exists() or (parent / top).is_dir() for parent in (folder, *folder.parents[:2])
    )


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
