"""The record of a search: search.json, which the dashboard draws.

{"runs": [{"name": .., "method": .., "points": [[iteration, cost, best], ..], "facts": {..}}, ..]}
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

#: points of a run that are kept at most
POINTS = 2000


@dataclass
class Run:
    """One search: `points` are (iteration, cost tried, best cost so far)."""

    name: str
    method: str
    points: list[tuple[int, float, float]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def note(self, iteration: int, cost: float, best: float) -> None:
        self.points.append((iteration, round(cost, 2), round(best, 2)))


@dataclass
class Record:
    """All searches of a compile."""

    runs: list[Run] = field(default_factory=list)

    def run(self, name: str, method: str) -> Run:
        self.runs.append(Run(name, method))
        return self.runs[-1]

    def to_json(self) -> bytes:
        def thinned(points: list) -> list:
            every = max(1, -(-len(points) // POINTS))
            return [*points[::every], *(points[-1:] if len(points) % every != 1 and every > 1 else [])]

        runs = [{"name": r.name, "method": r.method, "points": thinned(r.points), "facts": r.facts} for r in self.runs]
        return (json.dumps({"runs": runs}, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
