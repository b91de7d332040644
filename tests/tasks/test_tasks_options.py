from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mlsdk.errors import OptionError
from mlsdk.tasks import presets, variables
from mlsdk.tasks.options import OPTIONS, resolve
from mlsdk.tasks.phases import PHASES


def test_defaults_and_origins():
    resolved = resolve({"float_dtype": "mixed"})
    assert resolved.values["float_dtype"] == "mixed"
    assert (resolved.origins["float_dtype"], resolved.origins["scheduler"]) == ("direct", "default")
    assert resolve(None).values == resolve({}).values == resolve(dict.fromkeys(OPTIONS)).values
    assert set(resolved.values) == set(OPTIONS)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"float_dtpye": "half"}, "there is no option 'float_dtpye'; did you mean 'float_dtype'"),
        ({"float_dtype": "Half"}, "option float_dtype: 'Half' is not allowed; did you mean 'half'"),
        ({"scheduler": "fast"}, "give one of always_from_dram"),
        ({"layout_planner": "bidy"}, "'bidy' is not allowed; did you mean 'bidi'"),
        ({"layout_spec": ["w"]}, "entry 0 is str; write an object"),
        ({"envs": {"codegen_sa_steps": "1"}}, "no variable 'codegen_sa_steps'; did you mean 'CODEGEN_SA_STEPS'"),
        ({"envs": {"A=B": "1"}}, "'A=B' cannot be set to '1'"),
        ({"envs": {"A": "x\0y"}}, "'A' cannot be set"),
        ({"option_json": "\ud800"}, "is no path"),
        ({"num_threads": 0}, "give a whole number from 1 to 4096, or -1"),
        ({"num_threads": True}, "give a whole number"),
        ({3: 1}, "an option's name is 3; names are texts"),
        ({"sram_budget": "a half"}, "is no number; give a number from 0 to 1"),
        ({"sram_budget": "nan"}, "is no number"),
        ({"sa_expected_run_iters": "1.5"}, "give a whole number"),
        ({"sram_budget": True}, "is no number"),
        ({"sram_budget": float("nan")}, "is no number"),
        ({"sram_budget": -0.1}, "is out of range"),
        ({"sram_budget": 1.0000001}, "is out of range"),
        ({"sa_expected_run_iters": 0}, "give a whole number from 1 to"),
        ({"sa_expected_run_iters": 1.5}, "give a whole number"),
        ({"envs": ["A=1"]}, "give a mapping"),
        ({"backprop": 1}, "give true or false"),
        ({"layout_spec": "/no/such/file.json"}, "layout_spec /no/such/file.json: No such file"),
        ({"option_json": "/no/such/file.json"}, "option_json /no/such/file.json: No such file"),
        ({"option_json": "a\0b"}, "is no path"),
    ],
)
def test_a_bad_option_is_said(options, told):
    with pytest.raises(OptionError, match=told.replace("(", r"\(")):
        resolve(options)


@pytest.mark.parametrize("value", [0, 1, 0.0, 1.0, 0.5, "0.5", "1"])
def test_the_ends_of_a_range_are_inside(value):
    assert resolve({"sram_budget": value}).values["sram_budget"] == float(value)


def test_a_preset_is_read_and_direct_options_win(tmp_path):
    preset = tmp_path / "O1.json"
    preset.write_text(json.dumps({"sa_expected_run_iters": 7, "float_dtype": "half", "option_json": "ignored.json"}))
    resolved = resolve({"option_json": str(preset), "float_dtype": "mixed"})
    assert (resolved.values["sa_expected_run_iters"], resolved.values["float_dtype"]) == (7, "mixed")
    assert resolved.origins["sa_expected_run_iters"] == f"option_json {preset}"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "line 1, column 1"),
        (b"[]", "it holds list; write an object"),
        (b"null", "it holds NoneType"),
        (b"{\n \"envs\": {},\n \"args\": [1,]\n}", "line 3, column 13"),
        (b'{"envs": []}', "envs is list; write an object"),
        (b'{"args": "--x=1"}', "args is no list of texts"),
        (b'{"args": ["float_dtype=half"]}', "write --NAME=VALUE"),
        (b'{"args": ["--sram_budget=2"]}', "preset.json: option sram_budget: 2 is out of range"),
        (b'{"args": ["--float_dtpye=half"]}', "did you mean 'float_dtype'"),
        (b'{"args": ["--float_dtype=Half"]}', "did you mean 'half'"),
        (b'{"name": 3}', "name is int; write a text"),
        (b'{"envs": {"CODEGEN_SA_STEP": 1}}', "no variable 'CODEGEN_SA_STEP'; did you mean 'CODEGEN_SA_STEPS'"),
        (b'{"name": "' + b"x" * 2_000_000 + b'"}', "2,000,012 bytes; a file of options has at most"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"args": ["--envs=' + b"[" * 100_000 + b'"]}', "args holds --envs, which is nested too deep"),
        (b'{"scheduler": "spill_opt",}', "line 1, column 2"),
        (b'{"a": 1,\n "a": 2}', "line 2, column 2: the name 'a' stands twice"),
        (b'{"sram_budget": NaN}', "line 1, column 17: NaN is not JSON"),
        (b'\xff\xfe{\x00}\x00', "is not UTF-8"),
        (b'{"shceduler": 1}', "no option 'shceduler'; did you mean 'scheduler'"),
    ],
)  # fmt: skip
def test_a_bad_preset_is_said(tmp_path, content, told):
    preset = tmp_path / "preset.json"
    preset.write_bytes(content)
    with pytest.raises(OptionError, match=told):
        resolve({"option_json": str(preset)})
    with pytest.raises(OptionError, match=str(tmp_path)):
        resolve({"option_json": str(tmp_path)})


