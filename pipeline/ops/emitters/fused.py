"""Several elementwise kernels as one formula (the planner decides which: `pipeline/layout/fusing.py`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ops.emitters.formula import DOUBLE, HALF, SINGLE, Formula, Operand, Value
from mlsdk.pipeline.ops.emitters.kernels import KERNELS
from mlsdk.pipeline.ops.table import lookup

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


def fusible(kernel: str, dtypes: Sequence[str]) -> bool:
    """Whether a kernel may be a step: floats of one kind in and out, computed in that kind."""
    floats = set(dtypes)
    compute = DOUBLE if floats == {DOUBLE} else SINGLE if floats <= {HALF, SINGLE} else None
    row = KERNELS.get((kernel, compute)) if compute else None
    return row is not None and not row.wide


def kernel_attrs(kernel: str, node: Node) -> dict[str, Any]:
    """The attributes of a node that its kernel reads."""
    row = next(row for (name, _compute), row in KERNELS.items() if name == kernel)
    values = {**lookup(node.op).attrs, **node.attrs}
    return {key: values[key] for key in row.attrs if key in values}
