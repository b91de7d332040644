"""What can go wrong in the store. Each message names the thing, says what is so, and what to do."""

from __future__ import annotations

from mlsdk.errors import StoreError

__all__ = [
    "BadName",
    "BadParcel",
    "BadQuery",
    "IndexDamaged",
    "IndexNewer",
    "NonDeterministic",
    "NotAStore",
    "NotFound",
    "ObjectDamaged",
    "ObjectLost",
    "ObjectMissing",
    "StoreBusy",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
]


class StoreFull(StoreError):
    """No space left on the disk of the store. Nothing half-written stays, and nothing is remembered about it."""


class StoreReadOnly(StoreError):
    """The store can be read but not written, and something had to be written."""


class StoreBusy(StoreError):
    """A lock was not free within the stated time."""


class NotAStore(StoreError):
    """The folder or the index belongs to something else; it was not touched."""


class IndexNewer(StoreError):
    """The index was written by a newer version of the product; it was not touched."""


class IndexDamaged(StoreError):
    """SQLite cannot read the index."""


class NonDeterministic(StoreError):
    """The same key gave other bytes than before. The first result is kept, the second is in quarantine."""


class NotFound(StoreError):
    """No such key, object, label or artifact."""


class BadQuery(StoreError):
    """A query that is not one SELECT over what there is."""


class BadParcel(StoreError):
    """An exported file that is not whole, or not one of ours. Nothing of it was taken."""


class BadName(StoreError):
    """A name or a value that cannot enter a key or a file name."""


class ObjectLost(StoreError):
    """An object that a row promises cannot be used; the rows that named it are gone: a miss, build it again."""

    def __init__(self, message: str, digest: str = "") -> None:
        super().__init__(message)
        self.digest = digest


class ObjectMissing(ObjectLost):
    """There is no such file."""


class ObjectDamaged(ObjectLost):
    """There is a file, and it does not hold the bytes that its name promises."""
