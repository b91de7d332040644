from __future__ import annotations

import os
import time

import pytest
import standins
from standins import TRACED

from mlsdk.errors import MLSDKError, OptionError
from mlsdk.store import query
from mlsdk.tasks import adapters
from mlsdk.tasks.chain import build_chain
from mlsdk.tasks.errors import WorkflowError
from mlsdk.tasks.phases import COMPILE, GIVERS, PHASES, TASKS, Load
from mlsdk.tasks.session import Session

ALL = ["Trace", *COMPILE]


@pytest.fixture(params=["direct", "luigi"])
def build(store, request):
    def build(options=None, traced=TRACED, **more):
        return build_chain(traced, options, store=store, label="add", scheduler=request.param, **more)

    return build


def test_a_chain_is_built_once(build, phases):
    first = build()
    assert list(first.phases) == ALL
    assert set(first.phases.values()) == {"built"}
    assert phases == list(COMPILE)
    second = build()
    assert set(second.phases.values()) == {"cached"}
    assert phases == list(COMPILE)
    assert second.outputs == first.outputs
    assert second.read("model.app.zst") == first.read("model.app.zst")
    assert second.built == []


def test_both_schedulers_give_the_same(store, tmp_path):
    from mlsdk import store as stores

    with stores.open(tmp_path / "other") as other:
        one = build_chain(TRACED, store=store, scheduler="direct")
        two = build_chain(TRACED, store=other, scheduler="luigi")
    assert {name: output.digest for name, output in one.outputs.items()} == {
        name: output.digest for name, output in two.outputs.items()
    }


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"backprop": True}, None),
        ({"envs": {"SOMETHING": "1"}}, "OptimizeOnnx"),
        ({"float_dtype": "half"}, "LayoutPlan"),
        ({"sa_expected_run_iters": 7}, "Schedule"),
        ({"envs": {"CODEGEN_DEFER_SIMPLIFY": "ReplaceAttention"}}, None),
        ({"simulation_mode": "auto"}, "LayoutPlan"),
        ({"scheduler": "always_from_dram"}, "Schedule"),
        ({"scheduler": "spill_opt"}, "LayoutPlan"),  # which judges layouts by what that finds
        ({"envs": {"CODEGEN_SA_STEPS": "100"}}, "Schedule"),
        ({"option_json": "/opt/pfn/pfcomp/codegen/preset_options/O1.json"}, "LayoutPlan"),
        ({"num_threads": 4}, None),
        ({"out_onnx": "x.onnx"}, None),
    ],
)
def test_an_option_rebuilds_the_phases_that_it_can_change(build, options, first):
    build()
    result = build(options)
    expected = list(COMPILE)[list(COMPILE).index(first) :] if first else []
    assert result.built == expected


def test_every_option_is_in_the_keys_of_its_phases_and_in_no_other(store):
    from mlsdk.tasks.options import OPTIONS
    from mlsdk.tasks.variables import VARIABLES

    pins = [{"key": "w"}]
    others = {
        "float_dtype": "half", "layout_spec": pins, "gemm_layout_spec": pins, "scheduler": "spill_opt",
        "sa_expected_run_iters": 7, "simulation_mode": "full", "sram_budget": 0.5, "envs": {"A": "1"}, "backprop": True,
        "num_threads": 3, "out_onnx": "x", "layout_planner": "bidi", "option_json": "debug",
    }  # fmt: skip
    source = build_chain(TRACED, store=store).givers["exported.onnx"]

    def key(phase, options):
        return TASKS[phase](source=source, options=options).recipe({}).digest

    assert set(others) == set(OPTIONS)
    named = {name: (OPTIONS[name].phases, {name: value}) for name, value in others.items()}
    named |= {name: (row.phases, {"envs": {name: "3"}}) for name, row in VARIABLES.items()}
    named["option_json"] = ("LayoutPlan", "Schedule"), {"option_json": "debug"}  # it sets simulation_mode and scheduler
    for phase in COMPILE:
        plain = key(phase, {})
        for name, (phases, options) in named.items():
            assert (key(phase, options) != plain) == (phase in phases), (name, phase)


