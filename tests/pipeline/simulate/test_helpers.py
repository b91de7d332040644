"""Processes that count nodes beside this one: the same answers, also where one of them dies."""

import os
import signal
import time

import numpy as np
import pytest

from mlsdk.pipeline.ir.graph import Graph, Node, Value
from mlsdk.pipeline.layout import LayoutOptions, plan
from mlsdk.pipeline.ops.emitters.home import IN_DRAM, Lives
from mlsdk.pipeline.ops.simulation import Cost, Simulation, count, from_data, to_data
from mlsdk.pipeline.simulate import helpers, measure
from mlsdk.pipeline.simulate.helpers import Processes


@pytest.fixture(scope="module")
def asked():
    """Nodes of many shapes in DRAM, and what an emitter refuses."""
    values, nodes = {}, []
    for n in range(12):
        for name in (f"x{n}", f"y{n}"):
            values[name] = Value(name, "float32", (n + 3, 40))
        nodes.append(Node(f"n{n}", "Softmax", (f"x{n}",), (f"y{n}",), {"axis": 1}))
    inputs, outputs = (tuple(f"{v}{n}" for n in range(12)) for v in "xy")
    placed, _ = plan(Graph("many", inputs, outputs, tuple(nodes), values, {}), LayoutOptions("float"))
    p = [node for node in placed.nodes if node.emitter == "softmax"]
    lives = [Lives(("lm0",), ("",), (True,)), Lives(("",), ("lm1",), (False,)), Lives(("lm0",), ("lm0",), (True,))]
    return placed.values, [(node, IN_DRAM) for node in p] + [(p[0], one) for one in lives]


@pytest.fixture
def quickly(monkeypatch):
    monkeypatch.setattr(helpers, "PATIENCE", 0.0)
    monkeypatch.setattr(helpers, "START", 0.0)


def test_who_counts_makes_no_difference(asked, quickly):
    values, questions = asked
    here = []

    def slowly(question, values):
        here.append(question)
        time.sleep(0.1)
        return count(question, values, measure)

    want = [count(q, values, measure) for q in questions]
    assert any(answer is not None and answer.scratch != (0, 0) for answer in want)
    with Processes(3) as processes:
        assert processes.counted(questions, values, slowly) == want
        assert len(here) < len(questions)  # others counted, too
        started = list(processes._started)
    assert [p.poll() for p in started] == [-signal.SIGKILL] * 2
    assert Processes(1).counted(questions, values, slowly) == want


def test_one_that_dies_is_no_loss(asked, quickly):
    values, questions = asked
    with Processes(2) as processes:
        (process,) = processes._running()

        def killing(question, values):
            os.kill(process.pid, signal.SIGKILL)
            return count(question, values, measure)

        assert processes.counted(questions, values, killing) == [count(q, values, measure) for q in questions]


def test_what_is_wrong_ends_all(asked, quickly):
    values, questions = asked

    def wrong(question, values):
        raise ZeroDivisionError

    with Processes(2) as processes:
        processes._running()
        with pytest.raises(ZeroDivisionError):
            processes.counted(questions, values, wrong)
        assert processes._started == []


def test_an_answer_as_data(asked):
    values, questions = asked
    rng = np.random.default_rng(0)
    for answer in (None, Cost(3, 4), Cost(1, 0, (1 << 255, int(rng.integers(2**60))))):
        assert from_data(to_data(answer)) == answer
    assert Simulation(measure).of(questions, values) == [count(q, values, measure) for q in questions]
