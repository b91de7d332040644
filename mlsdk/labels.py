"""What a compile is called: `module:qualname` in the store, a short form in messages."""

from __future__ import annotations

import inspect
import os
import sys
from typing import Any

__all__ = ["label_of", "short"]


def label_of(function: Any) -> str:
    """`train:Trainer.step`; a lambda with its file and line, `train:lambda at train.py:12`; a module by its class."""
    named = function if hasattr(function, "__qualname__") else getattr(function, "func", type(function))
    name = getattr(named, "__qualname__", type(named).__name__).replace("<locals>.", "")
    code = getattr(inspect.unwrap(named), "__code__", None)
    if name.endswith("<lambda>") and code is not None:
        name = f"lambda at {os.path.basename(code.co_filename)}:{code.co_firstlineno}"
    return f"{_module(getattr(named, '__module__', None) or 'builtins')}:{name}"


def _module(name: str) -> str:
    """A module's name; that of its file for the program itself."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return os.path.splitext(os.path.basename(file))[0] if name == "__main__" and file else name


def short(label: str) -> str:
    """The name of a function for messages: `step`, `lambda at train.py:12`."""
    name = label.partition(":")[2] or label
    return name if name.startswith("lambda at ") else name.rpartition(".")[2]
