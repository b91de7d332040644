"""Where a program goes wrong: the traced and the compiled graph, by the reference functions and on the board.

    graph       reference          board
    torch       what is right      the emitters, without the optimizer
    compiled    the optimizer      optimizer and emitters

On the board every value is an output, so that each node can be compared alone: its result with what the reference function gives
for the operands that the board had. Errors of earlier nodes are in both, and the first node that differs is the one at fault.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mlsdk.errors import InputMismatch, MLSDKError
from mlsdk.pipeline.ir import archive
from mlsdk.pipeline.ir.graph import DTYPES, Graph, Node, type_text, with_sources
from mlsdk.pipeline.ir.signature import Input, Output, Signature
from mlsdk.tasks import codegen_dir, options
from mlsdk.tasks.deviation import Deviation, allowed_of, deviation, scale_of

Arrays = Mapping[str, np.ndarray]

ACCURACY = "accuracy.json"
FILES = ("exported.onnx", "model.onnx", "signature.json", "sources.json", "state.npz", "option.json", "model.app.zst")
GRAPHS = {"torch": "exported.onnx", "compiled": "model.onnx"}

# Largest error of a whole program by dtype: sums in another order, and what the board's formats leave (float_dtype).
WHOLE = {"float": 1e-4, "mixed": 2.0**-4, "half": 2.0**-4, "double": 1e-6}
OPTIMIZER = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-9}


@dataclass(frozen=True)
class Row:
    """A value of a graph: the node that gives it, and how far it is from what it should be."""

    node: str
    op: str
    value: str
    type: str
    source: str
    scope: str
    deviation: Deviation


@dataclass(frozen=True)
class Corner:
    """A graph on an executor: its outputs against those of the traced graph by the reference functions."""

    graph: str
    executor: str
    outputs: Mapping[str, Deviation] = field(default_factory=dict)
    trouble: str = ""  # why it could not be run

    @property
    def same(self) -> bool:
        return not self.trouble and all(one.same for one in self.outputs.values())

    @property
    def worst(self) -> float | None:
        return max((one.relative for one in self.outputs.values()), default=None)


@dataclass(frozen=True)
class Report:
    """`first`: where -> the first node that differs there (optimizer, torch graph, compiled graph), or None. `rows`: all
    values of the compiled graph on the board."""

    corners: tuple[Corner, ...]
    first: Mapping[str, Row | None]
    rows: tuple[Row, ...]
    float_dtype: str

    @property
    def same(self) -> bool:
        """Corners that could not be run are troubles of their own; the torch graph may need the optimizer."""
        needed = [corner for corner in self.corners if not (corner.trouble and corner.graph == "torch")]
        return all(corner.same for corner in needed) and not any(self.first.values())

    def document(self) -> dict[str, Any]:
        """For --json."""
        return {
            "same": self.same,
            "float_dtype": self.float_dtype,
            "checks": [{**asdict(corner), "same": corner.same, "worst": corner.worst} for corner in self.corners],
            "first": {where: row and asdict(row) for where, row in self.first.items()},
        }

    def accuracy(self) -> bytes:
        """accuracy.json of the dashboard: every node of the compiled graph on the board, its own error alone."""
        rows = [
            {
                "node": row.node,
                "op": row.op,
                "value": row.value,
                "max_abs": row.deviation.largest,
                "max_rel": row.deviation.relative,
                "mean_abs": row.deviation.mean,
                "elements": row.deviation.elements,
                "allowed": row.deviation.allowed,
            }
            for row in self.rows
        ]
        reference = (
            "the reference function of each node, on the operands that the board had; relative to the node's scale"
        )
        return (json.dumps({"reference": reference, "rows": rows}, indent=1, allow_nan=False) + "\n").encode()


def bisect(
    directory: Path,
    inputs: Arrays | None = None,
    *,
    seed: int = 0,
    device: str = "emu2",
    status: Callable[[str], None] = lambda _: None,
) -> Report:
    """Compare what lies in a codegen_dir, for the given inputs (by key of the signature) or random ones.

    Raises CodegenDirError for a folder that was not compiled or was changed, InputMismatch for inputs that do not fit.
    """
    files = {name: path.read_bytes() for name, path in codegen_dir.verify(directory, FILES).items()}
    signature = Signature.from_json(files["signature.json"].decode())
    resolved = options.resolve({"option_json": str(directory / "option.json")}).values
    graphs = {name: _with_sources(Graph.from_onnx(files[file]), files) for name, file in GRAPHS.items()}
    given = _given(signature, files, inputs, seed)
    float_dtype = resolved["float_dtype"]

    status("by the reference functions")
    right = {name: _by_reference(graph, given) for name, graph in graphs.items()}
    wanted = {entry.key: right["torch"][entry.value] for entry in _results(signature)}
    corners = [_corner("compiled", "reference", signature, right["compiled"], wanted, OPTIMIZER)]
    first: dict[str, Row | None] = {
        "optimizer": next((r for r in _common(graphs["compiled"], right) if not r.deviation.same), None)
    }
    rows: tuple[Row, ...] = ()
    short = any(value.dtype == "float16" for value in graphs["torch"].values.values())
    whole = dict.fromkeys(OPTIMIZER, max(WHOLE[float_dtype], OPTIMIZER["float16"] if short else 0.0))
    for name, graph in graphs.items():
        status(f"the {name} graph on the board")
        try:
            found = _on_board(graph, given, resolved, device)
        except MLSDKError as error:
            corners.append(Corner(name, "board", trouble=" ".join(str(error).split())))
            continue
        rows = tuple(_alone(graph, found, float_dtype))
        corners.append(_corner(name, "board", signature, found, wanted, whole))
        first[f"{name} graph on the board"] = next((row for row in rows if not row.deviation.same), None)
    if "model.app.zst" in files:
        status("the program itself")
        try:
            values = _run(files["model.app.zst"], given, device)
            corners.append(_corner("program", "board", signature, values, wanted, whole))
        except MLSDKError as error:
            corners.append(Corner("program", "board", trouble=" ".join(str(error).split())))
    return Report(tuple(corners), first, rows, float_dtype)


# --- what goes in ---


def read_inputs(path: Path) -> dict[str, np.ndarray]:
    """Arrays by name of an .npz file. Raises InputMismatch for a file that is none."""
    try:
        return archive.unpack_arrays(path.read_bytes(), str(path))
    except OSError as error:
        raise InputMismatch(f"{path}: {error.strerror}; give an .npz file with an array for each input") from error


def _with_sources(graph: Graph, files: Mapping[str, bytes]) -> Graph:
    return with_sources(graph, json.loads(files["sources.json"])) if "sources.json" in files else graph


def _given(signature: Signature, files: Mapping[str, bytes], inputs: Arrays | None, seed: int) -> dict[str, np.ndarray]:
    """Every input of the graphs by value name: the caller's, random ones, and the state."""
    rng = np.random.default_rng(seed)
    unknown = [key for key in inputs or {} if key not in signature.input_by_key]
    if unknown:
        raise InputMismatch(
            f"there is no input {', '.join(unknown)}; the inputs are {', '.join(signature.input_by_key) or 'none'}"
        )
    given = {}
    for entry in signature.inputs:
        if inputs is None:
            given[entry.value] = _random(rng, entry)
            continue
        if entry.key not in inputs or inputs[entry.key].shape != entry.shape:
            got = type_text(str(inputs[entry.key].dtype), inputs[entry.key].shape) if entry.key in inputs else "nothing"
            raise InputMismatch(f"input {entry.key}: expected {type_text(entry.dtype, entry.shape)}, got {got}")
        given[entry.value] = inputs[entry.key].astype(DTYPES[entry.dtype])
    state = archive.unpack_arrays(files["state.npz"]) if "state.npz" in files else {}
    for kept in signature.state:
        if kept.input:
            value = state.get(kept.name, np.zeros(kept.shape))
            given[kept.input] = np.asarray(value, DTYPES[kept.dtype]).reshape(kept.shape)
    return given


