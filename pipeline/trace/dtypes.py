"""torch dtypes and the dtypes of a Graph.

A bfloat16 is a float32 of the Graph, which holds it exactly. Casts round to it; what is computed from it is not rounded.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

DTYPE_OF_TORCH: Mapping[torch.dtype, str] = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.float16: "float16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.uint8: "uint8",
    torch.bool: "bool",
    torch.bfloat16: "float32",
}
TORCH_OF_DTYPE: Mapping[str, torch.dtype] = {
    dtype: kind for kind, dtype in DTYPE_OF_TORCH.items() if kind != torch.bfloat16
}
ALLOWED = ", ".join(str(kind).removeprefix("torch.") for kind in DTYPE_OF_TORCH)


def dense_array(tensor: torch.Tensor) -> np.ndarray:
    """A tensor's elements in the dtype that a Graph has for it."""
    tensor = tensor.detach()
    if tensor._is_zerotensor():  # forward-mode differentiation: zeros that have no memory
        tensor = torch.zeros(tensor.shape, dtype=tensor.dtype)
    array: np.ndarray = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).contiguous().numpy()
    return array
