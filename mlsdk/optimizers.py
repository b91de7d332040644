"""Optimizers that become part of a compiled training step.

They are torch optimizers with torch's signatures, `state_dict` and numbers, with two differences: their state exists from
the start, so that it can be named and registered before the first step, and the learning rate is a tensor on the device
once it is registered, so that a scheduler on the host reaches the compiled program. So is the momentum (Adam: beta1) of a
group whose scheduler changes it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch

from mlsdk.errors import ContextError, TraceError, TraceWarning
from mlsdk.naming import get_tensor_name

if TYPE_CHECKING:
    from mlsdk.context import Context

__all__ = ["MNCoreAdam", "MNCoreAdamW", "MNCoreLRScheduler", "MNCoreOptimizer", "MNCoreSGD", "state_tensors"]

Group = dict[str, Any]
State = dict[str, Any]
Rate = float | torch.Tensor

# What a program has of a group as it was when it was compiled.
_CONSTANT = ("momentum", "dampening", "nesterov", "betas", "eps", "weight_decay", "amsgrad", "maximize")


# --- the updates, as torch does them for single tensors ---


def sgd_state(group: Group) -> tuple[str, ...]:
    if not group["momentum"]:
        return ()
    # torch's first step takes the gradient without dampening, so the program has to know which one is the first
    return ("momentum_buffer", "step") if group["dampening"] else ("momentum_buffer",)


def sgd(parameter: torch.Tensor, state: State, group: Group, rate: Rate) -> None:
    """p -= rate * (momentum * buffer + gradient), torch.optim.SGD."""
    gradient = _gradient(parameter, group)
    if group["weight_decay"]:
        gradient = gradient.add(parameter, alpha=group["weight_decay"])
    momentum, dampening = group["momentum"], group["dampening"]
    if isinstance(momentum, torch.Tensor) or momentum:
        buffer = state["momentum_buffer"]
        if dampening:
            part = torch.where(state["step"] > 0, 1.0 - dampening, 1.0)
            state["step"].add_(1)
            buffer.mul_(momentum).add_(gradient * part)
        else:
            buffer.mul_(momentum).add_(gradient)
        gradient = gradient + buffer * momentum if group["nesterov"] else buffer
    _descend(parameter, gradient, rate)


def adam_state(group: Group) -> tuple[str, ...]:
    return (
        ("step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq") if group["amsgrad"] else ("step", "exp_avg", "exp_avg_sq")
    )


def adam(parameter: torch.Tensor, state: State, group: Group, rate: Rate) -> None:
    """p -= rate * mean / (1 - beta1^t) / (sqrt(square / (1 - beta2^t)) + eps), torch.optim.Adam."""
    gradient = _gradient(parameter, group)
    if group["weight_decay"]:
        gradient = gradient.add(parameter, alpha=group["weight_decay"])
    _adam(parameter, gradient, state, group, rate)


def adamw(parameter: torch.Tensor, state: State, group: Group, rate: Rate) -> None:
    """The same after p *= 1 - rate * weight_decay, torch.optim.AdamW."""
    if group["weight_decay"]:
        parameter.mul_(1 - rate * group["weight_decay"])
    _adam(parameter, _gradient(parameter, group), state, group, rate)


def _adam(parameter: torch.Tensor, gradient: torch.Tensor, state: State, group: Group, rate: Rate) -> None:
    beta1, beta2 = group["betas"]
    step, mean, square = state["step"], state["exp_avg"], state["exp_avg_sq"]
    step.add_(1)
    mean.lerp_(gradient, 1 - beta1)
    square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    size = rate / (1 - torch.pow(beta1, step))
    correction = (1 - torch.pow(beta2, step)).sqrt()
    if group["amsgrad"]:
        square = torch.maximum(state["max_exp_avg_sq"], square)
        state["max_exp_avg_sq"].copy_(square)
    if group.get("chainer_use_torch", True):
        denominator = (square.sqrt() / correction).add(group["eps"])
    else:  # Chainer adds eps before the correction
        denominator = square.sqrt().add(group["eps"]) / correction
    parameter.sub_(size * (mean / denominator))


def _gradient(parameter: torch.Tensor, group: Group) -> torch.Tensor:
    assert parameter.grad is not None
    return -parameter.grad if group["maximize"] else parameter.grad


def _descend(parameter: torch.Tensor, direction: torch.Tensor, rate: Rate) -> None:
    if isinstance(rate, torch.Tensor):
        parameter.sub_(direction * rate)
    else:
        parameter.add_(direction, alpha=-rate)


Update = Callable[[torch.Tensor, State, Group, Rate], None]

# Optimizer -> its update, and the names of its state for the settings of a group.
_RULES: dict[type[torch.optim.Optimizer], tuple[Update, Callable[[Group], tuple[str, ...]]]] = {
    torch.optim.SGD: (sgd, sgd_state),
    torch.optim.Adam: (adam, adam_state),
    torch.optim.AdamW: (adamw, adam_state),
}


# --- optimizers ---


class MNCoreOptimizer(torch.optim.Optimizer):
    """Base of the optimizers here, for hints; usable wherever a torch optimizer is."""

    # For torch's schedulers, which warn when step() was not called: a compiled step does not call it.
    _opt_called = True

    _update: Update
    _state_names: Callable[[Group], tuple[str, ...]]

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        self._rates: list[torch.Tensor] = []  # the learning rate of each group, as the device has it
        self._momenta: list[torch.Tensor] = []  # and its momentum
        self._compiled: dict[int, Group] = {}  # what the programs have of each group
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        self._rates.append(torch.tensor(float(group["lr"])))
        self._momenta.append(torch.tensor(_momentum(group)))
        for parameter in group["params"]:
            make_state(self.state[parameter], parameter, type(self)._state_names(group))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step for all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for index, group in enumerate(self.param_groups):
            group = self._settings(index, group)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    type(self)._update(parameter, self.state[parameter], group, group["lr"])
        return loss

    def _settings(self, index: int, group: Group) -> Group:
        """In a compiled step rates and momenta are inputs, if they are registered; on the host they are numbers."""
        rate, momentum = self._rates[index], self._momenta[index]
        if not torch.compiler.is_compiling() or get_tensor_name(rate) is None:
            return group
        self._compiled[index] = {key: group[key] for key in _CONSTANT if key in group and not _cycles(group, key)}
        live = {**group, "lr": rate}
        for key in filter(lambda key: _cycles(group, key), _CONSTANT):
            live[key] = (momentum, group[key][1]) if key == "betas" else momentum
        return live

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As for torch; but the tensors of the state stay the same objects, because they may be registered."""
        own = {parameter: dict(entries) for parameter, entries in self.state.items()}
        super().load_state_dict(state_dict)
        with torch.no_grad():
            for parameter, entries in own.items():
                loaded = self.state[parameter]
                for key, tensor in entries.items():
                    given = loaded.get(key)
                    if given is None:
                        tensor.zero_()
                    else:
                        tensor.copy_(torch.as_tensor(given))
                    loaded[key] = tensor

    def _send_learning_rates(self, context: Context) -> None:
        """Bring rates and momenta that were changed on the host to the device. Warns of other changes."""
        for index, group in enumerate(self.param_groups):
            for tensor, number in ((self._rates[index], float(group["lr"])), (self._momenta[index], _momentum(group))):
                entry = context.registry.find(tensor)
                if entry is None:
                    continue
                if tensor.item() != torch.tensor(number).item():
                    tensor.fill_(number)
                entry.refresh()
            self._warn_of_changes(index, group)

    def _warn_of_changes(self, index: int, group: Group) -> None:
        compiled = self._compiled.get(index, {})
        for key in [key for key, value in compiled.items() if group[key] != value]:
            warnings.warn(
                f"{type(self).__name__}: {key} of parameter group {index} is {group[key]} now, and {compiled.pop(key)} in "
                "the programs compiled before: compile again, or make the scheduler that changes it before compiling",
                TraceWarning,
                stacklevel=2,
            )


