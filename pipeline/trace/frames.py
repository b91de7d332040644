"""Which line of the user's program runs now."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import CodeType

import mlsdk

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.abspath(mlsdk.__file__))
_STDLIB = sysconfig.get_paths()["stdlib"]
_foreign: dict[CodeType, bool] = {}


def _is_foreign(code: CodeType) -> bool:
    """Whether a frame belongs to torch, the standard library or the tracer, and not to a user's program or model."""
    name = code.co_filename
    if name.startswith("<frozen"):
        return True
    path = os.path.abspath(name)
    if path.startswith(_HERE + os.sep) or os.path.dirname(path) == _PACKAGE:
        return True
    parts = path.split(os.sep)
    if "site-packages" in parts or "dist-packages" in parts:
        return "torch" in parts
    return path.startswith(_STDLIB + os.sep)


def user_line() -> str:
    """`file.py:12` of the innermost frame of the user's program; empty when there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        foreign = _foreign.get(code)
        if foreign is None:
            foreign = _foreign[code] = _is_foreign(code)
        if not foreign:
            return f"{os.path.basename(code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""
