"""How SGD, Adam and AdamW change a parameter and their state, in tensors: the same on the host and in a program."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["Group", "State", "Update", "adam", "adam_state", "adamw", "sgd", "sgd_state"]

Group = dict[str, Any]
State = dict[str, Any]
Update = Callable[[torch.Tensor, State, Group, float | torch.Tensor], None]


def sgd_state(group: Group) -> tuple[str, ...]:
    if not group["momentum"]:
        return ()
    # torch's first step takes the gradient without dampening, so the program has to know which one is the first
    return ("momentum_buffer", "step") if group["dampening"] else ("momentum_buffer",)


def sgd(parameter: torch.Tensor, state: State, group: Group, rate: float | torch.Tensor) -> None:
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
    if isinstance(rate, torch.Tensor):
        parameter.sub_(gradient * rate)
    else:
        parameter.add_(gradient, alpha=-rate)


def adam_state(group: Group) -> tuple[str, ...]:
    return (
        ("step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq") if group["amsgrad"] else ("step", "exp_avg", "exp_avg_sq")
    )


def adam(parameter: torch.Tensor, state: State, group: Group, rate: float | torch.Tensor) -> None:
    """p -= rate * mean / (1 - beta1^t) / (sqrt(square / (1 - beta2^t)) + eps), torch.optim.Adam."""
    gradient = _gradient(parameter, group)
    if group["weight_decay"]:
        gradient = gradient.add(parameter, alpha=group["weight_decay"])
    _adam(parameter, gradient, state, group, rate)


def adamw(parameter: torch.Tensor, state: State, group: Group, rate: float | torch.Tensor) -> None:
    """The same after p *= 1 - rate * weight_decay, torch.optim.AdamW."""
    if group["weight_decay"]:
        parameter.mul_(1 - rate * group["weight_decay"])
    _adam(parameter, _gradient(parameter, group), state, group, rate)


def _adam(
    parameter: torch.Tensor, gradient: torch.Tensor, state: State, group: Group, rate: float | torch.Tensor
) -> None:
    beta1, beta2 = group["betas"]
    step, mean, square = state["step"], state["exp_avg"], state["exp_avg_sq"]
    step.add_(1)
    mean.lerp_(gradient, 1 - beta1)
    square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    size = rate / _gone(beta1, step)
    correction = _gone(beta2, step).sqrt()
    if group["amsgrad"]:
        square = torch.maximum(state["max_exp_avg_sq"], square)
        state["max_exp_avg_sq"].copy_(square)
    if group.get("chainer_use_torch", True):
        denominator = (square.sqrt() / correction).add(group["eps"])
    else:  # Chainer adds eps before the correction
        denominator = square.sqrt().add(group["eps"]) / correction
    parameter.sub_(size * (mean / denominator))


def _gone(beta: float | torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """1 - beta^step; the difference itself would lose most digits of single precision where beta is near one."""
    if isinstance(beta, torch.Tensor):
        return -torch.expm1(step * beta.log())
    return -torch.expm1(step * math.log(beta)) if beta else torch.ones_like(step)


def _gradient(parameter: torch.Tensor, group: Group) -> torch.Tensor:
    assert parameter.grad is not None
    return -parameter.grad if group["maximize"] else parameter.grad
