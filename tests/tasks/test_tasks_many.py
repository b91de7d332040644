"""Dry runs, several tasks at once, sweeps, and Luigi's own tools around the same tasks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import failing_workflow
import invariants
import pytest
from example_workflow import Example

from mlsdk import store as stores
from mlsdk.store import query
from mlsdk.tasks import complete, scheduler, sweep
from mlsdk.tasks.engine import Engine
from mlsdk.tasks.errors import WorkflowError

HERE = Path(__file__).parent


def states(planned):
    return {one.phase: one.state for one in planned}


def test_a_preview_says_what_would_be_built_and_why(store, phases):
    first = complete.preview({"": Example()}, store=store.root)[""]
    assert states(first)["Train"] == "build"
    assert states(first)["Trace"] == "open"
    assert next(one for one in first if one.phase == "Trace").reason.startswith("after Train")
    assert phases == []
    assert query.log(store) == query.ls(store) == []
    complete.workflow(Example(), store=store.root)
    assert set(states(complete.preview({"": Example()}, store=store.root)[""]).values()) == {"cached"}
    changed = complete.preview({"": Example(options={"sa_expected_run_iters": 7})}, store=store.root)[""]
    by_phase = {one.phase: one for one in changed}
    assert by_phase["Schedule"].state == "build"
    assert by_phase["Schedule"].reason == "option sa_expected_run_iters: 1000 -> 7"
    assert (by_phase["LayoutPlan"].state, by_phase["Emit"].state) == ("cached", "open")
    forced = complete.preview({"": Example()}, store=store.root, force=["Emit"])[""]
    assert {one.phase: one.reason for one in forced if one.state == "build"} == {"Emit": "forced"}
    with pytest.raises(WorkflowError, match="did you mean 'Emit'"):
        complete.preview({"": Example()}, store=store.root, force=["Emti"])
    assert len(query.log(store)) == 1


def test_several_workers_give_the_same(store, tmp_path):
    one = complete.workflow(Example(), store=store.root)
    many = complete.workflow(Example(), store=tmp_path / "other", scheduler=Engine("luigi", 3))
    assert many.phases == one.phases
    assert set(many.times) == set(one.times)
    with stores.open(tmp_path / "other") as other:
        assert {row["digest"] for row in query.ls(other, limit=None)} == {
            row["digest"] for row in query.ls(store, limit=None)
        }
        assert [event["outcome"] for event in query.log(other)[0]["phases"]].count("built") == 10
    invariants.check(tmp_path / "other")


def test_a_failure_in_a_worker_is_told(store):
    with pytest.raises(complete.BuildFailed, match="Fails of failing_workflow, node fc1: fc1: it does not fit") as info:
        complete.workflow(failing_workflow.Failing(), store=store.root, scheduler=Engine("luigi", 2))
    assert info.value.node == "fc1"
    assert query.log(store)[0]["status"] == "failed"


@pytest.mark.parametrize("place", ["task.inputs_read", "task.computed", "object.written", "index.inserted"])
def test_a_killed_worker_is_told_and_the_next_run_goes_on(store, place):
    """SIGKILL takes each worker at its first pass of the place; what is told names the phase and the signal."""
    from mlsdk.store import failpoints

    failpoints.configure(f"{place}:1:kill")
    try:
        with pytest.raises((complete.BuildFailed, WorkflowError)) as info:
            complete.workflow(Example(), store=store.root, scheduler=Engine("luigi", 2))
    finally:
        failpoints.configure(None)
    if place != "task.inputs_read":  # before it has begun, there is nothing to name
        assert "its worker process was killed by SIGKILL; run the same command again" in str(info.value)
        assert info.value.phase in ("Train", "Data")
    assert [build["status"] for build in query.log(store)] == ["failed"]
    assert set(complete.workflow(Example(), store=store.root).phases.values()) <= {"built", "cached"}
    invariants.check(store.root)


def test_a_sweep_computes_what_is_shared_once(store, phases):
    tasks = sweep.product(Example(), {"preset": ["O0", "O2"], "batch": ["4", "8"]})
    assert list(tasks) == ["preset=O0 batch=4", "preset=O0 batch=8", "preset=O2 batch=4", "preset=O2 batch=8"]
    found = complete.workflows(tasks, store=store.root)
    assert phases.count("OptimizeOnnx") == 2  # one for each batch
    assert phases.count("LayoutPlan") == 4
    assert {row["preset"] for row in query.log(store)} == {"O0", "O2"}
    assert len(query.log(store)) == 4
    assert sum(len(one.times) for one in found.values()) >= len(phases)
    assert [row["preset"] for row in query.log(store, preset="O2")] == ["O2", "O2"]


def test_a_sweep_over_an_option_and_what_is_none(store):
    assert sweep.varied(Example(), "sram_budget", "0.5").compile_options()["sram_budget"] == 0.5
    assert sweep.varied(Example(), "float_dtype", "half").compile_options()["float_dtype"] == "half"
    with pytest.raises(WorkflowError, match="no parameter and no option 'presett'; did you mean 'preset'"):
        sweep.varied(Example(), "presett", "O1")
    with pytest.raises(WorkflowError, match="parameter batch of Example: 'x' is not allowed"):
        sweep.varied(Example(), "batch", "x")
    both = sweep.Sweep(workflow=Example(), values="O0,O1")
    assert [task.preset for task in both.requires()] == ["O0", "O1"]


def test_what_a_scheduler_is_told():
    class Task:
        label = "net/train"

        def __init__(self):
            self.told = []
            self.set_status_message = self.set_progress_percentage = self.set_tracking_url = self.told.append

    task = Task()
    scheduler.tell(task, "run 3 of 8", scheduler.percentage("run 3 of 8"), dashboard=True)
    assert task.told == ["run 3 of 8", 37, "http://127.0.0.1:8327/?label=net/train"]
    assert scheduler.percentage("training") is None
    assert scheduler.percentage("run 8 of 8") == 98  # 100 is for what is published
    scheduler.tell(object(), "nobody listens", 1)


# -- Luigi's own tools -----------------------------------------------------------------------------------------------


def environment(root):
    return {**os.environ, "MLSDK_STORE": str(root), "PYTHONPATH": str(HERE)}


def test_the_dependency_tree(root):
    code = "import luigi.tools.deps_tree as tree; tree.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--module", "example_workflow", "Example"],
        env=environment(root), capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in (
        "Example",
        "Load",
        "Emit",
        "Schedule",
        "LayoutPlan",
        "OptimizeOnnx",
        "TraceProgram",
        "Train",
        "PENDING",
    ):
        assert name in done.stdout, done.stdout


@pytest.mark.slow
def test_the_visualiser_and_two_workers_on_one_scheduler(root, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    state = ["--state-path", str(tmp_path / "state"), "--logdir", str(tmp_path)]
    luigid = subprocess.Popen(
        [sys.executable, "-c", "from luigi.cmdline import luigid; luigid()", "--address", "127.0.0.1", "--port",
         str(port), *state], env=environment(root), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            try:
                urllib.request.urlopen(f"{url}/static/visualiser/index.html", timeout=5).read()
                break
            except OSError:
                time.sleep(0.1)
        command = [sys.executable, str(HERE / "with_standins.py"), "mlsdk", "build", "example_workflow", "--json"]
        workers = [
            subprocess.Popen([*command, "--scheduler", url], env=environment(root), cwd=HERE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
            for _worker in range(2)
        ]  # fmt: skip
        answers = [worker.communicate(timeout=120) for worker in workers]
        assert [worker.returncode for worker in workers] == [0, 0], answers
        built = [name for out, _err in answers for name, how in json.loads(out)["phases"].items() if how == "built"]
        assert len(built) == 10, "each phase was computed by one of the two"
        tasks = json.loads(urllib.request.urlopen(f"{url}/api/task_list?data=%7B%7D", timeout=10).read())["response"]
        done = {row["name"]: row for row in tasks.values()}
        assert {row["status"] for row in tasks.values()} == {"DONE"}
        assert done["Emit"]["status_message"].startswith("built in")
        assert done["Emit"]["progress_percentage"] == 100
        assert done["Emit"]["tracking_url"] == "http://127.0.0.1:8327/?label=example_workflow"
    finally:
        luigid.terminate()
        luigid.wait(20)
