"""Timelines as files: Chrome's JSON, and Perfetto's protobuf written by hand (the few messages that slices need)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

from mlsdk.runtime.events import Event

# A lane: events that nest or follow each other.
Lane = list[Event]


def lanes(events: Iterable[Event]) -> dict[str, list[Lane]]:
    """Track name -> lanes. Overlapping events that do not nest go to different lanes of their track."""
    tracks: dict[str, list[tuple[Lane, list[int]]]] = {}
    for event in sorted(events, key=lambda one: (one.begin, -one.end)):
        rows = tracks.setdefault(event.track, [])
        for lane, open_ends in rows:
            while open_ends and open_ends[-1] <= event.begin:
                open_ends.pop()
            if not open_ends or event.end <= open_ends[-1]:
                lane.append(event)
                open_ends.append(event.end)
                break
        else:
            rows.append(([event], [event.end]))
    return {track: [lane for lane, _ in rows] for track, rows in tracks.items()}


def named_lanes(events: Iterable[Event]) -> Iterator[tuple[str, Lane]]:
    for track, rows in sorted(lanes(events).items()):
        for number, lane in enumerate(rows):
            yield f"{track} ({number + 1})" if number else track, lane


# --- Chrome ---


def chrome(events: Iterable[Event]) -> bytes:
    """Chrome's trace event format; microseconds."""
    pid = os.getpid()
    found: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": pid, "args": {"name": "Open MLSDK"}}]
    for tid, (name, lane) in enumerate(named_lanes(events), 1):
        found.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}})
        for event in lane:
            found.append(
                {
                    "ph": "X",
                    "name": event.name,
                    "cat": event.category,
                    "pid": pid,
                    "tid": tid,
                    "ts": event.begin / 1000,
                    "dur": (event.end - event.begin) / 1000,
                    "args": event.facts,
                }
            )
    return (json.dumps({"traceEvents": found, "displayTimeUnit": "ms"}, allow_nan=False) + "\n").encode()


# --- Perfetto: numbers of messages and fields are those of perfetto/trace/*.proto ---

SEQUENCE = 1
CLEARED = 1  # SEQ_INCREMENTAL_STATE_CLEARED
SLICE_BEGIN, SLICE_END = 1, 2
PROCESS_TRACK = 1


def perfetto(events: Iterable[Event]) -> bytes:
    """A Trace of TrackDescriptors and TrackEvents; nanoseconds."""
    pid = os.getpid()
    process = message((1, pid), (6, "Open MLSDK"))
    packets = [packet((60, message((1, PROCESS_TRACK), (3, process))), (13, CLEARED))]
    for number, (name, lane) in enumerate(named_lanes(events), PROCESS_TRACK + 1):
        packets.append(packet((60, message((1, number), (2, name), (5, PROCESS_TRACK)))))
        packets += _slices(lane, number)
    return b"".join(field(1, data) for data in packets)


def _slices(lane: Lane, track: int) -> Iterator[bytes]:
    """Begins and ends in the order of a nested walk, which keeps equal times in order."""
    pending: list[int] = []

    def ended(until: int) -> Iterator[bytes]:
        while pending and pending[-1] <= until:
            yield packet((8, pending.pop()), (11, message((9, SLICE_END), (11, track))))

    for event in lane:
        yield from ended(event.begin)
        notes = [(4, message((10, key), _note(value))) for key, value in event.facts.items()]
        begin = message((9, SLICE_BEGIN), (11, track), (22, event.category), (23, event.name), *notes)
        yield packet((8, event.begin), (11, begin))
        pending.append(event.end)
    yield from ended(1 << 64)


def _note(value: Any) -> tuple[int, Any]:
    """The field of a DebugAnnotation that holds a value."""
    return (4, value) if isinstance(value, int) else (6, str(value))


def packet(*fields: tuple[int, Any]) -> bytes:
    return message(*fields, (10, SEQUENCE))


def message(*fields: tuple[int, Any]) -> bytes:
    return b"".join(field(number, value) for number, value in fields)


def field(number: int, value: Any) -> bytes:
    """A field of protobuf's wire format: varints for integers, length-delimited for text and messages."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value % (1 << 64))
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
