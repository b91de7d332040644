"""Schedulers on networks, run on the machine: the same bits as with every operand in DRAM, in no more steps."""

import re
import warnings
from collections import Counter

import numpy as np
import pytest
import torch
from emulated import _MACHINE, execute_plan
from test_networks_on_board import Encoder, MobileNet, Recurrent
from torch import nn

from mlsdk.errors import ScheduleError
from mlsdk.pipeline.ir.placed import VIEW
from mlsdk.pipeline.ir.plan import Plan, nodes_of
from mlsdk.pipeline.layout import LayoutOptions, plan
from mlsdk.pipeline.ops.emitters.home import LM, Lives, size_of
from mlsdk.pipeline.ops.link import link
from mlsdk.pipeline.optimize import optimize
from mlsdk.pipeline.schedule import LADDER, SCHEDULERS, ScheduleOptions, schedule
from mlsdk.pipeline.schedule.ladder import quicker
from mlsdk.pipeline.schedule.reports import l3ir_text
from mlsdk.pipeline.simulate import measure, simulate
from mlsdk.pipeline.trace import trace


class Residual(nn.Module):
    """Two blocks of a residual network."""

    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, 1, 1) for _ in range(4))

    def forward(self, x):
        for first, second in zip(self.layers[::2], self.layers[1::2]):
            x = torch.relu(second(torch.relu(first(x))) + x)
        return x.mean((2, 3))


