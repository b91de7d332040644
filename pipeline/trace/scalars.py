"""Numbers of torch's functions that are tensors in a program: `p.add_(g, alpha=-rate)` with a rate that is an input.

torch would ask for the number. As a factor of the operand that it scales it can stay a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from mlsdk.pipeline.trace.places import at_places

# keyword -> functions, and which operand it is a factor of
_FACTORS = {
    "alpha": {
        **dict.fromkeys(("add", "add_", "sub", "sub_", "subtract", "subtract_", "_foreach_add", "_foreach_add_"), 1),
        **dict.fromkeys(("_foreach_sub", "_foreach_sub_", "rsub"), 1),
        **dict.fromkeys(("index_add", "index_add_"), 3),
        **dict.fromkeys(("addmm", "addmm_", "addmv", "addmv_", "addr", "addr_", "baddbmm", "baddbmm_"), 1),
    },
    "value": dict.fromkeys(("addcmul", "addcmul_", "addcdiv", "addcdiv_"), 1),
    "beta": dict.fromkeys(("addmm", "addmm_", "addmv", "addmv_", "addr", "addr_", "baddbmm", "baddbmm_"), 0),
}


class TensorsForNumbers(TorchFunctionMode):
    """While it is entered, the factors of functions may be tensors, and so may the numbers of an index."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        chosen = at_places(func, args, kwargs)
        if chosen:
            return chosen[0]
        for key, functions in _FACTORS.items() if kwargs else ():
            if isinstance(kwargs.get(key), torch.Tensor):
                place = functions.get(getattr(func, "__name__", ""))
                # in place the operand itself has to stay the same tensor
                if place is not None and place < len(args) and (place or not func.__name__.endswith("_")):
                    kwargs = dict(kwargs)
                    factor = kwargs.pop(key)
                    args = (*args[:place], _times(args[place], factor), *args[place + 1 :])
        if (
            len(args) == 3
            and isinstance(args[2], torch.Tensor)
            and func.__name__ in ("_foreach_lerp", "_foreach_lerp_")
        ):
            args = (*args[:2], [args[2]] * len(args[0]))
        return func(*args, **kwargs)


def _times(operand: Any, factor: torch.Tensor) -> Any:
    return [item * factor for item in operand] if isinstance(operand, (list, tuple)) else operand * factor
