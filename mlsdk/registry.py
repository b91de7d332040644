"""The registry of a Context: parameters, buffers, gradients and optimizer state that live on the device between calls."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from mlsdk import naming
from mlsdk.boundary import boundary
from mlsdk.errors import ContextError, InputMismatch
from mlsdk.fitting import array_of
from mlsdk.pipeline.ir.graph import type_text
from mlsdk.pipeline.trace.dtypes import ALLOWED, DTYPE_OF_TORCH
from mlsdk.runtime.buffers import Buffer
from mlsdk.runtime.iospec import IOSpec
from mlsdk.runtime.session import Session
from mlsdk.values import DeviceValue, version_of

if TYPE_CHECKING:
    from mlsdk.context import Context

# Which copy of a registered value counts.
HOST, SAME, DEVICE = "host", "same", "device"

# Where numpy does not find out within so many steps whether two views overlap, they are taken to.
OVERLAP_EFFORT = 100_000


class Entry(DeviceValue):
    """A registered tensor. It has a buffer from the first compile of a function that uses it.

    `newest`: HOST until the first transfer, SAME while both agree, DEVICE once the device's copy was changed.
    """

    def __init__(self, session: Session, name: str, tensor: torch.Tensor) -> None:
        super().__init__(session, name, DTYPE_OF_TORCH[tensor.dtype], tuple(tensor.shape), None)
        self.tensor = tensor
        self.home = naming.home_of(tensor)
        self.newest = HOST
        self.written = True  # the host's tensor has a value
        self._sent = 0  # the host tensor's version when it was sent last
        self._early: torch.Tensor | None = None  # loaded before there was a buffer

    def place(self, spec: IOSpec) -> None:
        """Give it its buffer; every function of the Context then uses this one."""
        if self.buffer is None:
            self.buffer, self.spec = self.session.allocate(spec, self.name), spec

    def send(self) -> None:
        """Begin the first transfer, if it was not made yet. Never overwrites what the device has."""
        if self._early is not None:
            source, self._early = self._early, None
            super().load(source, clone=False)
        elif self.newest == HOST:
            super().load(self.tensor, clone=False)
            self.newest = SAME
            self._sent = version_of(self.tensor)

    def overlooked(self) -> bool:
        """Whether the registered tensor was changed on the host, which the device does not see; told once."""
        version = version_of(self.tensor)
        found = self.newest != HOST and self._early is None and self._sent != version
        self._sent = version
        return found

    def keep_version(self, before: int) -> None:
        """The registered tensor was marked as changed, but it was not; `before`: its version then."""
        if self._sent == before:
            self._sent = version_of(self.tensor)

    def refresh(self) -> None:
        """Send the registered tensor again if it was changed on the host; only for values that no program changes."""
        if self.newest != HOST and self._sent != version_of(self.tensor):
            self.load(self.tensor, clone=True)

    def load(self, source: torch.Tensor, clone: bool) -> None:
        own = source is self.tensor
        self.newest = SAME if own else DEVICE
        self._sent = version_of(self.tensor)
        if self.buffer is None:
            self._early = source.detach().clone() if clone else source.detach()
        else:
            super().load(source, clone)

    def load_value(self, other: DeviceValue) -> None:
        if self.buffer is None:
            self.load(torch.from_numpy(np.array(other.read())), clone=False)
        else:
            self.newest = DEVICE
            super().load_value(other)

    def read(self) -> np.ndarray:
        if self._early is not None:
            return array_of(self._early)
        if self.newest == HOST:
            return array_of(self.tensor)
        return super().read()

    def value(self) -> torch.Tensor:
        """The present content as a tensor: the registered one itself while both agree."""
        if self.newest == HOST or (self.newest == SAME and self._sent == version_of(self.tensor)):
            return self.tensor
        return torch.from_numpy(np.array(self.read())).reshape(self.shape)

    def write_back(self) -> None:
        """Bring the device's copy into the registered tensor, if a program or another source changed it."""
        if self.newest != DEVICE:
            return
        with torch.no_grad():
            self.tensor.copy_(torch.from_numpy(np.array(self.read())).reshape(self.shape))
        if self._early is None:
            self.newest = SAME
            self._sent = version_of(self.tensor)

    def check_not_replaced(self) -> None:
        """Raise ContextError when the module that held the tensor holds another one now, or the tensor itself has
        another dtype or shape than the one that functions were compiled for."""
        dtype, shape = DTYPE_OF_TORCH.get(self.tensor.dtype, str(self.tensor.dtype)), tuple(self.tensor.shape)
        if (dtype, shape) != (self.dtype, self.shape):
            if self.buffer is not None or self.tensor.dtype not in DTYPE_OF_TORCH:
                raise ContextError(
                    f"{self.name} was {type_text(self.dtype, self.shape)} when it was registered, and is "
                    f"{type_text(dtype, shape)} now; change it before it is used, or make a new Context"
                )
            self.dtype, self.shape = dtype, shape
        module = self.home.module() if self.home else None
        if module is None or self.home is None:
            return
        now = _find(module, self.home.path)
        if now is not self.tensor:
            raise ContextError(
                f"{self.home.path} of {type(module).__name__} was replaced after it was registered as {self.name}: the "
                "device would go on with the old tensor; change it in place (copy_, load_state_dict without assign), or "
                "make a new Context and register the model again"
            )


