"""How the arguments of a call differ from those that a function was compiled for."""

from __future__ import annotations

from typing import Any

from mlsdk.pipeline.ir.pytree import Spec

__all__ = ["difference"]


def difference(compiled: Spec, called: Spec, path: str = "") -> str:
    """The first place where two structures differ, in words; empty when they agree.

    The order of a dict's keys does not matter, and NaN equals NaN.
    """
    if compiled.kind != called.kind or (compiled.kind not in ("leaf", "static") and compiled.tag != called.tag):
        return _told(path, _words(compiled), _words(called))
    if compiled.kind == "leaf":
        return ""
    if compiled.kind == "static":
        return "" if _same(compiled.tag, called.tag) else _told(path, _words(compiled), _words(called))
    before, now = _children(compiled), _children(called)
    for key in [*before, *(key for key in now if key not in before)]:
        below = f"{path}.{key}" if path else str(key)
        if key not in now:
            return _told(below, _words(before[key]), "without it")
        if key not in before:
            return f"{below}: compiled without it, called with {_words(now[key])}"
        found = difference(before[key], now[key], below)
        if found:
            return found
    return ""


def _children(spec: Spec) -> dict[Any, Spec]:
    return dict(zip(spec.keys or range(len(spec.children)), spec.children))


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (a == b or (a != a and b != b))


def _told(path: str, compiled: str, called: str) -> str:
    return f"{path or 'the arguments'}: compiled with {compiled}, called {called if called == 'without it' else f'with {called}'}"


def _words(spec: Spec) -> str:
    if spec.kind == "leaf":
        return "a tensor"
    if spec.kind == "static":
        return f"{spec.tag!r:.60}"
    name = str(spec.tag).rpartition(":")[2] if spec.tag else spec.kind
    return f"a {name} of {len(spec.children)}"
