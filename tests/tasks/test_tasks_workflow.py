from __future__ import annotations

import datetime
import enum
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import invariants
import luigi
import numpy as np
import pytest
from example_workflow import Data, Example, Train

from mlsdk import store as stores
from mlsdk.errors import UnregisteredTensorWarning
from mlsdk.store import NotFound, query
from mlsdk.tasks import complete, find
from mlsdk.tasks.adapters import trace  # not what stands in for it in these tests
from mlsdk.tasks.complete import BuildFailed
from mlsdk.tasks.content import ContentTask, InstanceParameter
from mlsdk.tasks.errors import WorkflowError
from mlsdk.tasks.phases import Load
from mlsdk.tasks.session import Session
from mlsdk.tasks.workflow import Artifact, Program, Step, Workflow, arrays, pack

HERE = Path(__file__).parent
PHASES = ["Data", "Emit", "LayoutPlan", "Load", "OptimizeOnnx", "Run", "Schedule", "Simulate", "Trace", "Train"]


def test_a_workflow_is_completed_once(store, phases):
    first = complete.workflow(Example(), store=store.root, with_summary=True)
    assert sorted(first.phases) == PHASES
    assert set(first.phases.values()) == {"built"}
    assert first.summary["batch"] == 4
    assert first.report.splitlines()[1] == "accuracy: torch 0.975, board 0.97"
    phases.clear()
    second = complete.workflow(Example(), store=store.root, with_summary=True, scheduler="direct")
    assert set(second.phases.values()) == {"cached"}
    assert second.summary == first.summary
    assert phases == []


@pytest.mark.parametrize(
    ("task", "built"),
    [
        (
            Example(batch=5),
            {"Data", "Trace", "OptimizeOnnx", "LayoutPlan", "Schedule", "Simulate", "Emit", "Load", "Run"},
        ),
        (Example(epochs=4), set(PHASES)),
        (Example(options={"float_dtype": "half"}), {"LayoutPlan", "Schedule", "Simulate", "Emit", "Load", "Run"}),
        (Example(device="emu2"), set()),
    ],
)
def test_a_parameter_rebuilds_what_depends_on_it(store, task, built):
    complete.workflow(Example(), store=store.root)
    again = complete.workflow(task, store=store.root)
    assert {name for name, outcome in again.phases.items() if outcome == "built"} == built


def test_a_step_that_gives_the_same_cuts_the_rebuild_off(store):
    class Same(Step):
        noise = luigi.IntParameter(default=0)
        artifacts = (Artifact("weights.json"),)

        def compute(self, inputs, services):
            return {"weights.json": b"[1, 2, 3]"}

    class Early(Workflow):
        noise = luigi.IntParameter(default=0, significant=False)

        def steps(self):
            return {"train": Same(noise=self.noise)}

        def program(self, name, inputs):
            return Program(len, inputs["train/weights.json"])

        def _plain(self):
            return self  # the parameter reaches the step, and no key of the trace

    complete.workflow(Early(), store=store.root)
    again = complete.workflow(Early(noise=1), store=store.root)
    assert [name for name, outcome in again.phases.items() if outcome == "built"] == ["Same"]


def test_steps_have_steps(store):
    class First(Step):
        artifacts = (Artifact("a.txt"),)

        def compute(self, inputs, services):
            assert inputs == {}
            return {"a.txt": b"a"}

    class Second(Step):
        artifacts = (Artifact("b.txt"),)

        def steps(self):
            return {"first": First()}

        def compute(self, inputs, services):
            return {"b.txt": inputs["first/a.txt"] + b"b"}

    class Both(Workflow):
        def requires(self):
            return [Second()]

        def summary(self):
            return {"text": self.read(Second(), "b.txt").decode()}

    assert complete.workflow(Both(), store=store.root, with_summary=True).summary == {"text": "ab"}


