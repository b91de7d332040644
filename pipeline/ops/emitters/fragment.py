"""What an emitter is asked, and what it gives."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ops.emitters.home import settled, written
from mlsdk.pipeline.ops.emitters.on_chip import dram_only, extents
from mlsdk.pipeline.ops.emitters.transfer import Tensor

KEPT = 8  # places of a fragment's operands in LM


@dataclass(frozen=True)
class Call:
    """One node with its operands in DRAM under the symbols in0, in1, .., out0, .., or in LM."""

    node: Node
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    kernel: str = ""
    batches: int = 1  # products: local batches, each with weights of its own


@dataclass(frozen=True)
class Fragment:
    """The instructions of one node, position independent: DRAM operands name a symbol, operands that live in LM have a place
    behind its end (`home.py`). `constants` are data that the instructions need in DRAM (symbol -> uint64[4][n], or uint64[n]
    for the same in each group)."""

    statements: tuple[m.Statement, ...]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)

    @cached_property
    def written(self) -> Mapping[tuple[str, int], int]:
        """(LM, place) -> the LW that the instructions write there, a bit each; place 0 is scratch."""
        return written(self.statements)

    def settled(self, words: Mapping[int, int]) -> tuple[m.Statement, ...]:
        """The instructions with operands at their true places in LM: operand -> word. The last ones are kept: plans that are
        compared differ in few nodes, and who asks for the same gets the same statements."""
        if not words:
            return self.statements
        key = tuple(sorted(words.items()))
        found = self._settled.get(key)
        if found is None:
            if len(self._settled) >= KEPT:
                self._settled.pop(next(iter(self._settled)))
            found = self._settled[key] = tuple(settled(self.statements, words))
        return found

    @cached_property
    def _settled(self) -> dict[tuple[tuple[int, int], ...], tuple[m.Statement, ...]]:
        return {}

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """Of the constants."""
        return {symbol: hashlib.sha256(data.tobytes()).hexdigest() for symbol, data in self.constants.items()}

    @cached_property
    def dram_only(self) -> frozenset[str]:
        """The symbols of operands that cannot lie in PDM."""
        return dram_only(self.statements)

    @cached_property
    def extents(self) -> Mapping[str, frozenset[tuple[int, int]]]:
        """Symbol -> the LW of the operand that each of its moves takes."""
        return extents(self.statements)
