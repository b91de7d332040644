"""Store: its builds, its artifacts, and why a phase was built again."""

from __future__ import annotations

from typing import Any

from mlsdk.cli.dashboard.sources import labels
from mlsdk.cli.dashboard.tables import Column, Table
from mlsdk.cli.dashboard.view import View

BUILDS = 200
BUILD_COLUMNS = (
    Column("open", "Build", "code", ("@build", {"build": "open"})),
    Column("label", "Program"),
    Column("status", "Status", "badge"),
    Column("started", "Started", "moment"),
    Column("seconds", "Time", "seconds"),
    Column("built", "Built", "prose"),
    Column("cached", "From the store", "prose"),
    Column("command", "Command", "code"),
)
ARTIFACTS = (
    Column("name", "Artifact", "code"),
    Column("phase", "Phase"),
    Column("label", "Program"),
    Column("size", "Size", "bytes"),
    Column("stored", "On disk", "bytes"),
    Column("created", "Created", "moment"),
    Column("digest", "SHA-256", "code"),
)
WHY = (
    Column("phase", "Phase"),
    Column("outcome", "Status", "badge"),
    Column("reason", "Why", "prose"),
    Column("recipe", "Key", "code"),
)


def builds(view: View) -> dict[str, Any]:
    from mlsdk.store import query

    store = view.site.store
    found = query.log(store, limit=BUILDS)
    rows = []
    for row in found:
        for at, label in enumerate(labels(row) or [row["label"]]):
            events = [e for e in row["phases"] if e["label"] == label]
            rows.append(
                {
                    **{k: row[k] for k in ("status", "started", "seconds", "command")},
                    "open": f"{row['id']}.{at}" if events else None,
                    "label": label or "a function",
                    "built": ", ".join(e["phase"] for e in events if e["outcome"] == "built"),
                    "cached": ", ".join(e["phase"] for e in events if e["outcome"] == "cached"),
                }
            )
    wanted = view.query.get("why", "")[:200]
    why, trouble = [], []
    try:
        why = query.why(store, wanted) if found else []
    except Exception as error:
        trouble.append(str(error))
    for one in why:
        one["recipe"] = one["recipe"][:12]
    artifacts = query.ls(store, limit=500)
    for one in artifacts:
        one["digest"] = one["digest"][:16]
    return {
        "troubles": trouble,
        "place": store.where.rstrip("/").rpartition("/")[2],
        "builds": Table("builds", BUILD_COLUMNS, rows),
        "artifacts": Table("artifacts", ARTIFACTS, list(artifacts)),
        "why": Table("why", WHY, list(why)),
        "wanted": wanted,
    }
