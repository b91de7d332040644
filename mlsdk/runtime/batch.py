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
from mlsdk.runtime.loaded import Loaded
from mlsdk.runtime.memory import Allocator


def run_rows(
    application: Application, inputs: Mapping[str, np.ndarray], device: str, status: Callable[[str], None]
) -> tuple[dict[str, np.ndarray], bytes]:
    """One run for each index of the leading axis of `inputs` (by signature key). Stacked outputs, and the run record."""
    signature = application.signature
    counts = {array.shape[0] for array in inputs.values()}
    missing = [entry.key for entry in signature.inputs if entry.key not in inputs]
    if missing or len(counts) != 1:
        raise InputMismatch(
            f"inputs {missing or sorted(inputs)}: give every input with the same number of rows, got {sorted(counts)}"
        )
    rows = counts.pop()
    results: dict[str, list[np.ndarray]] = {entry.key: [] for entry in signature.outputs}
    steps = pe_steps = 0
    seconds: list[float] = []
    with open_board(device) as board:
        loaded = Loaded(application, board, Allocator())
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
        "steps_per_run": steps / rows if rows else 0,
        "pe_steps": pe_steps,
        "simulated_us": steps * spec.CYCLES_PER_STEP / spec.CLOCK_HZ * 1e6,
        "wall_seconds": sum(seconds),
        "steps_per_second": steps / rows * len(steady) / sum(steady) if rows else 0.0,
    }
    return {key: np.stack(arrays) for key, arrays in results.items()}, (json.dumps(record, indent=1) + "\n").encode()
