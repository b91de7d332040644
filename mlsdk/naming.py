"""Names of tensors: what a Context and a compiled program call a parameter, a buffer or a piece of optimizer state.

A name belongs to the tensor object, not to its content: copies have none, and nothing is stored in the tensor, so that
a model can be copied and saved as before.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from mlsdk.errors import ContextError

__all__ = ["get_tensor_name", "set_buffer_name_in_optimizer", "set_tensor_name", "set_tensor_name_in_module"]

LONGEST = 512


@dataclass(frozen=True)
class Home:
    """Where a module holds a tensor, to notice when another one takes its place."""

    module: weakref.ref[torch.nn.Module]
    path: str


class _Names:
    """name and home by tensor identity; entries end with their tensor."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[torch.Tensor], str, Home | None]] = {}
        self._lock = threading.Lock()

    def get(self, tensor: torch.Tensor) -> tuple[str | None, Home | None]:
        entry = self._entries.get(id(tensor))
        if entry is None or entry[0]() is not tensor:
            return None, None
        return entry[1], entry[2]

    def set(self, tensor: torch.Tensor, name: str, home: Home | None) -> None:
        number = id(tensor)

        def forget(reference: weakref.ref[torch.Tensor]) -> None:
            entry = self._entries.get(number)
            if entry is not None and entry[0] is reference:
                self._entries.pop(number, None)

        with self._lock:
            self._entries[number] = (weakref.ref(tensor, forget), name, home)


_NAMES = _Names()


def set_tensor_name(tensor: torch.Tensor, name: str) -> None:
    """Name one tensor. A later name replaces an earlier one; a Context keeps the name under which it registered.

    Raises ContextError when `tensor` is no tensor, or `name` no printable text of 1 to 512 characters.
    """
    _set(tensor, name, None)


def set_tensor_name_in_module(module: torch.nn.Module, name: str) -> None:
    """Name all parameters and buffers of a module: `<name>@<path>`, with `_` for the dots of the path.

    A tensor that the module holds twice (tied weights) is named once. Raises ContextError like `set_tensor_name`.
    """
    if not isinstance(module, torch.nn.Module):
        raise ContextError(f"set_tensor_name_in_module takes a torch.nn.Module, not {type(module).__name__}")
    for path, tensor in tensors_of_module(module):
        _set(tensor, f"{name}@{path}".replace(".", "_"), Home(weakref.ref(module), path))


def get_tensor_name(tensor: Any) -> str | None:
    """The name of a tensor, or None when it has none."""
    return _NAMES.get(tensor)[0]


def set_buffer_name_in_optimizer(optimizer: torch.optim.Optimizer, name: str) -> None:
    """Name the state of an optimizer: `<name>@<parameter group>@<parameter>@<entry>`.

    MNCore optimizers have their state from the start; that of others is made here. Raises ContextError for an optimizer
    whose state cannot be known before its first step.
    """
    from mlsdk.live_settings import live_settings
    from mlsdk.optimizers import state_tensors

    tensors = list(state_tensors(optimizer))
    live_settings(optimizer).name = name
    for path, tensor in tensors:
        name_state(optimizer, path, tensor)


def name_state(optimizer: torch.optim.Optimizer, path: str, tensor: torch.Tensor) -> None:
    """Name one tensor of an optimizer's state by the name that the optimizer has."""
    from mlsdk.live_settings import live_settings

    _set(tensor, f"{live_settings(optimizer).name}@{path}".replace(".", "_"), None)


def tensors_of_module(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Path and tensor of each parameter and buffer, each tensor once."""
    seen: set[int] = set()
    for path, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield path, tensor


def home_of(tensor: torch.Tensor) -> Home | None:
    """Where the module that gave a tensor its name holds it."""
    return _NAMES.get(tensor)[1]


def _set(tensor: Any, name: Any, home: Home | None) -> None:
    from mlsdk.proxy import TensorProxy

    if not isinstance(tensor, torch.Tensor) or isinstance(tensor, TensorProxy):
        raise ContextError(f"a name is given to a torch.Tensor, not to {type(tensor).__name__}")
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= LONGEST:
        raise ContextError(f"{name!r:.60} is no name for a tensor; give printable text of 1 to {LONGEST} characters")
    _NAMES.set(tensor, name, home)