def test_an_unchanged_input_cuts_the_rebuild_off(build, phases, monkeypatch):
    """The optimizer runs again and gives the same bytes: nothing below it runs."""
    same = standins.FUNCTIONS["optimize_onnx"](TRACED, {}, None)
    monkeypatch.setattr(adapters, "optimize_onnx", lambda *_: phases.append("OptimizeOnnx") or same)
    build()
    phases.clear()
    result = build(force=["OptimizeOnnx"])
    assert result.built == ["OptimizeOnnx"]
    assert phases == ["OptimizeOnnx"]
    assert result.reasons["OptimizeOnnx"] == "forced"


def test_source_lines_rebuild_nothing_below_the_trace(build):
    build()
    result = build(traced={**TRACED, "sources.json": b'{"add": "add.py:4"}\n'})
    assert result.built == ["Trace"]
    assert result.read("sources.json") == b'{"add": "add.py:4"}\n'


def test_a_forced_phase_is_computed_again(build, phases):
    build()
    phases.clear()
    result = build(force=["Schedule"])
    assert phases == ["Schedule"]
    assert result.built == ["Schedule"]
    assert result.reasons == {"Schedule": "forced"}


def test_a_forced_phase_that_gives_something_else_is_told(build, monkeypatch):
    build()
    monkeypatch.setattr(adapters, "schedule", lambda *_: {one.name: b"other" for one in PHASES["Schedule"].gives})
    with pytest.raises(MLSDKError, match="Schedule is not deterministic"):
        build(force=["Schedule"])


def test_damage_is_rebuilt_and_the_reason_is_known(build, store, phases):
    first = build()
    phases.clear()
    for name in ("plan.json", "model.vsm.zst"):
        path = store.objects.path(first.outputs[name].digest)
        path.chmod(0o644)
        path.write_bytes(bytes(path.stat().st_size))
    second = build()
    assert sorted(phases) == ["Emit", "Schedule"]
    assert "its result was damaged" in second.reasons["Schedule"]
    assert second.outputs == first.outputs


def test_damage_that_is_found_while_a_phase_reads_is_rebuilt(store, phases):
    """The object goes bad after it was looked up: its maker runs again in the middle of the build."""
    first = build_chain(TRACED, store=store, phases=("OptimizeOnnx",))
    path = store.objects.path(first.outputs["model.onnx"].digest)
    good = path.stat()
    session = Session(store)
    with session.active():
        task = TASKS["LayoutPlan"](source=first.givers["exported.onnx"], options={})
        for required in task.requires():
            assert session.resolve(required)
        path.chmod(0o644)
        path.write_bytes(bytes(good.st_size))
        phases.clear()
        task.run()
    assert phases == ["OptimizeOnnx", "LayoutPlan"]


def test_damage_that_is_found_while_the_result_is_read_is_rebuilt(store):
    result = build_chain(TRACED, store=store)
    data = result.read("model.app.zst")
    path = store.objects.path(result.outputs["model.app.zst"].digest)
    path.chmod(0o644)
    path.write_bytes(b"")
    assert result.read("model.app.zst") == data


def test_a_failure_names_phase_node_and_cause_and_publishes_nothing(store, build, monkeypatch):
    def fails(*_):
        error = MLSDKError("conv1: 100 channels do not fit;\n  split them")
        error.node = "conv1"
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(adapters, "layout_plan", fails)
        with pytest.raises(MLSDKError) as caught:
            build()
    assert caught.value.phase == "LayoutPlan"
    build_log = query.log(store)[0]
    assert build_log["status"] == "failed"
    assert build_log["error"] == "LayoutPlan of add, node conv1: conv1: 100 channels do not fit; split them"
    assert {row["phase"] for row in query.ls(store)} == {"Trace", "OptimizeOnnx"}
    result = build()
    assert "OptimizeOnnx" not in result.built
    assert result.built[0] == "LayoutPlan"


