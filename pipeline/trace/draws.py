"""Which random draws of a traced function are the same one: those that find torch's generator in the same state.

The state is read and never used for numbers: the program has random bits of its own. But it tells a draw that is repeated on
purpose (`torch.utils.checkpoint` computes dropout a second time, with the state of the first time put back) from a new one.
"""

from __future__ import annotations

import hashlib

import torch


class Draws:
    """The draws of one trace. `restore` gives the generators the states back that they had before."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[torch.Generator, torch.Tensor]] = {}
        self._watch(torch.default_generator)

    def _watch(self, generator: torch.Generator) -> torch.Tensor:
        state = generator.get_state()
        self._before.setdefault(id(generator), (generator, state))
        return state

    def next(self, generator: torch.Generator | None) -> bytes:
        """The mark of a draw from `generator` (None: torch's default one), which moves on as if numbers had been drawn."""
        generator = torch.default_generator if generator is None else generator
        state = self._watch(generator)
        torch.empty(1).random_(generator=generator)
        return hashlib.sha256(state.numpy().tobytes()).digest()

    def restore(self) -> None:
        for generator, state in self._before.values():
            generator.set_state(state)
