"""The questions of `mlsdk store` as methods of a store: `mlsdk.store.open().ls(kind="vsm")`. Each answer is plain data."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from mlsdk.store import fsck as fsck_module
    from mlsdk.store import gc as gc_module
    from mlsdk.store.store import Store


class Questions:
    """What can be asked of a store. The modules that answer are imported when they are asked."""

    def ls(self, **only: Any) -> list[dict[str, Any]]:
        """Artifacts, the newest first; `only` as in `query.ls`: kind, phase, label, name, since, options, limit, ..."""
        from mlsdk.store import query

        return query.ls(self._store, **only)

    def show(self, ref: str) -> dict[str, Any]:
        """Everything that is known about a result."""
        from mlsdk.store import query

        return query.show(self._store, ref)

    def cat(self, ref: str) -> bytes:
        """The bytes of an artifact, verified."""
        from mlsdk.store import query

        return query.cat(self._store, ref)

    def why(self, ref: str = "") -> list[dict[str, Any]]:
        """Why phases were built, or could not be reused."""
        from mlsdk.store import query

        return query.why(self._store, ref)

    def log(self, label: str | None = None, **only: Any) -> list[dict[str, Any]]:
        """Builds, the newest first; `only` as in `query.log`: limit, since, preset, options, status."""
        from mlsdk.store import query

        return query.log(self._store, label, **only)

    def deps(self, ref: str, down: bool = False, depth: int = 32) -> dict[str, Any]:
        """What a result was made from, or what was made from it, as a tree."""
        from mlsdk.store import query

        return query.deps(self._store, ref, down, depth)

    def diff(self, one: str, other: str) -> dict[str, Any]:
        """What differs between two builds or two results."""
        from mlsdk.store import compare

        return compare.diff(self._store, one, other)

    def du(self) -> dict[str, Any]:
        """Sizes by kind, and what sharing and compression save."""
        from mlsdk.store import query

        return query.du(self._store)

    def query(self, select: str, seconds: float = 10.0, limit: int = 10_000) -> list[dict[str, Any]]:
        """The rows of one SELECT over the views artifacts, actions, runs and node_simulations."""
        from mlsdk.store import sql

        found = sql.run(self._store, select, seconds, limit)
        return [dict(zip(found["columns"], row)) for row in found["rows"]]

    def tag(self, name: str, ref: str) -> dict[str, Any]:
        """Give a result a name; it is never collected."""
        from mlsdk.store import tags

        return tags.put(self._store, name, ref)

    def untag(self, name: str) -> None:
        """Take a name away."""
        from mlsdk.store import tags

        tags.remove(self._store, name)

    def tags(self) -> list[dict[str, Any]]:
        """All names and what they stand for."""
        from mlsdk.store import tags

        return tags.listed(self._store)

    def export(self, ref: str, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Write a result or a build, and everything that it was made from, into one file."""
        from mlsdk.store import parcel

        return parcel.export(self._store, ref, path)

    def import_(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Take in what `export` wrote, verified."""
        from mlsdk.store import parcel

        return parcel.take_in(self._store, path)

    def gc(self, grace: int = 2, dry_run: bool = False) -> gc_module.Report:
        """Delete what was not used in the last `grace` collections."""
        from mlsdk.store import gc

        return gc.collect(self._store, grace, dry_run)

    def fsck(self, repair: bool = False) -> fsck_module.Report:
        """Check everything."""
        from mlsdk.store import fsck

        return fsck.check(self._store, repair)

    @property
    def _store(self) -> Store:
        return cast("Store", self)
