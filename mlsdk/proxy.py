"""TensorProxy: a tensor that lies on a device.

Its shape and dtype are known; everything else fetches it first. A proxy can stand wherever torch takes a tensor, and is
then a fresh host tensor with the device's present content.
"""

from __future__ import annotations

from collections.abc import Callable
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


class TensorProxy(torch.Tensor):
    """Handle of a tensor on a device. Programs get proxies from calls, `allocate_input_proxy` and
    `get_registered_value_proxy`.

    It is a torch.Tensor whose content is fetched by the operation that needs it, each time; results of operations are
    host tensors. Shape and dtype are known without. There is no `.device`, and nothing writes into it but `load_from`.
    """

    # Of torch's own kind because torch's C++ takes some things from tensors only, an index for instance, and reads
    # anything else as a sequence.
    _value: DeviceValue
    _owner: object
    _gpu: bool
    _bfloat16: bool

    @staticmethod
    def __new__(
        cls: type[TensorProxy], value: DeviceValue, gpu: bool = False, owner: object = None, bfloat16: bool = False
    ) -> TensorProxy:
        dtype = torch.bfloat16 if bfloat16 else TORCH_OF_DTYPE[value.dtype]
        proxy: TensorProxy = torch.Tensor._make_wrapper_subclass(cls, value.shape, dtype=dtype)
        proxy._value = value
        proxy._bfloat16 = bfloat16  # what the device has as a single
        proxy._gpu = gpu
        proxy._owner = owner  # the Context, whose device stays open as long as somebody can ask for the content
        return proxy

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    # --- device to host ---

    @boundary
    def cpu(self, memory_format: torch.memory_format = torch.preserve_format) -> torch.Tensor:
        """A fresh host tensor with the content at this moment; waits for what computes it. On `pfvm:cuda` it is a CUDA
        tensor. Raises the error of the call that should have computed it, ContextError after `invalidate`."""
        value = self._value
        # a copy: what the program does to it must not reach what later reads see
        tensor = torch.from_numpy(np.array(value.read(), order="C")).reshape(value.shape).to(self.dtype)
        return (tensor.cuda() if self._gpu else tensor).contiguous(memory_format=memory_format)

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
    def numpy(self, *, force: bool = False) -> np.ndarray:
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

    # --- everything else: as a host tensor ---

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = _name(func)
        if name in _KNOWN:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        _refuse_write(name, args[0] if args else None, kwargs.get("out"))
        return func(*_fetched(args), **{key: _fetched(value) for key, value in kwargs.items()})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Where only an index or another operand within a list is a proxy, torch asks here first."""
        kwargs = kwargs or {}
        _refuse_write(func.overloadpacket.__name__, args[0] if args else None, kwargs.get("out"))
        return func(*_fetched(args), **{key: _fetched(value) for key, value in kwargs.items()})

    def __getattr__(self, name: str) -> Any:
        if name in _REFUSED:
            raise ProxyAttributeError(f"a TensorProxy has no .{name}: {_REFUSED[name]}")
        raise AttributeError(f"TensorProxy has no attribute {name!r}, and neither has torch.Tensor")

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"TensorProxy({self._value.name}, shape={list(self._value.shape)}, dtype={self.dtype})"

    def __format__(self, spec: str) -> str:
        return format(self.cpu(), spec) if spec else str(self)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # copied, saved or sent to another process, it is the host tensor
        return self.cpu().__reduce_ex__(protocol)

    __hash__ = object.__hash__


# What is known without asking the device.
_KNOWN = frozenset(
    (*("shape", "size", "dtype", "ndim", "dim", "numel", "nelement", "stride", "storage_offset", "is_contiguous"),
     *("layout", "element_size", "itemsize", "nbytes", "is_floating_point", "is_complex", "is_signed", "is_sparse"),
     *("requires_grad", "is_leaf", "grad_fn", "__len__", "ndimension"))
)  # fmt: skip

# Attributes that a proxy does not have, and what to do instead.
_REFUSED = {
    "device": "it lies on a board, which is no torch.device; call .cpu() first",
    "grad": "gradients are registered tensors of their own; see Context.get_registered_value_proxy",
    "data_ptr": "it has no storage on the host; call .cpu() first",
    "untyped_storage": "it has no storage on the host; call .cpu() first",
    "storage": "it has no storage on the host; call .cpu() first",
}


# `p += 1` gives the name p to a host tensor; torch would take it for p.add_(1).
_AUGMENTED = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")


def _refused(name: str) -> property:
    return property(lambda self: self.__getattr__(name))


def _augmented(name: str) -> Callable[[TensorProxy, Any], Any]:
    return lambda self, other: getattr(self.cpu(), name)(_fetched(other))


for _one in _REFUSED:
    setattr(TensorProxy, _one, _refused(_one))
for _one in _AUGMENTED:
    setattr(TensorProxy, f"__i{_one}__", _augmented(f"__i{_one}__"))


def _name(func: Any) -> str:
    """The name of what is called; of an attribute's getter that of the attribute."""
    name: str = getattr(func, "__name__", str(func))
    return getattr(func.__self__, "__name__", name) if name == "__get__" else name


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
    writes = name.endswith("_") and not name.endswith("__") or name in ("__setitem__", "__set__")
    if (writes and isinstance(target, TensorProxy)) or isinstance(out, TensorProxy):
        proxy = target if isinstance(target, TensorProxy) else out
        raise InputMismatch(
            f"{name}: {proxy._value.name} is on the device and cannot be written in place; use load_from"
        )


TensorLike = Union[torch.Tensor, TensorProxy]  # noqa: UP007  isinstance and hints of older programs take this form
