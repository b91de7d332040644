"""Overlap of neighbouring nodes: the same bits in fewer steps, and no move whose data are touched before somebody waited."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mlsdk.device.isa import model as m
from mlsdk.device.isa.checks import check
from mlsdk.device.isa.footprint import use_of
from mlsdk.device.timing import form_of
from mlsdk.pipeline.layout import LayoutOptions, plan
from mlsdk.pipeline.ops.clock import Clock
from mlsdk.pipeline.ops.link import link
from mlsdk.pipeline.optimize import optimize
from mlsdk.pipeline.schedule import ScheduleOptions, schedule
from mlsdk.pipeline.simulate import measure
from mlsdk.pipeline.trace import trace

sys.path.insert(0, str(Path(__file__).parents[1] / "emit"))
from emulated import execute_plan

pytestmark = pytest.mark.filterwarnings("ignore::mlsdk.errors.UnregisteredTensorWarning")


class Block(nn.Module):
    def __init__(self, width=48, heads=3):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, d))
        return x + self.mlp(x)


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 20, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 35, 3, stride=2), nn.ReLU(),
        nn.Conv2d(35, 20, 1), nn.Flatten(), nn.LazyLinear(10),
    )  # fmt: skip


class Step(nn.Module):
    """Of training: weights and momentum are read, and others stored; what goes to DRAM is read there at once."""

    def forward(self, x, w, m):
        m = 0.9 * m + x.T @ torch.tanh(x @ w)
        return {"w": w - 0.1 * m, "m": m, "loss": (x @ w).square().mean()}


NETWORKS = {
    "block": (Block, [(2, 20, 48)]),
    "convolutions": (convolutions, [(1, 3, 12, 16)]),
    "mlp": (lambda: nn.Sequential(nn.Linear(100, 300), nn.Tanh(), nn.Linear(300, 50), nn.Softmax(-1)), [(7, 100)]),
    "step": (Step, [(32, 500), (500, 120), (500, 120)]),
}
SCHEDULERS = ("always_from_dram", "spill_opt")


def compiled(name, scheduler, merge):
    torch.manual_seed(0)
    make, shapes = NETWORKS[name]
    model, sample = make().eval(), {f"input_{i}": torch.randn(shape) for i, shape in enumerate(shapes)}

    def function(batch):
        found = model(*batch.values())
        return found if isinstance(found, dict) else {"y": found}

    with torch.no_grad():
        function(sample)
        graph = optimize(trace(function, sample).graph)
    placed, _ = plan(graph, LayoutOptions("mixed"))
    chosen = schedule(placed, ScheduleOptions(scheduler, measure, merge=merge))
    return (
        graph,
        {name: x.numpy() for name, x in zip(graph.inputs, sample.values(), strict=True)},
        (placed, chosen, *link(placed, chosen)),
    )


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_bits_in_fewer_steps(name, scheduler):
    graph, inputs, merged = compiled(name, scheduler, True)
    placed, alike = merged[0], replace(merged[1], merged=0)
    plain = placed, alike, *link(placed, alike)
    want, got = (execute_plan(graph, inputs, *which)[0] for which in (plain, merged))
    assert all(np.array_equal(got[name].view(np.uint32), want[name].view(np.uint32)) for name in want)
    before, after = (Clock().run(which[2].statements) for which in (plain, merged))
    assert after < before
    first, second = ([*worked(which[2])] for which in (plain, merged))
    assert first == second  # PE steps keep their order; places in L2BM may differ
    assert [d for d in check(merged[2].statements) if d.severity != "warning"] == []


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("name", NETWORKS)
def test_nothing_touches_what_is_on_its_way(name, scheduler, merge):
    assert early_touches(compiled(name, scheduler, merge)[2][2]) == []


def worked(program):
    """The instructions of the PEs, a step after the other, without waits and places in L2BM."""
    for s in m.unroll(program.statements):
        if isinstance(s, m.Bundle):
            rest = tuple(i for i in s.instructions if i.mnemonic != "wait")
            if rest:
                yield m.Bundle(rest).with_operands(at_zero)


def at_zero(o):
    return replace(o, addr=0) if isinstance(o, m.Operand) and o.space == m.L2BM else o


def early_touches(program):
    """Statements that touch the places of a move before its tag was waited for: PE steps in L2BM, reading or writing where data
    arrive, writing where they are taken from; moves in DRAM. (Two moves at an L2BM wait for each other at its port.)"""
    flying: dict[int, tuple] = {}
    found = []
    for number, s in enumerate(m.unroll(program.statements)):
        reads, writes = [], []
        if isinstance(s, m.Bundle):
            use = use_of(s)
            for tag in use.tags:
                flying.pop(tag, None)
            reads = [("L2BM", r.start, r.start + r.length) for r in use.l2_reads]
            writes = [("L2BM", r.start, r.start + r.length) for r in use.l2_writes]
        elif isinstance(s, m.Move):
            form = form_of(s)
            for side, operand, into in ((form.source, s.src, reads), (form.destination, s.dst, writes)):
                where = "L2BM" if operand.space == m.L2BM else operand.symbol
                into.append((where, operand.addr, operand.addr + side.size(s.size)))
        for tag, (theirs_read, theirs_written) in flying.items():
            clashes = [(a, b) for a in reads for b in theirs_written]
            clashes += [(a, b) for a in writes for b in (*theirs_read, *theirs_written)]
            found += [
                (number, tag, a, b) for a, b in clashes if meet(a, b) and not (a[0] == "L2BM" and isinstance(s, m.Move))
            ]
        if isinstance(s, m.Move):
            assert s.tag not in flying, f"tag {s.tag} is raised again before anybody waited"
            flying[s.tag] = reads, writes
    assert not flying, "the program ends before its moves are done"
    return found


def meet(a, b):
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]


def test_the_check_finds_a_move_that_starts_too_early():
    """The last move into L2BM, put in front of everything."""
    program = compiled("mlp", "always_from_dram", False)[2][2]
    statements = list(program.statements)
    last = max(i for i, s in enumerate(statements) if isinstance(s, m.Move) and s.dst.space == m.L2BM)
    statements.insert(0, replace(statements.pop(last), tag=63))
    statements.append(m.Bundle((m.wait(63),)))
    assert early_touches(replace(program, statements=tuple(statements)))
