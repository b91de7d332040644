"""Files: everything in the codegen_dir, each as it is stored and, if compressed, plainly too."""

from __future__ import annotations

from typing import Any

from mlsdk.cli.dashboard.tables import Column, Table
from mlsdk.cli.dashboard.view import View, attempt

WRITERS = {
    "exported.onnx": "Trace: the traced function",
    "signature.json": "Trace: what the caller sees",
    "sources.json": "Trace: source lines of nodes",
    "model.onnx": "OptimizeOnnx: the compiled graph",
    "placed.json": "LayoutPlan: where each element lies",
    "layout.html": "LayoutPlan: layouts",
    "layout_plan_history.html": "LayoutPlan: decisions",
    "time_slice.html": "LayoutPlan: before time slices",
    "time_slice.txt": "LayoutPlan: before time slices",
    "plan.json": "Schedule: order and addresses",
    "l3ir.txt": "Schedule: the program's nodes in order",
    "l3ir_stripped.onnx": "Schedule: the same as ONNX",
    "simulation_result.json": "Simulate: steps of each layer",
    "profile.json": "Simulate: layers over time",
    "trace.json": "Simulate: layers and moves over time",
    "report.json": "Simulate: the sums",
    "model.vsm": "Emit: the assembly",
    "program.json": "Emit: the program",
    "tables.npz": "Emit: constants of the program",
    "model.app": "Load: what a board loads",
    "option.json": "compile: options with their origins",
    "manifest.json": "compile: all files with their SHA-256",
    "CLOG.log": "compile: log",
}
COLUMNS = (
    Column("name", "File", "file"),
    Column("size", "Size", "bytes"),
    Column("what", "What it is"),
    Column("digest", "SHA-256 of the compile", "code"),
)


def listing(view: View) -> dict[str, Any]:
    digests = (attempt([], lambda: view.document("manifest.json")) or {}).get("files", {})
    rows = [
        {
            "name": entry.name,
            "size": entry.size,
            "what": WRITERS.get(entry.name.removesuffix(".zst"), ""),
            "digest": str(digests.get(entry.name, ""))[:16] if isinstance(digests, dict) else "",
        }
        for entry in view.source.entries().values()
    ]
    return {"troubles": [], "sheet": Table("files", COLUMNS, rows)}