def test_a_file_that_a_step_reads_is_in_its_key(store, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "__file__", str(tmp_path / "module.py"))
    monkeypatch.setattr("mlsdk.tasks.workflow.source_digests", lambda *_: ({}, {}))
    (tmp_path / "data.csv").write_text("1,2")

    class Reads(Step):
        files = ("data.csv",)
        artifacts = (Artifact("out"),)

    before = Reads().recipe({}).digest
    (tmp_path / "data.csv").write_text("1,3")
    assert Reads().recipe({}).digest != before
    (tmp_path / "data.csv").unlink()
    with pytest.raises(WorkflowError, match=r"Reads: the file .*data.csv: No such file"):
        Reads().recipe({})


def test_a_workflow_with_two_programs_names_them(store, tmp_path):
    class Two(Workflow):
        programs = ("train", "infer")

        def program(self, name, inputs):
            return Program(len, name)

    done = complete.workflow(Two(), store=store.root, codegen_dir=tmp_path / "codegen")
    assert {"train/Trace", "infer/Trace", "train/Load", "infer/Load"} <= set(done.phases)
    assert (tmp_path / "codegen" / "train" / "manifest.json").exists()
    assert {row["label"].rpartition("/")[2] for row in query.ls(store, phase="Load")} == {"train", "infer"}
    with pytest.raises(WorkflowError, match="has no program 'eval'; it has train, infer"):
        Two().traced("eval")


def test_a_failure_is_one_line(store):
    import failing_workflow

    for scheduler in ("luigi", "direct"):
        with pytest.raises(BuildFailed) as caught:
            complete.workflow(failing_workflow.Failing(), store=store.root, scheduler=scheduler)
        told = "Fails of failing_workflow, node fc1: fc1: it does not fit; make it smaller"
        assert str(caught.value) == told
        assert (caught.value.phase, caught.value.node) == ("Fails", "fc1")
    with pytest.raises(KeyboardInterrupt):
        complete.workflow(failing_workflow.Interrupted(), store=store.root)


@pytest.mark.parametrize("batches", [(4,), (4, 8)])
def test_an_unknown_phase_to_force_is_said_before_anything_is_built(store, phases, batches):
    with pytest.raises(WorkflowError, match="--force Emitt: there is no such phase; did you mean 'Emit'"):
        complete.workflows({str(n): Example(batch=n) for n in batches}, store=store.root, force=["Emitt"])
    assert phases == []


# -- parameters and ids ----------------------------------------------------------------------------------------------


class Anything(ContentTask):
    value = luigi.Parameter[object]()


class Color(enum.Enum):
    RED = 1


VALUES = [1, 1.0, True, "1", "", "x" * 10_000, "ünï", (1,), {"a": {"b": 1}}, {"a": {"b": 1.0}}, Color.RED,
          datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1), datetime.timedelta(1), None, Train(),
          Train(epochs=9),
          datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Parameter")
def test_parameters_of_another_type_are_another_task():
    ids = [Anything(value=value).task_id for value in VALUES]
    keys = [Anything(value=value).recipe({}).digest for value in VALUES]
    assert len(set(ids)) == len(set(keys)) == len(VALUES)
    assert all(len(name) == len("Anything_") + 64 for name in ids)
    assert [Anything(value=value).value for value in (1, 1.0, True)] == [1, 1.0, True]
    assert type(Anything(value=True).value) is bool


@pytest.mark.filterwarnings("ignore:Parameter")
def test_a_parameter_without_a_canonical_form_is_said():
    with pytest.raises(Exception, match="a key cannot hold"):
        Anything(value=object())


def test_a_task_is_a_parameter_as_text_too():
    parameter = InstanceParameter()
    load = Load(source=Example().traced(), options={"float_dtype": "half"})
    text = parameter.serialize(load)
    assert parameter.parse(text).task_id == load.task_id
    with pytest.raises(WorkflowError, match="is no task"):
        parameter.parse("example_workflow:Nothing")


