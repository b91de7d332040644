"""Timeline: what each step of a plan costs. Times are in cycles of the core clock; a step is four of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Row:
    """One node's turn. `stall`: cycles spent waiting for moves; `dram_lw`: long words moved from or to DRAM."""

    node: str
    op: str
    start: int
    end: int
    pe_steps: int
    stall: int
    moves: int
    dram_lw: int


@dataclass(frozen=True)
class Flow:
    """A move as it happened, for the trace."""

    node: str
    mnemonic: str
    segment: str
    start: int
    end: int
    size: int


@dataclass(frozen=True)
class Timeline:
    """`steps`: the whole program, moves included."""

    rows: tuple[Row, ...]
    steps: int
    pe_steps: int
    stall_steps: int
    moves: int
    dram_bytes: int
    flows: tuple[Flow, ...] = ()

    def to_json(self) -> bytes:
        return (json.dumps(asdict(self), indent=1, allow_nan=False) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes) -> Timeline:
        d: Mapping = json.loads(data)
        rows = tuple(Row(**r) for r in d["rows"])
        flows = tuple(Flow(**f) for f in d["flows"])
        return cls(rows, d["steps"], d["pe_steps"], d["stall_steps"], d["moves"], d["dram_bytes"], flows)
