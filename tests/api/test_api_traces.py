"""trace_scope and trace_event: files that show host and device in one timeline."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from conftest import add

from mlsdk import trace_event, trace_scope
from mlsdk.errors import ContextError
from mlsdk.runtime import timeline_files
from mlsdk.runtime.events import Event


def program(context, tmp_path, pair, compiled=lambda: None):
    added = context.compile(add, pair, tmp_path / "add", options={"num_threads": 1})
    compiled()
    with trace_event("loop"):
        for _ in range(2):
            with trace_event("HtoD"):
                proxies = added.allocate_input_proxy()
                for key, proxy in proxies.items():
                    proxy.load_from(pair[key])
            added(proxies)["sum"].cpu()
    added(pair)


def test_chrome_json(context, tmp_path, pair, monkeypatch):
    """Of a program that gives relative paths, and goes to another folder between."""
    file = tmp_path / "traces" / "add.json"
    monkeypatch.chdir(tmp_path)
    with trace_scope("traces/add.json"):
        program(context, Path(), pair, lambda: monkeypatch.chdir("/"))
    events = json.loads(file.read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    kinds = Counter(event["cat"] for event in slices)
    assert kinds["user"] == 3 and kinds["run"] == 3 and kinds["D2H"] == 2 and kinds["H2D"] == 8
    assert kinds["layer"] >= 3 and kinds["compile"] >= 2 and kinds["load"] == 1
    runs = [event for event in slices if event["cat"] == "run"]
    layers = [event for event in slices if event["cat"] == "layer"]
    for layer in layers:
        assert any(
            run["ts"] <= layer["ts"] and layer["ts"] + layer["dur"] <= run["ts"] + run["dur"] + 1e-3 for run in runs
        )
    assert {"Add"} == {layer["args"]["operator"] for layer in layers}
    for event in slices:
        assert event["dur"] >= 0


def test_perfetto_protobuf(context, tmp_path, pair):
    file = tmp_path / "add.pb"
    with trace_scope(file):
        program(context, tmp_path, pair)
    names, depth, tracks, last = Counter(), {}, {}, {}
    for packet in fields(file.read_bytes(), 1):
        for descriptor in fields(packet, 60):
            name = next(fields(descriptor, 2), b"").decode()
            tracks[next(numbers(descriptor, 1))] = name
        for event in fields(packet, 11):
            track, kind, time = next(numbers(event, 11)), next(numbers(event, 9)), next(numbers(packet, 8))
            assert track in tracks and time >= last.get(track, 0)
            last[track] = time
            depth[track] = depth.get(track, 0) + (1 if kind == 1 else -1)
            assert depth[track] >= 0
            if kind == 1:
                names[next(fields(event, 23)).decode()] += 1
    assert not any(depth.values())
    assert (
        names["HtoD"] == 2 and names["loop"] == 1 and names["add"] == 6
    )  # three runs, with one layer of that name each
    assert "host" in tracks.values() and any("layers" in name for name in tracks.values())


def test_none_records_nothing(context, tmp_path, pair):
    with trace_scope(None), trace_event("optimizer"):
        context.compile(add, pair, tmp_path / "add")(pair)
    assert not [file for file in tmp_path.rglob("*") if file.suffix == ".pb"]


def test_an_exception_passes_and_the_file_is_written(tmp_path):
    with pytest.raises(ValueError, match="mine"), trace_scope(tmp_path / "t.json"):
        with trace_event("before"):
            pass
        raise ValueError("mine")
    assert "before" in (tmp_path / "t.json").read_text()


def test_names_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    for name in (tmp_path, tmp_path / "file" / "t.pb", 3):
        with pytest.raises(ContextError, match="trace_scope"), trace_scope(name):
            pytest.fail("the scope must not begin")


def test_overlapping_events_get_lanes_of_their_own():
    events = [
        Event("a", "x", "t", 0, 10),
        Event("b", "x", "t", 2, 8),
        Event("c", "x", "t", 5, 15),
        Event("d", "x", "t", 10, 12),
    ]
    lanes = timeline_files.lanes(events)["t"]
    assert [[event.name for event in lane] for lane in lanes] == [["a", "b", "d"], ["c"]]


def fields(message, number):
    """The length-delimited fields of a number."""
    yield from (value for found, value in parse(message) if found == number and isinstance(value, bytes))


def numbers(message, number):
    yield from (value for found, value in parse(message) if found == number and isinstance(value, int))


def parse(message):
    """Protobuf's wire format, as far as traces use it."""

    def varint(at):
        value = shift = 0
        while True:
            byte = message[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return value, at

    at = 0
    while at < len(message):
        key, at = varint(at)
        value, at = varint(at)
        if key & 7 == 2:
            value, at = message[at : at + value], at + value
        else:
            assert key & 7 == 0
        yield key >> 3, value


def test_a_scope_waits_for_the_device(context, tmp_path, pair):
    added = context.compile(add, pair, tmp_path / "add")
    with trace_scope(tmp_path / "t.json"):
        for _ in range(20):
            added(pair)
    text = json.loads((tmp_path / "t.json").read_text())
    assert sum(event.get("cat") == "run" for event in text["traceEvents"]) == 20
    assert torch.equal(added(pair)["sum"].cpu(), pair["a"] + pair["b"])