class MNCoreSGD(MNCoreOptimizer):
    """torch.optim.SGD for compiled training steps.

    The arguments are torch's, in torch's order: rate `lr`, `momentum`, `dampening` of the gradient in the momentum,
    `weight_decay`, `nesterov`, `maximize`. Raises ValueError for values out of range.
    """

    _update, _state_names = staticmethod(sgd), staticmethod(sgd_state)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        _check(lr=lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = dict(
            lr=lr,
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            nesterov=nesterov,
            maximize=maximize,
        )
        super().__init__(params, {**defaults, **_UNUSED})


class MNCoreAdam(MNCoreOptimizer):
    """torch.optim.Adam for compiled training steps.

    The arguments are torch's: rate `lr`, `betas`, `eps`, `weight_decay` (added to the gradient), `amsgrad`, `maximize`.
    `chainer_use_torch=False` adds `eps` before the bias correction, as Chainer does. Raises ValueError for values out of
    range.
    """

    _update, _state_names = staticmethod(adam), staticmethod(adam_state)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        chainer_use_torch: bool = True,
    ) -> None:
        super().__init__(params, _adam_defaults(lr, betas, eps, weight_decay, amsgrad, maximize, chainer_use_torch))


class MNCoreAdamW(MNCoreOptimizer):
    """torch.optim.AdamW for compiled training steps: Adam with a weight decay of its own. The last bits differ from
    torch's, since the bias corrections are computed in single precision on the device.

    The arguments are torch's: `lr`, `betas`, `eps`, `weight_decay`, `amsgrad`, `maximize`. Raises ValueError for values
    out of range.
    """

    _update, _state_names = staticmethod(adamw), staticmethod(adam_state)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, _adam_defaults(lr, betas, eps, weight_decay, amsgrad, maximize, True))


