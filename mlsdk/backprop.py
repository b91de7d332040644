"""Training by the older exporter's interface: the function gives a loss, and the program adds the rest of the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch

from mlsdk.errors import TraceError
from mlsdk.live_settings import step_by_rule
from mlsdk.optimizer_state import prepare, rule_of
from mlsdk.updates import Group

if TYPE_CHECKING:
    from mlsdk.context import Context

__all__ = ["with_backward"]


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
        prepare(optimizer)
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
        given = [(optimizers[which].param_groups[index], inputs[key]) for key, (which, index) in rates.items()]
        before = [group["lr"] for group, _ in given]
        try:
            for group, rate in given:
                group["lr"] = rate
            for optimizer in optimizers:
                optimizer.step() if rule_of(optimizer) is None else step_by_rule(optimizer)
        finally:
            for (group, _), rate in zip(given, before):
                group["lr"] = rate
        return result

    training_step.__name__ = getattr(function, "__name__", "training_step")
    return training_step, {**sample, **{key: make() for key, make in extra.items()}}, extra


def _rate_of(group: Group) -> Callable[[], torch.Tensor]:
    return lambda: torch.tensor(float(group["lr"]))