class Fan(nn.Module):
    """Many values that wait for each other."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))

    def forward(self, x):
        a, b, c, d, e, f = (layer(x) for layer in self.layers)
        return torch.softmax(a * f, -1) + torch.softmax(b * e, -1) + torch.softmax(c * d, -1)


NETS = {
    "fan": (Fan, (8192, 32), "float"),
    "encoder": (lambda: Encoder(64, 4), (1, 64, 64), "mixed"),
    "encoder in float": (lambda: nn.Sequential(Encoder(32, 2), Encoder(32, 2)), (1, 16, 32), "float"),
    "residual": (Residual, (1, 32, 14, 14), "mixed"),
    "mobile net": (MobileNet, (1, 3, 16, 16), "half"),
    "recurrent": (Recurrent, (2, 4, 8), "float"),
}


def built(name, nets=NETS):
    make, shape, dtype = nets[name]
    torch.manual_seed(0)
    net = make().eval()
    sample = torch.randn(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = optimize(trace(lambda batch: {"y": net(batch["x"])}, {"x": sample}).graph)
    placed, _ = plan(graph, LayoutOptions(dtype))
    rng = np.random.default_rng(0)
    inputs = {n: rng.standard_normal(graph.values[n].shape).astype(graph.values[n].dtype) for n in graph.inputs}
    return graph, placed, inputs


def ran(graph, placed, inputs, the_plan):
    """The outputs, from an LM that holds rubbish; and what the plan costs."""
    for space in LM:
        _MACHINE.state.pe[space][:] = 0xA5A5_5A5A
    results, stats = execute_plan(graph, inputs, placed, the_plan, *link(placed, the_plan))
    timeline = simulate(placed, the_plan)
    assert timeline.steps == stats.total_steps
    return results, timeline


@pytest.mark.parametrize("name", NETS)
def test_every_scheduler_computes_the_same_bits_in_no_more_steps(name):
    graph, placed, inputs = built(name)
    want, base = ran(graph, placed, inputs, schedule(placed))
    before = base
    for scheduler in list(SCHEDULERS)[1:]:
        the_plan = schedule(placed, ScheduleOptions(scheduler, measure, sa_steps=150))
        assert Plan.from_json(the_plan.to_json()) == the_plan
        results, timeline = ran(graph, placed, inputs, the_plan)
        for key, value in want.items():
            assert np.array_equal(value.view(np.uint8), results[key].view(np.uint8)), (scheduler, key)
        assert timeline.steps < base.steps and timeline.dram_bytes < base.dram_bytes
        assert cost(timeline) <= cost(before) * (1 + 1e-9), scheduler
        assert again(placed, the_plan) == the_plan
        before = timeline


@pytest.mark.parametrize("merge", [False, True])
def test_who_searches_longer_finds_no_worse(merge):
    """Each search of the ladder has those before it in it, counted as the program will run."""
    _, placed, _ = built("encoder")
    found = []
    for row in (*LADDER[:2], {**LADDER[1], "beam_width": 5, "sa_steps": 1200}):
        options = ScheduleOptions("auto_recompute_sa", measure, merge=merge, **row)
        the_plan = schedule(placed, options)
        assert bool(the_plan.merged) == merge
        found.append(simulate(placed, the_plan).steps)
        assert len(list(quicker(options))) == len(found) - 1
    assert found == sorted(found, reverse=True) and found[0] < simulate(placed, schedule(placed)).steps


def cost(timeline):
    return timeline.steps + timeline.dram_bytes / 8 / 256


def again(placed, the_plan):
    """A scheduler decides the same every time."""
    return schedule(placed, ScheduleOptions(the_plan.scheduler, measure, sa_steps=150))


def test_a_transformer_moves_less_than_three_fifths():
    graph, placed, inputs = built("encoder")
    base = simulate(placed, schedule(placed))
    found = simulate(placed, schedule(placed, ScheduleOptions("spill_opt", measure)))
    assert found.dram_bytes <= 0.6 * base.dram_bytes
    assert found.steps < base.steps


# ---- what a plan may say ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", list(SCHEDULERS)[1:])
def test_a_value_stays_where_it_is_until_it_was_read(scheduler):
    """Replayed by hand: nothing writes over a value between the step that leaves it in LM and those that read it there."""
    graph, placed, _ = built("encoder in float")
    the_plan = schedule(placed, ScheduleOptions(scheduler, measure, sa_steps=100))
    nodes = nodes_of(placed, the_plan.steps)
    base: dict[str, str] = {}
    for p in placed.nodes:
        if p.emitter == VIEW:
            base[p.node.outputs[0]] = base.get(p.node.inputs[0], p.node.inputs[0])
    holds: dict[str, list[str | None]] = {space: [None] * 2048 for space in LM}
    in_dram = {name for name, v in placed.values.items() if v.origin != "node"}
    for step in the_plan.steps:
        p = nodes[step.node]
        if p.emitter == VIEW:
            if base[p.node.outputs[0]] in in_dram:
                in_dram.add(p.node.outputs[0])
            continue
        outputs = [o for o in p.node.outputs if o]
        for i, name in enumerate(p.node.inputs):
            home = dict(step.reads).get(i)
            if home is None:
                assert not name or name in in_dram, (step, name)
                continue
            first, count = home.word // 2, placed.values[name].image.addresses
            assert set(holds[home.space][first : first + count]) == {base.get(name, name)}
        fragment = written_by(p, placed, step, outputs)
        for (space, place), bits in fragment.items():
            if place == 0:
                for lw in range(2048):
                    if bits >> lw & 1:
                        holds[space][lw] = None
        for i, name in enumerate(p.node.inputs):  # what it read was not its scratch
            home = dict(step.reads).get(i)
            if home is not None:
                assert holds[home.space][home.word // 2] == base.get(name, name)
        for o, home in step.keeps:
            image = placed.values[outputs[o]].image
            size = size_of(image.addresses, image.granule)
            holds[home.space][home.word // 2 : home.word // 2 + size] = [outputs[o]] * size
        in_dram |= {name for o, name in enumerate(outputs) if o not in step.only}
    assert set(placed.outputs) <= in_dram


def written_by(p, placed, step, outputs):
    from mlsdk.pipeline.ops.emitters import emit

    return emit(p, placed.values, Lives.of(step, len(p.node.inputs), len(outputs))).written


def test_the_text_of_a_plan_says_what_moves():
    """Downloads and uploads are those of the steps, and every value in LM is forgotten once."""
    _, placed, _ = built("encoder")
    the_plan = schedule(placed, ScheduleOptions("spill_opt", measure))
    text = l3ir_text(placed, the_plan).decode()
    nodes = nodes_of(placed, the_plan.steps)
    steps = [s for s in the_plan.steps if nodes[s.node].emitter != VIEW]
    downloads = sum(sum(map(bool, nodes[s.node].node.inputs)) - len(s.reads) for s in steps)
    uploads = sum(sum(map(bool, nodes[s.node].node.outputs)) - len(s.only) for s in steps)
    said = Counter(re.findall(r"^(MNCore\w+)\(", text, re.MULTILINE))
    assert said == {
        "MNCoreDownload": downloads,
        "MNCoreUpload": uploads,
        "MNCoreForget": sum(len(s.keeps) for s in steps),
    }
    assert l3ir_text(placed, schedule(placed)).decode().count("MNCoreForget") == 0


# ---- the budget ---------------------------------------------------------------------------------------------------


def test_a_budget_bounds_what_is_in_use():
    _, placed, _ = built("fan")
    found = []
    for budget in (1.0, least_budget(placed)):
        the_plan = schedule(placed, ScheduleOptions("spill_opt", measure, budget))
        nodes = nodes_of(placed, the_plan.steps)
        found.append(simulate(placed, the_plan).steps)
        homes: dict[str, dict[int, int]] = {space: {} for space in LM}  # space -> first word -> LW of what lives there
        coming = [home for step in the_plan.steps for _, home in step.reads]
        for step in the_plan.steps:
            p = nodes[step.node]
            if p.emitter == VIEW:
                continue
            outputs = [o for o in p.node.outputs if o]
            for o, home in step.keeps:
                image = placed.values[outputs[o]].image
                homes[home.space][home.word] = size_of(image.addresses, image.granule)
            for space in LM:
                own = written_by(p, placed, step, outputs).get((space, 0), 0)
                grains = sum(1 for lw in range(0, 2048, 8) if own >> lw & 255)
                assert 8 * grains + sum(homes[space].values()) <= max(2048 * budget, 8 * grains), step
            for _, home in step.reads:
                coming.remove(home)
                if not still_read(the_plan, step, home):
                    homes[home.space].pop(home.word, None)
        assert not coming
    assert found[0] < found[1]


def least_budget(placed):
    """What the errors ask for, one node after the other."""
    budget = 0.001
    while True:
        try:
            schedule(placed, ScheduleOptions("always_from_dram", measure, budget))
            return budget
        except ScheduleError as error:
            asked = float(str(error).rsplit("sram_budget to ", 1)[1].split()[0])
            assert asked > budget
            budget = asked


def still_read(the_plan, step, home):
    """Whether a later step reads what lives at a home, before another value lives there."""
    later = the_plan.steps[the_plan.steps.index(step) + 1 :]
    for s in later:
        if home in [h for _, h in s.reads]:
            return True
        if home in [h for _, h in s.keeps]:
            return False
    return False


def test_a_budget_that_a_node_exceeds_is_said():
    _, placed, _ = built("encoder in float")
    with pytest.raises(
        ScheduleError,
        match=r"\S+ needs [\d,]+ long words of lm\d with all its operands in DRAM, and "
        r"sram_budget 0.001 allows 0; live: .*; map of lm\d: 0-\d+ scratch.*; set sram_budget to 0\.\d+",
    ):
        schedule(placed, ScheduleOptions("always_from_dram", measure, 0.001))


def test_what_a_scheduler_needs_is_said():
    _, placed, _ = built("residual")
    with pytest.raises(ScheduleError, match="give ScheduleOptions a `measure`"):
        schedule(placed, ScheduleOptions("spill_opt"))
    with pytest.raises(ScheduleError, match="there is no scheduler best; choose one of always_from_dram"):
        schedule(placed, ScheduleOptions("best", measure))
