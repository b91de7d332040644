"""Where errors leave the package: a traceback with the user's lines, and not with those between them and the error."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from mlsdk.errors import MLSDKError

__all__ = ["boundary"]

# Folders whose frames say nothing about the user's program.
_INSIDE = (os.path.dirname(os.path.abspath(__file__)), sysconfig.get_paths()["stdlib"])

P = ParamSpec("P")
R = TypeVar("R")


def boundary(function: Callable[P, R]) -> Callable[P, R]:
    """A public function whose errors of our own classes show no frames of this package, and no errors that led to them;
    with MLSDK_DEBUG=1 they show everything."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except MLSDKError as error:
            if os.environ.get("MLSDK_DEBUG") == "1":
                raise
            raise error.with_traceback(_of_the_user(error.__traceback__)) from None

    return called


def _of_the_user(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this package, of the standard library and of what is installed in it."""
    if traceback is None:
        return None
    rest = _of_the_user(traceback.tb_next)
    file = traceback.tb_frame.f_code.co_filename
    if file.startswith("<frozen") or "site-packages" in file or file.startswith(tuple(f + os.sep for f in _INSIDE)):
        return rest
    return TracebackType(rest, traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno)
