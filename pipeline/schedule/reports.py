"""The plan as text and as ONNX: l3ir.txt (nodes in schedule order, with layouts and addresses) and l3ir_stripped.onnx."""

from __future__ import annotations

from collections.abc import Iterable

from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.ir.placed import LOAD, VIEW, Placed
from mlsdk.pipeline.ir.plan import Home, Plan, nodes_of


def l3ir_text(placed: Placed, plan: Plan) -> bytes:
    """One line for each node in the order in which it runs. MNCoreDownload and MNCoreUpload say what moves from and to DRAM,
    MNCoreInputSplit and MNCoreOutputConcat that it exceeds an LM and is cut in time, MNCoreForget that an LM no longer holds a
    value; operands and results that have no such line are in LM."""
    nodes = nodes_of(placed, plan.steps)
    lines = [f"# scheduler {plan.scheduler}", "# segments (LW in each group's DRAM; pdm: on the chip)"]
    lines += [f"#   {s.name:40} {s.kind:9} {s.size}" for s in plan.segments.values()]
    forgotten = _forgotten(placed, plan)
    for at, step in enumerate(plan.steps):
        p = nodes[step.node]
        if p.emitter == VIEW:
            source = p.node.inputs[0]
            lines.append(
                f"{p.node.outputs[0]} = {p.node.op}({source})  # a view: {_where(placed, plan, p.node.outputs[0])}"
            )
            continue
        if p.emitter == LOAD:
            (name,), ((_, home),) = p.node.inputs, step.keeps
            lines.append(
                f"MNCoreDownload({name})  # {_where(placed, plan, name)}, to {home.space}+{home.word} for several"
            )
            lines += _forgets(forgotten.get(at, ()))
            continue
        reads = dict(step.reads)
        for i, name in enumerate(p.node.inputs):
            if name and i not in reads:
                lines.append(f"MNCoreDownload({name})  # {_where(placed, plan, name)}")
                lines += _slices(placed, "InputSplit", name)
        attrs = ", ".join(f"{k}={v}" for k, v in p.node.attrs.items() if not hasattr(v, "shape"))
        how = p.emitter + (f":{p.kernel}" if p.kernel else "")
        outputs = [name for name in p.node.outputs if name]
        homes = [_home(p.node.inputs[i], h) for i, h in step.reads] + [_home(outputs[o], h) for o, h in step.keeps]
        lines.append(
            f"{', '.join(p.node.outputs)} = {p.node.op}({', '.join(p.node.inputs)}; {attrs})  # "
            + " ".join([p.node.name, f"[{how}]", *homes])
        )
        for o, name in enumerate(outputs):
            if o not in step.only:
                lines += _slices(placed, "OutputConcat", name)
                lines.append(f"MNCoreUpload({name})  # {_where(placed, plan, name)}")
        lines += _forgets(forgotten.get(at, ()))
    return ("\n".join(lines) + "\n").encode()


def _forgets(values: Iterable[tuple[str, Home]]) -> list[str]:
    return [f"MNCoreForget({name})  # {home.space}+{home.word}" for name, home in values]


def _slices(placed: Placed, what: str, name: str) -> list[str]:
    """A value that exceeds an LM comes through it in slices."""
    slices = placed.values[name].image.slices
    return [f"MNCore{what}({name})  # {slices} time slices or more"] if slices > 1 else []


def _home(name: str, home: Home) -> str:
    return f"{name}@{home.space}+{home.word}"


def _forgotten(placed: Placed, plan: Plan) -> dict[int, list[tuple[str, Home]]]:
    """Step -> the values that live in LM until then."""
    nodes = nodes_of(placed, plan.steps)
    last: dict[tuple[str, int], int] = {}  # (value, step that made it) -> step
    made: dict[Home, tuple[str, int]] = {}
    homes: dict[tuple[str, int], Home] = {}
    for at, step in enumerate(plan.steps):
        for _, home in step.reads:
            last[made[home]] = at
        outputs = [name for name in nodes[step.node].node.outputs if name]
        for o, home in step.keeps:
            made[home] = outputs[o], at
            last[made[home]], homes[made[home]] = at, home
    found: dict[int, list[tuple[str, Home]]] = {}
    for key, at in last.items():
        found.setdefault(at, []).append((key[0], homes[key]))
    return found


def _where(placed: Placed, plan: Plan, name: str) -> str:
    v, slot = placed.values[name], plan.slots.get(name)
    at = f"at {slot.segment}+{slot.offset}" if slot else "in LM"
    if slot is not None and slot.cut:
        at += f", behind {slot.cut} LW at work+{slot.rest}"
    return f"{v.device_dtype}{list(v.shape)} {v.layout} {at}, {v.image.group_size} LW"


def l3ir_onnx(placed: Placed) -> bytes:
    """The placed graph as ONNX for viewers, without the data of constants (they become inputs)."""
    constants = [name for name, v in placed.values.items() if v.origin == "constant"]
    used = {n for p in placed.nodes for n in p.node.inputs}
    values = {name: Value(name, v.dtype, v.shape) for name, v in placed.values.items()}
    nodes = [Node(p.node.name, p.node.op, p.node.inputs, p.node.outputs, _plain(p)) for p in placed.nodes]
    made = _made(placed)  # a view of a constant is made by a node
    inputs = (*placed.inputs, *(c for c in constants if c in used and c not in made))
    return Graph(
        placed.name,
        inputs,
        placed.outputs,
        tuple(nodes),
        {k: v for k, v in values.items() if k in used or k in inputs or k in made},
    ).to_onnx()


def _made(placed: Placed) -> set[str]:
    return {o for p in placed.nodes for o in p.node.outputs}


def _plain(p) -> dict:
    attrs = {k: v for k, v in p.node.attrs.items() if not hasattr(v, "shape")}
    return {**attrs, "emitter": p.emitter, "kernel": p.kernel} if p.kernel else {**attrs, "emitter": p.emitter}