def _random(rng: np.random.Generator, entry: Input) -> np.ndarray:
    """Normal floats, any bytes; 0 and 1 for other integers, which are places in tensors more often than not."""
    if DTYPES[entry.dtype].kind == "f":
        return np.asarray(rng.standard_normal(entry.shape), DTYPES[entry.dtype])
    return np.asarray(rng.integers(0, 256 if entry.dtype == "uint8" else 2, entry.shape), DTYPES[entry.dtype])


# --- the executors ---


def _by_reference(graph: Graph, given: Arrays) -> dict[str, np.ndarray]:
    """All values of a graph."""
    from mlsdk.pipeline.ops.interpreter import run_reference

    values = {**graph.constants, **given}

    def watch(node: Node, results: list[np.ndarray]) -> None:
        values.update({name: array for name, array in zip(node.outputs, results) if name})

    run_reference(graph, given, watch=watch)
    return values


def _on_board(graph: Graph, given: Arrays, values: Mapping[str, Any], device: str) -> dict[str, np.ndarray]:
    """The same on the board, by a program whose results are all values."""
    from mlsdk.tasks import adapters

    names = tuple(dict.fromkeys(name for node in graph.nodes for name in node.outputs if name))
    signature = Signature(
        tuple(Input(name, graph.values[name].dtype, graph.values[name].shape, name) for name in graph.inputs),
        tuple(Output(name, graph.values[name].dtype, graph.values[name].shape, name) for name in names),
    )
    artifacts: dict[str, bytes] = {
        "model.onnx": Graph(graph.name, graph.inputs, names, graph.nodes, graph.values, graph.constants).to_onnx(),
        "signature.json": signature.to_json().encode(),
    }
    for phase in (adapters.layout_plan, adapters.schedule, adapters.emit, adapters.load):
        artifacts |= phase(artifacts, values, None)  # type: ignore[arg-type]  # phases ask for no services
    return {**graph.constants, **given, **_run(artifacts["model.app.zst"], given, device)}


