"""Places that a program computes: `x[:, p]`, `x[p] = y` and `x.narrow(0, p, 3)` with a tensor p of one whole number.

torch would ask for the number. Here the tensor chooses: rows are selected, and copied back where they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mlsdk.pipeline.trace.shadow import Shadow

WHOLE = (torch.int32, torch.int64)
MASKS = (torch.bool, torch.uint8)


def _computed(item: Any) -> bool:
    """Whether an index is a number that is known only when the program runs."""
    if not isinstance(item, Tensor) or item.ndim or item.dtype not in WHOLE:
        return False
    return Shadow.read is not None and Shadow.read(item) is None


def _takes(item: Any) -> int:
    """Axes that an index is for."""
    if item is None or isinstance(item, bool):
        return 0
    return item.ndim if isinstance(item, Tensor) and item.dtype in MASKS else 1


class Places:
    """An index, and the axes of its computed places in their order; in `items` they are 0."""

    def __init__(self, rank: int, index: Sequence[Any]):
        self.items = list(index)
        self.axes: list[tuple[int, Tensor]] = []
        dots = next((i for i, item in enumerate(index) if item is Ellipsis), len(index))
        axis = 0
        for i, item in enumerate(index):
            if i == dots:
                axis = rank - sum(map(_takes, index[dots + 1 :]))
                continue
            if _computed(item):
                self.axes.append((axis, item.reshape(1).long()))
                self.items[i] = 0
            axis += _takes(item)

    def read(self, x: Tensor) -> Tensor:
        for axis, place in self.axes:
            x = x.index_select(axis, place)
        return x[tuple(self.items)]

    def write(self, x: Tensor, value: Any) -> None:
        parts = [x]
        for axis, place in self.axes:
            parts.append(parts[-1].index_select(axis, place))
        parts[-1][tuple(self.items)] = value
        for (axis, place), whole, part in reversed([*zip(self.axes, parts, parts[1:])]):
            whole.index_copy_(axis, place, part)


def at_places(func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """(result,) of a function of computed places, () of another one."""
    if func in (Tensor.__getitem__, Tensor.__setitem__):
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        if not any(map(_computed, index)):
            return ()
        places = Places(args[0].ndim, index)
        if func is Tensor.__getitem__:
            return (places.read(args[0]),)
        places.write(args[0], args[2])
        return (None,)
    if func in (Tensor.narrow, torch.narrow) and len(args) == 4 and not kwargs and _computed(args[2]):
        x, axis, start, length = args
        return (x.index_select(axis, start.long() + torch.arange(length)),)
    return ()
