"""Gradients of operators that torch can take apart."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mlsdk.pipeline.trace.decompositions.table import Decomposition, aten, decomposes, gradients


def _forward(func: Any) -> Decomposition:
    """The decomposition of a forward operator; torch's table is read late, as it takes long to make."""

    def call(*args: Any) -> Any:
        from torch._decomp import decomposition_table

        return decomposition_table[func](*args)

    return call


@decomposes(aten.grid_sampler_2d_backward.default)
def _grid_sampler_backward(
    grad: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool, mask: Any
) -> Any:
    forward = _forward(aten.grid_sampler_2d.default)
    found = gradients(lambda a, b: forward(a, b, mode, padding, corners), [x, grid], grad)
    return tuple(gradient if wanted else None for gradient, wanted in zip(found, mask))


@decomposes(aten._weight_norm_interface_backward.default)
def _weight_norm_backward(grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> tuple[Tensor, ...]:
    def normed(direction: Tensor, length: Tensor) -> Tensor:
        axes = [axis for axis in range(v.ndim) if axis != dim % v.ndim]
        return direction * (length / torch.linalg.vector_norm(direction, 2, axes, keepdim=True))

    return gradients(normed, [v, g], grad)


@decomposes(aten._cdist_backward.default)
def _cdist_backward(grad: Tensor, a: Tensor, b: Tensor, p: float, distances: Tensor) -> Tensor:
    """By the first operand; autograd asks again for the other."""
    return gradients(lambda x: torch.linalg.vector_norm(x[..., :, None, :] - b[..., None, :, :], p, -1), [a], grad)[0]


@decomposes(aten._pdist_backward.default)
def _pdist_backward(grad: Tensor, x: Tensor, p: float, distances: Tensor) -> Tensor:
    first, second = torch.triu_indices(len(x), len(x), 1).unbind()
    return gradients(lambda a: torch.linalg.vector_norm(a[first] - a[second], p, -1), [x], grad)[0]
