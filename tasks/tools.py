"""Versions of installed packages, without importing them."""

from __future__ import annotations

import importlib.metadata
from functools import cache, lru_cache


@cache
def version_of(distribution: str) -> str:
    """The version of an installed distribution, or "absent"."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


@cache
def distribution_of(module: str) -> str | None:
    """The distribution that installs a top-level module, or None."""
    try:
        importlib.metadata.version(module)
        return module  # most are named alike; the table below takes 0.1 s to make
    except importlib.metadata.PackageNotFoundError:
        return next(iter(_table().get(module, ())), None)


@lru_cache(maxsize=1)
def _table() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())
