"""Annealings in processes of their own: the same results as one after the other, also where the processes die."""

import sys

import pytest
from test_schedulers import built

from mlsdk.pipeline.ops.simulation import Simulation
from mlsdk.pipeline.schedule import Record, ScheduleOptions, chains
from mlsdk.pipeline.schedule.auto_recompute_sa import auto_recompute_sa
from mlsdk.pipeline.schedule.problem import problem_of
from mlsdk.pipeline.simulate import measure


class Three:
    """So many processes; nodes are counted here."""

    most = 3

    def counted(self, questions, values, here):
        return [here(q, values) for q in questions]


@pytest.fixture(scope="module")
def placed():
    return built("encoder")[1]


def annealed(placed, helpers):
    record, helped = Record(), ScheduleOptions("auto_recompute_sa", measure, sa_steps=60, sa_chains=4, helpers=helpers)
    found = auto_recompute_sa(problem_of(placed, Simulation(measure)), helped, record)
    return found.order, found.steps, found.lives, [(run.points, run.facts) for run in record.runs]


@pytest.mark.parametrize("dead", [False, True])
def test_processes_find_what_one_finds(monkeypatch, placed, dead):
    want = annealed(placed, None)
    asked = []
    monkeypatch.setattr(chains, "WORTH", 0)
    monkeypatch.setattr(
        chains, "_asked", lambda process, *rest, do=chains._asked: (do(process, *rest), asked.append(rest[2]))
    )
    if dead:
        monkeypatch.setattr(sys, "executable", "false")
    assert annealed(placed, Three()) == want
    assert len(asked) == 2 and bool(asked[0]) != dead  # two processes; those that live have answered
    assert len(want[3]) == 5 and len({str(run) for run in want[3][1:]}) == 4  # the order, and annealings that differ
