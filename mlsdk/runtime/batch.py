"""Many runs of one application, for the Run task."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping

import numpy as np

from mlsdk.device import spec
from mlsdk.device.board import open_board
from mlsdk.errors import InputMismatch
from mlsdk.pipeline.ir.application import Application
from mlsdk.pipeline.ir.graph import DTYPES
from mlsdk.pipeline.ir.signature import Signature
from mlsdk.runtime.loaded import HostRun, Loaded
from mlsdk.runtime.memory import Allocator


def run_rows(
    application: Application,
    inputs: Mapping[str, np.ndarray],
    device: str,
    status: Callable[[str], None],
    host_run: HostRun | None = None,
) -> tuple[dict[str, np.ndarray], bytes]:
    """One run for each index of the leading axis of `inputs` (by signature key). Stacked outputs, and the run record."""
    signature = application.signature
    rows = _rows(signature, inputs)
    results: dict[str, list[np.ndarray]] = {entry.key: [] for entry in signature.outputs}
    steps = pe_steps = 0
    seconds: list[float] = []
    with open_board(device) as board:
        loaded = Loaded(application, board, Allocator(), host_run=host_run)
        for row in range(rows):
            for entry in signature.inputs:
                loaded.write(entry.value, inputs[entry.key][row])
            started = time.perf_counter()
            stats = loaded.run()
            seconds.append(time.perf_counter() - started)
            steps, pe_steps = steps + stats.total_steps, pe_steps + stats.pe_steps
            for output in signature.outputs:
                results[output.key].append(loaded.read(output.value))
            status(f"run {row + 1} of {rows}")
        name = board.name
    steady = seconds[1:] or seconds  # the first run compiles the emulator's own loops where no cache has them
    record = {
        "device": name,
        "runs": rows,
        "steps": steps,
        "steps_per_run": steps / rows,
        "pe_steps": pe_steps,
        "simulated_us": steps * spec.CYCLES_PER_STEP / spec.CLOCK_HZ * 1e6,
        "wall_seconds": sum(seconds),
        "steps_per_second": steps / rows * len(steady) / sum(steady),
    }
    return _stacked(signature, results), _json(record)


def run_rows_on_host(
    execute: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]],
    signature: Signature,
    state: Mapping[str, np.ndarray],
    inputs: Mapping[str, np.ndarray],
    device: str,
    status: Callable[[str], None],
) -> tuple[dict[str, np.ndarray], bytes]:
    """The same by a function that executes the graph on the host: values by name -> values by name. There are no steps."""
    rows = _rows(signature, inputs)
    # Registered tensors without a value begin with zeros, as they do on a board.
    kept = {
        entry.input: np.asarray(state.get(entry.name, np.zeros(entry.shape)), DTYPES[entry.dtype])
        for entry in signature.state
        if entry.input
    }
    results: dict[str, list[np.ndarray]] = {entry.key: [] for entry in signature.outputs}
    started = time.perf_counter()
    for row in range(rows):
        given = {entry.value: np.asarray(inputs[entry.key][row], DTYPES[entry.dtype]) for entry in signature.inputs}
        found = execute({**kept, **given})
        kept.update({entry.input: found[entry.output] for entry in signature.state if entry.input and entry.output})
        for output in signature.outputs:
            results[output.key].append(found[output.value])
        status(f"run {row + 1} of {rows}")
    record = {
        "device": device,
        "runs": rows,
        "steps": 0,
        "steps_per_run": 0,
        "pe_steps": 0,
        "simulated_us": 0.0,
        "wall_seconds": time.perf_counter() - started,
        "steps_per_second": 0.0,
    }
    return _stacked(signature, results), _json(record)


def _rows(signature: Signature, inputs: Mapping[str, np.ndarray]) -> int:
    """How many rows all inputs have."""
    counts = {array.shape[0] if array.ndim else 0 for array in inputs.values()}
    missing = [entry.key for entry in signature.inputs if entry.key not in inputs]
    if missing or len(counts) != 1 or counts == {0}:
        raise InputMismatch(
            f"inputs {missing or sorted(inputs)}: give every input with the same number of rows, at least one, "
            f"got {sorted(counts)}"
        )
    return counts.pop()


def _stacked(signature: Signature, results: Mapping[str, list[np.ndarray]]) -> dict[str, np.ndarray]:
    return {entry.key: np.stack(results[entry.key]) for entry in signature.outputs}


def _json(record: Mapping[str, object]) -> bytes:
    return (json.dumps(record, indent=1) + "\n").encode()
