"""Perfetto UI and Chrome Tracing on the traces of a compile."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from mlsdk.cli.dashboard import viewers
from mlsdk.cli.dashboard.problems import Missing, Problem
from mlsdk.cli.dashboard.view import View

#: files that hold a trace, with what is in them
KNOWN = {
    "trace.json": "layers, and under them each move between DRAM and L2BM",
    "profile.json": "layers: when and how long each runs",
}
TRACE_LIMIT = 512 << 20


def traces(view: View) -> list[dict[str, Any]]:
    entries = view.source.entries()
    found = []
    for name in [*KNOWN, *(n for n in entries if n.removesuffix(".zst").endswith((".pftrace", ".perfetto-trace")))]:
        stored = next((one for one in (name, name + ".zst") if one in entries), None)
        if stored:
            found.append({"name": name, "what": KNOWN.get(name, ""), "size": entries[stored].size})
    return found


def _page(view: View, viewer: str) -> dict[str, Any]:
    found = traces(view)
    names = [one["name"] for one in found]
    if not names:
        raise Missing("this codegen_dir has no trace: the phase Simulate writes profile.json and trace.json")
    chosen = view.query.get("file") or names[0]
    if chosen not in names:
        raise Problem("this codegen_dir has no such trace")
    troubles = [text for text in [viewers.missing(viewer)] if text]
    size = next(one["size"] for one in found if one["name"] == chosen)
    if size > TRACE_LIMIT:
        troubles.append(f"{chosen} has {size:,} bytes, the viewer takes {TRACE_LIMIT:,}; download it instead")
    elif not size:
        troubles.append(f"{chosen} is empty, or still being written")
    return {
        "troubles": troubles,
        "files": found,
        "file": chosen,
        "address": f"{view.base}/files/{quote(chosen)}?plain=1",
    }


def perfetto(view: View) -> dict[str, Any]:
    page = _page(view, "perfetto")
    address = quote(view.origin + page["address"], safe="")
    page["frame"] = None if page["troubles"] else f"/viewer/perfetto/?hideSidebar=true#!/?url={address}"
    return page


def tracing(view: View) -> dict[str, Any]:
    page = _page(view, "tracing")
    address = quote(page["address"], safe="")
    page["frame"] = None if page["troubles"] else f"/viewer/tracing/?trace={address}"
    return page
