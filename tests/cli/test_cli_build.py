from __future__ import annotations

import json
import sys

import pytest

from mlsdk.cli import exit_codes
from mlsdk.store import query

PHASES = {"Data", "Emit", "LayoutPlan", "Load", "OptimizeOnnx", "Run", "Schedule", "Simulate", "Trace", "Train"}


def test_build_says_what_was_built(mlsdk):
    first = mlsdk("build", "example_workflow")
    assert first.code == 0
    assert first.out.startswith("example_workflow: built Data, Train, Trace") or "built" in first.out
    assert first.err == ""
    second = mlsdk("build", "example_workflow")
    assert second.out == "example_workflow: nothing to build, all 10 results came from the store\n"


def test_build_as_json(mlsdk):
    answer = mlsdk("build", "example_workflow", "--json").json
    assert set(answer["phases"]) == PHASES
    assert answer["workflow"] == "example_workflow"
    assert set(answer["seconds"]) == PHASES
    again = mlsdk("build", "example_workflow", "--json").json
    assert (set(again["phases"].values()), again["seconds"]) == ({"cached"}, {})


def test_run_prints_one_json_object(mlsdk):
    answer = mlsdk("run", "example_workflow", "--json", "--param", "batch=6")
    found = json.loads(answer.out)
    assert answer.err == "epoch 1\n"  # what the workflow prints goes elsewhere
    assert (found["batch"], found["accuracy"]["board"]) == (6, 0.97)
    assert set(found["phases"].values()) == {"built"}


def test_run_prints_the_summary(mlsdk):
    lines = mlsdk("run", "example_workflow").out.splitlines()
    assert "batch: 4" in lines
    assert lines[-1].startswith("example_workflow: built")


def test_options_and_force(mlsdk, store):
    mlsdk("build", "example_workflow")
    mlsdk("build", "example_workflow", "--option", "float_dtype=half", "--option", "sram_budget=0.5")
    assert query.show(store, "example_workflow/Schedule")["options"]["sram_budget"] == 0.5
    forced = mlsdk("build", "example_workflow", "--force", "Emit", "--json").json
    assert [name for name, outcome in forced["phases"].items() if outcome == "built"] == ["Emit"]


def test_the_artifacts_can_be_copied_out(mlsdk, tmp_path):
    mlsdk("build", "example_workflow", "--codegen-dir", str(tmp_path / "codegen"))
    assert (tmp_path / "codegen" / "model.app.zst").exists()
    assert json.loads((tmp_path / "codegen" / "option.json").read_text())["options"]["float_dtype"] == "mixed"


def test_another_store_on_the_command_line(mlsdk, tmp_path):
    mlsdk("build", "example_workflow", "--store", str(tmp_path / "other"))
    assert (tmp_path / "other" / "index.sqlite").exists()
    assert mlsdk("store", "--store", str(tmp_path / "other"), "ls", "--json").json


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["nothing_here"], exit_codes.FAILED, "no workflow 'nothing_here'"),
        (["example_workflow", "--param", "bach=1"], exit_codes.FAILED, "did you mean 'batch'"),
        (["example_workflow", "--param", "batch"], exit_codes.USAGE, "write NAME=VALUE"),
        (["example_workflow", "--param", "batch=0"], exit_codes.FAILED, "batch of Example: 0 is not allowed; give a"),
        (["example_workflow", "--param", "batch=1", "--param", "batch=2"], exit_codes.USAGE, "batch is given twice"),
        (["example_workflow", "--device", "mncore2:77"], exit_codes.FAILED, "no device 'mncore2:77'; boards are"),
        (["example_workflow", "--device", "pfvm:gpu"], exit_codes.FAILED, "or pfvm:cpu"),
        ([""], exit_codes.FAILED, "the workflow's name is empty; give one of digits"),
        (["nope"], exit_codes.FAILED, "give one of digits, "),
        (["example_workflow", "--option", "float_dtype=Half"], exit_codes.FAILED, "did you mean 'half'"),
        (["example_workflow", "--option", "flaot_dtype=half"], exit_codes.FAILED, "did you mean 'float_dtype'"),
        (["failing_workflow:Failing"], exit_codes.FAILED, "Fails of failing_workflow, node fc1: fc1: it does not fit"),
        (["failing_workflow:Interrupted"], exit_codes.INTERRUPTED, "interrupted"),
    ],
)
def test_a_failure_is_one_line_and_a_code(mlsdk, arguments, code, told):
    answer = mlsdk("build", *arguments)
    assert answer.code == code
    assert told in answer.err
    assert answer.out == ""
    if code == exit_codes.FAILED:
        assert len(answer.err.splitlines()) == 1
        assert answer.err.startswith("mlsdk: ")


