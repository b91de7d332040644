from __future__ import annotations

import json

import pytest

from mlsdk.cli import exit_codes
from mlsdk.store import Recipe, query
from mlsdk.tasks.phases import PHASES

VERBS = {
    "ls": [],
    "show": ["example_workflow/Schedule"],
    "cat": ["example_workflow/Train/weights.json"],
    "why": [],
    "log": [],
    "deps": ["example_workflow/Load"],
    "du": [],
    "diff": ["@1", "@2"],
    "tag": ["best", "example_workflow/Load"],
    "query": ["SELECT phase, count(*) AS n FROM actions GROUP BY phase ORDER BY phase"],
    "export": ["example_workflow", "parcel.zip"],
    "import": ["parcel.zip"],
    "gc": [],
    "fsck": [],
}


@pytest.fixture
def filled(mlsdk):
    assert mlsdk("build", "example_workflow").code == 0
    assert mlsdk("build", "example_workflow", "--option", "float_dtype=half").code == 0
    return mlsdk


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_prints_for_people_and_as_json(filled, verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if verb == "import":
        assert filled("store", "export", *VERBS["export"]).code == 0
    text = filled("store", verb, *VERBS[verb])
    assert (text.code, text.err) == (0, "")
    assert text.out
    found = filled("store", verb, *VERBS[verb], "--json")
    assert (found.code, found.err) == (0, "")
    json.loads(found.out)


def test_every_verb_is_tested():
    from mlsdk.cli.store import store

    assert set(store.commands) == set(VERBS)


def test_ls_filters(filled):
    rows = filled("store", "ls", "--phase", "Emit", "--json").json
    assert {row["name"] for row in rows} == {artifact.name for artifact in PHASES["Emit"].gives}
    assert len(filled("store", "ls", "-n", "3", "--json").json) == 3
    assert len(filled("store", "ls", "-n", "0", "--json").json) > 20
    half = filled("store", "ls", "--option", "float_dtype=half", "--json").json
    assert {row["phase"] for row in half} == {"LayoutPlan"}
    assert filled("store", "ls", "--newer", "1h", "--kind", "vsm", "--json").json
    assert filled("store", "ls", "--newer", "0.0001s", "--json").json == []
    assert filled("store", "ls", "--newer", "soon").code == exit_codes.USAGE


def test_cat_writes_the_bytes(filled):
    assert filled("store", "cat", "example_workflow/Train/weights.json").out == "[0.0, 0.5, 1.0]"
    found = filled("store", "cat", "example_workflow/Train", "--json").json
    assert (found["text"], found["base64"], found["size"]) == ("[0.0, 0.5, 1.0]", None, 15)


def test_why_says_which_part_of_the_key_changed(filled):
    answer = filled("store", "why", "example_workflow/LayoutPlan")
    assert answer.out.splitlines() == [
        "because LayoutPlan of example_workflow: option float_dtype: mixed -> half",
        "    built again: LayoutPlan",
    ]
    found = filled("store", "why", "example_workflow/LayoutPlan", "--json").json
    assert found[0]["changes"] == [{"part": "option float_dtype", "before": "mixed", "after": "half"}]
    assert found[0]["causes"][0]["part"] == "option float_dtype"
    emit = filled("store", "why", "example_workflow/Emit").out
    assert emit.splitlines()[0] == "because LayoutPlan of example_workflow: option float_dtype: mixed -> half"
    everything = filled("store", "why").out
    assert "    built again: LayoutPlan, Schedule, Simulate, Emit, Load, Run" in everything
    assert "Train of example_workflow: from the store, built" in everything


def test_a_diff_of_builds_tells_what_took_the_time(filled):
    lines = filled("store", "diff", "@1", "@2").out.splitlines()
    assert any(line.startswith("seconds of the build: ") and line.endswith("%)") for line in lines)
    assert any(line.startswith("Train seconds: ") and line.endswith(" -> from the store") for line in lines)
    assert any(line.startswith("LayoutPlan seconds: ") and "from the store" not in line for line in lines)
    results = filled("store", "diff", "@1/LayoutPlan", "@2/LayoutPlan").out
    assert "seconds of the build" not in results


def test_cat_unpacks_text_when_asked(mlsdk, store):
    import zstandard

    packed = zstandard.ZstdCompressor().compress(b"nop/1")
    store.publish(Recipe("P", 1), {"model.vsm.zst": packed, "x.npz": b"PK\0\x80", "bad.zst": packed[:9]}, label="d")
    key = Recipe("P", 1).digest[:12]
    assert mlsdk("store", "cat", f"{key}:model.vsm.zst", "--text").out == "nop/1"
    for name, told in (("x.npz", "is no text (4 bytes)"), ("bad.zst", "it is damaged")):
        answer = mlsdk("store", "cat", f"{key}:{name}", "--text")
        assert (answer.code, answer.out) == (exit_codes.FAILED, "") and told in answer.err


def test_a_name_that_is_nearly_right_is_told(filled):
    answer = filled("store", "ls", "--kind", "nope")
    assert (answer.code, answer.out) == (exit_codes.FAILED, "")
    assert "there is no such kind here; there are application, arrays, html, json" in answer.err
    for verb in ("log", "ls"):
        answer = filled("store", verb, "--label", "example_workflo")
        assert (answer.code, answer.out) == (exit_codes.STORE, "")
        assert "is named 'example_workflo'; did you mean 'example_workflow'?" in answer.err
    answer = filled("store", "log", "--label", "example_workflow", "--preset", "O3")
    assert (answer.code, answer.out) == (0, "") and "no build is like that" in answer.err
    assert filled("store", "log", "--preset", "O3", "--json").json == []
    answer = filled("store", "show", "example_workflow/layoutplan")
    assert "did you mean 'example_workflow/LayoutPlan'?" in answer.err
    shown = filled("store", "show", "example_workflow").out
    assert "also example_workflow/PHASE, PHASE one of Data, Emit" in shown
    tools = shown.partition("tools")[2].partition("outputs")[0]
    assert "artifacts" not in tools


def test_a_place_that_cannot_hold_a_store_is_said(mlsdk, tmp_path):
    (tmp_path / "file").write_text("")
    for place in ("/proc/nope", str(tmp_path / "file")):
        answer = mlsdk("build", "example_workflow", "--store", place)
        assert answer.code == exit_codes.STORE, answer.err
        assert f"{place}" in answer.err and "set MLSDK_STORE" in answer.err


def test_deps_as_dot(filled):
    assert filled("store", "deps", "example_workflow/Load", "--dot").out.startswith("digraph")
    assert "Run" in filled("store", "deps", "example_workflow/Load", "--down").out


def test_fsck_finds_and_repairs(filled, root, store):
    action = query.find(store, "example_workflow/Schedule").action
    path = store.objects.path(action.outputs["plan.json"].digest)
    path.chmod(0o644)
    path.write_bytes(b"")
    found = filled("store", "fsck", "--json")
    assert found.code == exit_codes.FOUND
    assert [one["kind"] for one in found.json["findings"]] == ["damaged"]
    assert "NOT clean" in filled("store", "fsck").out
    repaired = filled("store", "fsck", "--repair")
    assert (repaired.code, "moved to quarantine" in repaired.out) == (0, True)
    assert filled("store", "fsck").code == 0
    again = filled("build", "example_workflow", "--option", "float_dtype=half", "--json").json
    assert [name for name, outcome in again["phases"].items() if outcome == "built"] == ["Schedule"]


def test_fsck_rebuilds_the_index(filled, root):
    before = filled("store", "ls", "-n", "0", "--json").json
    with open(root / "index.sqlite", "r+b") as file:
        file.write(b"x" * 100)
    answer = filled("store", "fsck", "--rebuild")
    assert answer.code == 0
    after = filled("store", "ls", "-n", "0", "--json").json
    assert {row["digest"] for row in after} == {row["digest"] for row in before}


def test_gc_needs_its_time(filled):
    assert filled("store", "gc", "--json").json["deleted"] == []
    filled("store", "gc")
    told = filled("store", "gc", "--dry-run")
    assert told.out.startswith("would delete 1")
    assert len(filled("store", "gc", "--json").json["deleted"]) > 10
    assert filled("store", "ls", "--json").json == []
    assert "collected" in filled("build", "example_workflow", "--json").json["reasons"]["Schedule"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["show", "nothing"], "nothing in the store is named 'nothing'"),
        (["show", "0123456789"], "no key and no digest starts with"),
        (["why", "nothing"], "no build of nothing"),
        (["cat", "example_workflow/Schedule"], "has 3 artifacts; write"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(filled, arguments, told):
    answer = filled("store", *arguments)
    assert answer.code == exit_codes.STORE
    assert told in answer.err
    assert len(answer.err.splitlines()) == 1


def test_looking_creates_no_store(mlsdk, root):
    answer = mlsdk("store", "ls")
    assert answer.code == exit_codes.STORE
    assert "there is no store at" in answer.err
    assert not root.exists()


def test_a_name_does_not_steer_the_terminal(mlsdk, store):
    from mlsdk.store import Build, Event, Recipe

    recipe = Recipe("P", 1, {"x": "\x1b[2J"})
    store.publish(recipe, {"a": b"x"}, label="evil\x1b[31m\n")
    event = Event("P", "evil\x1b[31m\n", recipe.digest, recipe.text, "built", "\x1b]0;title\x07")
    store.record(Build("evil\x1b[31m\n", 0.0, 0.0, events=[event]))
    for arguments in (["ls"], ["log"], ["why"], ["show", recipe.digest[:10]], ["deps", recipe.digest[:10]]):
        out = mlsdk("store", *arguments).out
        assert "\x1b" not in out
        assert "\x07" not in out


def test_a_result_moves_to_another_store(filled, tmp_path):
    parcel = str(tmp_path / "parcel")
    assert filled("store", "export", "example_workflow", parcel, "--json").json["results"] == 10
    other = str(tmp_path / "other")
    assert filled("store", "--store", other, "import", parcel).out.startswith("10 new results of 10: example_workflow")
    assert filled("build", "example_workflow", "--option", "float_dtype=half", "--store", other).out.startswith(
        "example_workflow: nothing to build"
    )
    (tmp_path / "parcel").write_bytes(b"x")
    assert filled("store", "--store", other, "import", parcel).code == exit_codes.STORE


def test_tags_are_listed_moved_and_taken_away(filled):
    assert filled("store", "tag", "best", "example_workflow/Load").code == 0
    assert filled("store", "show", "best", "--json").json["phase"] == "Load"
    assert [row["name"] for row in filled("store", "tag", "--json").json] == ["best"]
    assert filled("store", "tag", "best", "--delete").code == 0
    assert filled("store", "tag", "--json").json == []
    assert filled("store", "tag", "best").code == exit_codes.USAGE
    assert filled("store", "tag", "a/b", "example_workflow/Load").code == exit_codes.STORE


def test_sql_answers_and_refuses(filled):
    rows = filled(
        "store", "query", "SELECT DISTINCT phase FROM runs WHERE workflow = 'example_workflow'", "--json"
    ).json
    assert {row["phase"] for row in rows} >= {"Trace", "Run"}
    assert filled("store", "query", "DROP TABLE action").code == exit_codes.STORE
    assert (
        filled("store", "query", "SELECT 1 FROM artifacts", "-n", "2").err
        == "mlsdk: only the first 2 rows; give --limit\n"
    )


def test_ls_by_size_and_age(filled):
    everything = filled("store", "ls", "-n", "0", "--json").json
    large = filled("store", "ls", "-n", "0", "--larger", "1KiB", "--json").json
    assert {row["size"] >= 1024 for row in large} == {True}
    assert 0 < len(large) < len(everything)
    assert filled("store", "ls", "--older", "1h", "--json").json == []
    assert filled("store", "ls", "--larger", "big").code == exit_codes.USAGE


def test_every_verb_has_help(mlsdk):
    for verb in VERBS:
        answer = mlsdk("store", verb, "--help")
        assert answer.code == 0
        assert "--json" in answer.out
