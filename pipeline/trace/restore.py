"""What a traced function writes into Python objects: found after the trace, and undone.

Gradients, module attributes and optimizer state hold Shadows when the function has run. Where a registered tensor was
replaced, the new one is the tensor's next content; everything is put back as it was before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from mlsdk.errors import TraceWarning, UnregisteredTensor
from mlsdk.pipeline.trace.frames import warn_user
from mlsdk.pipeline.trace.shadow import Shadow

# Kinds of attributes that are one number; None and text are settings.
NUMBERS = (bool, int, float)


def holds_shadow(value: Any) -> bool:
    """Whether a value is a traced tensor, or a list, tuple or dict with one in it."""
    if isinstance(value, Shadow):
        return True
    if isinstance(value, (list, tuple)):
        return any(map(holds_shadow, value))
    if isinstance(value, dict):
        return any(map(holds_shadow, value.values()))
    return False


def copied(value: Any) -> Any:
    """A container that the function may change in place, as it is now."""
    if isinstance(value, list):
        return list(value)
    if type(value) is dict:
        return dict(value)
    return value


@dataclass
class Replacement:
    """A registered tensor that the function replaced by another: `new` is None when it took it away."""

    old: torch.Tensor
    new: Shadow | None


@dataclass
class Snapshot:
    """The Python state before the trace."""

    registered: Mapping[int, str]
    gradients: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = field(default_factory=dict)
    modules: dict[int, tuple[torch.nn.Module, dict[str, Any], dict[str, dict[str, Any]]]] = field(default_factory=dict)
    optimizers: dict[int, tuple[Any, dict[Any, Any], list[dict[str, Any]]]] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)  # of the tensors in the state of optimizers
    frozen: dict[int, tuple[torch.Tensor, bool]] = field(default_factory=dict)
    numbers: list[str] = field(default_factory=list)  # Python numbers of modules that the function changed

    # --- before ---

    def watch_tensor(self, tensor: torch.Tensor) -> None:
        """Remember the gradient of a leaf."""
        if tensor.is_leaf and id(tensor) not in self.gradients:
            self.gradients[id(tensor)] = (tensor, tensor.grad)
            self.frozen[id(tensor)] = (tensor, tensor.requires_grad)

    def watch_module(self, root: torch.nn.Module) -> None:
        for module in root.modules():
            if id(module) in self.modules or isinstance(module, torch.jit.ScriptModule):
                continue  # a script keeps its attributes out of Python's reach
            plain = {key: copied(value) for key, value in module.__dict__.items()}
            owned = {key: dict(module.__dict__[key]) for key in ("_parameters", "_buffers")}
            self.modules[id(module)] = (module, plain, owned)
            for parameter in module._parameters.values():
                if parameter is not None:
                    self.watch_tensor(parameter)

    def watch_optimizer(self, optimizer: Any) -> None:
        if id(optimizer) in self.optimizers:
            return
        state = {parameter: dict(entries) for parameter, entries in optimizer.state.items()}
        groups = [{key: copied(value) for key, value in group.items()} for group in optimizer.param_groups]
        self.optimizers[id(optimizer)] = (optimizer, state, groups)
        for entries in state.values():
            self.labels |= {id(value): f"{type(optimizer).__name__} state {key}" for key, value in entries.items()}

    def is_gradient(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor was the gradient of a watched one."""
        return self.owner_of(tensor) is not None

    def owner_of(self, gradient: torch.Tensor) -> torch.Tensor | None:
        """The watched tensor that had this gradient."""
        return next((owner for owner, found in self.gradients.values() if found is gradient), None)

    # --- after ---

    def restore(self) -> tuple[list[Replacement], list[str]]:
        """Put everything back. Returns the registered tensors that were replaced, and what else was written."""
        replaced: list[Replacement] = []
        lost: list[str] = []
        self._restore_leaves()
        self._restore_gradients(replaced)
        self._restore_modules(replaced, lost)
        self._restore_optimizers(replaced, lost)
        return replaced, lost

    def _note(self, old: Any, new: Any, what: str, replaced: list[Replacement], lost: list[str]) -> None:
        if not holds_shadow(new):
            return
        if isinstance(old, torch.Tensor) and id(old) in self.registered and isinstance(new, Shadow):
            replaced.append(Replacement(old, new))
        else:
            lost.append(what)

    def _restore_leaves(self) -> None:
        """A buffer that got something computed of a parameter has a history, which holds on to what was traced."""
        for tensor, required in self.frozen.values():
            if not tensor.is_leaf and not tensor._is_view():  # torch cannot take a view's history away
                tensor.detach_()
            if tensor.is_leaf and tensor.requires_grad != required:
                tensor.requires_grad_(required)

    def _restore_gradients(self, replaced: list[Replacement]) -> None:
        for tensor, before in self.gradients.values():
            after = tensor.grad if tensor.is_leaf else before
            if after is before:
                continue
            tensor.grad = None
            tensor.grad = before
            if before is not None and id(before) in self.registered:
                replaced.append(Replacement(before, after if isinstance(after, Shadow) else None))

    def _restore_modules(self, replaced: list[Replacement], lost: list[str]) -> None:
        for module, plain, owned in self.modules.values():
            kind = type(module).__name__
            for store, before in owned.items():
                now = module.__dict__[store]
                for key in list(now):
                    if now[key] is not before.get(key):
                        self._note(before.get(key), now[key], f"{kind}.{key}", replaced, lost)
                        if holds_shadow(now[key]):
                            _put_back(now, key, before)
            for key, value in list(module.__dict__.items()):
                if key in owned:
                    continue
                if holds_shadow(value):
                    if not _derived(plain.get(key)):
                        self._note(plain.get(key), value, f"{kind}.{key}", replaced, lost)
                    _put_back(module.__dict__, key, plain)
                elif isinstance(value, NUMBERS) and isinstance(plain.get(key), NUMBERS) and value != plain[key]:
                    if key != "training":
                        self.numbers.append(f"{kind}.{key} ({plain[key]} -> {value})")
                    _put_back(module.__dict__, key, plain)

    def _restore_optimizers(self, replaced: list[Replacement], lost: list[str]) -> None:
        for optimizer, state, groups in self.optimizers.values():
            kind = type(optimizer).__name__
            for parameter, entries in list(optimizer.state.items()):
                before = state.get(parameter, {})
                for key, value in entries.items():
                    if value is not before.get(key):
                        self._note(before.get(key), value, f"{kind} state {key}", replaced, lost)
                if parameter not in state:
                    del optimizer.state[parameter]
                elif isinstance(entries, dict):
                    entries.clear()
                    entries.update(before)
            for group, before_group in zip(optimizer.param_groups, groups):
                for key, value in group.items():
                    # a rate that is computed in the function counts in this step, and needs no place in the next one
                    if value is not before_group.get(key) and key != "lr":
                        self._note(before_group.get(key), value, f"{kind} {key}", replaced, lost)
                group.clear()
                group.update(before_group)
            del optimizer.param_groups[len(groups) :]


def _derived(value: Any) -> bool:
    """Whether an attribute is computed from parameters in each call, like the weights of weight_norm and pruning."""
    return isinstance(value, torch.Tensor) and not value.is_leaf


def _put_back(store: dict[str, Any], key: str, before: Mapping[str, Any]) -> None:
    if key in before:
        store[key] = before[key]
    else:
        del store[key]


def report_lost(lost: list[str], numbers: list[str]) -> None:
    """Raise for optimizer state that would be lost, warn about other attributes, and about numbers that were changed."""
    if numbers:
        warn_user(
            f"the function changes {', '.join(dict.fromkeys(numbers))}; it runs once, when it is compiled, so that this is a "
            "constant of the program: make it a buffer, registered and changed in place",
            TraceWarning,
        )
    states = [what for what in lost if " state " in what]
    if states:
        raise UnregisteredTensor(
            f"{', '.join(dict.fromkeys(states))}: made or replaced inside the function, so it would be lost between "
            "calls; name and register the optimizer's buffers first"
        )
    if lost:
        warn_user(
            f"the function assigns traced tensors to {', '.join(dict.fromkeys(lost))}; the assignment is not part of "
            "the program: return the tensor, or register it as a buffer and write it in place",
            TraceWarning,
        )
