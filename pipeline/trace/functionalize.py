"""Functionalization: a tape with writes -> a tape without, and what was written.

    before: t = select(x, 0, 1); add_(t, 1); y = sum(x)       (x is written through a view)
    after:  t = select(x, 0, 1); a = add(t, 1); x' = select_scatter(x, a, 0, 1); y = sum(x')

The tape is replayed once under torch's own functionalization, which knows every view.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from mlsdk.pipeline.trace.recorder import LITERAL, Record, Recorder, Tape, map_tensors, tensors
from mlsdk.pipeline.trace.shadow import Shadow, shadow_like
from mlsdk.pipeline.trace.shapes import IN_PLACE


def functionalize(
    tape: Tape, sources: Sequence[Shadow], wanted: Sequence[Shadow]
) -> tuple[Recorder, list[Shadow], list[Shadow], list[Shadow | None]]:
    """Replay `tape`, which reads the free tensors `sources` and computes the tensors `wanted`.

    Returns the recorder of the replay, the Shadows that stand for `sources` and for `wanted` in it, and for each of the
    sources its content at the end, or None when it was not written.
    """
    recorder = Recorder(origin=("", ""))
    fresh = [_fresh(source) for source in sources]
    # literals come first: making a Shadow while functionalization is on would make a functional one
    literals = [record for record in tape.records if record.func == LITERAL]
    free = [*zip(sources, fresh), *((record.result, recorder.literal(record.args[0])) for record in literals)]
    replayed: dict[int, torch.Tensor] = {}

    def now(tensor: torch.Tensor) -> torch.Tensor:
        return replayed[id(tensor)]

    with torch.no_grad(), recorder:
        for source, shadow in free:
            replayed[id(source)] = torch._to_functional_tensor(shadow)
        torch._enable_functionalization(reapply_views=True)
        try:
            for record in tape.records:
                if record.func != LITERAL:
                    recorder.stand_for(record)
                    _replay(record, replayed, now)
            results = [_unwrapped(now(tensor)) for tensor in wanted]
            finals = [_unwrapped(now(source)) for source in sources]
        finally:
            torch._disable_functionalization()
    written = [final if final is not shadow else None for final, shadow in zip(finals, fresh)]
    return recorder, fresh, results, written


def _fresh(source: Shadow) -> Shadow:
    shadow = shadow_like(source)
    shadow.known = source.known
    return shadow


def _replay(record: Record, replayed: dict[int, torch.Tensor], now: Any) -> None:
    args = map_tensors(now, record.args)
    kwargs = {key: map_tensors(now, value) for key, value in record.kwargs.items()}
    twin = functional_twin(record.func)
    if twin is None:
        result = record.func(*args, **kwargs)
    else:
        result = args[0].copy_(twin(*args, **kwargs))
    for shadow, tensor in zip(tensors(record.result), tensors(result)):
        replayed[id(shadow)] = tensor


@cache
def functional_twin(func: Any) -> Any:
    """add_ -> add, for the elementwise operators.

    `x.copy_(add(x, y))` is the same as `x.add_(y)`, and torch's functionalization of copy_ is cheap, while that of add_
    first runs the slow Python meta function.
    """
    if func not in IN_PLACE:
        return None
    packet = getattr(torch.ops.aten, func._schema.name.removeprefix("aten::").removesuffix("_"))
    twin = getattr(packet, func._overloadname, None)
    same = twin is not None and _argument_types(twin) == _argument_types(func)
    return twin if same else None


def _argument_types(func: Any) -> list[str]:
    return [str(argument.type) for argument in func._schema.arguments]


def _unwrapped(tensor: torch.Tensor) -> Shadow:
    if not torch._is_functional_tensor(tensor):
        return tensor  # type: ignore[return-value]
    torch._sync(tensor)
    return torch._from_functional_tensor(tensor)  # type: ignore[return-value]
