"""Torch's Python meta functions without torch._dynamo.

Each of them that is written with a decorator of torch._refs asks torch._dynamo on its first call not to look into it, and imports
that for it (0.8 s). While nobody has imported it nothing can be compiled, so there is nothing to ask for: torch keeps the answer
with the function, and here the answer is the function itself, for as long as we call it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FunctionType
from typing import Any

ANSWER = "__dynamo_disable"  # where torch._compile keeps it
MODULES = ("torch._refs", "torch._prims", "torch._decomp")


@contextmanager
def without_dynamo() -> Iterator[None]:
    """While it is open, what the decorated functions call does not import torch._dynamo."""
    if "torch._dynamo" in sys.modules:
        yield
        return
    mine = [function for function in _decorated() if not hasattr(function, ANSWER)]
    for function in mine:
        setattr(function, ANSWER, function)
    try:
        yield
    finally:
        for function in mine:
            if getattr(function, ANSWER, None) is function:
                delattr(function, ANSWER)


@cache
def _decorated() -> tuple[Callable[..., Any], ...]:
    """The functions behind torch._compile's decorator, which stands anywhere in a chain of them."""
    found: dict[int, Callable[..., Any]] = {}
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(MODULES)]
    for value in [value for module in modules for value in list(vars(module).values())]:
        while isinstance(value, FunctionType) and (inner := _behind(value)) is not None:
            if value.__code__.co_filename.endswith("_compile.py"):
                found[id(inner)] = inner
            value = inner
    return tuple(found.values())


def _behind(function: FunctionType) -> Any:
    """What a decorator's function calls: torch names it `fn`."""
    names = function.__code__.co_freevars
    return function.__closure__[names.index("fn")].cell_contents if "fn" in names and function.__closure__ else None