def test_what_is_told_of_names_without_effect(tmp_path, caplog):
    from mlsdk.tasks.options import tell

    preset = tmp_path / "mine.json"
    preset.write_text('{"envs": {"CODEGEN_DUMP_VSM": 1, "CODEGEN_SA_STEPS": 3}, "args": ["--save_onnx=a.onnx"]}')
    resolved = resolve({"option_json": preset, "pfvm_compatible": True})
    for _ in range(2):
        tell(resolved)
    told = [record.message for record in caplog.records]
    assert len(told) == len(set(told)) == 3
    where = f"the instructions stand in model.vsm.zst of every codegen_dir (option_json {preset})"
    assert f"CODEGEN_DUMP_VSM has no effect here: {where}" in told
    assert resolve({"envs": None}).notices() == []
    official = {"CODEGEN_OPS_ON_HOST": "Softmax, ChainerAdamW", "CODEGEN_OF_ANOTHER_VERSION": 1, "HF_HOME": "x"}
    named, unknown = resolve({"envs": official}).notices()[::-1]
    assert named.startswith("CODEGEN_OPS_ON_HOST=ChainerAdamW has no effect here: an optimizer's step is made of")
    assert unknown == "CODEGEN_OF_ANOTHER_VERSION is not known here, and has no effect (direct)"


def test_a_byte_order_mark_is_no_harm(tmp_path):
    (tmp_path / "preset.json").write_bytes(b'\xef\xbb\xbf{"float_dtype": "half"}')
    assert resolve({"option_json": str(tmp_path / "preset.json")}).values["float_dtype"] == "half"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"key": "w"}', "it holds dict; write a list of objects"),
        ("[1]", "entry 0 is int; write an object"),
        ("[" * 100_000, "nested too deep"),
        ("[{]", "line 1, column 3"),
    ],
)
def test_a_file_of_layouts_that_is_none(tmp_path, content, told):
    (tmp_path / "layouts.json").write_text(content)
    with pytest.raises(OptionError, match=told):
        resolve({"layout_spec": str(tmp_path / "layouts.json")})


def test_a_file_of_layouts_enters_the_key_by_its_content(tmp_path):
    entries = [{"key": "w", "A": "((8_L2B:1),(4_PE:1,4_W:1))"}]
    (tmp_path / "layouts.json").write_text(json.dumps(entries))
    by_file = resolve({"gemm_layout_spec": str(tmp_path / "layouts.json")})
    assert by_file.of_phase("LayoutPlan") == resolve({"gemm_layout_spec": entries}).of_phase("LayoutPlan")
    assert by_file.values["gemm_layout_spec"] == entries


def test_the_page_about_options_is_current():
    from mlsdk.tasks import option_page

    written = (Path(__file__).parents[2] / "docs" / "options.md").read_text()
    assert written == option_page.page(), "run `make docs`"
    assert all(f"`{name}`" in written for name in OPTIONS)


def test_each_option_names_phases_that_exist():
    for option in OPTIONS.values():
        assert set(option.phases) <= set(PHASES)
        assert option.help


# -- the format of option_json, presets, variables -------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in variables.of_environment():
        monkeypatch.delenv(name)