_RULES.update({kind: (kind._update, kind._state_names) for kind in (MNCoreSGD, MNCoreAdam, MNCoreAdamW)})

# What torch's own optimizers have in their groups besides, so that state_dicts fit both ways.
_UNUSED = {"foreach": None, "differentiable": False, "fused": None}


def _adam_defaults(
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    amsgrad: bool,
    maximize: bool,
    torch_eps: bool,
) -> dict[str, Any]:
    _check(lr=lr, eps=eps, weight_decay=weight_decay)
    for number, beta in enumerate(betas):
        if not 0 <= beta < 1:
            raise ValueError(f"Invalid beta parameter at index {number}: {beta}")
    defaults = dict(lr=lr, betas=tuple(betas), eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize)
    return {**defaults, "chainer_use_torch": torch_eps, "capturable": False, **_UNUSED}


def _check(**values: float) -> None:
    for name, value in values.items():
        if not value >= 0:
            raise ValueError(f"Invalid {name} value: {value}")


# --- state ---


def _momentum(group: Group) -> float:
    return float(group["betas"][0] if "betas" in group else group.get("momentum", 0))


def _cycles(group: Group, key: str) -> bool:
    """Whether a scheduler changes this setting: OneCycleLR and CyclicLR leave their bounds in the group."""
    return "max_momentum" in group and key in group and key in ("momentum", "betas")


def make_state(state: State, parameter: torch.Tensor, names: Sequence[str]) -> None:
    """Zeros for the entries that are not there yet."""
    for name in names:
        if not isinstance(state.get(name), torch.Tensor):
            state[name] = torch.zeros(()) if name == "step" else torch.zeros_like(parameter, requires_grad=False)