class Private(DeviceValue):
    """State of a loaded program that is not registered in this Context: it came with the application."""

    newest = DEVICE

    def __init__(self, session: Session, name: str, dtype: str, shape: tuple[int, ...], buffer: Buffer) -> None:
        super().__init__(session, name, dtype, shape, buffer)
        self.written = True

    def send(self) -> None:
        """Nothing: it is there."""


class Registry:
    """Registered tensors of a Context, by identity and by name."""

    def __init__(self, context: Context) -> None:
        self._context = weakref.ref(context)
        self._session = context._session
        self._by_identity: dict[int, Entry] = {}
        self._by_name: dict[str, Entry] = {}
        self._by_storage: dict[int, list[Entry]] = {}  # those that may share memory
        self._whole: list[torch.Tensor] = []  # complex tensors, whose parts are registered
        self.modules: dict[str, torch.nn.Module] = {}
        self.optimizers: dict[str, torch.optim.Optimizer] = {}

    @boundary
    def register(self, name: str, module_or_optimizer: torch.nn.Module | torch.optim.Optimizer) -> None:
        """Name and register all parameters and buffers of a module, or the state of an optimizer, under a prefix.

        Tensors that have a name already keep it; those that are registered already stay registered once. Raises
        ContextError for other things, and when the prefix is taken by another module.
        """
        self._check()
        if not isinstance(name, str) or not name:
            raise ContextError(f"registry.register: {name!r:.60} is no name; give text, for example 'model'")
        if isinstance(module_or_optimizer, torch.nn.Module):
            known = self.modules.get(name)
            if known is not None and known is not module_or_optimizer:
                raise ContextError(
                    f"the name {name} is taken by another {type(known).__name__}; give each model its own"
                )
            tensors = list(naming.tensors_of_module(module_or_optimizer))
            if all(naming.get_tensor_name(tensor) is None for _, tensor in tensors):
                naming.set_tensor_name_in_module(module_or_optimizer, name)
            for path, tensor in tensors:
                if naming.get_tensor_name(tensor) is None:
                    naming.set_tensor_name(tensor, f"{name}@{path}".replace(".", "_"))
            self.modules[name] = module_or_optimizer
            for _, tensor in tensors:
                self.add(tensor)
        elif isinstance(module_or_optimizer, torch.optim.Optimizer):
            naming.set_buffer_name_in_optimizer(module_or_optimizer, name)
            self.add_optimizer(module_or_optimizer, name)
        else:
            kind = type(module_or_optimizer).__name__
            raise ContextError(f"registry.register takes a torch.nn.Module or a torch optimizer, not {kind}")

    def add_optimizer(self, optimizer: torch.optim.Optimizer, name: str = "") -> None:
        from mlsdk.optimizers import state_tensors

        for _, tensor in state_tensors(optimizer):
            self.add(tensor)
        if name or all(one is not optimizer for one in self.optimizers.values()):
            self.optimizers[name or f"optimizer{len(self.optimizers)}"] = optimizer

    def follow_optimizers(self) -> None:
        """Register what registered optimizers have got since: groups of parameters that were added."""
        from mlsdk.optimizers import state_tensors

        for optimizer in self.optimizers.values():
            for path, tensor in state_tensors(optimizer):
                if self.find(tensor) is None:
                    if naming.get_tensor_name(tensor) is None:
                        naming.name_state(optimizer, path, tensor)
                    self.add(tensor)

    @boundary
    def add(self, tensor: torch.Tensor) -> Entry:
        """Register one tensor that has a name; nothing happens when it is registered already. Raises ContextError, also
        for a tensor that shows memory of another registered one."""
        self._check()
        if not isinstance(tensor, torch.Tensor):
            raise ContextError(f"only tensors can be registered, not {type(tensor).__name__}")
        known = self._by_identity.get(id(tensor))
        if known is not None:
            return known
        name = naming.get_tensor_name(tensor)
        if is_lazy(tensor):
            raise ContextError(
                f"{name or 'a parameter'} has no shape yet; run its module once on a sample before registering it"
            )
        shape = "x".join(map(str, tensor.shape)) or "0-d"
        if name is None:
            raise ContextError(
                f"a tensor ({shape}) has no name; call set_tensor_name or set_tensor_name_in_module before registering it"
            )
        if name in self._by_name:
            raise ContextError(
                f"the name {name} is taken by another tensor of this Context; give each model a prefix of its own"
            )
        if tensor.is_complex():
            entry = self._by_identity[id(tensor)] = self._add_parts(name, tensor)
            return entry
        if tensor.dtype not in DTYPE_OF_TORCH:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise ContextError(f"{name} has dtype {kind}; allowed are {ALLOWED}")
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
            raise ContextError(f"{name} is {tensor.layout} on {tensor.device}; register dense tensors of the host")
        self._check_alone(name, tensor)
        entry = Entry(self._session, name, tensor)
        self._by_identity[id(tensor)] = self._by_name[name] = entry
        self._by_storage.setdefault(tensor.untyped_storage().data_ptr(), []).append(entry)
        return entry

    def _add_parts(self, name: str, tensor: torch.Tensor) -> Entry:
        """A complex tensor is registered as the real one over the same memory, its parts along a last axis."""
        parts = torch.view_as_real(tensor.detach().resolve_conj())
        naming.set_tensor_name(parts, name)
        self._whole.append(tensor)
        return self.add(parts)

    def _check_alone(self, name: str, tensor: torch.Tensor) -> None:
        """Raise ContextError when another registered tensor shows some of the same memory: on the device each has its own."""
        for entry in self._by_storage.get(tensor.untyped_storage().data_ptr(), ()):
            if _overlap(tensor, entry.tensor):
                raise ContextError(
                    f"{name} shares memory with {entry.name}, which is registered: on the device they would be two tensors, "
                    "and what one sees of the other would be lost; register one of them, and let the function make the other "
                    "out of it (a view, or the very same tensor for tied weights)"
                )

    # --- look up ---

    def find(self, tensor: torch.Tensor) -> Entry | None:
        return self._by_identity.get(id(tensor))

    def get(self, name: str) -> Entry | None:
        return self._by_name.get(name)

    def state(self) -> Mapping[str, torch.Tensor]:
        """Name -> tensor, in the order of registration."""
        return {entry.name: entry.tensor for entry in self._by_name.values()}

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, item: Any) -> bool:
        return (item in self._by_name) if isinstance(item, str) else (id(item) in self._by_identity)

    def _check(self) -> None:
        context = self._context()
        if context is None:
            raise ContextError("the Context of this registry is gone; keep it while you use it")
        context._check()


def bind(entry: Entry, name: str, dtype: str, shape: tuple[int, ...], function: str) -> Entry:
    """The entry, if it is what a compiled function calls `name`. Raises InputMismatch."""
    if entry.dtype != dtype or entry.shape != shape:
        raise InputMismatch(
            f"{function} was compiled with {name} as {dtype} {list(shape)}, and {entry.dtype} {list(entry.shape)} is "
            "registered under that name; register the same model, or give this one another prefix"
        )
    return entry


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one storage have an element in common."""
    try:
        return np.shares_memory(_bytes(a), _bytes(b), max_work=OVERLAP_EFFORT)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _bytes(tensor: torch.Tensor) -> np.ndarray:
    """A numpy view of the same memory."""
    tensor = tensor.detach()
    array: np.ndarray = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array


def _find(module: torch.nn.Module, path: str) -> Any:
    owner: Any = module
    *parents, last = path.split(".")
    for part in parents:
        owner = getattr(owner, part, None)
    return getattr(owner, last, None)