def test_arrays_are_packed_the_same_each_time():
    named = {"file": np.zeros(0), "y": np.arange(6, dtype=np.float32).reshape(2, 3), "x": np.array(3, dtype=np.int64)}
    data = pack(named)
    time.sleep(0.01)
    assert pack(dict(reversed(named.items()))) == data
    assert {name: value.tolist() for name, value in arrays(data).items()} == {
        "file": [],
        "x": 3,
        "y": [[0, 1, 2], [3, 4, 5]],
    }
    with pytest.raises(ValueError, match=r"[Oo]bject arrays"):
        pack({"o": np.array([object()], dtype=object)})


# -- finding ---------------------------------------------------------------------------------------------------------


def test_a_workflow_is_found_by_module_and_by_file(tmp_path, monkeypatch):
    assert find.workflow_class("example_workflow") is Example
    assert find.workflow_class(str(HERE / "example_workflow.py")) is Example
    assert find.workflow_class("example_workflow:Example") is Example
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flow_here.py").write_text(
        "from mlsdk.tasks.workflow import Workflow\nclass Here(Workflow):\n    pass\n"
    )
    assert find.workflow_class("./flow_here.py").__name__ == "Here"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("no_such_workflow", "no workflow 'no_such_workflow'"),
        ("no/such/file.py", "is no file"),
        ("example_workflow:Exampel", "has no workflow Exampel; did you mean 'Example'"),
        (
            "failing_workflow",
            "it has several: failing_workflow:Failing, failing_workflow:Buggy, failing_workflow:Interrupted, "
            "failing_workflow:Slow",
        ),
        ("standins", "it has none"),
    ],
)
def test_what_is_no_workflow_is_said(text, told):
    with pytest.raises(WorkflowError, match=told):
        find.workflow_class(text)


def test_parameters_are_parsed_by_their_types():
    assert find.instance(Example, {"batch": "7"}, {}, "emu2").batch == 7
    with pytest.raises(
        WorkflowError, match="parameter batch of Example: 'x' is not allowed; give a whole number from 1 to 4096"
    ):
        find.instance(Example, {"batch": "x"}, {}, "")
    with pytest.raises(WorkflowError, match="no parameter 'bach'; did you mean 'batch'"):
        find.instance(Example, {"bach": "1"}, {}, "")

    class Needs(Workflow):
        model = luigi.Parameter()

    with pytest.raises(WorkflowError, match="model.*give it with --param NAME=VALUE"):
        find.instance(Needs, {}, {}, "")


# -- Luigi's own command, and two at once ----------------------------------------------------------------------------


def luigi_command(root, *arguments, **more):
    environment = {**os.environ, "MLSDK_STORE": str(root), "PYTHONPATH": str(HERE)}
    command = [sys.executable, str(HERE / "with_standins.py"), "luigi", *arguments, "--local-scheduler"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, **more)


def test_the_luigi_command_builds_the_same(root):
    done = luigi_command(root, "--module", "example_workflow", "Example", "--Example-batch", "6")
    assert done.returncode == 0, done.stderr
    with stores.open(root) as store:
        assert len({event["phase"] for build in query.log(store) for event in build["phases"]}) == len(PHASES)
        completed = complete.workflow(Example(batch=6), store=root)
        assert set(completed.phases.values()) == {"cached"}
    invariants.check(root)
    one = luigi_command(root, "--module", "mlsdk.tasks.phases", "Schedule", "--source",
                        'mlsdk.tasks.traced:TraceProgram?{"workflow": "example_workflow:Example"}')  # fmt: skip
    assert one.returncode == 0, one.stderr


def test_the_luigi_command_exits_with_its_codes(root):
    failed = luigi_command(root, "--module", "failing_workflow", "Failing")
    assert failed.returncode == 30, failed.stderr
    assert "fc1: it does not fit" in failed.stderr
    unknown = luigi_command(root, "--module", "no_such_module", "Failing")
    assert unknown.returncode not in (0, 30)


