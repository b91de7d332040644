"""A Llama-like decoder with a KV cache on the board: prefill and decode are two functions of one Context.

mlsdk run llama_tiny
mlsdk run llama_tiny --param layers=2 --param generate=4
luigi --module mlsdk.workflows.llama_tiny LlamaTiny --local-scheduler
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import luigi

from mlsdk.tasks.errors import WorkflowError
from mlsdk.tasks.phases import OptionsParameter
from mlsdk.tasks.workflow import LARGEST_SEED, Artifact, IntParameter, Step, Workflow


class Generate(Step):
    """Greedy generation: the prompt at once, then a token a call; the cache stays on the board between the calls."""

    layers = IntParameter(1, 256, default=4)
    width = IntParameter(8, 8192, default=64)
    prompt = IntParameter(1, 4096, default=8)
    generate = IntParameter(1, 4096, default=8)
    seed = IntParameter(0, LARGEST_SEED, default=0)
    options = OptionsParameter(default={}, description="compile options as JSON")
    device = luigi.Parameter(default="mncore2:auto", significant=False)
    artifacts = (Artifact("generated.json", "json"),)
    extra_sources = ("mlsdk.workflows.llama_model",)

    def compute(self, inputs: Mapping[str, bytes], services: Any) -> Mapping[str, bytes]:
        import copy
        import tempfile
        from pathlib import Path

        import torch

        from mlsdk import Context, MNDevice, set_tensor_name_in_module
        from mlsdk.workflows.llama_model import Llama

        torch.manual_seed(self.seed)
        model = Llama(97, self.width, 4, 2, self.layers, self.prompt + self.generate).eval()
        reference = copy.deepcopy(model).double()
        tokens = torch.randint(0, 97, (1, self.prompt))

        def forward(batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {"logits": model(batch["tokens"], batch["positions"])}

        found: dict[str, list[Any]] = {"board": [], "torch": [], "relative_error": []}
        with tempfile.TemporaryDirectory() as folder, Context(MNDevice(self.device)) as context, torch.no_grad():
            set_tensor_name_in_module(model, "model")
            for parameter in model.parameters():
                context.register_param(parameter)
            for buffer in model.buffers():
                context.register_buffer(buffer)
            calls = {}
            for name, count in (("prefill", self.prompt), ("decode", 1)):
                services.status(f"compiling {name}")
                sample = {"tokens": tokens[:, :count], "positions": torch.arange(count)}
                calls[name] = context.compile(forward, sample, Path(folder) / name, options=dict(self.options))
            positions = torch.arange(self.prompt)
            for number in range(self.generate):
                services.status(f"token {number + 1} of {self.generate}")
                call = calls["decode" if number else "prefill"]
                got = call({"tokens": tokens, "positions": positions})["logits"].cpu()[0, -1]
                want = reference(tokens, positions)[0, -1]
                found["board"].append(int(got.argmax()))
                found["torch"].append(int(want.argmax()))
                found["relative_error"].append(float((got - want).norm() / want.norm()))
                tokens, positions = want.argmax().view(1, 1), positions[-1:] + 1
        return {"generated.json": json.dumps(found).encode()}


class LlamaTiny(Workflow):
    """Generate tokens on the board and compare each with torch's in double."""

    layers = IntParameter(1, 256, default=4, description="decoder layers")
    width = IntParameter(8, 8192, default=64, description="width of the model, a multiple of 8")
    prompt = IntParameter(1, 4096, default=8, description="tokens of the prompt")
    generate = IntParameter(1, 4096, default=8, description="tokens to generate")
    seed = IntParameter(0, LARGEST_SEED, default=0, description="seed of weights and prompt")
    default_options = {"float_dtype": "mixed"}
    programs = ()

    def check_parameters(self) -> None:
        if self.width % 8:  # four heads, each rotated in two halves
            raise WorkflowError(f"parameter width of LlamaTiny: {self.width} is not a multiple of 8")

    def _generated(self) -> Generate:
        return Generate(
            layers=self.layers,
            width=self.width,
            prompt=self.prompt,
            generate=self.generate,
            seed=self.seed,
            options=self.compile_options(),
            device=self.device,
        )

    def requires(self) -> list[luigi.Task]:
        return [self._generated()]

    def summary(self) -> dict[str, Any]:
        found = json.loads(self.read(self._generated(), "generated.json"))
        same = sum(a == b for a, b in zip(found["board"], found["torch"]))
        return {
            "tokens": found["board"],
            "same_as_torch": f"{same} of {len(found['torch'])}",
            "relative_error": max(found["relative_error"]),
        }