def test_a_users_own_exception_arrives_as_it_was_raised(build, monkeypatch):
    monkeypatch.setattr(adapters, "emit", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        build()


def test_an_interrupt_goes_through(build, store, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(adapters, "schedule", interrupt)
    with pytest.raises(KeyboardInterrupt):
        build()
    assert query.log(store)[0]["status"] == "interrupted"


def test_a_phase_that_breaks_its_promise_is_named(build, monkeypatch):
    monkeypatch.setattr(adapters, "emit", lambda *_: {"model.vsm.zst": b"x", "extra": b"y"})
    with pytest.raises(WorkflowError, match=r"did not give .*program.json.zst.* and gave extra; it promises"):
        build()
    monkeypatch.setattr(adapters, "emit", lambda *_: {one.name: "text" for one in PHASES["Emit"].gives})
    with pytest.raises(WorkflowError, match="as str; artifacts are bytes"):
        build()


def test_wrong_options_are_refused_before_anything_runs(build, phases):
    with pytest.raises(OptionError, match="did you mean 'float_dtype'"):
        build({"float_dtpye": "half"})
    assert phases == []


def test_traced_artifacts_are_checked(store):
    with pytest.raises(WorkflowError, match=r"missing: \['signature.json'"):
        build_chain({"exported.onnx": b"x"}, store=store)


def test_a_chain_can_stop_early(store):
    result = build_chain(TRACED, store=store, phases=("OptimizeOnnx",))
    assert list(result.phases) == ["Trace", "OptimizeOnnx"]
    assert list(build_chain(TRACED, store=store, phases=()).phases) == ["Trace"]


def test_the_table_of_phases_is_consistent():
    given: set[str] = set()
    for phase in PHASES.values():
        assert set(phase.takes) <= given, f"{phase.name} takes what no phase above it gives"
        names = {artifact.name for artifact in phase.gives}
        assert not names & given
        given |= names
        assert phase.function.startswith("mlsdk.tasks.adapters:")
        assert hasattr(adapters, phase.function.partition(":")[2])
    assert set(GIVERS) == given


def test_the_keys_of_phases_are_pinned(store):
    """A change here is a change of every key: raise a version on purpose, not by accident."""
    result = build_chain(TRACED, {"float_dtype": "mixed"}, store=store)
    parts = result.actions["Schedule"].recipe
    assert dict(parts.options) == {
        "scheduler": "reuse_consecutive",
        "sa_expected_run_iters": 1000,
        "sram_budget": 1.0,
        "envs": {},
    }
    assert set(parts.inputs) == set(PHASES["Schedule"].takes)
    assert dict(parts.tools) == {"artifacts": "l3ir.txt l3ir_stripped.onnx plan.json search.json"}
    assert parts.version == PHASES["Schedule"].version


def test_an_application_that_is_gone_says_what_to_do(store):
    from mlsdk.tasks.traced import TracedFunction

    source = TracedFunction(contents={"exported.onnx": "0" * 64}, name="add")
    with pytest.raises(WorkflowError, match="is no longer in the store; trace it again"):
        build_chain(source, store=store)


def test_the_listener_hears_each_phase_once(store):
    heard = []
    build_chain(TRACED, store=store, label="add", listener=heard.append)
    assert [one.phase for one in heard if one.state == "built"] == ALL
    heard.clear()
    build_chain(TRACED, store=store, label="add", listener=heard.append)
    assert [(one.phase, one.state) for one in heard] == [(name, "cached") for name in ALL]


def test_code_keys_are_for_development(store, monkeypatch):
    source = build_chain(TRACED, store=store).givers["exported.onnx"]
    task = Load(source=source, options={})
    assert "code" not in task.key_tools()
    monkeypatch.setenv("MLSDK_KEY_CODE", "1")
    assert len(task.key_tools()["code"]) == 64


def test_progress_lines_on_a_terminal_only(store, capsys):
    import io

    from mlsdk.tasks import progress

    assert progress.for_stream(io.StringIO()) is progress.quiet

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    listener = progress.for_stream(terminal)
    build_chain(TRACED, store=store, listener=listener)
    build_chain(TRACED, store=store, listener=listener)
    text = terminal.getvalue()
    assert text.count("built") == len(ALL)
    assert text.count("cached") == len(ALL)
    assert capsys.readouterr().err == ""


def test_a_cached_chain_is_quick(store):
    """Generous, because the machine is shared; the figure itself is measured in bench/."""
    build_chain(TRACED, store=store)
    best = 1.0
    for _ in range(3):
        start = time.perf_counter()
        build_chain(TRACED, store=store)
        best = min(best, time.perf_counter() - start)
    assert best < 0.3
    assert os.getpid()
