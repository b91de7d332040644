"""Values in PDM: on the chip where there is room and no node forbids it, in DRAM where not, the same results in both."""

from itertools import combinations

import numpy as np
import pytest
from test_schedulers import NETS, Residual, built, ran

from mlsdk.device.isa import model as m
from mlsdk.pipeline.ir.placed import ON_HOST, VIEW
from mlsdk.pipeline.ir.plan import PDM, WORK, Plan, nodes_of
from mlsdk.pipeline.layout import LayoutOptions, plan
from mlsdk.pipeline.ops.emitters.on_chip import PDM_FIRST, PDM_SIZE, dram_only
from mlsdk.pipeline.schedule import ScheduleOptions, addresses, schedule
from mlsdk.pipeline.schedule.addresses import CHIP, DRAM, HALVES
from mlsdk.pipeline.simulate import measure, simulate

NETS = {"convolutions": (lambda: Residual(16), (1, 16, 14, 14), "mixed"), "encoder": NETS["encoder"]}


def scheduled(placed):
    return schedule(placed, ScheduleOptions("reuse_consecutive", measure))


def lying(placed, where):
    """A plan whose values lie in DRAM, in PDM, or in both."""
    the_plan = scheduled(placed)
    return Plan("", the_plan.steps, *addresses.assign(placed, the_plan.steps, where))


def test_between_convolutions_nothing_goes_to_dram():
    _, placed, _ = built("convolutions", NETS)
    dram, chip, halves = (simulate(placed, lying(placed, where)) for where in (DRAM, CHIP, HALVES))
    assert WORK in {flow.segment for flow in dram.flows}
    assert WORK not in {flow.segment for flow in chip.flows} and PDM in {flow.segment for flow in chip.flows}
    assert chip.dram_bytes < dram.dram_bytes and chip.steps <= dram.steps
    assert simulate(placed, scheduled(placed)).steps == min(chip.steps, halves.steps) <= dram.steps


def test_halves_lie_in_both_memories():
    _, placed, _ = built("encoder", NETS)
    the_plan = lying(placed, HALVES)
    assert any(slot.cut for slot in the_plan.slots.values())
    assert {WORK, PDM} <= {flow.segment for flow in simulate(placed, the_plan).flows}


@pytest.mark.parametrize("where", [CHIP, HALVES])
@pytest.mark.parametrize(("name", "grains"), [("convolutions", 1), ("encoder", 3)])
def test_no_room_on_the_chip(monkeypatch, name, grains, where):
    """Small values find a place, others go to DRAM; nobody lies where another one does."""
    graph, placed, inputs = built(name, NETS)
    want, _ = ran(graph, placed, inputs, schedule(placed))
    found = []
    for size in (PDM_SIZE, grains * addresses.GRAIN, 0):
        monkeypatch.setattr(addresses, "PDM_SIZE", size)
        the_plan = lying(placed, where)
        assert Plan.from_json(the_plan.to_json()) == the_plan
        here = {n for n, slot in the_plan.slots.items() if slot.segment == PDM}
        assert all(PDM_FIRST <= the_plan.slots[n].offset < PDM_FIRST + size for n in here)
        assert where == HALVES or not any(slot.cut for slot in the_plan.slots.values())
        results, timeline = ran(graph, placed, inputs, the_plan)
        assert all(np.array_equal(want[key].view(np.uint8), results[key].view(np.uint8)) for key in want)
        apart(placed, the_plan)
        found.append((len(here), -timeline.dram_bytes))
    assert found == sorted(found, reverse=True) and found[0] > found[1] > found[2] == (0, found[2][1])


def apart(placed, the_plan):
    """Values that are there at the same time lie apart."""
    taken = []
    for name, at in used(placed, the_plan).items():
        slot, size = the_plan.slots[name], placed.values[name].image.group_size
        if slot.segment in (PDM, WORK):
            taken.append((min(at), max(at), slot.segment, slot.offset, slot.offset + (slot.cut or size)))
        if slot.cut:
            taken.append((min(at), max(at), WORK, slot.rest, slot.rest + size - slot.cut))
            assert taken[-1][-1] <= the_plan.segments[WORK].size
    for one, other in combinations(taken, 2):
        in_time = one[0] <= other[1] and other[0] <= one[1]
        assert not (in_time and one[2] == other[2] and one[3] < other[4] and other[3] < one[4])


def used(placed, the_plan):
    """Value -> steps that name it or a view of it."""
    nodes, base, found = nodes_of(placed, the_plan.steps), {}, {}
    for p in placed.nodes:
        if p.emitter == VIEW:
            base[p.node.outputs[0]] = base.get(p.node.inputs[0], p.node.inputs[0])
    for at, step in enumerate(the_plan.steps):
        for name in (*nodes[step.node].node.inputs, *nodes[step.node].node.outputs):
            if name in the_plan.slots and nodes[step.node].emitter != VIEW:
                found.setdefault(base.get(name, name), []).append(at)
    return found


def test_what_waits_for_the_host_lies_in_dram():
    """While the host computes other programs may run, and use PDM."""
    graph, _, _ = built("encoder")
    placed, _ = plan(graph, LayoutOptions("mixed", on_host=frozenset({"Softmax"})))
    the_plan = scheduled(placed)
    nodes = nodes_of(placed, the_plan.steps)
    host = [at for at, step in enumerate(the_plan.steps) if nodes[step.node].emitter == ON_HOST]
    assert host
    for name, at in used(placed, the_plan).items():
        if the_plan.slots[name].segment == PDM:
            assert not any(min(at) <= h <= max(at) for h in host), name
    assert any(slot.segment == PDM for slot in the_plan.slots.values())


@pytest.mark.parametrize(
    ("move", "fixed"),
    [
        (m.Move("mvp", m.Operand(m.DRAM, 0, m.LW, symbol="a"), m.Operand(m.L2BM, 0, m.LW, block=0), 64), False),
        (m.Move("mvp", m.Operand(m.L2BM, 0, m.LW, block=1), m.Operand(m.DRAM, 0, m.LW, symbol="a"), 64), False),
        (m.Move("mvb", m.Operand(m.DRAM, 0, m.LW, symbol="a", group=2), m.Operand(m.L2BM, 0, m.LW), 64), False),
        (m.Move("mvb2", m.Operand(m.DRAM, 0, m.LW, symbol="a"), m.Operand(m.L2BM, 0, m.LW), 64), True),
        (m.Move("mvrfadd", m.Operand(m.L2BM, 0, m.LW), m.Operand(m.DRAM, 0, m.LW, symbol="a"), 64), True),
    ],
)
def test_moves_that_have_a_twin_in_pdm(move, fixed):
    """Not those that PDM lacks, or that leave the data in another order there."""
    assert dram_only([m.Loop(2, (move,))]) == ({"a"} if fixed else set())
