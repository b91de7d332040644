"""Planners, schedulers, overlap and presets on eight reference models: exact steps, DRAM traffic, compile time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from bench.models import Model, models

#: what is compared: name -> options beside float_dtype
SETTINGS: dict[str, Mapping[str, Any]] = {
    "legacy": {"layout_planner": "legacy"},
    "bidi": {"layout_planner": "bidi"},
    "lpz": {},
    "reuse_consecutive": {"scheduler": "reuse_consecutive"},
    "spill_opt": {"scheduler": "spill_opt"},
    "auto_recompute_sa": {"scheduler": "auto_recompute_sa"},
    "merge": {"scheduler": "spill_opt", "envs": {"CODEGEN_USE_MERGE": "1"}},
}
PRESETS = ("O0", "O1", "O2", "O3", "O4")


def measure(note: Callable[..., None]) -> None:
    for name in models():
        base = None
        for setting, options in SETTINGS.items():
            found = compiled(name, options)
            base = base or found
            note(f"{name}, {setting}", found["steps"], "steps")
            note(f"{name}, {setting}, DRAM", found["dram_bytes"] / 1e6, "MB")
        for preset in PRESETS:
            found = compiled(name, {"option_json": preset})
            note(f"{name}, {preset}", found["steps"], "steps")
            note(f"{name}, {preset}, compile", found["seconds"], "s")


def compiled(name: str, options: Mapping[str, Any]) -> dict[str, float]:
    """Of a model: steps, DRAM bytes and compile time (trace to application) in mixed, with an empty store, in a process of its
    own: what one compile counted is known to the next one in its process."""
    command = [sys.executable, "-m", "bench.planning", "--one", name, json.dumps(options)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def compiled_here(make: Callable[[], Model], options: Mapping[str, Any]) -> dict[str, float]:
    from mlsdk import Context, MNDevice, set_buffer_name_in_optimizer, set_tensor_name_in_module

    torch.manual_seed(0)
    model = make()
    with fresh_store() as folder, Context(MNDevice("emu2")) as context, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        set_tensor_name_in_module(model.module, "model")
        for tensor in (*model.module.parameters(), *model.module.buffers()):
            context.register_param(tensor) if tensor.requires_grad else context.register_buffer(tensor)
        if model.optimizer is not None:
            set_buffer_name_in_optimizer(model.optimizer, "optimizer")
            context.register_optimizer_buffers(model.optimizer)
        started = time.process_time()
        context.compile(
            model.function, model.sample, folder / "app", options={"float_dtype": "mixed", "num_threads": 1, **options}
        )
        seconds = time.process_time() - started
        result = json.loads((folder / "app" / "simulation_result.json").read_text())
    return {"steps": result["steps"], "dram_bytes": result["dram_bytes"], "seconds": seconds}


@contextmanager
def fresh_store() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("MLSDK_STORE")
        os.environ["MLSDK_STORE"] = f"{folder}/store"
        try:
            yield Path(folder)
        finally:
            os.environ.pop("MLSDK_STORE") if before is None else os.environ.update(MLSDK_STORE=before)


INTRODUCTION = """\
# Presets

`O0` makes anything compile; `O1` keeps values on the chip and overlaps nodes; `O2` anneals; `O3` searches wider;
`O4` wider still. They are given as `options={"option_json": "O2"}` or `mlsdk build --preset O2`; what each sets stands in
[options](options.md#presets).

Steps are exact and the same on every machine; compile time is processor time on one machine, with an empty store. The page is
written by `python -m bench.planning [MODEL ...]` for models of `bench/models.py`.
"""


def page(names: Sequence[str] = ()) -> str:
    """For some models, or all."""
    lines = [INTRODUCTION]
    lines += [f"| model (mixed) | {' | '.join(PRESETS)} | compile, s |", "|---" * (len(PRESETS) + 2) + "|"]
    for name in names or models():
        found = [compiled(name, {"option_json": preset}) for preset in PRESETS]
        steps = " | ".join(f"{f['steps']:,.0f}" for f in found)
        seconds = ", ".join(f"{f['seconds']:.1f}" for f in found)
        lines.append(f"| {name} | {steps} | {seconds} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(compiled_here(models()[sys.argv[2]], json.loads(sys.argv[3]))))
    else:
        print(page(sys.argv[1:]), end="")
