"""Learning rates and momenta of registered optimizers, as tensors that programs read: a scheduler on the host changes them
without a new compile. All other settings of an optimizer are constants of a program.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from mlsdk.errors import TraceWarning
from mlsdk.optimizer_state import RULES, rule_of
from mlsdk.pipeline.trace.frames import warn_user
from mlsdk.updates import Group

__all__ = ["LiveSettings", "live_in_a_trace", "live_settings"]

# In how torch computes a step, not in what it computes: for rates that are tensors, and without fused operators.
_FORM = {"capturable": True, "foreach": False, "fused": None}


class LiveSettings:
    """Of one optimizer. `rates`, `momenta`: for each group of parameters, as the device has them."""

    def __init__(self) -> None:
        self.name = ""  # what the tensors of its state begin with
        self.rates: list[torch.Tensor] = []
        self.momenta: list[torch.Tensor] = []
        self.compiled: dict[int, Group] = {}  # what the programs have of each group

    def follow(self, optimizer: Optimizer) -> None:
        """Make the tensors of groups that were added."""
        for group in optimizer.param_groups[len(self.rates) :]:
            exact = any(parameter.dtype == torch.float64 for parameter in group["params"])
            dtype = torch.float64 if exact else torch.float32
            self.rates.append(torch.tensor(_rate(group), dtype=dtype))
            self.momenta.append(torch.tensor(_momentum(group), dtype=dtype))

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        for index, (rate, momentum) in enumerate(zip(self.rates, self.momenta)):
            yield f"{index}@learning_rate", rate
            yield f"{index}@momentum", momentum

    def send(self, optimizer: Optimizer, entry_of: Callable[[torch.Tensor], Any]) -> None:
        """Bring rates and momenta that were changed on the host to the device. Warns of other changes."""
        for index, (group, rate, momentum) in enumerate(zip(optimizer.param_groups, self.rates, self.momenta)):
            for tensor, number in ((rate, _rate(group)), (momentum, _momentum(group))):
                entry = entry_of(tensor)
                if entry is not None:
                    if tensor.item() != tensor.new_tensor(number).item():
                        tensor.fill_(number)
                    entry.refresh()
            self._warn_of_changes(type(optimizer).__name__, index, group)

    def note(self, optimizer: Optimizer) -> None:
        """Remember what a program that is compiled now has as constants."""
        for index, group in enumerate(optimizer.param_groups):
            self.compiled[index] = {key: group[key] for key in optimizer.defaults if _is_constant(group, key)}

    def _warn_of_changes(self, kind: str, index: int, group: Group) -> None:
        compiled = self.compiled.get(index, {})
        for key in [key for key, value in compiled.items() if group.get(key) != value]:
            warnings.warn(
                f"{kind}: {key} of parameter group {index} is {group.get(key)} now, and {compiled.pop(key)} in the programs "
                "compiled before: compile again, or make the scheduler that changes it before compiling",
                TraceWarning,
                stacklevel=2,
            )


_LIVE: weakref.WeakKeyDictionary[Optimizer, LiveSettings] = weakref.WeakKeyDictionary()


def live_settings(optimizer: Optimizer) -> LiveSettings:
    """The same object each time, with tensors for every group."""
    live = _LIVE.setdefault(optimizer, LiveSettings())
    live.follow(optimizer)
    return live


@contextmanager
def live_in_a_trace(optimizers: Iterable[Optimizer], registered: Callable[[torch.Tensor], bool]) -> Iterator[None]:
    """While a function is traced, the settings of optimizers that have tensors on the device are these tensors."""
    known = {id(optimizer): optimizer for optimizer in optimizers}
    outer = [(group, dict(group)) for optimizer in known.values() for group in optimizer.param_groups]
    steps = [(vars(optimizer), vars(optimizer).get("step")) for optimizer in known.values()]

    def before_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if id(optimizer) in known:
            live_settings(optimizer).note(optimizer)
        elif not all(isinstance(group.get("lr"), torch.Tensor) for group in optimizer.param_groups):
            warn_user(
                f"{type(optimizer).__name__} is not registered, so that its rate is a constant of the program; "
                "context.registry.register('optimizer', optimizer) makes it an input",
                TraceWarning,
            )

    hook = register_optimizer_step_pre_hook(before_step)
    try:
        for optimizer in known.values():
            live = live_settings(optimizer)
            for group, rate, momentum in zip(optimizer.param_groups, live.rates, live.momenta):
                if registered(rate) and "lr" in group:
                    group["lr"] = rate
                if registered(momentum):
                    group.update({key: _cycled(group[key], momentum) for key in group if cycles(group, key)})
                group.update({key: value for key, value in _FORM.items() if key in group})
            if type(optimizer) in RULES:
                vars(optimizer)["step"] = partial(_hooked_step, optimizer)
        yield
    finally:
        hook.remove()
        for attributes, step in steps:
            attributes.pop("step", None)
            if step is not None:
                attributes["step"] = step
        for group, settings in outer:
            group.clear()
            group.update(settings)


@torch.no_grad()
def step_by_rule(optimizer: Optimizer, closure: Callable[[], Any] | None = None) -> Any:
    """One step for all parameters that have a gradient, by the optimizer's row in the table of updates."""
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    rule = rule_of(optimizer)
    assert rule is not None
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                rule[0](parameter, optimizer.state[parameter], group, group["lr"])
    return loss


_hooked_step = Optimizer.profile_hook_step(step_by_rule)


def cycles(group: Group, key: str) -> bool:
    """Whether a scheduler changes this setting: OneCycleLR and CyclicLR leave their bounds in the group."""
    return "max_momentum" in group and key in ("momentum", "betas")


def _cycled(value: Any, momentum: torch.Tensor) -> Any:
    return (momentum, *value[1:]) if isinstance(value, (tuple, list)) else momentum


def _rate(group: Group) -> float:
    return float(group.get("lr", 0))


def _momentum(group: Group) -> float:
    """What a scheduler of the momentum changes; 0 where it is no number."""
    betas = group.get("betas")
    momentum = betas[0] if isinstance(betas, (tuple, list)) and betas else group.get("momentum", 0)
    return float(momentum) if isinstance(momentum, (int, float, torch.Tensor)) else 0.0


def _is_constant(group: Group, key: str) -> bool:
    form = key in _FORM or key in ("lr", "differentiable") or cycles(group, key)
    return not form and not isinstance(group.get(key), torch.Tensor)