def test_the_format_with_envs_args_and_name(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(
        json.dumps(
            {
                "envs": {"CODEGEN_SA_STEPS": 100, "CODEGEN_USE_MERGE": True},
                "args": ["--float_dtype=half", "--sram_budget=0.5", "--float_dtype=mixed", "--backprop"],
                "name": "thorough",
            }
        )
    )
    resolved = resolve({"option_json": str(path), "sram_budget": 0.25})
    assert resolved.values["float_dtype"] == "mixed"  # in their order
    assert (resolved.values["sram_budget"], resolved.values["backprop"]) == (0.25, True)
    assert resolved.values["envs"] == {"CODEGEN_SA_STEPS": "100", "CODEGEN_USE_MERGE": "true"}
    assert (resolved.preset, resolved.origins["envs.CODEGEN_SA_STEPS"]) == ("thorough", f"option_json {path}")
    assert resolved.of_phase("Schedule")["envs"] == {"CODEGEN_SA_STEPS": "100", "CODEGEN_USE_MERGE": "true"}
    assert resolved.of_phase("LayoutPlan")["envs"] == {}


def test_a_nested_option_json_is_ignored_with_a_warning(tmp_path, caplog):
    path = tmp_path / "self.json"
    for text in (
        {"option_json": str(path), "sram_budget": 0.5},
        {"args": [f"--option_json={path}", "--sram_budget=0.5"]},
    ):
        caplog.clear()
        path.write_text(json.dumps(text))
        assert resolve({"option_json": str(path)}).values["sram_budget"] == 0.5
        resolve({"option_json": str(path)})
        assert [record.message for record in caplog.records] == [
            f"option_json {path}: the option_json inside it is ignored; it cannot be nested"
        ]


@pytest.mark.parametrize("text", ["O1", "O1.json", "/opt/pfn/pfcomp/codegen/preset_options/O1.json"])
def test_a_preset_is_found_by_its_name(text):
    assert resolve({"option_json": text}).preset == "O1"
    assert resolve({"option_json": text}).values == {**resolve({"option_json": "O1"}).values, "option_json": text}


@pytest.mark.parametrize("text", ["O9", "/opt/pfn/O1.json", "preset_options/mine.json"])
def test_what_is_no_preset_is_said(text):
    with pytest.raises(OptionError, match="give a file, or one of debug, O0, O1, O2, O3, O4"):
        resolve({"option_json": text})


def test_every_preset_can_be_resolved_and_written_again(tmp_path):
    for name in presets.BUILT_IN:
        resolved = resolve({"option_json": name, "sram_budget": 0.75})
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(presets.written(resolved.values, resolved.preset)))
        again = resolve({"option_json": str(path)})
        for phase in PHASES:
            assert again.of_phase(phase) == resolved.of_phase(phase)
        assert again.preset == name


def test_a_variable_that_is_set_wins(monkeypatch, tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"envs": {"CODEGEN_SA_STEPS": 1, "CODEGEN_MAX_TIME_SLICE": 1, "CODEGEN_ALARM": 1}}')
    monkeypatch.setenv("CODEGEN_SA_STEPS", "3")
    monkeypatch.setenv("CODEGEN_DUMP_VSM", "")
    resolved = resolve({"option_json": str(path), "envs": {"CODEGEN_SA_STEPS": 2, "CODEGEN_MAX_TIME_SLICE": "2"}})
    assert resolved.values["envs"] == {
        "CODEGEN_ALARM": "1", "CODEGEN_DUMP_VSM": "", "CODEGEN_MAX_TIME_SLICE": "2", "CODEGEN_SA_STEPS": "3",
    }  # fmt: skip
    origins = {name: resolved.origins[f"envs.{name}"] for name in resolved.values["envs"]}
    assert origins["CODEGEN_SA_STEPS"] == origins["CODEGEN_DUMP_VSM"] == "environment"
    assert (origins["CODEGEN_MAX_TIME_SLICE"], origins["CODEGEN_ALARM"]) == ("direct", f"option_json {path}")
    assert resolved.of_phase("Emit")["envs"] == {}  # a dump changes no result
    others = resolve({"envs": {"OF_A_PLUGIN": "1"}})  # it may change anything
    assert all(others.of_phase(phase)["envs"] for phase in OPTIONS["envs"].phases)
    unknown = resolve({"envs": {"CODEGEN_OF_ANOTHER_VERSION": "1"}})  # and this nothing: a notice says so
    assert not any("CODEGEN_OF_ANOTHER_VERSION" in unknown.of_phase(phase)["envs"] for phase in OPTIONS["envs"].phases)
    monkeypatch.setenv("CODEGEN_SA_STEPZ", "1")
    with pytest.raises(
        OptionError, match="the environment: .* no variable 'CODEGEN_SA_STEPZ'; did you mean 'CODEGEN_SA_"
    ):
        resolve()


def test_variables_are_set_while_a_phase_runs(monkeypatch):
    monkeypatch.setenv("CODEGEN_SA_STEPS", "3")
    with variables.applied({"CODEGEN_SA_STEPS": "2", "CODEGEN_ALARM": "1"}):
        assert (os.environ["CODEGEN_SA_STEPS"], os.environ["CODEGEN_ALARM"]) == ("3", "1")
    assert "CODEGEN_ALARM" not in os.environ


def test_each_variable_names_phases_that_exist():
    for phases in (row.phases for row in variables.VARIABLES.values()):
        assert set(phases) <= set(OPTIONS["envs"].phases)
