"""The layers summed by attribute, once, when the index is made."""

from __future__ import annotations

import sqlite3
from typing import Any

#: attribute -> what the page calls it
ATTRIBUTES = {
    "op": "operator",
    "kind": "emitter",
    "dtype": "dtype",
    "bound": "bound",
    "stage": "stage of training",
    "scope": "module path",
}
LIMIT = 200
_FIELDS = ("value", "nodes", "steps", "share", "us", "pe_steps", "dram_bytes", "flops", "lm_bytes", "lines")
_SUMS = (
    "count(*), sum(steps), sum(share), sum(us), sum(pe_steps), sum(dram_bytes), sum(flops), max(lm_bytes), sum(lines)"
)


def all_stats(db: sqlite3.Connection) -> dict[str, Any]:
    """For each attribute its rows, the largest first, and under ALL the whole program."""
    found: dict[str, Any] = {"ALL": dict(zip(_FIELDS, db.execute(f"SELECT 'ALL', {_SUMS} FROM layer").fetchone()))}
    for attribute in ATTRIBUTES:
        rows = db.execute(
            f"SELECT ifnull(nullif({attribute}, ''), '(none)'), {_SUMS} FROM layer "
            "GROUP BY 1 ORDER BY sum(steps) DESC, 1 LIMIT ?",
            (LIMIT,),
        )
        found[attribute] = [dict(zip(_FIELDS, row)) for row in rows]
    return found
