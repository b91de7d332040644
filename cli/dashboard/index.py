"""The indexes that the server reads: made when they are first needed, and again when a file changes."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mlsdk.cli.dashboard.problems import Indexing, Problem
from mlsdk.cli.dashboard.sources import Source
from mlsdk.cli.dashboard.vsm import PIECE, unpacked

#: up to this many stored bytes an index is made in the server itself; beyond, in a process of its own
INSIDE = 2 << 20
#: seconds that a request waits for an index before it says that one is being made
PATIENCE = 3.0
#: seconds after which a process that makes an index is ended
TIME_LIMIT = 300
#: indexes that are kept; the oldest goes when one more is made
KEPT = 32
INDEXED = ("model.vsm", "placed.json", "plan.json", "simulation_result.json", "sources.json", "l3ir.txt")


class Index:
    """Questions to one index. Each question opens the file for itself: any thread may ask."""

    def __init__(self, path: str) -> None:
        self.path = path

    @contextmanager
    def _connection(self):
        connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
        connection.row_factory = sqlite3.Row
        try:
            yield connection
        finally:
            connection.close()

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        with self._connection() as connection:
            return [dict(row) for row in connection.execute(query, values)]

    def row(self, query: str, values: Sequence[Any] = ()) -> dict[str, Any] | None:
        found = self.rows(query, values)
        return found[0] if found else None

    def number(self, query: str, values: Sequence[Any] = ()) -> Any:
        with self._connection() as connection:
            found = connection.execute(query, values).fetchone()
        return found[0] if found else None

    def fact(self, name: str) -> Any:
        text = self.number("SELECT value FROM fact WHERE name = ?", (name,))
        return None if text is None else json.loads(text)

    def problems(self) -> list[dict[str, Any]]:
        return self.rows("SELECT file, message FROM problem")

    def program(self, node: str, first: int, count: int) -> dict[str, Any]:
        """Lines of a node's instructions, over all its turns: from line `first` of them, `count` at most."""

        lines: list[dict[str, Any]] = []
        before = 0
        for part in self.rows("SELECT seq, first_line, lines FROM part WHERE node = ? ORDER BY seq", (node,)):
            low, high = max(first - before, 0), min(first + count - before, part["lines"])
            if low < high:
                lines += self._lines(part, low, high)
            before += part["lines"]
        return {"total": before, "first": first, "lines": lines}

    def _lines(self, part: Mapping[str, Any], low: int, high: int) -> list[dict[str, Any]]:
        query = "SELECT text FROM piece WHERE part = ? AND number BETWEEN ? AND ? ORDER BY number"
        rows = self.rows(query, (part["seq"], low // PIECE, (high - 1) // PIECE))
        text = "\n".join(unpacked(row["text"]) for row in rows).split("\n")
        start = low // PIECE * PIECE
        at = part["first_line"]
        return [{"number": at + number, "text": text[number - start]} for number in range(low, high)]


class Indexes:
    """The indexes of all sources that were looked at, in a folder that goes with the process."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mlsdk-dashboard-")
        self._lock = threading.Lock()
        self._making: dict[str, threading.Thread] = {}
        self._failed: dict[str, str] = {}
        self._made: list[str] = []

    def close(self) -> None:
        self._folder.cleanup()

    def of(self, source: Source, patience: float = PATIENCE) -> Index:
        """The index of a source as its files are now. Indexing if it takes longer than `patience` seconds."""
        wanted = {
            name: entry
            for name, entry in source.entries().items()
            if (plain := name.removesuffix(".zst")) in INDEXED or plain.endswith(".onnx")
        }
        stamp = "\n".join([source.spec, *(f"{e.name} {e.stamp}" for e in wanted.values())])
        path = str(Path(self._folder.name) / f"{hashlib.sha256(stamp.encode()).hexdigest()[:32]}.sqlite")
        if os.path.exists(path):
            return Index(path)
        size = sum(entry.size for entry in wanted.values())
        with self._lock:
            if path in self._failed:
                raise Problem(self._failed[path], 500)
            thread = self._making.get(path)
            if thread is None or not (thread.is_alive() or os.path.exists(path)):
                make = self._inside if size <= INSIDE else self._outside
                thread = self._making[path] = threading.Thread(
                    target=self._make, args=(make, source, path), daemon=True
                )
                thread.start()
        thread.join(patience)
        if os.path.exists(path):
            return Index(path)
        if path in self._failed:
            raise Problem(self._failed[path], 500)
        raise Indexing(f"{len(wanted)} files with {size:,} bytes are being indexed; this page loads again by itself")

    def _make(self, make: Callable[[Source, str], None], source: Source, path: str) -> None:
        make(source, path)
        with self._lock:
            self._made.append(path)
            while len(self._made) > KEPT:
                old = self._made.pop(0)
                self._making.pop(old, None)
                with suppress(OSError):
                    os.unlink(old)  # whoever reads it goes on reading

    def _inside(self, source: Source, path: str) -> None:
        from mlsdk.cli.dashboard.build_index import build

        try:
            build(source, path)
        except Exception as error:
            self._failed[path] = f"the files could not be indexed: {type(error).__name__}: {error}"

    def _outside(self, source: Source, path: str) -> None:
        command = [sys.executable, "-m", "mlsdk.cli.dashboard.build_index", source.spec, path]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT)
        except subprocess.TimeoutExpired:
            self._failed[path] = f"the files were not indexed within {TIME_LIMIT} s"
            return
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            self._failed[path] = f"the files could not be indexed: {last}"
