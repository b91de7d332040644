"""Make the index of a codegen_dir: an SQLite file with its nodes, values and program parts.

    python -m mlsdk.cli.dashboard.build_index SPEC FILE

Large folders are indexed by this process of its own, so that the server stays small and a damaged file cannot hurt it.
What cannot be read becomes a row of `problem`; the rest is indexed all the same.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple
from functools import partial
from typing import Any, TypeVar

from mlsdk.cli.dashboard import files, sums, vsm
from mlsdk.cli.dashboard.layers import Joiner
from mlsdk.cli.dashboard.onnx_nodes import read_onnx
from mlsdk.cli.dashboard.problems import Missing, Problem
from mlsdk.cli.dashboard.sources import Source, open_source

T = TypeVar("T")

#: pieces of the program that are written at once
BATCH = 1000

#: columns of a layer that are searched, sorted and summed
LAYER_COLUMNS = (
    "seq", "name", "op", "kind", "batches", "dtype", "stage", "scope", "source", "note", "turns", "layout", "location", "flops",
    "start", "end", "steps", "us", "share", "pe_steps", "stall", "moves", "dram_bytes", "bound", "achieved", "lm0_touched",
    "lm0_high", "lm1_touched", "lm1_high", "lm_bytes", "lines",
)  # fmt: skip
LAYER_JSON = ("attrs", "inputs", "outputs", "limits")
VALUE_COLUMNS = (
    "seq", "name", "dtype", "device_dtype", "shape", "layout", "origin", "pad", "segment", "offset", "size", "first", "last",
)  # fmt: skip

_TRANSFER = re.compile(r"^MNCore(?:Download|Upload)\((.*)\)  # .* at .*\+\d+, (\d+) LW$", re.M)

SCHEMA = f"""
CREATE TABLE problem(file TEXT, message TEXT);
CREATE TABLE fact(name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE layer({", ".join(LAYER_COLUMNS)}, {", ".join(LAYER_JSON)});
CREATE TABLE value({", ".join(VALUE_COLUMNS)});
CREATE TABLE turn(position INTEGER PRIMARY KEY, layer INTEGER, start INTEGER, end INTEGER);
CREATE TABLE stay(value TEXT, space TEXT, word INTEGER, words INTEGER, made INTEGER, until INTEGER, only INTEGER, reads INTEGER);
CREATE TABLE held(layer INTEGER, role TEXT, value TEXT, place TEXT);
CREATE TABLE usage(value TEXT, layer INTEGER, role TEXT);
CREATE TABLE part(seq INTEGER PRIMARY KEY, node TEXT, first_line INTEGER, lines INTEGER, mix TEXT);
CREATE TABLE piece(part INTEGER, number INTEGER, text BLOB, PRIMARY KEY(part, number)) WITHOUT ROWID;
CREATE TABLE node(file TEXT, seq INTEGER, name TEXT, op TEXT, domain TEXT, inputs TEXT, outputs TEXT, attrs TEXT,
                  PRIMARY KEY(file, seq)) WITHOUT ROWID;
CREATE TABLE node_text(file TEXT, seq INTEGER, text TEXT, PRIMARY KEY(file, seq)) WITHOUT ROWID;
CREATE TABLE onnx_value(file TEXT, name TEXT, dtype TEXT, shape TEXT, PRIMARY KEY(file, name)) WITHOUT ROWID;
"""
INDICES = """
CREATE UNIQUE INDEX layer_seq ON layer(seq);
CREATE INDEX layer_name ON layer(name);
CREATE INDEX layer_steps ON layer(steps);
CREATE INDEX layer_order ON layer(steps IS NULL, steps DESC, seq);
CREATE INDEX value_name ON value(name);
CREATE INDEX held_layer ON held(layer);
CREATE INDEX usage_value ON usage(value, role);
CREATE INDEX part_node ON part(node);
CREATE INDEX node_name ON node(name, file);
CREATE INDEX node_op ON node(file, op);
"""


def build(source: Source, path: str) -> None:
    """Write the index to `path`; it appears there when it is whole."""
    aside = f"{path}.{os.getpid()}.part"
    connection = sqlite3.connect(aside)
    try:
        connection.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;" + SCHEMA)
        _Builder(source, connection).run()
        connection.executescript(INDICES)
        connection.commit()
    finally:
        connection.close()
    os.replace(aside, path)


class _Builder:
    def __init__(self, source: Source, connection: sqlite3.Connection) -> None:
        self.source = source
        self.db = connection

    def run(self) -> None:
        for name in self.source.entries():
            if name.removesuffix(".zst").endswith(".onnx"):
                self.attempt(name, partial(self.onnx, name.removesuffix(".zst")))
        parts = self.attempt("model.vsm", self.program) or {}
        document = {
            name: self.attempt(name, partial(files.mapping, self.source, name, files.INDEX_LIMIT))
            for name in ("placed.json", "plan.json", "simulation_result.json", "sources.json")
        }
        if document["placed.json"] is not None:
            self.attempt("placed.json", lambda: self.layers(document, parts))

    def attempt(self, name: str, action: Callable[[], T]) -> T | None:
        """The result, or None and a row of `problem`."""
        try:
            return action()
        except Missing:
            return None  # the page says what is missing
        except Problem as error:
            self._problem(name, str(error))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            self._problem(name, f"{name} does not have the form that was expected ({type(error).__name__}: {error})")
        return None

    def _problem(self, name: str, message: str) -> None:
        self.db.execute("INSERT INTO problem VALUES(?, ?)", (name, message))

    def fact(self, name: str, value: Any) -> None:
        self.db.execute("INSERT OR REPLACE INTO fact VALUES(?, ?)", (name, json.dumps(value)))

    def onnx(self, name: str) -> None:
        found = read_onnx(files.read(self.source, name, files.INDEX_LIMIT), name)
        self.db.executemany(
            "INSERT INTO node VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (name, at, n.name, n.op, n.domain, json.dumps(n.inputs), json.dumps(n.outputs), json.dumps(n.attrs))
                for at, n in enumerate(found.nodes)
            ),
        )
        self.db.executemany(
            "INSERT INTO node_text VALUES(?, ?, ?)",
            ((name, at, "\n".join([n.name, n.op, *n.inputs, *n.outputs])) for at, n in enumerate(found.nodes)),
        )
        self.db.executemany(
            "INSERT OR REPLACE INTO onnx_value VALUES(?, ?, ?, ?)",
            ((name, value, dtype, json.dumps(shape)) for value, (dtype, shape) in found.values.items()),
        )
        facts = {
            "graph": found.graph,
            "producer": found.producer,
            "opsets": found.opsets,
            "inputs": found.inputs,
            "outputs": found.outputs,
            "initializers": found.initializers,
            "nodes": len(found.nodes),
        }
        self.fact(f"onnx:{name}", facts)

    def program(self) -> dict[str, vsm.Part]:
        stored = files.stored_name(self.source, "model.vsm")
        if stored is None:
            raise Missing("this codegen_dir has no model.vsm")
        found: dict[str, vsm.Part] = {}
        rows: list[tuple[Any, ...]] = []
        pieces: list[tuple[Any, ...]] = []
        for seq, part in enumerate(vsm.parts(files.chunks(self.source, stored, limit=files.INDEX_LIMIT))):
            rows.append((seq, part.node, part.first_line, part.lines, json.dumps(part.mix)))
            pieces += [(seq, number, text) for number, text in enumerate(part.pieces)]
            part.pieces = []
            _merge(found, part)
            if len(pieces) >= BATCH:
                self._keep(rows, pieces)
        self._keep(rows, pieces)
        return found

    def _keep(self, rows: list[tuple[Any, ...]], pieces: list[tuple[Any, ...]]) -> None:
        self.db.executemany("INSERT INTO part VALUES(?, ?, ?, ?, ?)", rows)
        self.db.executemany("INSERT INTO piece VALUES(?, ?, ?)", pieces)
        rows.clear()
        pieces.clear()

    def layers(self, document: Mapping[str, Any], parts: Mapping[str, vsm.Part]) -> None:
        joiner = Joiner(
            document["placed.json"],
            document["plan.json"],
            document["simulation_result.json"],
            document["sources.json"],
            parts,
        )
        self.db.executemany(
            f"INSERT INTO layer VALUES({', '.join('?' * (len(LAYER_COLUMNS) + len(LAYER_JSON)))})",
            (_layer_row(joiner.layer(at)) for at in range(len(joiner.order))),
        )
        self.db.executemany(
            f"INSERT INTO value VALUES({', '.join('?' * len(VALUE_COLUMNS))})",
            _value_rows(joiner, document["plan.json"], self.attempt("l3ir.txt", self.sizes) or {}),
        )
        self.db.executemany("INSERT INTO usage VALUES(?, ?, ?)", _usage(joiner))
        turns = ((at, turn.layer, turn.start, turn.end) for at, turn in enumerate(joiner.turns))
        self.db.executemany("INSERT INTO turn VALUES(?, ?, ?, ?)", turns)
        self.db.executemany("INSERT INTO stay VALUES(?, ?, ?, ?, ?, ?, ?, ?)", (astuple(s) for s in joiner.stays))
        self.db.executemany("INSERT INTO held VALUES(?, ?, ?, ?)", ((*key, at) for key, at in joiner.held.items()))
        self.fact("moves", joiner.moves)
        self.fact("stats", sums.all_stats(self.db))
        placed = document["placed.json"]
        self.fact("graph", {"name": placed["name"], "inputs": placed["inputs"], "outputs": placed["outputs"]})

    def sizes(self) -> dict[str, int]:
        """Long words of each value in DRAM, from the lines of l3ir.txt that move it."""
        text = files.read(self.source, "l3ir.txt", files.INDEX_LIMIT).decode("utf-8", "replace")
        return {name: int(size) for name, size in _TRANSFER.findall(text)}


def _merge(found: dict[str, vsm.Part], part: vsm.Part) -> None:
    before = found.setdefault(part.node, part)
    if before is part:
        return
    before.lines += part.lines
    for letter in part.high:
        before.touched[letter] = before.touched.get(letter, 0) | part.touched[letter]
        before.high[letter] = max(before.high.get(letter, 0), part.high[letter])


def _layer_row(record: Mapping[str, Any]) -> tuple[Any, ...]:
    return (*(record[c] for c in LAYER_COLUMNS), *(json.dumps(record[c]) for c in LAYER_JSON))


def _usage(joiner: Joiner) -> Iterable[tuple[str, int, str]]:
    """(value, layer, input or output)"""
    for at, name in enumerate(joiner.order):
        for role in ("input", "output"):
            for value in dict.fromkeys(joiner.nodes[name][role + "s"]):
                yield value, at, role


def _value_rows(joiner: Joiner, plan: Mapping[str, Any] | None, sizes: Mapping[str, int]) -> Iterable[tuple[Any, ...]]:
    """Values with where they lie in DRAM and, in turns, when they are first written and last read."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for at, step in enumerate(joiner.steps):
        node = joiner.nodes[step[0]]
        for value in node["outputs"]:
            first.setdefault(value, at)
        for value in node["inputs"]:
            last[value] = at
    whole = {name: size for name, kind, size in plan["segments"] if kind != "work"} if plan else {}
    for seq, (name, value) in enumerate(joiner.values.items()):
        segment, offset, *_ = joiner.slots.get(name, (None, None))
        size = sizes.get(name, whole.get(segment))
        yield (
            seq, name, value["dtype"], value["device_dtype"], json.dumps(value["shape"]), value["layout"], value["origin"],
            value["pad"], segment, offset, size, first.get(name), last.get(name),
        )  # fmt: skip


if __name__ == "__main__":
    build(open_source(sys.argv[1]), sys.argv[2])
