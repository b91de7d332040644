"""Several elementwise kernels as one formula (the planner decides which: `pipeline/layout/fusing.py`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ops.emitters.formula import DOUBLE, HALF, INT, SINGLE, Formula, Operand, Value
from mlsdk.pipeline.ops.emitters.kernels import KERNELS, attrs_of

FUSED = "fused"  # the kernel's name
NUMBER = "number"  # a step that is a constant


@dataclass(frozen=True)
class Fused:
    """A formula made of steps, each the JSON text [kernel, operands, attributes, compute dtype]; operands count inputs first,
    then results. Between singles and integers a step may compute in one while others do in the other."""

    steps: tuple[str, ...]

    def __call__(self, f: Formula, *inputs: Value) -> Operand:
        values: list[Any] = list(inputs)
        pens = {f.compute: f}
        for step in self.steps:
            kernel, operands, attrs, compute = json.loads(step)
            if kernel == NUMBER:
                values.append(f.word(attrs["word"]))
                continue
            pen = pens.setdefault(compute, Formula(compute))
            values.append(KERNELS[kernel, compute].formula(pen, *(values[i] for i in operands), **attrs))
        return values[-1]


def step_of(kernel: str, node: Node, dtypes: Sequence[str]) -> str | None:
    """A node as a step of its own inputs, `dtypes` those of its operands and its result; None where it cannot be one: doubles
    mix with nothing else, and what is computed in a wider dtype stands alone."""
    found = set(dtypes)
    if DOUBLE in found:
        compute = DOUBLE if found == {DOUBLE} else None
    else:
        compute = INT if found == {INT} else SINGLE
    row = KERNELS.get((kernel, compute)) if compute else None
    if row is None or row.wide:
        return None
    return json.dumps([kernel, list(range(len(node.inputs))), attrs_of(row, node), compute])


def number_step(word: int) -> str:
    """A constant by the bits of the compute dtype."""
    return json.dumps([NUMBER, [], {"word": word}, ""])


def has_kernel_of_halves(kernel: str, dtypes: Sequence[str]) -> bool:
    """Whether a node computes with halves as they are, more of them at a time than a formula of singles."""
    return set(dtypes) == {HALF} and (kernel, HALF) in KERNELS
