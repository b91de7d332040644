"""`store query`: one SELECT over the views of schema.VIEWS, read-only, with an end to its time and its rows."""

from __future__ import annotations

from typing import Any

from mlsdk.store import schema
from mlsdk.store.store import Store

SECONDS = 10.0
ROWS = 10_000

# What a query may name; shown by --help and by the error for an unknown name.
COLUMNS: dict[str, str] = {
    "artifacts": "name kind size stored phase workflow created digest key",
    "actions": "key phase workflow created seconds options inputs host pid product",
    "runs": "build workflow program phase outcome reason seconds started build_seconds status device preset options "
    "key host command",
    "node_simulations": "op steps dram_lw node",
}
assert COLUMNS.keys() == schema.VIEWS.keys()


def run(store: Store, text: str, seconds: float = SECONDS, limit: int = ROWS) -> dict[str, Any]:
    """{"columns", "rows", "more"}: at most `limit` rows, after at most `seconds`. Nothing can be written."""
    columns, rows = store.index.query(text, seconds, limit + 1)
    return {
        "columns": columns,
        "rows": [
            [cell.hex() if isinstance(cell, (bytes, memoryview)) else cell for cell in row] for row in rows[:limit]
        ],
        "more": len(rows) > limit,
    }