def test_two_builds_at_once_compute_once(root, phases, tmp_path):
    """The second waits for the lock of the key, and then finds the result."""
    with stores.open(root):
        pass
    marks = tmp_path / "marks"
    marks.mkdir()

    class Slow(Step):
        artifacts = (Artifact("out"),)

        def compute(self, inputs, services):
            (marks / str(os.getpid())).touch()
            with stores.open(root) as beside:
                (row,) = query.log(beside, status="running")
                assert row["pid"] == os.getpid() and 0 <= row["seconds"] < 60
            time.sleep(0.5)
            return {"out": b"slow"}

    class Both(Workflow):
        def requires(self):
            return [Slow()]

    children = [invariants.start_child(lambda: complete.workflow(Both(), store=root)) for _ in range(3)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert len(list(marks.iterdir())) == 1
    with stores.open(root) as store:
        assert [build["status"] for build in query.log(store)] == ["ok"] * 3
        outcomes = [event["outcome"] for build in query.log(store) for event in build["phases"]]
    assert sorted(outcomes) == ["built", "cached", "cached"]
    invariants.check(root)


def test_a_killed_build_goes_on_behind_the_last_good_phase(root, phases):
    from mlsdk.store import failpoints

    def killed():
        failpoints.configure("task.computed:5:kill")
        complete.workflow(Example(), store=root)

    assert invariants.in_child(killed) == 9
    with stores.open(root) as store:
        (trace,) = query.log(store, status="interrupted")
        done = list(dict.fromkeys(row["phase"] for row in reversed(query.ls(store, limit=None))))
        assert len(done) == 4
        assert query.log(store, status="running") == [] and query.log(store, status="ok") == []
        assert (trace["label"], trace["device"]) == ("example_workflow", "mncore2:auto")
        assert trace["started"] <= time.time()
        assert f"its process {trace['pid']} was killed after {', '.join(done)}, which is kept" in trace["error"]
        for ask in (query.show, query.why, query.deps, lambda store, text: store.export(text, root / "x.parcel")):
            with pytest.raises(NotFound, match=f"@{trace['id']}: it ended before it had a result, or runs"):
                ask(store, f"@{trace['id']}")
    again = complete.workflow(Example(), store=root)
    assert list(again.phases.values()).count("cached") == 4
    assert list(again.phases.values()).count("built") == 6
    invariants.check(root)


def test_reading_a_step_of_a_workflow_by_hand(store):
    complete.workflow(Example(), store=store.root)
    assert Data().output().exists()
    assert arrays(Data().output().open("inputs.npz"))["x"].shape == (2, 4, 3)
    assert not Train(epochs=77).complete()
    assert "weights.json" in str(Train().output())


def test_a_phase_by_itself_has_the_options_of_its_workflow(store):
    from mlsdk.tasks.phases import LayoutPlan

    task = Example()
    with Session(store).active():
        whole = LayoutPlan(source=task.traced(), options=task.compile_options()).key_options()
        assert LayoutPlan(source=task.traced()).key_options() == whole
        assert whole["float_dtype"] == "mixed"
        assert LayoutPlan(source=task.traced(), options={"float_dtype": "half"}).key_options()["float_dtype"] == "half"


@pytest.mark.parametrize("values", [{"batch": 0}, {"batch": True}, {"batch": 1.0}, {"epochs": 10**30}])
def test_a_parameter_has_its_range_from_python_too(values):
    with pytest.raises(WorkflowError, match="of Example: .* is not allowed; give a whole number from 1 to 4096"):
        Example(**values)


@pytest.mark.parametrize(("text", "told"), [
    ("0", "parameter batch of Example: 0 is not allowed; give a whole number from 1 to 4096"),
    ("abc", "'batch': 'abc' is not allowed; give a whole number from 1 to 4096"),
    ("9" * 5000, "is not allowed; give a whole number from 1 to 4096"),
])  # fmt: skip
def test_luigi_tells_a_wrong_parameter_in_one_line(tmp_path, text, told):
    done = luigi_command(tmp_path / "store", "--module", "example_workflow", "Example", "--Example-batch", text)
    assert done.returncode == 40
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_luigi_tells_a_failed_phase_in_one_line_and_keeps_the_traceback_of_other_errors(tmp_path):
    done = luigi_command(tmp_path / "store", "--module", "failing_workflow", "Failing")
    assert done.returncode == 30
    assert "Traceback" not in done.stderr
    assert re.search(r"failed .*Fails\(failing_workflow\): fc1: it does not fit; make it smaller", done.stderr)
    done = luigi_command(tmp_path / "store", "--module", "failing_workflow", "Buggy")
    assert done.returncode == 30
    assert "Traceback" in done.stderr
    assert "ZeroDivisionError" in done.stderr


def test_the_workflows_that_come_along_have_ranges():
    from mlsdk.tasks import find
    from mlsdk.tasks.parameters import FloatParameter, IntParameter

    for name in find.names():
        of = find.workflow_class(name)
        for own, parameter in of.get_params():
            if isinstance(parameter, (luigi.IntParameter, luigi.FloatParameter)):
                assert isinstance(parameter, (IntParameter, FloatParameter)), f"{name}: {own}"
                with pytest.raises(WorkflowError, match=f"parameter {own} of .* is not allowed; give a .*number from "):
                    of(**{own: parameter.low - 1})


def test_parameters_that_do_not_fit_together_are_said():
    from mlsdk.workflows.llama_tiny import LlamaTiny
    from mlsdk.workflows.train_digits import TrainDigits

    with pytest.raises(WorkflowError, match="width of LlamaTiny: 20 is not a multiple of 8"):
        LlamaTiny(width=20)

    with pytest.raises(WorkflowError, match="images of TrainDigits: 8 fill no batch of 64"):
        TrainDigits(images=8)
    with pytest.raises(WorkflowError, match="rate of TrainDigits: nan is not allowed; give a number from 0 to 1000"):
        TrainDigits(rate=float("nan"))


def test_a_run_on_the_host_keeps_its_state():
    import numpy as np

    from mlsdk.pipeline.ir.signature import Input, Output, Signature, State
    from mlsdk.runtime.batch import run_rows_on_host

    signature = Signature(
        (Input("x", "float32", (2,), "x"),),
        (Output("y", "float32", (2,), "y"),),
        (State("w", "float32", (2,), "w", "y"),),
    )
    given = {"x": np.ones((3, 2))}
    found, record = run_rows_on_host(lambda v: {"y": v["x"] + v["w"]}, signature, {}, given, "pfvm:cpu", lambda _: None)
    assert found["y"].tolist() == [[1, 1], [2, 2], [3, 3]]
    assert b'"runs": 3' in record


def test_a_workflow_knows_what_was_built_now(store, monkeypatch):
    """A speed that was measured in another build is none of this one."""
    monkeypatch.setattr(Example, "summary", lambda self: {"built": self.was_built(self.executed(self.data()))})
    first, second = (complete.workflow(Example(), store=store.root, with_summary=True).summary for _ in range(2))
    assert (first, second) == ({"built": True}, {"built": False})


@pytest.mark.parametrize("registered", [False, True])
def test_constants_are_warned_of_where_something_is_registered(registered, recwarn):
    import torch

    weight, other = torch.ones(3), torch.zeros(3)
    keywords = {"state": {"weight": weight}} if registered else {}
    program = Program(lambda given: {"y": given["x"] * weight + other}, {"x": torch.zeros(3)}, keywords)
    trace(program, {}, None)
    assert [one.category for one in recwarn] == [UnregisteredTensorWarning] * registered
