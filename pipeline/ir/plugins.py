"""Operators from outside: packages that offer the entry point group `mlsdk.operators`.

An entry point names a function of one argument, the Registry. It is called once, when the first table is read; each table then
takes its part. The versions of the packages enter the keys of all phases.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from mlsdk.errors import MLSDKError

GROUP = "mlsdk.operators"


class PluginError(MLSDKError):
    """A package's entry point for operators cannot be loaded, or what it registers is not right."""


@dataclass
class Registry:
    """What plug-ins add: rows of the tables."""

    operators: list[Any] = field(default_factory=list)
    kernels: list[tuple[str, Callable[..., Any], dict[str, Any]]] = field(default_factory=list)
    rules: dict[str, Callable[..., None]] = field(default_factory=dict)
    lowerings: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def operator(self, row: Any) -> None:
        """A row of `mlsdk.pipeline.ops`: an `Operator` with its shape rule and reference function."""
        self.operators.append(row)

    def kernel(self, name: str, formula: Callable[..., Any], **options: Any) -> None:
        """An elementwise kernel for floats: `formula(f, *inputs)` builds it with the pen `f`
        (`mlsdk.pipeline.ops.emitters.formula.Formula`). options: `inputs`, `attrs`, and the errors in ulp `half`, `single`,
        `double`, as in `mlsdk.pipeline.ops.emitters.kernels.floats`."""
        self.kernels.append((name, formula, options))

    def rule(self, op: str, rule: Callable[..., None]) -> None:
        """A planner's rule `rule(planner, node)`: makes the operator of others (`planner.apply`), or places it."""
        self.rules[op] = rule

    def lowering(self, op: str, row: Callable[..., Any]) -> None:
        """How a torch operator, "namespace::name.overload", becomes nodes: `row(b, out, *args)`, as in
        `mlsdk.pipeline.trace.aten`."""
        self.lowerings[op] = row


@cache
def registry() -> Registry:
    """What all installed plug-ins register."""
    found = Registry()
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            entry.load()(found)
        except Exception as error:
            raise PluginError(
                f"plug-in {entry.name} ({entry.value}): {type(error).__name__}: {error}; correct it or uninstall its package"
            ) from error
    return found


@cache
def versions() -> dict[str, str]:
    """Package -> version of all installed plug-ins."""
    found = {}
    for entry in importlib.metadata.entry_points(group=GROUP):
        if entry.dist is not None:
            found[f"plug-in {entry.dist.name}"] = entry.dist.version
    return found
