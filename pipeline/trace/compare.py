"""The differential check: the traced graph against the function run eagerly.

An exporter's worst fault is an attribute that it drops without a word; running both sides on numbers finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mlsdk.errors import TraceError
from mlsdk.pipeline.ir import pytree
from mlsdk.pipeline.ir.signature import RANDOM_STATE
from mlsdk.pipeline.ops.interpreter import run_reference
from mlsdk.pipeline.trace.trace import Traced

# Relative to the largest element: the order of summation differs, and nothing else.
TOLERANCE = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-9}


@dataclass(frozen=True)
class Comparison:
    """How far the graph is from eager: for each output or state the largest difference over the largest element."""

    differences: Mapping[str, float]
    tolerances: Mapping[str, float]
    compared: bool = True

    @property
    def failures(self) -> list[str]:
        return [key for key, difference in self.differences.items() if not difference <= self.tolerances[key]]

    def verify(self) -> Comparison:
        """This comparison, if nothing differs. Raises TraceError that names what does."""
        if self.failures:
            listed = ", ".join(f"{key} by {self.differences[key]:.3g}" for key in self.failures)
            raise TraceError(f"the traced graph differs from the function: {listed}; please report the function")
        return self


def check_against_eager(
    traced: Traced,
    function: Callable[[Any], Mapping[str, Any]],
    sample: Mapping[str, torch.Tensor],
    *,
    state: Mapping[str, torch.Tensor] | None = None,
    tolerance: float | None = None,
) -> Comparison:
    """Run the function on `sample`, and the graph on the same numbers, and compare results and updated state.

    Registered tensors are written back to what they were. A graph with random operators is run, and not compared, since
    torch draws other numbers; `compared` says so.
    """
    state = dict(state or {})
    before = {name: tensor.detach().clone() for name, tensor in state.items()}
    gradients = {name: tensor.grad for name, tensor in state.items() if tensor.is_leaf}
    actual = _run_graph(traced, sample, before)
    try:
        result = function({key: tensor.detach().clone() for key, tensor in sample.items()})
        leaves, _ = pytree.flatten(dict(result))
        expected = {key or "result": value.detach().clone() for key, value in leaves}
        after = {name: tensor.detach().clone() for name, tensor in state.items()}
    finally:
        with torch.no_grad():
            for name, tensor in state.items():
                tensor.copy_(before[name])
                if name in gradients:
                    tensor.grad = gradients[name]
    signature = traced.signature
    pairs = {output.key: (actual[output.value], expected[output.key]) for output in signature.outputs}
    for entry in signature.state:
        if entry.output and entry.name in after:
            pairs[f"state {entry.name}"] = (actual[entry.output], after[entry.name])
    compared = RANDOM_STATE not in signature.state_by_name
    differences, tolerances = {}, {}
    for key, (ours, theirs) in pairs.items():
        reference = theirs.numpy()
        if ours.dtype != reference.dtype or ours.shape != reference.shape:
            theirs_text = f"{reference.dtype}{list(reference.shape)}"
            raise TraceError(f"result {key} is {ours.dtype}{list(ours.shape)}, eager {theirs_text}")
        differences[key] = distance(ours, reference) if compared else 0.0
        tolerances[key] = TOLERANCE.get(str(ours.dtype), 0.0) if tolerance is None else tolerance
    return Comparison(differences, tolerances, compared)


def _run_graph(
    traced: Traced, sample: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor]
) -> dict[str, np.ndarray]:
    signature = traced.signature
    inputs = {entry.value: sample[entry.key].detach().numpy() for entry in signature.inputs}
    for entry in signature.state:
        if entry.input:
            random = entry.name == RANDOM_STATE
            inputs[entry.input] = np.zeros(2, np.int32) if random else state[entry.name].numpy()
    return run_reference(traced.graph, inputs)


def distance(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference, over the largest element of `theirs` (1 at least); infinite where only one is NaN."""
    if not ours.size:
        return 0.0
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if np.all(same):
        return 0.0
    if not np.all(np.isfinite(a[~same]) & np.isfinite(b[~same])):
        return float("inf")
    finite = np.abs(b[np.isfinite(b)])
    return float(np.max(np.abs(a - b)[~same]) / max(1.0, finite.max(initial=0.0)))
