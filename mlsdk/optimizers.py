"""Optimizers that become part of a compiled training step.

They are torch optimizers with torch's signatures, `state_dict` and numbers, whose state exists from the start, so that it can
be named and registered before the first step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from mlsdk.errors import ContextError
from mlsdk.live_settings import live_settings, step_by_rule
from mlsdk.naming import get_tensor_name
from mlsdk.optimizer_state import entries_of, keep_tensors, make_state, parameters_and_state, prepare, set_into
from mlsdk.updates import adam, adam_state, adamw, sgd, sgd_state

if TYPE_CHECKING:
    from mlsdk.context import Context

__all__ = ["MNCoreAdam", "MNCoreAdamW", "MNCoreLRScheduler", "MNCoreOptimizer", "MNCoreSGD", "state_tensors"]


class MNCoreOptimizer(torch.optim.Optimizer):
    """Base of the optimizers here, for hints; usable wherever a torch optimizer is.

    A class of your own derives from it, or from torch.optim.Optimizer, with a `step` like torch's: it may make its state in
    the first step, of tensors (a count of steps, too), and reads the rate of a group as `group["lr"]`.
    """

    # what our own kinds have in place of a step: how it changes a parameter, and the names of its state
    _update: Any = None
    _state_names: Any = None

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        names = type(self)._state_names
        if names is not None:
            group = self.param_groups[-1]
            for parameter in group["params"]:
                make_state(self.state[parameter], parameter, names(group))

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step for all parameters that have a gradient."""
        if type(self)._update is None:
            raise NotImplementedError(f"{type(self).__name__} has no step of its own; define step(self, closure=None)")
        return step_by_rule(self, closure)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As for torch; but the tensors of the state stay the same objects, because they may be registered."""
        own = entries_of(self)
        super().load_state_dict(state_dict)
        set_into(self, own)


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


def state_tensors(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    """Path and tensor of an optimizer's state: `<parameter>@<entry>`, and `<group>@learning_rate` and `..@momentum`.

    Raises ContextError when it is not an optimizer, or its state cannot be known before its first step.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ContextError(f"an optimizer is wanted, not {type(optimizer).__name__}")
    prepare(optimizer)
    keep_tensors(optimizer)
    for number, (parameter, state) in enumerate(parameters_and_state(optimizer)):
        label = get_tensor_name(parameter) or str(number)
        for key, tensor in state.items():
            if isinstance(tensor, torch.Tensor):
                yield f"{label}@{key}", tensor
    yield from live_settings(optimizer).tensors()


class MNCoreLRScheduler:
    """A torch learning rate scheduler whose steps reach the device.

    Registered optimizers take the rate of their groups over at each call anyway; this class also begins the transfer at
    once. Attributes are those of the torch scheduler. Raises ContextError for things that are no scheduler or no Context.
    """

    def __init__(self, torch_lr_scheduler: Any, context: Context) -> None:
        from mlsdk.context import Context

        for given, fits, wanted in (
            (torch_lr_scheduler, hasattr(torch_lr_scheduler, "optimizer"), "torch scheduler"),
            (context, isinstance(context, Context), "Context"),
        ):
            if not fits:
                raise ContextError(
                    f"MNCoreLRScheduler takes a torch scheduler and a Context, and {type(given).__name__} is no {wanted}"
                )
        self.torch_lr_scheduler = torch_lr_scheduler
        self._context = context

    def step(self, *args: Any, **kwargs: Any) -> None:
        """One step of the torch scheduler, and the new rates to the device."""
        self.torch_lr_scheduler.step(*args, **kwargs)
        optimizer = self.torch_lr_scheduler.optimizer
        if isinstance(optimizer, torch.optim.Optimizer):
            self._context._check()
            live_settings(optimizer).send(optimizer, self._context.registry.find)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.torch_lr_scheduler, name)
