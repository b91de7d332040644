"""Remembered answers under structured keys: node simulations above all, thousands in a compile.

    memory = store.memory("node_simulation")
    answers = memory.recall_many(keys)              one query for all of them
    memory.remember(key, {"steps": 12})             written in bulk, at the latest by flush()

An answer is a pure function of its key, so losing one costs time and nothing else, and two writers cannot disagree. The
collector takes what was not used for a while.
Each row carries a seal over key and value: SQLite pages have no checksums, and a wrong answer would be believed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from mlsdk.store import codec, schema
from mlsdk.store import digest as digests
from mlsdk.store.errors import StoreError
from mlsdk.store.index import Index

_BATCH = 500

_EPOCH = sa.select(schema.facts.c.value).where(schema.facts.c.name == "epoch").scalar_subquery()
_QUERY = sa.select(
    schema.memories.c.key,
    schema.memories.c.value,
    schema.memories.c.seal,
    (schema.memories.c.epoch < _EPOCH).label("old"),
).where(schema.memories.c.kind == sa.bindparam("kind"))
# One key at a time is half as long without the expansion of a list.
_ONE = _QUERY.where(schema.memories.c.key == sa.bindparam("names"))
_MANY = _QUERY.where(schema.memories.c.key.in_(sa.bindparam("names", expanding=True)))


class Memory:
    """Answers of one kind. Not for several threads at once."""

    def __init__(self, index: Index, kind: str, flush_at: int = 2000, afresh: bool = False) -> None:
        self.kind = kind
        self.hits = 0
        self.misses = 0
        self._index = index
        self._afresh = afresh  # for results that are to be computed again, whatever there is
        self._flush_at = flush_at
        self._seen: dict[bytes, Any] = {}
        self._pending: dict[bytes, tuple[str, str]] = {}
        self._used: list[bytes] = []  # and not marked so since the last collection

    def recall(self, key: Any) -> Any | None:
        """The answer under `key`, or None."""
        return self.recall_many([key])[0]

    def recall_many(self, keys: Sequence[Any]) -> list[Any | None]:
        """The answers under `keys`, None where there is none."""
        names = [digests.of_value_bytes(self.kind, key) for key in keys]
        unknown = [name for name in dict.fromkeys(names) if name not in self._seen]
        if unknown:
            self._fetch(unknown)
        answers = [self._seen.get(name) for name in names]
        found = sum(answer is not None for answer in answers)
        self.hits += found
        self.misses += len(answers) - found
        return answers

    def remember(self, key: Any, value: Any) -> None:
        """Keep `value` (JSON data, not None) under `key`."""
        text = codec.canonical(key)
        name = digests.of_text(self.kind, text)
        line = json.dumps(value, allow_nan=False, separators=(",", ":"), sort_keys=True)
        self._seen[name] = json.loads(line)
        self._pending[name] = (text.decode("ascii"), line)
        if len(self._pending) >= self._flush_at:
            self.flush()

    def remember_many(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        for key, value in pairs:
            self.remember(key, value)

    def flush(self) -> None:
        """Write what is not yet written, in one transaction. A read-only store keeps it in this process only."""
        pending, self._pending = self._pending, {}
        used, self._used = self._used, []
        if not (pending or used) or self._index.read_only:
            return
        rows = [
            {"kind": self.kind, "key": name, "parts": parts, "value": line, "seal": _seal(self.kind, name, line)}
            for name, (parts, line) in pending.items()
        ]
        with self._index.write() as connection:
            now = connection.execute(sa.select(_EPOCH)).scalar_one()
            if rows:
                insert = schema.insert_over(connection, schema.memories)
                connection.execute(insert, [{**row, "epoch": now} for row in rows])
            for start in range(0, len(used), _BATCH):
                mine = schema.memories.c.key.in_(used[start : start + _BATCH])
                table = schema.memories
                connection.execute(table.update().where(table.c.kind == self.kind, mine).values(epoch=now))

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: Any) -> None:
        try:
            self.flush()
        except StoreError:
            if error is None:
                raise  # else the first error is the one to show

    def _fetch(self, names: list[bytes]) -> None:
        with self._index.read() as connection:
            for start in range(0, 0 if self._afresh else len(names), _BATCH):
                part = names[start : start + _BATCH]
                query, key = (_ONE, part[0]) if len(part) == 1 else (_MANY, part)
                for name, line, seal, old in connection.execute(query, {"kind": self.kind, "names": key}):
                    if _seal(self.kind, name, line) == seal:
                        self._seen[name] = json.loads(line)
                        if old:
                            self._used.append(name)
        for name in names:
            self._seen.setdefault(name, None)


def _seal(kind: str, name: bytes, line: str) -> bytes:
    return hashlib.sha256(kind.encode() + b"\0" + name + line.encode()).digest()[:8]
