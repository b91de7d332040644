"""`mlsdk compare`: two folders, two builds of a store, or one of each."""

from __future__ import annotations

import json

import pytest

from mlsdk.cli import main


@pytest.fixture
def compare(compiled, capfd):
    def call(*arguments: str) -> tuple[int, str, str]:
        code = main.run(["compare", "--store", str(compiled / "store"), *arguments])
        return (code, *capfd.readouterr())

    return call


def test_two_folders(compare, compiled):
    code, out, _err = compare(str(compiled / "a"), str(compiled / "b"), "--json")
    found = json.loads(out)
    steps = {name: json.loads((compiled / name / "report.json").read_bytes()) for name in ("a", "b")}
    assert code == 0
    assert {row["name"] for row in found["options"]} == {"float_dtype", "scheduler", "sa_expected_run_iters"}
    for total in ("steps", "dram_bytes"):
        sides = [found["totals"][total][side] for side in ("a", "b")]
        assert sides[1] == pytest.approx(steps["b"][total]) and sides[0] == pytest.approx(steps["a"][total])
        by_node = "steps" if total == "steps" else "dram"
        assert sum((r[f"{by_node}_b"] or 0) - (r[f"{by_node}_a"] or 0) for r in found["nodes"]) == sides[1] - sides[0]
    text = compare(str(compiled / "a"), str(compiled / "b"))[1]
    assert "scheduler" in text and "auto_recompute_sa" in text and f"{steps['a']['steps']:,.0f}" in text


def test_two_builds_and_a_build_with_its_folder(compare, compiled):
    folders = json.loads(compare(str(compiled / "a"), str(compiled / "b"), "--json")[1])
    builds = json.loads(compare("@1", "@2", "--json")[1])
    assert all(builds[part] == folders[part] for part in ("options", "totals", "nodes", "equal"))
    same = json.loads(compare("@1.0", str(compiled / "a"), "--json")[1])
    assert (same["options"], same["nodes"]) == ([], []) and same["equal"] > 0


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("@99", "the store has no such build"),
        ("@1.7", "the store has no such build"),
        ("@", "the store has no such build"),
        ("nothing", "nothing is no folder, and no build in"),
        ("./nothing", "./nothing is no folder; give a codegen_dir"),
        (".", "manifest.json is missing: . is no codegen_dir"),
    ],
)
def test_what_cannot_be_compared_is_said(compare, name, told):
    code, out, err = compare("@1", name)
    assert (code, out) == (1, "") and told in err and "Traceback" not in err
