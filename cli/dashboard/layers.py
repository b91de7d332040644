"""What is known about each node of the compiled graph, put together from the artifacts of several phases.

placed.json              operators, emitters, dtypes, layouts
plan.json                order, DRAM addresses, values that stay in LM
simulation_result.json   steps, moves, bytes
sources.json             source lines, module paths
model.vsm.zst            instructions, reach in LM
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlsdk.cli.dashboard.flops import flops
from mlsdk.cli.dashboard.hierarchy import ADDR, read_layout
from mlsdk.cli.dashboard.vsm import Part
from mlsdk.device import spec

#: long words that DRAM can move in a step, all groups
DRAM_LW_PER_STEP = spec.GROUPS * spec.DRAM_LW_PER_CYCLE * spec.CYCLES_PER_STEP
#: a node whose moves fill DRAM's bandwidth to this share is bound by DRAM, otherwise by the moves' latency and number
DRAM_SHARE = 0.65
LM_FIELDS = ("lm0_touched", "lm0_high", "lm1_touched", "lm1_high", "lines", "lm_bytes")
COMPUTE, DRAM, MOVES = "compute", "DRAM", "moves"


def plain_attr(value: Any) -> Any:
    """An attribute of placed.json as a person reads it."""
    if isinstance(value, Mapping):
        if "float" in value:
            return float.fromhex(value["float"])
        if "floats" in value:
            return [float.fromhex(x) for x in value["floats"]]
        if "data" in value:
            return f"tensor {value.get('dtype')}{list(value.get('shape', []))}"
    return value


def busy_steps(flows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """For each node the steps in which at least one of its moves was in flight."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for flow in flows:
        found.setdefault(flow["node"], []).append(flow)
    return {node: _in_flight(moves) for node, moves in found.items()}


def _in_flight(moves: Sequence[Mapping[str, Any]]) -> float:
    """Steps in which at least one of the moves was in flight."""
    total, reach = 0, -1
    for start, end in sorted((move["start"], move["end"]) for move in moves):
        if end > reach:
            total += end - max(start, reach)
            reach = end
    return total / spec.CYCLES_PER_STEP


def bound_of(steps: float, pe_steps: int, dram_lw: int, in_flight: float) -> tuple[str, float, dict[str, float]]:
    """What limits a node, how near it is to that limit (0 to 1), and the steps that each limit alone would take."""
    limits = {COMPUTE: float(pe_steps), DRAM: dram_lw / DRAM_LW_PER_STEP, MOVES: in_flight}
    if limits[COMPUTE] >= max(limits[MOVES], limits[DRAM]):
        kind = COMPUTE
    else:
        kind = DRAM if limits[DRAM] >= DRAM_SHARE * limits[MOVES] else MOVES
    return kind, min(1.0, limits[kind] / steps) if steps else 0.0, limits


@dataclass(frozen=True)
class Turn:
    """One step of the plan: a layer runs, from cycle `start` to `end`. A view, which does nothing, has no time."""

    layer: int
    start: int | None
    end: int | None


@dataclass
class Stay:
    """A value in LM: `words` of it from `word` on in each PE, from the turn that makes it to the last that reads it there.
    `only`: it never goes to DRAM."""

    value: str
    space: str
    word: int
    words: int
    made: int
    until: int
    only: bool
    reads: int = 0


