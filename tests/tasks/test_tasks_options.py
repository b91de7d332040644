from __future__ import annotations

import json

import pytest

from mlsdk.errors import OptionError
from mlsdk.tasks.options import OPTIONS, resolve
from mlsdk.tasks.phases import PHASES


def test_defaults_and_origins():
    resolved = resolve({"float_dtype": "mixed"})
    assert resolved.values["float_dtype"] == "mixed"
    assert (resolved.origins["float_dtype"], resolved.origins["scheduler"]) == ("direct", "default")
    assert resolve(None).values == resolve({}).values
    assert set(resolved.values) == set(OPTIONS)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"float_dtpye": "half"}, "there is no option 'float_dtpye'; did you mean 'float_dtype'"),
        ({"float_dtype": "Half"}, "option float_dtype: 'Half' is not allowed; did you mean 'half'"),
        ({"scheduler": "fast"}, "give one of always_from_dram, reuse_consecutive"),
        ({"sram_budget": "0.5"}, "is no number; give a number from 0 to 1"),
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


@pytest.mark.parametrize("value", [0, 1, 0.0, 1.0, 0.5])
def test_the_ends_of_a_range_are_inside(value):
    assert resolve({"sram_budget": value}).values["sram_budget"] == float(value)


def test_a_preset_is_read_and_direct_options_win(tmp_path):
    preset = tmp_path / "O1.json"
    preset.write_text(json.dumps({"scheduler": "spill_opt", "float_dtype": "half", "option_json": "ignored.json"}))
    resolved = resolve({"option_json": str(preset), "float_dtype": "mixed"})
    assert (resolved.values["scheduler"], resolved.values["float_dtype"]) == ("spill_opt", "mixed")
    assert resolved.origins["scheduler"] == f"option_json {preset}"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "line 1, column 1"),
        (b"[]", "it holds list; write an object"),
        (b"null", "it holds NoneType"),
        (b'{"scheduler": "spill_opt",}', "line 1, column 2"),
        (b'{"a": 1, "a": 2}', "the name 'a' stands twice"),
        (b'{"sram_budget": NaN}', "NaN is not JSON"),
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


def test_a_byte_order_mark_is_no_harm(tmp_path):
    (tmp_path / "preset.json").write_bytes(b'\xef\xbb\xbf{"scheduler": "spill_opt"}')
    assert resolve({"option_json": str(tmp_path / "preset.json")}).values["scheduler"] == "spill_opt"


def test_a_layout_file_counts_by_its_content(tmp_path):
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text('[{"key": "w"}]')
    one, other = (resolve({"layout_spec": str(tmp_path / name)}) for name in ("a.json", "b.json"))
    assert one.of_phase("LayoutPlan") == other.of_phase("LayoutPlan")
    assert one.of_phase("LayoutPlan")["layout_spec"] == [{"key": "w"}]


def test_each_option_names_phases_that_exist():
    for option in OPTIONS.values():
        assert set(option.phases) <= set(PHASES)
        assert option.help
