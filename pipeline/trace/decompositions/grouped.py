"""Products in groups, as mixtures of experts take them: rows `offs[g - 1]` to `offs[g]` meet the matrix of group g.

Where a group ends is known only when the program runs. So the groups lie beside each other along the contraction, with zeros
for those that an element does not belong to, and all is one product.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlsdk.pipeline.trace.decompositions.table import aten, decomposes


def _members(offs: Tensor, count: int) -> Tensor:
    """[group, place]: whether the place belongs to the group."""
    ends, places = offs[:, None], torch.arange(count, dtype=offs.dtype)
    begins = torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])
    return (places >= begins) & (places < ends)


def _spread(x: Tensor, members: Tensor) -> Tensor:
    """x [.., place] as [group, .., place], zero where the place does not belong to the group."""
    return torch.where(members.reshape(len(members), *(1,) * (x.ndim - 1), -1), x, torch.zeros_like(x))


@decomposes(aten._grouped_mm.default)
def _grouped_mm(
    a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> Tensor:
    if bias is not None:
        return NotImplemented
    if offs is None:
        y = a @ b
    elif a.ndim == 2 and b.ndim == 3:  # groups of rows
        wide = _spread(a.T, _members(offs, len(a))).flatten(0, 1).T
        y = wide @ b.flatten(0, 1)
    elif a.ndim == 2:  # groups along the contraction
        y = _spread(a, _members(offs, a.shape[1])) @ b
    else:  # groups of columns
        y = a.transpose(0, 1).flatten(1) @ _spread(b, _members(offs, b.shape[1])).flatten(0, 1)
    return y if out_dtype is None else y.to(out_dtype)


@decomposes("transformers::grouped_mm_fallback")
def _fallback(x: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    return _grouped_mm(x, weight, offs)


@decomposes("transformers::grouped_mm_fallback_backward")
def _fallback_backward(x: Tensor, weight: Tensor, offs: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    return _grouped_mm(grad, weight.transpose(1, 2), offs), _grouped_mm(x.T, grad, offs)
