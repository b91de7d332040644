"""Several elementwise kernels as one formula (the planner decides which: `pipeline/layout/fusing.py`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ops.emitters.formula import DOUBLE, HALF, SINGLE, Formula, Operand, Value
from mlsdk.pipeline.ops.emitters.kernels import KERNELS, attrs_of

FUSED = "fused"  # the kernel's name


@dataclass(frozen=True)
class Fused:
    """A formula made of steps, each the JSON text [kernel, operands, attributes]; operands count inputs first, then results."""

    steps: tuple[str, ...]

    def __call__(self, f: Formula, *inputs: Value) -> Operand:
        values: list[Any] = list(inputs)
        for step in self.steps:
            kernel, operands, attrs = json.loads(step)
            values.append(KERNELS[kernel, f.compute].formula(f, *(values[i] for i in operands), **attrs))
        return values[-1]


def step_of(kernel: str, node: Node, dtypes: Sequence[str]) -> str | None:
    """A node as a step of its own inputs; None where it cannot be one: floats of one kind in and out (`dtypes`), computed in
    that kind."""
    floats = set(dtypes)
    compute = DOUBLE if floats == {DOUBLE} else SINGLE if floats <= {HALF, SINGLE} else None
    row = KERNELS.get((kernel, compute)) if compute else None
    if row is None or row.wide:
        return None
    return json.dumps([kernel, list(range(len(node.inputs))), attrs_of(row, node)])
