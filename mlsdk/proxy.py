"""TensorProxy: a tensor that lies on a device.

Its shape and dtype are known; everything else fetches it first. A proxy can stand wherever torch takes a tensor, and is
then a fresh host tensor with the device's present content.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, Union

import numpy as np
import torch

from mlsdk.boundary import boundary
from mlsdk.errors import InputMismatch, MLSDKError
from mlsdk.pipeline.ir.graph import type_text
from mlsdk.pipeline.trace.dtypes import TORCH_OF_DTYPE
from mlsdk.values import DeviceValue

__all__ = ["TensorLike", "TensorProxy"]


class ProxyAttributeError(MLSDKError, AttributeError):
    """A TensorProxy has no such attribute, on purpose."""


class TensorProxy:
    """Handle of a tensor on a device. Programs get proxies from calls, `allocate_input_proxy` and
    `get_registered_value_proxy`."""

    __slots__ = ("_value", "_gpu", "_owner", "_bfloat16", "__weakref__")

    def __init__(self, value: DeviceValue, gpu: bool = False, owner: object = None, bfloat16: bool = False) -> None:
        self._value = value
        self._bfloat16 = bfloat16  # what the device has as a single
        self._gpu = gpu
        self._owner = owner  # the Context, whose device stays open as long as somebody can ask for the content

    # --- device to host ---

    @boundary
    def cpu(self) -> torch.Tensor:
        """A fresh host tensor with the content at this moment; waits for what computes it. On `pfvm:cuda` it is a CUDA
        tensor. Raises the error of the call that should have computed it, ContextError after `invalidate`."""
        value = self._value
        # a copy: what the program does to it must not reach what later reads see
        tensor = torch.from_numpy(np.array(value.read(), order="C")).reshape(value.shape).to(self.dtype)
        return tensor.cuda() if self._gpu else tensor

    @boundary
    def item(self) -> Any:
        """The Python number of a tensor with one element; InputMismatch for others."""
        value = self._value
        if self.numel() != 1:
            raise InputMismatch(
                f"{value.name} is {type_text(value.dtype, value.shape)}, and .item() gives one number; use .tolist() or .cpu()"
            )
        return self.cpu().item()

    @boundary
    def numpy(self) -> np.ndarray:
        """A fresh array with the content at this moment; float32 for bfloat16, which numpy does not know."""
        if self._bfloat16:
            return self.cpu().cpu().float().numpy()
        return np.array(self._value.read()).reshape(self._value.shape)

    def tolist(self) -> Any:
        return self.numpy().tolist()

    # --- host to device ---

    @boundary
    def load_from(self, tensor: TensorLike, clone: bool = True) -> None:
        """Begin to write `tensor` (a host tensor, or another proxy) to the device, and return at once.

        `clone=True` takes a copy first. `clone=False` keeps a reference instead: the tensor is read between now and the
        return of the next call that uses this value, and must not change until then (a change that torch sees is an
        error). Raises InputMismatch unless dtype and shape are those of this proxy.
        """
        value = self._value
        value.session.check()
        if not isinstance(clone, bool):
            raise InputMismatch(f"load_from of {value.name}: clone is {clone!r:.40}; give True or False")
        if isinstance(tensor, TensorProxy):
            value.check_type(tensor._value.dtype, tensor._value.shape)
            if tensor._value is not value:
                value.load_value(tensor._value)
            return
        if not isinstance(tensor, torch.Tensor):
            raise InputMismatch(
                f"{value.name} cannot be loaded from {type(tensor).__name__}; give a torch.Tensor or a TensorProxy"
            )
        value.check_source(tensor)
        value.load(tensor, clone)

    # --- what is known without asking the device ---

    @property
    def shape(self) -> torch.Size:
        return torch.Size(self._value.shape)

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self._bfloat16 else TORCH_OF_DTYPE[self._value.dtype]

    @property
    def ndim(self) -> int:
        return len(self._value.shape)

    @property
    def requires_grad(self) -> bool:
        return False

    def dim(self) -> int:
        return len(self._value.shape)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        return self.shape.numel()

    def __len__(self) -> int:
        if not self._value.shape:
            raise TypeError("len() of a 0-d tensor")
        return self._value.shape[0]

    def __repr__(self) -> str:
        return f"TensorProxy({self._value.name}, shape={list(self._value.shape)}, dtype={self.dtype})"

    # --- everything else: as a host tensor ---

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", str(func))
        _refuse_write(name, args[0] if args else None, kwargs.get("out"))
        return func(*_fetched(args), **{key: _fetched(value) for key, value in kwargs.items()})

    def __getattr__(self, name: str) -> Any:
        if name in _REFUSED:
            raise ProxyAttributeError(f"a TensorProxy has no .{name}: {_REFUSED[name]}")
        if name.startswith("__"):
            raise AttributeError(f"TensorProxy has no attribute {name!r}")
        if not hasattr(torch.Tensor, name):
            raise AttributeError(f"TensorProxy has no attribute {name!r}, and neither has torch.Tensor")
        _refuse_write(name, self, None)
        found = getattr(self.cpu(), name)
        if not callable(found):
            return found

        def method(*args: Any, **kwargs: Any) -> Any:
            return found(*_fetched(args), **{key: _fetched(value) for key, value in kwargs.items()})

        return method

    def __setitem__(self, index: Any, value: Any) -> None:
        raise InputMismatch(f"{self._value.name} is on the device and cannot be written in place; use load_from")

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(self.cpu())

    def __contains__(self, item: Any) -> bool:
        return _fetched(item) in self.cpu()

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __bool__(self) -> bool:
        return bool(self.cpu())

    def __float__(self) -> float:
        return float(self.cpu())

    def __int__(self) -> int:
        return int(self.cpu())

    def __index__(self) -> int:
        return operator.index(self.cpu())

    def __complex__(self) -> complex:
        return complex(self.cpu())

    def __format__(self, spec: str) -> str:
        return format(self.cpu(), spec) if spec else str(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # copied, saved or sent to another process, it is the host tensor
        return _same, (self.cpu(),)

    __hash__ = object.__hash__


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


# Attributes that a proxy does not have, and what to do instead.
_REFUSED = {
    "device": "it lies on a board, which is no torch.device; call .cpu() first",
    "grad": "gradients are registered tensors of their own; see Context.get_registered_value_proxy",
    "data_ptr": "it has no storage on the host; call .cpu() first",
    "untyped_storage": "it has no storage on the host; call .cpu() first",
    "storage": "it has no storage on the host; call .cpu() first",
}

# Operators that Python looks up in the class.
_BINARY = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"),
    *("radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rpow", "rmatmul", "rand", "ror", "rxor"),
    *("lt", "le", "gt", "ge", "eq", "ne", "getitem"),
)
_UNARY = ("neg", "pos", "abs", "invert")


def _binary(name: str) -> Callable[[TensorProxy, Any], Any]:
    def method(self: TensorProxy, other: Any) -> Any:
        return getattr(self.cpu(), name)(_fetched(other))

    method.__name__ = name
    return method


def _unary(name: str) -> Callable[[TensorProxy], Any]:
    def method(self: TensorProxy) -> Any:
        return getattr(self.cpu(), name)()

    method.__name__ = name
    return method


for _name in _BINARY:
    setattr(TensorProxy, f"__{_name}__", _binary(f"__{_name}__"))
for _name in _UNARY:
    setattr(TensorProxy, f"__{_name}__", _unary(f"__{_name}__"))


def _fetched(tree: Any) -> Any:
    """`tree` with host tensors for proxies, also inside tuples, lists, dicts and slices."""
    if isinstance(tree, TensorProxy):
        return tree.cpu()
    if type(tree) in (list, tuple):
        return type(tree)(_fetched(item) for item in tree)
    if type(tree) is dict:
        return {key: _fetched(value) for key, value in tree.items()}
    if isinstance(tree, slice):
        return slice(_fetched(tree.start), _fetched(tree.stop), _fetched(tree.step))
    return tree


def _refuse_write(name: str, target: Any, out: Any) -> None:
    """Raise InputMismatch for an operation that would write into a proxy, and be lost."""
    writes = (
        name.endswith("_") and not name.endswith("__") or name in ("__setitem__", "__iadd__", "__isub__", "__imul__")
    )
    if (writes and isinstance(target, TensorProxy)) or isinstance(out, TensorProxy):
        proxy = target if isinstance(target, TensorProxy) else out
        raise InputMismatch(
            f"{name}: {proxy._value.name} is on the device and cannot be written in place; use load_from"
        )


TensorLike = Union[torch.Tensor, TensorProxy]  # noqa: UP007  isinstance and hints of older programs take this form
