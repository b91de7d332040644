"""Gradients of operators that torch can take apart."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from mlsdk.pipeline.trace.decompositions.table import aten, decomposes, gradients


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


@decomposes(aten.masked_scatter_backward.default)
def _masked_scatter_backward(grad: Tensor, mask: Tensor, sizes: Any) -> Tensor:
    """By the source: its elements went to the places of the mask, one after the other."""
    mask, count = mask.expand(grad.shape).flatten(), math.prod(sizes)
    order = torch.where(mask, mask.to(torch.int64).cumsum(0) - 1, count)
    found = grad.new_zeros(count + 1).scatter_add(0, order, grad.flatten() * mask)
    return found[:count].reshape(sizes)