def test_a_device_is_checked_before_the_store_is_asked(mlsdk):
    mlsdk("run", "example_workflow")
    assert mlsdk("run", "example_workflow", "--device", "mncore2:77").code == exit_codes.FAILED
    assert mlsdk("run", "example_workflow", "--device", "mncore2:7").code == 0
    on_host = mlsdk("build", "example_workflow", "--device", "pfvm:cpu", "--json").json
    assert on_host["phases"]["Run"] == "built"  # other bits: another key


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("print('ran')\nx = 1\n", "it has none; it was not executed"),
        ("import dataclasses\nclass A(dataclasses.Field): pass\nprint('ran')\n", "it was not executed"),
        ("def f(:\n", "flow_here.py, line 1: invalid syntax"),
        ("from mlsdk.tasks.workflow import Workflow\nclass A(Workflow):\n    pass\n1 / 0\n",
         "flow_here.py, line 4: ZeroDivisionError: division by zero, while it was imported"),
        ("from mlsdk.tasks.workflow import Workflow as W\nclass A(W):\n    def requires(self):\n        return [][1]\n",
         "flow_here.py, line 4: IndexError: list index out of range"),
        ("from mlsdk.tasks.workflow import Workflow\nclass A(Workflow):\n    pass\nexit(3)\n", "line 4: SystemExit: 3"),
        ("from mlsdk.tasks.workflow import Workflow\nimport nothing_here\nclass A(Workflow):\n    pass\n",
         "imports nothing_here, which is not installed"),
    ],
)  # fmt: skip
def test_a_bad_workflow_file_is_said_with_its_line(mlsdk, tmp_path, monkeypatch, text, told):
    monkeypatch.setattr("sys.path", list(sys.path))
    (tmp_path / "flow_here.py").write_text(text)
    answer = mlsdk("run", str(tmp_path / "flow_here.py"))
    sys.modules.pop("flow_here", None)
    assert (answer.code, answer.out) == (exit_codes.FAILED, "")
    assert told in answer.err and "bug" not in answer.err


def test_options_are_listed_with_their_origin(mlsdk):
    found = mlsdk("options", "--preset", "O1", "--option", "float_dtype=half", "--json").json
    assert (found["simulation_mode"]["value"], found["simulation_mode"]["origin"]) == ("fast", "option_json O1")
    assert (found["float_dtype"]["value"], found["float_dtype"]["origin"]) == ("half", "direct")
    assert found["scheduler"]["choices"] == ["always_from_dram", "reuse_consecutive", "spill_opt", "auto_recompute_sa"]
    lines = mlsdk("options").out.splitlines()
    assert len(lines) == len(found) + 1 and lines[0].split() == ["option", "value", "origin", "allowed", "effect"]


def test_debug_shows_the_traceback_of_the_phase(mlsdk):
    answer = mlsdk("build", "failing_workflow:Failing", "--debug")
    assert "Traceback" in answer.err
    assert "in compute" in answer.err


def test_trouble_with_the_store_has_its_own_code(mlsdk, root):
    root.mkdir()
    (root / "thesis.tex").write_text("...")
    answer = mlsdk("build", "example_workflow")
    assert answer.code == exit_codes.STORE
    assert "holds other files and no store" in answer.err


def test_a_full_disk_in_the_middle_has_the_stores_code(mlsdk):
    from mlsdk.store import failpoints

    failpoints.configure("object.written:3:enospc")
    try:
        answer = mlsdk("build", "example_workflow")
    finally:
        failpoints.configure(None)
    assert answer.code == exit_codes.STORE
    assert "no space left in" in answer.err
    assert mlsdk("build", "example_workflow").code == 0


def test_a_terminal_sees_a_line_for_each_phase(mlsdk, monkeypatch):
    import sys

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    answer = mlsdk("build", "example_workflow")
    for name in PHASES:
        assert name in answer.err


def test_a_dry_run_says_what_and_why_and_builds_nothing(mlsdk, phases):
    first = mlsdk("build", "example_workflow", "--dry-run")
    assert (first.code, phases, first.err) == (exit_codes.PENDING, [], "")
    assert "would be built" in first.out
    assert "first build of Train" in first.out
    assert mlsdk("build", "example_workflow").code == 0
    again = mlsdk("build", "example_workflow", "--dry-run", "--json")
    assert again.code == 0
    assert {row["state"] for row in again.json} == {"cached"}
    changed = mlsdk("build", "example_workflow", "--dry-run", "--option", "sa_expected_run_iters=7").out
    assert "option sa_expected_run_iters: 1000 -> 7" in changed


def test_a_sweep_is_a_table_and_a_log(mlsdk):
    answer = mlsdk("build", "example_workflow", "--sweep", "preset=O0,O2", "--jobs", "2")
    assert (answer.code, answer.err.replace("epoch 1\n", "")) == (0, "")
    assert "== preset=O0" in answer.out
    assert answer.out.splitlines()[-2].startswith("preset=O0")
    found = mlsdk("build", "example_workflow", "--sweep", "preset=O0,O2", "--json").json
    assert set(found) == {"preset=O0", "preset=O2"}
    assert set(found["preset=O2"]["phases"].values()) == {"cached"}
    builds = mlsdk("store", "log", "--preset", "O2", "--newer", "7d", "--json").json
    assert {build["preset"] for build in builds} == {"O2"}
    one, other = (mlsdk("store", "log", "--preset", name, "-n", "1", "--json").json[0]["id"] for name in ("O0", "O2"))
    text = mlsdk("store", "diff", f"@{one}", f"@{other}").out
    assert "preset: O0 -> O2" in text
    assert "option simulation_mode: fake -> default" in text


def test_a_preset_for_a_build(mlsdk, store):
    assert mlsdk("build", "example_workflow", "--preset", "O1").code == 0
    assert query.log(store)[0]["preset"] == "O1"
    wrong = mlsdk("build", "example_workflow", "--preset", "O9")
    assert (wrong.code, "give a file, or one of debug" in wrong.err) == (exit_codes.FAILED, True)


def test_a_scheduler_that_is_not_there_is_said(mlsdk):
    answer = mlsdk("build", "example_workflow", "--scheduler", "http://127.0.0.1:1")
    assert answer.code == exit_codes.FAILED
    assert "no scheduler answers at http://127.0.0.1:1" in answer.err
