"""Netron with a chooser of the ONNX files, and the list of nodes, which stays quick however many there are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from mlsdk.cli.dashboard import emitters, viewers
from mlsdk.cli.dashboard.index import Index
from mlsdk.cli.dashboard.pages import accuracy
from mlsdk.cli.dashboard.problems import Missing, Problem
from mlsdk.cli.dashboard.tables import PAGE, Asked, Column, Table
from mlsdk.cli.dashboard.view import View, attempt

#: the ONNX files of a compile in the order of its phases, with what they are
KNOWN = {
    "exported.onnx": "exported: the traced function",
    "model.onnx": "compiled: after the graph optimisation",
    "l3ir_stripped.onnx": "l3ir: placed and scheduled, without the data of constants",
}
#: beyond this many nodes Netron takes minutes; the page says so before it starts
NETRON_NODES = 20_000
LINES = 400


def onnx_files(view: View) -> list[dict[str, Any]]:
    names = [n.removesuffix(".zst") for n in view.source.entries() if n.removesuffix(".zst").endswith(".onnx")]
    order = list(KNOWN)
    names.sort(key=lambda name: (order.index(name) if name in order else len(order), name))
    return [{"name": name, "what": KNOWN.get(name, "")} for name in names]


def _chosen(view: View, found: list[dict[str, Any]], default: str) -> str:
    wanted = view.query.get("file", "")
    names = [one["name"] for one in found]
    if wanted:
        if wanted not in names:
            raise Problem("this codegen_dir has no such ONNX file")
        return wanted
    if not names:
        raise Missing("this codegen_dir has no ONNX file: the phases Trace, OptimizeOnnx and Schedule write them")
    return default if default in names else names[0]


def netron(view: View) -> dict[str, Any]:
    found = onnx_files(view)
    chosen = _chosen(view, found, "model.onnx")
    troubles = [text for text in [viewers.missing("netron")] if text]
    nodes = (view.index.fact(f"onnx:{chosen}") or {}).get("nodes")
    troubles += [p["message"] for p in view.index.problems() if p["file"].removesuffix(".zst") == chosen]
    heavy = nodes is not None and nodes > NETRON_NODES and not view.query.get("anyway")
    if heavy:
        troubles.append(f"{chosen} has {nodes:,} nodes; Netron would take minutes: use the page Node")
    address = f"{view.base}/files/{quote(chosen)}?plain=1"
    return {
        "troubles": troubles,
        "files": found,
        "file": chosen,
        "nodes": nodes,
        "frame": None if troubles else f"/viewer/netron/?{_query(url=address, identifier=chosen)}",
        "heavy": heavy,
    }


def _query(**values: str) -> str:
    return "&".join(f"{key}={quote(value, safe='')}" for key, value in values.items())


NODES = (
    Column("seq", "#", "int"),
    Column("name", "Node", "code", ("/node/view", {"name": "name", "file": "file"})),
    Column("op", "Operator"),
    Column("inputs", "Inputs", "names"),
    Column("outputs", "Outputs", "names"),
    Column("attrs", "Attributes", "attrs"),
)


def node_table(view: View, asked: Asked, file: str, limit: int = PAGE) -> Table:
    """One page of the nodes of a file."""
    index = view.index
    start = asked.page * PAGE if limit == PAGE else 0
    which, values = "", tuple[str, ...]()
    if asked.q:
        # One scan finds and counts them; rows are fetched for this page only.
        match = "SELECT seq FROM node_text WHERE file = ? AND text LIKE ? ESCAPE '!'"
        found = [row["seq"] for row in index.rows(match, (file, asked.pattern))]
        total = len(found)
        if asked.sort.lstrip("-") in ("name", "op"):
            which, values = f"AND seq IN ({match})", (file, asked.pattern)
        else:
            part = (found[::-1] if asked.sort == "-seq" else found)[start : start + limit]
            which, start = f"AND seq IN ({', '.join(map(str, part))})", 0
    else:
        total = (index.fact(f"onnx:{file}") or {}).get("nodes", 0)
    rows = index.rows(
        f"SELECT seq, file, name, op, inputs, outputs, attrs FROM node WHERE file = ? {which} "
        f"ORDER BY {_order(asked)} LIMIT ? OFFSET ?",
        (file, *values, limit, start),
    )
    for row in rows:
        for key in ("inputs", "outputs", "attrs"):
            row[key] = json.loads(row[key])
        row["name"] = row["name"] or f"#{row['seq']}"
    return Table("nodes", NODES, rows, total, True, asked.q, asked.sort, asked.page, "/nodes.csv")


def _order(asked: Asked) -> str:
    orders = {
        "name": "name, seq",
        "-name": "name DESC, seq",
        "op": "op, seq",
        "-op": "op DESC, seq",
        "-seq": "seq DESC",
    }
    return orders.get(asked.sort, "seq")


def node(view: View) -> dict[str, Any]:
    found = onnx_files(view)
    chosen = _chosen(view, found, "l3ir_stripped.onnx")
    index = view.index
    facts = index.fact(f"onnx:{chosen}")
    return {
        "troubles": [p["message"] for p in index.problems() if p["file"].removesuffix(".zst").endswith(".onnx")],
        "files": found,
        "file": chosen,
        "facts": facts,
        "nodes": node_table(view, view.asked("nodes."), chosen),
    }


def nodes_csv(view: View) -> tuple[Any, Any]:
    chosen = _chosen(view, onnx_files(view), "l3ir_stripped.onnx")
    return NODES, node_table(view, view.asked("nodes."), chosen, 10**7).rows


VALUES = (
    Column("role", "Role", "badge"),
    Column("name", "Value", "code", ("/tools/layout", {"value": "name"})),
    Column("dtype", "Dtype"),
    Column("device_dtype", "On the board"),
    Column("shape", "Shape", "code"),
    Column("layout", "Layout", "code"),
    Column(
        "location", "Lies in", "code", help="a local memory with its first word, or a segment of DRAM with its offset"
    ),
    Column("other", "Made by / read by", "nodes"),
)
MIX = (
    Column("mnemonic", "Instruction", "code"),
    Column("count", "Count", "int"),
    Column("meaning", "Meaning"),
    Column("reference", "Reference"),
)


def node_view(view: View) -> dict[str, Any]:
    """Everything about one node."""
    name, file = view.query.get("name", ""), view.query.get("file", "")
    index = view.index
    layer = index.row("SELECT * FROM layer WHERE name = ?", (name,))
    node = _onnx_node(index, name, file)
    if layer is None and node is None:
        raise Problem("no node of that name is in this codegen_dir")
    if layer is not None:
        for key in ("attrs", "inputs", "outputs", "limits"):
            layer[key] = json.loads(layer[key])
    first = view.query.get("line", "0")
    at = int(first) if first.isdigit() and len(first) < 10 else 0
    troubles: list[str] = []
    if layer is None:
        troubles.append(
            "this node is not in the compiled program (folded, fused or renamed): only the ONNX file knows it"
        )
    program = index.program(name, at, LINES)
    if not program["total"] and layer is not None:
        told = [p["message"] for p in index.problems() if p["file"].startswith("model.vsm")]
        troubles += told or ["no instructions of this node are in model.vsm"]
    subject = layer or node or {}
    return {
        "troubles": troubles,
        "name": name,
        "emitter": emitters.meaning(layer["kind"]) if layer else "",
        "layer": layer,
        "onnx": node,
        "values_table": _values(index, subject, file) if layer is None else _placed_values(index, layer),
        "program": program,
        "page_lines": LINES,
        "mix": _mix(index, name),
        "accuracy": attempt(troubles, lambda: accuracy.of_node(view, name)),
        "neighbours": _neighbours(index, layer) if layer else {},
    }


def _onnx_node(index: Index, name: str, file: str) -> dict[str, Any] | None:
    if file and name.startswith("#") and name[1:].isdigit():
        row = index.row("SELECT * FROM node WHERE file = ? AND seq = ?", (file, int(name[1:])))
    elif file:
        row = index.row("SELECT * FROM node WHERE file = ? AND name = ?", (file, name))
    else:
        row = index.row("SELECT * FROM node WHERE name = ? ORDER BY file = 'model.onnx' DESC", (name,))
    if row is None:
        return None
    for key in ("inputs", "outputs", "attrs"):
        row[key] = json.loads(row[key])
    return row


def _placed_values(index: Index, layer: Mapping[str, Any]) -> Table:
    query = "SELECT role, value, place FROM held WHERE layer = ?"
    held = {(row["role"], row["value"]): row["place"] for row in index.rows(query, (layer["seq"],))}
    rows = []
    for role, names in (("input", layer["inputs"]), ("output", layer["outputs"])):
        for name in names:
            value = index.row("SELECT * FROM value WHERE name = ?", (name,)) if name else None
            if value is None:
                rows.append({"role": role, "name": name or "(absent)"})
                continue
            other = index.rows(
                "SELECT layer.name FROM usage JOIN layer ON layer.seq = usage.layer WHERE usage.value = ? AND role = ? LIMIT 20",
                (name, "output" if role == "input" else "input"),
            )
            places = [] if (role, name) in held and role == "input" else [_in_dram(value)]
            location = ", ".join(filter(None, [held.get((role, name)), *places]))
            rows.append(
                {
                    **value,
                    "role": role,
                    "shape": json.loads(value["shape"]),
                    "location": location,
                    "other": [one["name"] for one in other],
                }
            )
    return Table("values", VALUES, rows)


def _in_dram(value: Mapping[str, Any]) -> str | None:
    return f"{value['segment']}+{value['offset']}" if value["segment"] else None


def _values(index: Index, node: Mapping[str, Any], file: str) -> Table:
    rows = []
    for role in ("input", "output"):
        for name in node[role + "s"]:
            known = index.row("SELECT dtype, shape FROM onnx_value WHERE file = ? AND name = ?", (node["file"], name))
            rows.append(
                {
                    "role": role,
                    "name": name or "(absent)",
                    "dtype": known["dtype"] if known else None,
                    "shape": json.loads(known["shape"]) if known else None,
                }
            )
    columns = tuple(c for c in VALUES if c.key in ("role", "dtype", "shape")) + (Column("name", "Value", "code"),)
    return Table("values", columns, rows)


def _mix(index: Index, name: str) -> Table | None:
    counts: dict[str, int] = {}
    for row in index.rows("SELECT mix FROM part WHERE node = ?", (name,)):
        for mnemonic, count in json.loads(row["mix"]).items():
            counts[mnemonic] = counts.get(mnemonic, 0) + count
    if not counts:
        return None
    rows = [
        {"mnemonic": mnemonic, "count": count, **_meaning(mnemonic)}
        for mnemonic, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    return Table("mix", MIX, rows)


def _meaning(mnemonic: str) -> dict[str, str]:
    from mlsdk.device.isa import table

    for written in (mnemonic, f"{mnemonic}@0", f"{mnemonic}+0"):
        with suppress(Exception):  # an operation that is only written with an option, or none of the table
            row = table.lookup(written).row
            return {"meaning": row.meaning, "reference": row.reference}
    return {"meaning": "", "reference": ""}


def _neighbours(index: Index, layer: Mapping[str, Any]) -> dict[str, Any]:
    def at(seq: int) -> str | None:
        found = index.number("SELECT name FROM layer WHERE seq = ?", (seq,))
        return str(found) if found is not None else None

    return {"previous": at(layer["seq"] - 1), "next": at(layer["seq"] + 1)}
