"""What a scheduler may be told."""

from __future__ import annotations

from dataclasses import dataclass

from mlsdk.pipeline.ops.clock import Measure
from mlsdk.pipeline.ops.simulation import Helpers, Known
from mlsdk.pipeline.ops.watch import Watch, unwatched


@dataclass(frozen=True)
class ScheduleOptions:
    """`measure`: how steps and DRAM traffic of instructions are counted; every scheduler but always_from_dram needs it. `known`:
    costs that were counted before; `helpers`: who counts beside this process. `watch` may end the search. `sram_budget`: the part
    of each LM that may be used. `beam_*`: of the search for an order: candidates that go on, turns at most (-1: no limit), and
    turns without a better one after which it ends. `sa_steps`: rounds of annealing; `sa_chains`: how many annealings. `merge`:
    nodes overlap (pipeline/ops/overlap.py)."""

    scheduler: str = "always_from_dram"
    measure: Measure | None = None
    sram_budget: float = 1.0
    beam_width: int = 4
    beam_max_turn: int = 16
    beam_prune_limit: int = 3
    sa_steps: int = 1000
    sa_chains: int = 1
    merge: bool = False
    known: Known | None = None
    helpers: Helpers | None = None
    watch: Watch = unwatched
