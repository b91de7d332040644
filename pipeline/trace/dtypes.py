"""torch dtypes and the dtypes of a Graph."""

from __future__ import annotations

from collections.abc import Mapping

import torch

DTYPE_OF_TORCH: Mapping[torch.dtype, str] = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.float16: "float16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.uint8: "uint8",
    torch.bool: "bool",
}
TORCH_OF_DTYPE: Mapping[str, torch.dtype] = {dtype: kind for kind, dtype in DTYPE_OF_TORCH.items()}
