"""From a plan to a Timeline: the program is emitted for real, and the static clock runs over it."""

from __future__ import annotations

from collections.abc import Sequence

from mlsdk.device import spec
from mlsdk.device.isa import model as m
from mlsdk.pipeline.ir.placed import Placed
from mlsdk.pipeline.ir.plan import Plan, nodes_of
from mlsdk.pipeline.ir.timeline import Flow, Row, Timeline
from mlsdk.pipeline.ops.clock import Clock
from mlsdk.pipeline.ops.link import link

#: moves kept for the trace; a longer program's trace holds its nodes only
FLOW_LIMIT = 20_000


def measure(statements: Sequence[m.Statement]) -> tuple[int, int]:
    """Steps and DRAM traffic (LW, all groups) of instructions that start when nothing is under way."""
    clock = Clock()
    return clock.run(statements), clock.dram_lw


def simulate(placed: Placed, plan: Plan) -> Timeline:
    """What each node of the plan costs. Equal, exactly, to what the board counts when it runs the program."""
    program, _ = link(placed, plan)
    ops = {name: p.node.op for name, p in nodes_of(placed, plan.steps).items()}
    marks: list[tuple[str, int, int, int, int, int, int]] = []

    def mark(node: str, now: int) -> None:
        marks.append((node, now, clock.pe_steps, clock.stall, clock.moves, clock.dram_lw, len(clock.transfers)))

    clock = Clock(mark, keep_transfers=True)
    steps = clock.run(program.statements)
    mark("", clock.now)
    rows: list[Row] = []
    flows: list[Flow] = []
    for (node, start, pe, stall, moves, dram, flow), (_, end, pe2, stall2, moves2, dram2, flow2) in zip(
        marks, marks[1:]
    ):
        rows.append(Row(node, ops[node], start, end, pe2 - pe, stall2 - stall, moves2 - moves, dram2 - dram))
        for t in clock.transfers[flow:flow2][: max(0, FLOW_LIMIT - len(flows))]:
            flows.append(Flow(node, t.mnemonic, t.symbol, t.start, t.end, t.size))
    stall_steps = steps - clock.pe_steps
    assert clock.stall <= stall_steps * spec.CYCLES_PER_STEP + spec.CYCLES_PER_STEP
    return Timeline(tuple(rows), steps, clock.pe_steps, stall_steps, clock.moves, clock.dram_lw * 8, tuple(flows))
