"""The state of an optimizer, known before its first step, so that it can be named and registered.

For SGD, Adam and AdamW it is a list of names. Every other optimizer is asked: a copy of it makes two steps with gradients
that are zero and two with others, and what it puts into its state first is what the state is at the beginning, if that is
the same both times.
"""

from __future__ import annotations

import copy
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

import torch

from mlsdk.errors import ContextError
from mlsdk.updates import Group, State, Update, adam, adam_state, adamw, sgd, sgd_state

__all__ = ["RULES", "keep_tensors", "make_state", "prepare", "rule_of", "set_into"]

# Optimizer -> its update, and the names of its state for the settings of a group.
RULES: dict[type[torch.optim.Optimizer], tuple[Update, Callable[[Group], tuple[str, ...]]]] = {
    torch.optim.SGD: (sgd, sgd_state),
    torch.optim.Adam: (adam, adam_state),
    torch.optim.AdamW: (adamw, adam_state),
}


def rule_of(optimizer: torch.optim.Optimizer) -> tuple[Update, Callable[[Group], tuple[str, ...]]] | None:
    """Its update and the names of its state; None where only its own `step` knows them."""
    kind = type(optimizer)
    update, names = getattr(kind, "_update", None), getattr(kind, "_state_names", None)
    return (update, names) if update is not None and names is not None else RULES.get(kind)


def make_state(state: State, parameter: torch.Tensor, names: Sequence[str]) -> None:
    """Zeros for the entries that are not there yet."""
    for name in names:
        if not isinstance(state.get(name), torch.Tensor):
            state[name] = torch.zeros(()) if name == "step" else torch.zeros_like(parameter, requires_grad=False)


def prepare(optimizer: torch.optim.Optimizer) -> None:
    """Give every parameter the state that it has before the first step. Raises ContextError when that is not known."""
    rule = rule_of(optimizer)
    if rule is not None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                make_state(optimizer.state[parameter], parameter, rule[1](group))
        return
    parameters = _parameters(optimizer)
    if all(optimizer.state.get(parameter) for parameter in parameters):
        return
    for parameter, entries in zip(parameters, _first_entries(optimizer)):
        state = optimizer.state[parameter]
        for key, value in entries.items():
            state.setdefault(key, value)


# --- asking an optimizer ---


class _Entries(dict[str, Any]):
    """The state of one parameter, which remembers what each entry was first."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[str, Any] = {}

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self.first:
            self.first[key] = value.detach().clone() if isinstance(value, torch.Tensor) else value
        super().__setitem__(key, value)

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *others: Any, **entries: Any) -> None:
        for key, value in dict(*others, **entries).items():
            self[key] = value


class _States(defaultdict[Any, Any]):
    """The state of all parameters, in entries that remember."""

    def __init__(self) -> None:
        super().__init__(_Entries)

    def __setitem__(self, parameter: Any, entries: MutableMapping[str, Any]) -> None:
        if not isinstance(entries, _Entries):
            given, entries = entries, _Entries()
            entries.update(given)
        super().__setitem__(parameter, entries)


def _first_entries(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """For each parameter, what the optimizer puts into its state first."""
    kind = type(optimizer).__name__
    zeros, others = (_tried(optimizer, size) for size in (0.0, 1.0))
    for plain, other in zip(zeros, others):
        for key, value in plain.items():
            if isinstance(value, torch.Tensor) and not _equal(value, other.get(key)):
                raise ContextError(
                    f"{kind} makes its state {key} out of the first gradient, so that it is not known before the first "
                    "step; begin with zeros, made in __init__ or in the first step"
                )
    return zeros


def _tried(optimizer: torch.optim.Optimizer, size: float) -> list[dict[str, Any]]:
    """The first entries of a copy of the optimizer, after two steps with gradients of about `size`."""
    kind = type(optimizer).__name__
    twin = copy.deepcopy(optimizer)
    own, twin.state = twin.state, _States()
    for parameter, entries in own.items():
        twin.state[parameter] = entries
    parameters = _parameters(twin)
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, size, requires_grad=False)
    before = _numbers(twin)
    try:
        with torch.random.fork_rng():
            twin.step()
            once = [{**entries} for entries in map(twin.state.__getitem__, parameters)]
            twin.step()
    except Exception as error:
        raise ContextError(
            f"{kind} makes its state in its first step, and that fails for a copy of it with gradients of {size:g}: "
            f"{type(error).__name__}: {error}"
        ) from error
    changed = [
        key
        for first, parameter in zip(once, parameters)
        for key, value in first.items()
        if isinstance(value, (int, float)) and twin.state[parameter].get(key) != value
    ] or [key for key, value in _numbers(twin).items() if before.get(key) != value]
    if changed:
        raise ContextError(
            f"{kind} counts its steps in {changed[0]}, which is a Python number: a program would have it as it was when it "
            "was compiled. Make it a tensor in the state of the parameters (torch.zeros(()), and add_(1) in each step)"
        )
    return [twin.state[parameter].first for parameter in parameters]


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _numbers(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Python numbers of the optimizer itself and of its groups."""
    found = {f"its attribute {key}": value for key, value in vars(optimizer).items() if type(value) in (int, float)}
    for index, group in enumerate(optimizer.param_groups):
        found |= {f"{key} of group {index}": value for key, value in group.items() if type(value) in (int, float)}
    return found


def _equal(value: torch.Tensor, other: Any) -> bool:
    return isinstance(other, torch.Tensor) and value.shape == other.shape and bool((value == other).all())


# --- loading ---


def set_into(optimizer: torch.optim.Optimizer, own: dict[Any, State]) -> None:
    """After a load: what was loaded goes into the tensors that were there before, which may be registered."""
    with torch.no_grad():
        for parameter, entries in own.items():
            loaded = optimizer.state[parameter]
            for key, tensor in entries.items():
                given = loaded.get(key)
                if given is tensor or not isinstance(tensor, torch.Tensor):
                    continue
                if given is None:
                    tensor.zero_()
                else:
                    tensor.copy_(torch.as_tensor(given))
                loaded[key] = tensor


def entries_of(optimizer: torch.optim.Optimizer) -> dict[Any, State]:
    """The state, as it is now."""
    return {parameter: dict(entries) for parameter, entries in optimizer.state.items()}


_KEPT: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()


def keep_tensors(optimizer: torch.optim.Optimizer) -> None:
    """From now on `load_state_dict` fills the tensors of the state, where torch would put others in their place."""
    if optimizer in _KEPT:
        return
    _KEPT.add(optimizer)
    vars(optimizer).setdefault("_opt_called", True)  # for torch's schedulers: a compiled step does not call `step`
    before: list[dict[Any, State]] = []

    def remember(one: torch.optim.Optimizer, state_dict: Any) -> None:
        before.append(entries_of(one))

    def fill(one: torch.optim.Optimizer) -> None:
        set_into(one, before.pop())

    optimizer.register_load_state_dict_pre_hook(remember)
    optimizer.register_load_state_dict_post_hook(fill)


def parameters_and_state(optimizer: torch.optim.Optimizer) -> Iterator[tuple[torch.Tensor, State]]:
    for parameter in _parameters(optimizer):
        yield parameter, optimizer.state[parameter]
