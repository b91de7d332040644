"""Cold start, recompiling, and the steps of standard programs beside what they cannot go below."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ADD = """
import sys, time
import torch
from mlsdk import Context, MNDevice, storage
context = Context(MNDevice("mncore2:auto"))
def add(inputs): return {"c": inputs["a"] + inputs["b"]}
sample = {"a": torch.ones(3, 4), "b": torch.ones(3, 4)}
started = time.perf_counter()
compiled = context.compile(add, sample, storage.path(sys.argv[1] + "/add"), options={"float_dtype": "float"})
first = time.perf_counter() - started
result = compiled(sample)["c"].cpu()
assert torch.equal(result, torch.full((3, 4), 2.0))
started = time.perf_counter()
context.compile(add, sample, storage.path(sys.argv[1] + "/add"), options={"float_dtype": "float"})
again = time.perf_counter() - started
calls = []
for _ in range(20):
    started = time.perf_counter()
    compiled(sample)["c"].cpu()
    calls.append(time.perf_counter() - started)
print(first, again, sorted(calls)[10])
"""


def measure(note: Callable[..., None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "MLSDK_STORE": f"{folder}/store", "MLSDK_STATE": f"{folder}/state"}
        torch = min(_process([sys.executable, "-c", "import torch"], environment)[0] for _ in range(3))
        cold = {**environment, "NUMBA_CACHE_DIR": f"{folder}/numba"}
        note(
            "cold add, empty store, empty numba cache",
            _process([sys.executable, "-c", ADD, folder], cold)[0],
            "s",
            "< 6",
            f"import torch {torch:.2f}",
        )
        walls, firsts, agains, calls = [], [], [], []
        for i in range(5):
            environment["MLSDK_STORE"] = f"{folder}/store{i}"
            wall, printed = _process([sys.executable, "-c", ADD, folder], environment)
            first, again, call = map(float, printed.split())
            walls.append(wall), firsts.append(first), agains.append(again), calls.append(call)
        note("cold add, process start to end", statistics.median(walls), "s", "< 6", f"import torch {torch:.2f}")
        note("  of which compile", statistics.median(firsts), "s")
        note("compile again, unchanged (trace included)", statistics.median(agains), "s", "< 0.5")
        note("call and .cpu() of the compiled add", statistics.median(calls) * 1e3, "ms")
        environment["MLSDK_STORE"] = f"{folder}/digits"
        wall, printed = _process(["mlsdk", "run", "digits", "--json"], environment)
        digits = json.loads(printed)
        note("digits: everything, empty store", wall, "s")
        note(
            "digits: everything, warm store",
            _process(["mlsdk", "run", "digits", "--json"], environment)[0],
            "s",
            "< 1 beyond imports",
        )
        note("digits: steps of a batch of 64", digits["steps_per_batch"], "steps", "<= 1500")
        note(
            "digits: accuracy on the board", digits["accuracy"]["board"], "", f"torch {digits['accuracy']['torch']:.4f}"
        )
    golden = json.loads((Path(__file__).parents[1] / "tests/replay/golden.json").read_text())
    for case, recorded in sorted(golden.items()):
        note(f"replay corpus: {case}", recorded["steps"], "steps")


def _process(command: list[str], environment: dict[str, str]) -> tuple[float, str]:
    if command[0] == "mlsdk":
        command = [str(Path(sys.executable).with_name("mlsdk")), *command[1:]]
    started = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return time.perf_counter() - started, done.stdout
