"""What an emitter is asked, and what it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mlsdk.device.isa import model as m
from mlsdk.pipeline.ir.graph import Node
from mlsdk.pipeline.ops.emitters.home import written
from mlsdk.pipeline.ops.emitters.on_chip import dram_only, extents
from mlsdk.pipeline.ops.emitters.transfer import Tensor


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

    @cached_property
    def dram_only(self) -> frozenset[str]:
        """The symbols of operands that cannot lie in PDM."""
        return dram_only(self.statements)

    @cached_property
    def extents(self) -> Mapping[str, frozenset[tuple[int, int]]]:
        """Symbol -> the LW of the operand that each of its moves takes."""
        return extents(self.statements)
