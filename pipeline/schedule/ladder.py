"""Searches from quick to thorough: whoever asks for one gets the best of it and of all quicker ones, so that more effort never
gives more steps. Where neighbouring nodes overlap, the best is what takes the fewest steps then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mlsdk.pipeline.schedule.options import ScheduleOptions

#: those of the presets, from O1 on
LADDER: tuple[dict[str, Any], ...] = (
    {"beam_width": 2, "beam_max_turn": 4, "beam_prune_limit": 3, "sa_steps": 0},
    {"beam_width": 4, "beam_max_turn": 16, "beam_prune_limit": 3, "sa_steps": 1000},
    {"beam_width": 8, "beam_max_turn": 16, "beam_prune_limit": 3, "sa_steps": 4000},
    {"beam_width": 16, "beam_max_turn": 64, "beam_prune_limit": 8, "sa_steps": 16000},
)


def quicker(options: ScheduleOptions) -> Iterator[ScheduleOptions]:
    """The searches of the ladder that are quicker than one in everything."""
    anneals = options.scheduler == "auto_recompute_sa"
    for row in LADDER:
        if all(_effort(options, key) >= value for key, value in row.items() if anneals or key != "sa_steps"):
            found = replace(options, **row)
            if _efforts(found) != _efforts(options):
                yield found


def _efforts(options: ScheduleOptions) -> dict[str, Any]:
    return {key: _effort(options, key) for key in LADDER[0]}


def _effort(options: ScheduleOptions, key: str) -> float:
    value = getattr(options, key)
    return float("inf") if value < 0 else value
