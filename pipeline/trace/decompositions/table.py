"""The table aten operator -> a function of smaller ones, and gradients of such functions.

Each function has the arguments of its aten operator. It runs on Shadows, on every dtype that the operator has, and returns
NotImplemented for a form that is refused. Backward operators are the gradient of the forward one, by autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mlsdk.pipeline.trace.registry import Row as Decomposition
from mlsdk.pipeline.trace.registry import registering

aten = torch.ops.aten

DECOMPOSITIONS: dict[Any, Decomposition] = {}


#: registers a function as the decomposition of each of the operators; those of other libraries go by their names
decomposes = registering(DECOMPOSITIONS)


def gradients(function: Callable[..., Tensor], operands: Sequence[Tensor], grad: Tensor) -> tuple[Tensor, ...]:
    """The gradients of `function(*operands)` by each of its operands."""
    with torch.enable_grad():
        leaves = [operand.detach().requires_grad_() for operand in operands]
        return torch.autograd.grad(function(*leaves), leaves, grad)
