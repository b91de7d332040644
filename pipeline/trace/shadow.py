"""Shadow: a tensor without data, which stands for a value of the program while a function is traced.

A Shadow looks like a CPU tensor to torch and to the user's code. Behind it lies a meta tensor (`elem`), on which torch
computes shapes, dtypes and strides. Where the content does not depend on the program's inputs it is `known`, so that
`.item()` on it, or a mask made by it, costs nothing at run time.

torch has FakeTensor for this, but that imports torch._dynamo and sympy (1.1 s in a cold process) and costs about five
times as much for each operation; all it adds are dynamic shapes and other devices.
"""

from __future__ import annotations

from typing import Any

import torch

from mlsdk.errors import TraceError

META = torch.device("meta")
CPU = torch.device("cpu")


class Shadow(torch.Tensor):
    """A traced tensor. `elem`: its meta tensor; `known`: its content, where it is known at trace time, else None."""

    elem: torch.Tensor
    known: torch.Tensor | None

    # Python subclasses go through __torch_function__ unless it is switched off; a Shadow has nothing to add there.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(
        cls, elem: torch.Tensor, known: torch.Tensor | None = None, requires_grad: bool = False
    ) -> Shadow:
        self = torch.Tensor._make_wrapper_subclass(
            cls,
            elem.size(),
            strides=elem.stride(),
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            layout=elem.layout,
            device=CPU,
            requires_grad=requires_grad,
        )
        self.elem = elem
        self.known = known
        return self

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def __repr__(self, **ignored: Any) -> str:  # type: ignore[override]
        return f"traced tensor(shape={tuple(self.elem.shape)}, dtype={self.elem.dtype})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise TraceError(
            f"a traced tensor met {func} outside of the traced function; keep nothing of what it computes "
            "beyond its return value"
        )


def shadow_like(tensor: torch.Tensor, requires_grad: bool = False) -> Shadow:
    """A fresh Shadow with the shape, strides and dtype of `tensor`, and storage of its own."""
    elem = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META)
    return Shadow(elem, None, requires_grad)
