"""Functions of torch that ask for the value of a tensor, written for programs: they compute the same without asking."""

from __future__ import annotations

import contextlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.optim.swa_utils import AveragedModel, get_swa_avg_fn
from torch.utils._pytree import tree_map

from mlsdk.errors import TraceError, TraceWarning
from mlsdk.pipeline.trace.frames import user_line, warn_user


def recording() -> bool:
    """Whether this thread traces: others may use torch meanwhile."""
    return torch._C._len_torch_dispatch_stack() > 0


def batch_norm(outer: Callable[..., Any], layer: _BatchNorm, x: torch.Tensor) -> torch.Tensor:
    """`momentum=None`: the running statistics are means over all calls so far."""
    if layer.momentum is not None or not layer.training or not layer.track_running_stats:
        return outer(layer, x)
    mean, variance, count = layer.running_mean, layer.running_var, layer.num_batches_tracked
    if mean is None or variance is None or count is None:
        return outer(layer, x)
    of_batch = mean.clone(), variance.clone()
    layer.momentum, (layer.running_mean, layer.running_var) = 1.0, of_batch
    try:
        y: torch.Tensor = outer(layer, x)
    finally:
        layer.momentum, layer.running_mean, layer.running_var = None, mean, variance
    with torch.no_grad():
        for statistic, new in zip((mean, variance), of_batch):
            statistic.add_((new - statistic) / count)
    return y


@torch.no_grad()
def update_parameters(outer: Callable[..., Any], average: AveragedModel, model: torch.nn.Module) -> None:
    """The first call copies the model, later ones average."""
    both: Any = (average.module, model)
    wanted = [itertools.chain(m.parameters(), m.buffers()) if average.use_buffers else m.parameters() for m in both]
    pairs = [(own.detach(), other.detach()) for own, other in zip(*wanted)]
    news = [own.clone() for own, _ in pairs]
    count = average.n_averaged
    if average.multi_avg_fn is not None:
        by_dtype: dict[torch.dtype, list[int]] = defaultdict(list)
        for place, new in enumerate(news):
            by_dtype[new.dtype].append(place)
        for places in by_dtype.values():
            average.multi_avg_fn([news[p] for p in places], [pairs[p][1] for p in places], count)
    else:
        function = average.avg_fn or get_swa_avg_fn()
        news = [function(own, other, count) for own, other in pairs]
    for (own, other), new in zip(pairs, news):
        own.copy_(torch.where(count == 0, other, new))
    if not average.use_buffers:
        for own, other in zip(average.module.buffers(), model.buffers()):
            own.detach().copy_(other.detach())
    count.add_(1)


def scale(outer: Callable[..., Any], scaler: GradScaler, outputs: Any) -> Any:
    if scaler.is_enabled():
        warn_user(
            "the GradScaler is left out: gradients are in half precision only with float_dtype half, and need no scale else",
            TraceWarning,
        )
    return outputs


def unscale(outer: Callable[..., Any], scaler: GradScaler, optimizer: torch.optim.Optimizer) -> None:
    pass


def scaled_step(
    outer: Callable[..., Any], scaler: GradScaler, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any
) -> Any:
    return optimizer.step(*args, **kwargs)


def update_scale(outer: Callable[..., Any], scaler: GradScaler, new_scale: Any = None) -> None:
    pass


def schedule(outer: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any) -> None:
    raise TraceError(
        f"{type(scheduler).__name__}.step() at {user_line()} is called in the function, which runs once, when it is compiled; "
        "call it outside, after each call of the compiled function: the rate of a registered optimizer is an input of the "
        "program"
    )


def branches(
    outer: Callable[..., Any], condition: Any, yes: Callable[..., Any], no: Callable[..., Any], operands: Any = ()
) -> Any:
    """Both branches, which may not write into anything, are computed."""
    if not isinstance(condition, torch.Tensor):
        return (yes if condition else no)(*operands)
    return tree_map(partial(torch.where, condition.reshape(())), yes(*operands), no(*operands))


STAND_INS: dict[tuple[Any, str], Callable[..., Any]] = {
    (torch, "cond"): branches,
    (_BatchNorm, "forward"): batch_norm,
    (AveragedModel, "update_parameters"): update_parameters,
    (GradScaler, "scale"): scale,
    (GradScaler, "unscale_"): unscale,
    (GradScaler, "step"): scaled_step,
    (GradScaler, "update"): update_scale,
    (LRScheduler, "step"): schedule,
    (ReduceLROnPlateau, "step"): schedule,
}


@contextlib.contextmanager
def standing_in() -> Iterator[None]:
    """Put the stand-ins in the place of torch's functions, where a thread traces."""
    outer = {(owner, name): vars(owner)[name] for owner, name in STAND_INS}
    try:
        for (owner, name), function in STAND_INS.items():
            setattr(owner, name, _where_recorded(outer[owner, name], function))
        yield
    finally:
        for (owner, name), function in outer.items():
            setattr(owner, name, function)


def _where_recorded(outer: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    def stand_in(self: Any, *args: Any, **kwargs: Any) -> Any:
        return function(outer, self, *args, **kwargs) if recording() else outer(self, *args, **kwargs)

    return stand_in
