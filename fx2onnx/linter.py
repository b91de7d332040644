"""A check before the compile: what of a function cannot be exported, and what is exported otherwise than it may look.

for result in lint(function, inputs):
    print(result)
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["LintLevel", "LintResult", "lint"]


class LintLevel(enum.IntEnum):
    """How bad a finding is: an ERROR stops a compile, a WARNING changes what the program does, INFO is good to know."""

    INFO = 10
    WARNING = 20
    ERROR = 30


@dataclass(frozen=True)
class LintResult:
    """One finding; `source` is `file:line` where it is known."""

    level: LintLevel
    message: str
    source: str = ""

    def __str__(self) -> str:
        where = f"{self.source}: " if self.source else ""
        return f"{where}{self.level.name.lower()}: {self.message}"


def lint(
    function: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    inputs: Mapping[str, Any],
    *,
    level: LintLevel = LintLevel.INFO,
    state: Mapping[str, Any] | None = None,
) -> list[LintResult]:
    """Trace `function` with `inputs`, and list everything of at least `level`, the worst first.

    Operators that the board does not compute are among it, although `pfvm` does. `state`: tensors by name that will be
    registered; others of the closure are reported as constants. An exception of the function itself comes through as it
    is.
    """
    from mlsdk.compiling import refused
    from mlsdk.errors import BESIDES, MLSDKError, MLSDKWarning, TraceError, UnsupportedOperator
    from mlsdk.pipeline.trace import trace

    found: list[LintResult] = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            traced = trace(function, inputs, state=state)
        except TraceError as error:
            if error.place is not None:
                found.append(LintResult(LintLevel.ERROR, f"{error.place.what}: {error.place.hint}", error.place.source))
            elif not isinstance(error, UnsupportedOperator) or not error.misuses:
                found.append(LintResult(LintLevel.ERROR, str(error).partition(BESIDES)[0]))
            found += [
                LintResult(
                    LintLevel.ERROR, f"{one.what} cannot be exported{f': {one.hint}' if one.hint else ''}", one.source
                )
                for one in error.misuses
            ]
            graph = error.partial
        except MLSDKError as error:
            found.append(LintResult(LintLevel.ERROR, str(error)))
            graph = None
        else:
            graph = traced.graph
            operators = {node.op for node in traced.graph.nodes}
            text = f"{len(traced.graph.nodes)} nodes of {len(operators)} operators: {', '.join(sorted(operators))}"
            found.append(LintResult(LintLevel.INFO, text))
    for one in refused(graph):
        text = f"{one.what} cannot be compiled for the board, on pfvm it can: {one.hint}"
        found.append(LintResult(LintLevel.ERROR, text, one.source))
    for warning in seen:
        if issubclass(warning.category, MLSDKWarning):
            found.append(LintResult(LintLevel.WARNING, str(warning.message), f"{warning.filename}:{warning.lineno}"))
    return sorted((one for one in found if one.level >= level), key=lambda one: -one.level)
