"""Which line of the user's program runs now."""

from __future__ import annotations

import os
import sys
import sysconfig
import warnings
from types import CodeType, FrameType

import torch

import mlsdk

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.abspath(mlsdk.__file__))
_STDLIB = sysconfig.get_paths()["stdlib"]
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
# what stands between a call of an operator and its dispatch
_DISPATCH = tuple(
    os.path.join(_TORCH, name) for name in ("_ops.py", "_tensor.py", "_compile.py", "utils/_contextlib.py")
)
_foreign: dict[CodeType, bool] = {}


def _is_foreign(code: CodeType) -> bool:
    """Whether a frame belongs to torch, the standard library or the tracer, and not to a user's program or model."""
    name = code.co_filename
    if name.startswith("<frozen"):
        return True
    path = os.path.abspath(name)
    ours = (_HERE, os.path.join(_PACKAGE, "tasks"))
    if path.startswith(tuple(folder + os.sep for folder in ours)) or os.path.dirname(path) == _PACKAGE:
        return True
    parts = path.split(os.sep)
    if "site-packages" in parts or "dist-packages" in parts:
        return "torch" in parts
    return path.startswith(_STDLIB + os.sep)


def _user_frame() -> tuple[FrameType | None, int]:
    """The innermost frame of the user's program, and how many frames lie between it and the caller of the caller."""
    frame: FrameType | None = sys._getframe(2)
    depth = 0
    while frame is not None:
        code = frame.f_code
        foreign = _foreign.get(code)
        if foreign is None:
            foreign = _foreign[code] = _is_foreign(code)
        if not foreign:
            return frame, depth
        frame = frame.f_back
        depth += 1
    return None, 0


def user_line() -> str:
    """`file.py:12` of the innermost frame of the user's program; empty when there is none."""
    frame, _ = _user_frame()
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame is not None else ""


def torch_function() -> str:
    """The function of torch that runs now, `_BatchNorm.forward`; empty where the user's program runs."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((_HERE, *_DISPATCH)):
        frame = frame.f_back
    inside = frame is not None and frame.f_code.co_filename.startswith(_TORCH)
    return frame.f_code.co_qualname if frame is not None and inside else ""


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the line of the user's program that led here."""
    _, depth = _user_frame()
    warnings.warn(message, category, stacklevel=depth + 2)