class Joiner:
    """Layers one by one, from documents that may be missing. A node that the plan runs several times is one layer."""

    def __init__(
        self,
        placed: Mapping[str, Any],
        plan: Mapping[str, Any] | None,
        simulation: Mapping[str, Any] | None,
        sources: Mapping[str, Any] | None,
        parts: Mapping[str, Part],
    ) -> None:
        self.values: dict[str, Mapping[str, Any]] = {v["name"]: v for v in placed["values"]}
        self.nodes: dict[str, Mapping[str, Any]] = {n["name"]: n for n in placed["nodes"]}
        self.slots: Mapping[str, Any] = (plan or {}).get("slots", {})
        steps = plan["steps"] if plan else [[name, ""] for name in self.nodes]
        self.steps: list[Any] = [step for step in steps if step[0] in self.nodes]
        self.order = list(dict.fromkeys(step[0] for step in self.steps))
        self.notes: dict[str, list[str]] = {}
        for name, note, *_homes in self.steps:
            self.notes.setdefault(name, []).append(str(note))
        self.rows: dict[str, dict[str, Any]] = {}
        self.spans: dict[str, list[tuple[int, int]]] = {}
        for row in (simulation or {}).get("rows", []):
            self.spans.setdefault(row["node"], []).append((row["start"], row["end"]))
            _add(self.rows, row)
        flows = (simulation or {}).get("flows", [])
        self.flight = busy_steps(flows)
        self.moves = {"kept": len(flows), "work": _in_flight([flow for flow in flows if flow["segment"] == "work"])}
        self.total = (simulation or {}).get("steps") or 0
        self.sources = sources or {}
        self.parts = parts
        self.turns = list(self._turns())
        self.stays, self.held = self._stays()
        self.kept = {stay.value: f"{stay.space}+{stay.word}" for stay in self.stays}
        last = [i for i, name in enumerate(self.order) if self._scope(name).endswith("/backward")]
        self.last_backward = last[-1] if last else None

    def _turns(self) -> Iterator[Turn]:
        numbers = {name: at for at, name in enumerate(self.order)}
        spans = {name: iter(found) for name, found in self.spans.items()}
        clock = 0
        for name, *_rest in self.steps:
            start, clock = next(spans.get(name, iter(())), (clock, clock))
            yield Turn(numbers[name], *((start, clock) if self.spans else (None, None)))

    def _stays(self) -> tuple[list[Stay], dict[tuple[int, str, str], str]]:
        """Values in LM, and where (layer, role, value) finds or leaves them there."""
        stays: list[Stay] = []
        there: dict[tuple[str, int], Stay] = {}
        held: dict[tuple[int, str, str], str] = {}
        for position, (name, *rest) in enumerate(self.steps):
            reads, keeps, only = rest[1:] or ((), (), ())
            node, layer = self.nodes[name], self.turns[position].layer
            for operand, space, word in reads:
                stay = there[space, word]
                stay.until, stay.reads = position, stay.reads + 1
                held[layer, "input", node["inputs"][operand]] = f"{space}+{word}"
            outputs = [value for value in node["outputs"] if value]
            for result, space, word in keeps:
                value = outputs[result]
                words = 2 * read_layout(self.values[value]["layout"]).span(ADDR)
                stays.append(Stay(value, space, word, words, position, position, result in only))
                there[space, word] = stays[-1]
                held[layer, "output", value] = f"{space}+{word}"
        return stays, held

    def _scope(self, name: str) -> str:
        found = self.sources.get(name)
        return str(found.get("scope", "")) if isinstance(found, Mapping) else ""

    def layer(self, at: int) -> dict[str, Any]:
        name = self.order[at]
        node = self.nodes[name]
        row = self.rows.get(name)
        attrs = {k: plain_attr(v) for k, v in node["attrs"].items()}
        inputs, outputs = list(node["inputs"]), list(node["outputs"])
        steps = (row["end"] - row["start"]) / spec.CYCLES_PER_STEP if row else None
        record: dict[str, Any] = {
            "seq": at,
            "name": name,
            "op": node["op"],
            "kind": node["emitter"] + (f":{node['kernel']}" if node["kernel"] else ""),
            "batches": node["batches"],
            "dtype": self._dtype(outputs),
            "stage": self._stage(at, name),
            "scope": self._scope(name),
            "source": str(self.sources.get(name, {}).get("source", "")),
            "note": "; ".join(note for note in self.notes[name] if note),
            "turns": len(self.notes[name]),
            "layout": "  ".join(str(self.values[o]["layout"]) for o in outputs if o in self.values),
            "location": "  ".join(self._location(o) for o in outputs if o in self.slots or o in self.kept),
            "attrs": attrs,
            "inputs": inputs,
            "outputs": outputs,
            "flops": flops(node["op"], attrs, [self._shape(i) for i in inputs], [self._shape(o) for o in outputs]),
            "start": row["start"] if row else None,
            "end": row["end"] if row else None,
            "steps": steps,
            "us": steps * spec.CYCLES_PER_STEP / spec.CLOCK_HZ * 1e6 if steps is not None else None,
            "share": steps / self.total if steps is not None and self.total else None,
            "pe_steps": row["pe_steps"] if row else None,
            "stall": row["stall"] / spec.CYCLES_PER_STEP if row else None,
            "moves": row["moves"] if row else None,
            "dram_bytes": row["dram_lw"] * 8 if row else None,
        }
        record.update(self._bound(name, row, steps))
        record.update(self._lm(name))
        return record

    def _bound(self, name: str, row: Mapping[str, Any] | None, steps: float | None) -> dict[str, Any]:
        if row is None or not steps:  # a view, or a node on the host
            return {"bound": None, "achieved": None, "limits": {}}
        # Moves beyond those that the simulation kept: at least the steps in which nothing else was done.
        in_flight = self.flight.get(name, max(0.0, steps - row["pe_steps"]) if row["moves"] else 0.0)
        kind, achieved, limits = bound_of(steps, row["pe_steps"], row["dram_lw"], in_flight)
        return {"bound": kind, "achieved": achieved, "limits": limits}

    def _lm(self, name: str) -> dict[str, Any]:
        part = self.parts.get(name)
        if part is None:
            return dict.fromkeys(LM_FIELDS)
        found: dict[str, Any] = {"lines": part.lines}
        for letter, bank in (("m", "lm0"), ("n", "lm1")):
            found[f"{bank}_touched"] = f"{part.touched.get(letter, 0):x}"
            found[f"{bank}_high"] = min(part.high[letter], spec.LM_WORDS) if letter in part.high else None
        found["lm_bytes"] = 4 * ((found["lm0_high"] or 0) + (found["lm1_high"] or 0))
        return found

    def _stage(self, at: int, name: str) -> str:
        if self._scope(name).endswith("/backward"):
            return "backward"
        if self.last_backward is not None and at > self.last_backward:
            return "after backward"
        return "forward"

    def _shape(self, name: str) -> list[int] | None:
        return self.values[name]["shape"] if name in self.values else None

    def _dtype(self, outputs: list[str]) -> str:
        return next((self.values[o]["device_dtype"] for o in outputs if o in self.values), "")

    def _location(self, name: str) -> str:
        """In LM, in DRAM or PDM, or both."""
        places = [self.kept[name]] if name in self.kept else []
        if name in self.slots:
            segment, offset, *rest = self.slots[name]
            places.append(f"PDM +{offset}" if segment == "pdm" else f"DRAM {segment}+{offset}")
            if rest:
                places.append(f"DRAM work+{rest[1]}")
        return ", ".join(places)


def _add(rows: dict[str, dict[str, Any]], row: Mapping[str, Any]) -> None:
    """A node that has several turns is one layer: its turns are added up."""
    before = rows.get(row["node"])
    if before is None:
        rows[row["node"]] = dict(row)
        return
    before["end"] += row["end"] - row["start"]
    for key in ("pe_steps", "stall", "moves", "dram_lw"):
        before[key] += row[key]