def state_tensors(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    """Path and tensor of an optimizer's state: `<parameter>@<entry>`; for ours `<group>@learning_rate` and `..@momentum`.

    Raises ContextError when it is not an optimizer, or its state cannot be known before its first step.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ContextError(f"an optimizer is wanted, not {type(optimizer).__name__}")
    rule = _RULES.get(type(optimizer))
    number = 0
    for index, group in enumerate(optimizer.param_groups):
        for parameter in group["params"]:
            state = optimizer.state[parameter]
            if rule is not None:
                make_state(state, parameter, rule[1](group))
            elif not state:
                kinds = ", ".join(kind.__name__ for kind in _RULES)
                raise ContextError(
                    f"{type(optimizer).__name__} makes its state in its first step, so it cannot be registered before; "
                    f"use one of {kinds}"
                )
            label = get_tensor_name(parameter) or str(number)
            number += 1
            for key, tensor in state.items():
                if isinstance(tensor, torch.Tensor):
                    yield f"{label}@{key}", tensor
        if isinstance(optimizer, MNCoreOptimizer):
            yield f"{index}@learning_rate", optimizer._rates[index]
            yield f"{index}@momentum", optimizer._momenta[index]


class MNCoreLRScheduler:
    """A torch learning rate scheduler whose steps reach the device.

    Registered MNCore optimizers take the rate of their groups over at each call anyway; this class also begins the
    transfer at once. Attributes are those of the torch scheduler.
    """

    def __init__(self, torch_lr_scheduler: Any, context: Context) -> None:
        self.torch_lr_scheduler = torch_lr_scheduler
        self._context = context

    def step(self, *args: Any, **kwargs: Any) -> None:
        """One step of the torch scheduler, and the new rates to the device."""
        self.torch_lr_scheduler.step(*args, **kwargs)
        optimizer = self.torch_lr_scheduler.optimizer
        if isinstance(optimizer, MNCoreOptimizer):
            self._context._check()
            optimizer._send_learning_rates(self._context)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.torch_lr_scheduler, name)


# --- training by the older exporter's interface ---


def with_backward(
    context: Context,
    function: Callable[..., Mapping[str, torch.Tensor]],
    sample: Mapping[str, Any],
    optimizers: Sequence[torch.optim.Optimizer],
) -> tuple[Callable[..., Mapping[str, torch.Tensor]], dict[str, Any], dict[str, Callable[[], torch.Tensor]]]:
    """A function that returns a loss -> one that also makes the backward pass and the optimizers' step.

    Inputs that it has besides, and what they are when a call does not give them: for each group of parameters
    `<optimizer>@<group>@mncore_learning_rate` and `..@mncore_global_step`, and `mncore_grad_scale_factor`.
    """
    rates: dict[str, tuple[int, int]] = {}
    extra: dict[str, Callable[[], torch.Tensor]] = {"mncore_grad_scale_factor": lambda: torch.tensor(1.0)}
    for which, optimizer in enumerate(optimizers):
        if type(optimizer) not in _RULES:
            kinds = ", ".join(kind.__name__ for kind in _RULES)
            raise ContextError(f"optimizers: {type(optimizer).__name__} is not supported; use one of {kinds}")
        names = [name for name, one in context.registry.optimizers.items() if one is optimizer]
        name = names[0] if names else f"optimizer{which}"
        for index, group in enumerate(optimizer.param_groups):
            rates[f"{name}@{index}@mncore_learning_rate"] = which, index
            extra[f"{name}@{index}@mncore_learning_rate"] = _rate_of(group)
            extra[f"{name}@{index}@mncore_global_step"] = lambda: torch.tensor(0)

    def training_step(inputs: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        result = function({key: value for key, value in inputs.items() if key not in extra})
        if not isinstance(result, Mapping):
            return result  # the tracer says what is wrong with it
        for optimizer in optimizers:
            optimizer.zero_grad()
        # the gradients' scale cancels: it is one of losses in half precision, which ours are not
        loss = cast(torch.Tensor, sum(value.sum() for value in result.values()))
        if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
            raise TraceError(
                "the option optimizers needs a loss that depends on a parameter with requires_grad, and what the function "
                f"returns ({', '.join(map(str, result)) or 'nothing'}) does not: is it detached, or under torch.no_grad()?"
            )
        loss.backward()
        with torch.no_grad():
            for key, (which, index) in rates.items():
                optimizer = optimizers[which]
                update, _ = _RULES[type(optimizer)]
                group = optimizer.param_groups[index]
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        update(parameter, optimizer.state[parameter], group, inputs[key])
        return result

    training_step.__name__ = getattr(function, "__name__", "training_step")
    return training_step, {**sample, **{key: make() for key, make in extra.items()}}, extra


def _rate_of(group: Group) -> Callable[[], torch.Tensor]:
    return lambda: torch.tensor(float(group["lr"]))