def _run(application: bytes, inputs: Arrays, device: str) -> dict[str, np.ndarray]:
    """One run of an application: its outputs by value name, for its inputs by value name."""
    from mlsdk.device.board import open_board
    from mlsdk.pipeline.ir.application import Application
    from mlsdk.pipeline.ops.table import run as run_operator
    from mlsdk.runtime.loaded import Loaded
    from mlsdk.runtime.memory import Allocator

    program = Application.from_bytes(archive.decompress(application))
    with open_board(device) as board:
        loaded = Loaded(program, board, Allocator(), host_run=run_operator)
        for entry in program.signature.inputs:
            loaded.write(entry.value, inputs[entry.value])
        loaded.run()
        return {entry.value: loaded.read(entry.value) for entry in program.signature.outputs}


# --- comparisons ---


def _results(signature: Signature) -> tuple[Output, ...]:
    """The outputs, and what becomes of the state."""
    state = (Output(f"state {s.name}", s.dtype, s.shape, s.output) for s in signature.state if s.output)
    return (*signature.outputs, *state)


def _corner(
    graph: str, executor: str, signature: Signature, found: Arrays, wanted: Arrays, allowed: Mapping[str, float]
) -> Corner:
    compared = {}
    for entry in _results(signature):
        if entry.value in found:  # the program itself keeps its state
            right = wanted[entry.key]
            scale = float(np.abs(right[np.isfinite(right)]).max(initial=0.0)) if right.dtype.kind == "f" else 1.0
            compared[entry.key] = deviation(found[entry.value], right, allowed.get(entry.dtype, 0.0), scale)
    return Corner(graph, executor, compared)


def _common(graph: Graph, right: Mapping[str, Arrays]) -> list[Row]:
    """Values that both graphs have, by the reference functions of both."""
    rows = []
    for node in graph.nodes:
        for name in node.outputs:
            found, wanted = right["compiled"].get(name), right["torch"].get(name)
            if found is None or wanted is None or found.dtype != wanted.dtype or found.shape != wanted.shape:
                continue
            scale = scale_of(node, [right["compiled"].get(operand) for operand in node.inputs], wanted)
            allowed = OPTIMIZER.get(graph.values[name].dtype, 0.0)
            rows.append(_row(graph, node, name, deviation(found, wanted, allowed, scale)))
    return rows


def _alone(graph: Graph, found: Arrays, float_dtype: str) -> list[Row]:
    """Each node's results on the board, against its reference function on the operands that the board had."""
    from mlsdk.pipeline.ops.table import lookup, run

    rows = []
    for node in graph.nodes:
        inputs = [found[name] if name else None for name in node.inputs]
        dtypes = [graph.values[name].dtype for name in node.inputs if name]
        for name, wanted in zip(node.outputs, run(node, inputs)):
            if name:
                allowed = allowed_of(node, lookup(node.op).family, float_dtype, dtypes, graph.values[name].dtype)
                rows.append(
                    _row(graph, node, name, deviation(found[name], wanted, allowed, scale_of(node, inputs, wanted)))
                )
    return rows


def _row(graph: Graph, node: Node, name: str, found: Deviation) -> Row:
    value = graph.values[name]
    return Row(node.name, node.op, name, type_text(value.dtype, value.shape), node.source, node.scope, found)
