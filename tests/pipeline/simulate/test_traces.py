"""trace.json and profile.json as the viewers read them: whole nanoseconds, cut off, not rounded."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mlsdk.device import spec
from mlsdk.pipeline.ir.timeline import Flow, Row, Timeline
from mlsdk.pipeline.simulate import reports

LENGTHS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 4000)), min_size=1, max_size=40)


def timeline(lengths: list[tuple[int, int]], begin: int) -> Timeline:
    """Layers one behind the other, each with moves that overlap those of the next."""
    rows, flows, clock = [], [], begin
    for number, (length, reach) in enumerate(lengths):
        rows.append(Row(f"n{number}", "Add", clock, clock + length, 0, 0, 1, 8))
        flows.append(Flow(f"n{number}", "mvp", "work", clock, clock + reach, 8))
        clock += length
    return Timeline(tuple(rows), clock // 4, 0, 0, len(flows), 0, tuple(flows))


@given(LENGTHS, st.integers(0, 10**9))
def test_slices_of_a_lane_do_not_overlap(lengths, begin):
    made = timeline(lengths, begin)
    for text, count in ((reports.trace(made), 2 * len(lengths)), (reports.profile(made), len(lengths))):
        slices = [event for event in json.loads(text)["traceEvents"] if event["ph"] == "X"]
        assert len(slices) == count
        lanes: dict[int, list[tuple[int, int]]] = {}
        for event in slices:
            start = int(event["ts"] * 1000)
            lanes.setdefault(event["tid"], []).append((start, start + int(event["dur"] * 1000)))
        for found in lanes.values():
            assert all(end <= start for (_, end), (start, _) in pairwise(sorted(found)))


@given(LENGTHS, st.integers(0, 10**9))
def test_times_are_those_of_the_rows(lengths, begin):
    made = timeline(lengths, begin)
    slices = [event for event in json.loads(reports.profile(made))["traceEvents"] if event["ph"] == "X"]
    for row, event in zip(made.rows, slices, strict=True):
        assert abs(event["ts"] - row.start / spec.CLOCK_HZ * 1e6) <= 0.00051
        assert abs(event["ts"] + event["dur"] - row.end / spec.CLOCK_HZ * 1e6) <= 0.00051


def test_lanes_are_in_order():
    """Twelve moves at once: viewers would put `MV 10` before `MV 2`."""
    made = timeline([(0, 100)] * 12, 0)
    events = json.loads(reports.trace(made))["traceEvents"]
    places = {e["tid"]: e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"}
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert [names[lane] for lane in sorted(names, key=places.__getitem__)] == [
        "layers",
        *(f"MV {i}" for i in range(12)),
    ]
