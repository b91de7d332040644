"""Every page, as HTML and as JSON; the numbers on them are those of the files."""

from __future__ import annotations

import json
import os
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode

import pytest
from dashboard_sample import EVIL

from mlsdk.cli.dashboard.app import PAGES
from mlsdk.cli.dashboard.pages.tools import read_table
from mlsdk.device import spec
from mlsdk.tasks.options import resolve

NAMED = [
    "/node/view?name=fc2",
    "/tools/layout?value=x&index=3,4",
    "/tools?file=l3ir.txt",
    "/tools?file=time_slice.txt",
    "/tools?file=layout_plan_history.html",
    "/netron?file=exported.onnx",
    "/node?file=exported.onnx",
    "/perfetto?file=profile.json",
    "/logs?level=ERROR&q=x",
]
PLAIN = [f"/{page.path}" for page in PAGES if page.menu]


class Checker(HTMLParser):
    """Well-formed enough, and free of anything that runs: no inline script, no handler, no address outside."""

    VOID = frozenset(["meta", "link", "img", "input", "br", "hr"])

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name.startswith("on") or name == "style":
                self.wrong.append(f"{tag} {name}={value}")
            if name in ("href", "src") and not (value or "").startswith(("/", "#")):
                self.wrong.append(f"{tag} {name}={value}")
        if tag == "script" and not dict(attrs).get("src"):
            self.wrong.append("inline script")

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if tag in self.VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> at {self.getpos()}")


def check(text: str) -> None:
    checker = Checker()
    checker.feed(text)
    assert not checker.wrong, checker.wrong[:5]
    assert not checker.open, checker.open


@pytest.mark.parametrize("address", PLAIN + NAMED)
def test_each_page_has_a_json_twin(whole, address):
    page = whole.get(address)
    assert page.status_code == 200, page.text[:300]
    check(page.text)
    path, _mark, query = address.partition("?")
    twin = whole.get(f"{path}.json?{query}")
    assert twin.status_code == 200
    assert twin.headers["content-type"] == "application/json"
    assert twin.json()["troubles"] == [] or address in ("/compare",)
    assert f'href="{path}.json' in page.text


@pytest.mark.parametrize("address", PLAIN + NAMED)
def test_builds_of_the_store_have_the_same_pages(whole, address):
    if address.split("?")[0] in ("/store", "/compare"):
        return
    page = whole.get(f"/builds/1{address}")
    assert page.status_code == (404 if address.startswith("/logs") else 200), page.text[:300]
    check(page.text)


def test_the_sums_are_those_of_the_files(whole, compiled):
    report = json.loads((compiled / "a" / "report.json").read_bytes())
    rows = json.loads((compiled / "a" / "simulation_result.json").read_bytes())["rows"]
    page = whole.get("/summary.json").json()
    tiles = {tile["label"]: tile["value"] for tile in page["tiles"]}
    assert tiles["Steps"] == report["steps"]
    assert tiles["DRAM"] == report["dram_bytes"]
    assert tiles["Layers"] == len({row["node"] for row in rows}) == page["layers"]["total"]
    layers = {row["name"]: row for row in page["layers"]["rows"]}
    for row in rows:
        assert layers[row["node"]]["steps"] == (row["end"] - row["start"]) / spec.CYCLES_PER_STEP
        assert layers[row["node"]]["dram_bytes"] == row["dram_lw"] * 8
        assert layers[row["node"]]["moves"] == row["moves"]
    for attribute, table in page["stats"].items():
        whole_row, *parts = table["rows"]
        assert whole_row["value"] == "ALL"
        assert whole_row["steps"] == sum(part["steps"] for part in parts), attribute
    assert tiles["Operations"] == 2 * 64 * 64 * 64 + 5 * 64 * 64 + 2 * 64 * 10 * 64


def test_phases_and_options_say_what_happened(whole):
    page = whole.get("/summary.json").json()
    assert {row["phase"]: row["outcome"] for row in page["phases"]["rows"]}["Emit"] == "built"
    options = {row["name"]: (row["value"], row["origin"]) for row in page["options"]["rows"]}
    assert options["float_dtype"] == ("mixed", "direct")
    assert options["sram_budget"][1] == "default"


def test_a_node_has_its_instructions(whole, compiled):
    import zstandard

    text = (
        zstandard.ZstdDecompressor()
        .decompressobj()
        .decompress((compiled / "a" / "model.vsm.zst").read_bytes())
        .decode()
    )
    program = text.split("\n")
    page = whole.get("/node/view.json?name=fc2").json()
    lines = page["program"]["lines"]
    assert lines[0]["text"] == "#@ fc2"
    assert [line["text"] for line in lines] == [program[line["number"] - 1] for line in lines]
    assert page["program"]["total"] == page["layer"]["lines"]
    assert page["layer"]["source"].startswith("net.py:7")
    assert sum(row["count"] for row in page["mix"]["rows"]) > 0
    total = sum(
        whole.get("/node/view.json", params={"name": name}).json()["program"]["total"]
        for name in ("softmax", "fc2", EVIL)
    )
    assert total == len(program) - 1


def test_sorting_filtering_and_csv(whole):
    rows = whole.get("/summary.json?layers.sort=-steps").json()["layers"]["rows"]
    assert [row["steps"] for row in rows] == sorted((row["steps"] for row in rows), reverse=True)
    found = whole.get("/summary.json?layers.q=softm").json()["layers"]
    assert [row["name"] for row in found["rows"]] == ["softmax"]
    assert whole.get("/summary.json?layers.q=100%25").json()["layers"]["total"] == 0
    sheet = whole.get("/layers.csv?layers.q=softm")
    assert sheet.headers["content-type"].startswith("text/csv")
    assert len(sheet.text.splitlines()) == 2
    assert whole.get("/nodes.csv?nodes.q=fc2&file=exported.onnx").text.count("\r\n") == 2
    assert whole.get("/summary.json?layers.sort=steps;DROP&layers.page=-1").status_code == 200


def test_nodes_of_each_file(whole):
    exported = whole.get("/node.json?file=exported.onnx").json()
    assert exported["nodes"]["total"] == exported["facts"]["nodes"] == 3
    assert exported["facts"]["opsets"]["ai.onnx"] == 20
    assert exported["nodes"]["rows"][0]["attrs"]["transB"] == 1
    assert whole.get("/node.json?file=exported.onnx&nodes.q=w2").json()["nodes"]["total"] == 1
    assert whole.get("/node?file=../a").status_code == 404


def test_compare_matches_layers(whole, compiled):
    page = whole.get("/compare.json?a=dir&b=dir1").json()
    layers = [json.loads((compiled / name / "simulation_result.json").read_bytes())["rows"] for name in "ab"]
    assert page["total"] == len({row["node"] for rows in layers for row in rows}) >= 3
    assert {row["name"]: (row["a"], row["b"]) for row in page["options"]["rows"]} == {
        "float_dtype": ("mixed", "float"),
        "scheduler": ("always_from_dram", "auto_recompute_sa"),
        "sa_expected_run_iters": (1000, 30),
    }
    for row in page["layers"]["rows"]:
        assert row["delta"] == (row["steps_b"] or 0) - (row["steps_a"] or 0)
    names = [one["name"] for one in page["choices"]]
    assert whole.get(f"/compare.json?a=dir&b={names[-1]}").status_code == 200
    assert whole.get("/compare?a=dir&b=/etc").status_code == 404


def test_memory_shows_each_intermediate_value(whole, compiled):
    slots = json.loads((compiled / "a" / "plan.json").read_bytes())["slots"]
    page = whole.get("/memory.json").json()
    assert {box["name"] for box in page["work"]} == {
        name for name, (segment, _at) in slots.items() if segment == "work"
    }
    for box in page["work"]:
        assert box["y0"] == slots[box["name"]][1]
        assert box["x0"] < box["x1"]
    assert page["banks"]


def test_memory_shows_the_values_that_stay_on_the_chip(client, compiled):
    """Against the plan itself, and against the compiler's own sizes."""
    folder = compiled / "b"
    steps = json.loads((folder / "plan.json").read_bytes())["steps"]
    nodes = {node["name"]: node for node in json.loads((folder / "placed.json").read_bytes())["nodes"]}
    sizes = {
        row["value"]: int(row["LM LW per PE"]) for row in read_table((folder / "layout.html").read_text()).records()
    }
    kept = {
        (nodes[name]["outputs"][result], space, word)
        for name, _note, *homes in steps
        if homes
        for result, space, word in homes[1]
    }
    shown = client(folder)
    page = shown.get("/memory.json").json()
    rows = page["stays"]["rows"]
    assert kept and {(row["name"], row["space"], row["word"]) for row in rows} == kept
    assert all(row["words"] == 2 * sizes[row["name"]] for row in rows)
    assert sum(row["reads"] for row in rows) == sum(len(homes[0]) for _name, _note, *homes in steps if homes)
    boxes = {(box["name"], box["y0"], box["y1"]) for bank in page["banks"] for box in bank if "colour" not in box}
    assert boxes == {(row["name"], row["word"], row["word"] + row["words"]) for row in rows}
    row = rows[0]
    values = shown.get("/node/view.json", params={"name": row["reader"]}).json()["values_table"]["rows"]
    assert f"{row['space']}+{row['word']}" in [value["location"] for value in values if value["role"] == "input"]
    check(shown.get("/memory").text)


def test_search_shows_each_trial_and_each_run(client, compiled):
    folder = compiled / "b"
    shown = client(folder)
    page = shown.get("/search.json").json()
    history = read_table((folder / "layout_plan_history.html").read_text()).records()
    tried = [row for row in history if row["why"].startswith("tried")]
    assert tried and [row["what"] for row in page["trials"]["rows"]] == [row["value"] for row in tried]
    assert sum(row["count"] for row in page["decisions"]["rows"]) == len(history) - len(tried)
    runs = json.loads((folder / "search.json").read_bytes())["runs"]
    assert [run["name"] for run in page["runs"]] == ["layouts", *(run["name"] for run in runs)]
    for found, run in zip(page["runs"][1:], runs, strict=True):
        assert (found["first"], found["best"]) == (run["points"][0][1], run["points"][-1][2])
    for run in page["runs"]:
        bests = [best for _number, _cost, best in run["chart"] or []]
        assert bests == sorted(bests, reverse=True)
    check(shown.get("/search").text)


def test_accuracy_says_what_is_beyond_what_is_allowed(client, folder):
    rows = [
        {"node": "softmax", "max_abs": 0.0, "max_rel": 0.0, "mean_abs": 0.0, "elements": 9, "allowed": 1e-6},
        {"node": "fc2", "max_abs": 0.5, "max_rel": 0.25, "mean_abs": 0.1, "elements": 4, "allowed": 0.125},
        {"node": "count", "max_abs": 0, "max_rel": 0, "mean_abs": 0, "elements": 1, "allowed": 0},
    ]
    (folder / "accuracy.json").write_text(json.dumps({"reference": "pfvm", "rows": rows}))
    shown = client(folder)
    page = shown.get("/accuracy.json").json()
    found = [(row["node"], row["verdict"], row["used"]) for row in page["sheet"]["rows"]]
    assert found == [("fc2", "beyond", 2.0), ("softmax", "within", 0.0), ("count", "within", None)]
    assert page["statement"].startswith("1 of 3 values") and "2 are equal" in page["statement"]
    assert shown.get("/node/view.json?name=fc2").json()["accuracy"]["verdict"] == "beyond"


def test_advice_is_ranked_and_says_why(whole):
    page = whole.get("/advice.json").json()
    for measured in (True, False):
        savings = [one["saves"] for one in page["advice"] if one["measured"] is measured]
        assert savings == sorted(savings, reverse=True)
    assert page["advice"]
    assert all(one["evidence"] and one["saves"] <= page["steps"] for one in page["advice"])
    assert all(0 < row["saves"] <= row["steps"] for row in page["layers"]["rows"])


@pytest.mark.parametrize("name", ["a", "b"])
def test_advice_names_options_that_a_compile_takes(client, compiled, name):
    page = client(compiled / name).get("/advice.json").json()
    given = json.loads((compiled / name / "option.json").read_bytes())["options"]
    for one in page["advice"]:
        changed = resolve(one["options"]).values
        assert all(changed[option] == value != given[option] for option, value in one["options"].items()), one


def test_advice_from_a_compile_that_was_measured(client, compiled, tmp_path):
    """The steps of the other folder, and the options in which it differs; nothing from another function."""
    slow = Path(shutil.copytree(compiled / "a", tmp_path / "slow"))
    report = json.loads((slow / "report.json").read_bytes())
    report["steps"] *= 3
    (slow / "report.json").write_text(json.dumps(report))
    shown = client(slow, others=(compiled / "b",))
    (found,) = [one for one in shown.get("/advice.json").json()["advice"] if one["measured"]]
    there = json.loads((compiled / "b" / "report.json").read_bytes())["steps"]
    assert found["saves"] == report["steps"] - there
    assert found["options"] == {"float_dtype": "float", "scheduler": "auto_recompute_sa", "sa_expected_run_iters": 30}
    manifest = json.loads((slow / "manifest.json").read_bytes())
    manifest["files"]["exported.onnx"] = "0" * 64
    (slow / "manifest.json").write_text(json.dumps(manifest))
    shown = client(slow, others=(compiled / "b",))
    assert not [one for one in shown.get("/advice.json").json()["advice"] if one["measured"]]


def test_a_node_on_the_host_is_said(client, folder):
    placed = json.loads((folder / "placed.json").read_bytes())
    for node in placed["nodes"]:
        if node["name"] == "softmax":
            node.update(emitter="host", kernel="")
    (folder / "placed.json").write_text(json.dumps(placed))
    shown = client(folder)
    first = shown.get("/advice.json").json()["advice"][0]
    assert first["saves"] is None and "softmax" in first["evidence"]
    assert "The host computes this node" in shown.get("/node/view?name=softmax").text
    assert "The host computes this node" not in shown.get("/node/view?name=fc2").text


def test_the_store_page_knows_builds_and_reasons(whole):
    page = whole.get("/store.json").json()
    assert page["builds"]["total"] == 2
    assert page["artifacts"]["total"] > 10
    assert any(row["reason"] for row in page["why"]["rows"])


def test_the_store_page_is_only_there_with_a_store(client, compiled):
    alone = client(compiled / "a")
    assert 'href="/store' not in alone.get("/summary").text
    assert alone.get("/store").status_code == 404
    assert alone.get("/builds/1/summary").status_code == 404


def test_only_a_store(client, compiled):
    shown = client(None, store=compiled / "store")
    assert shown.get("/", follow_redirects=False).headers["location"] == "/store"
    assert shown.get("/summary").status_code == 404
    assert shown.get("/builds/2/summary").status_code == 200
    assert shown.get("/builds/99/summary").status_code == 404
    assert shown.get("/builds/1.7/summary").status_code == 404


def test_a_label_leads_to_the_newest_build_of_the_program(client, tmp_path):
    """What Luigi's visualiser links, as tasks/scheduler.py writes it."""
    from mlsdk import store as stores
    from mlsdk.store import Build, Event, Recipe

    with stores.open(tmp_path / "store") as store:
        for number in (1, 2):
            programs = [("a & b/train", "Emit"), ("a & b/infer", "Emit")]
            made = [(store.publish(Recipe(phase, 1, {"of": label, "n": number}), {"x": b"x"}), label)
                    for label, phase in programs]  # fmt: skip
            events = [Event("Emit", label, one.digest, one.parts, "built", "", 0.1) for one, label in made]
            store.record(Build("a & b", 1.0 * number, 0.1, "ok", "", "", events))
    shown = client(None, store=tmp_path / "store")
    for label, where in (("a & b/infer", "/builds/2.1/summary"), ("a & b/train", "/builds/2.0/summary"),
                         ("a & b", "/builds/2.0/summary"), ("none", "/store"), ("//evil.test", "/store")):  # fmt: skip
        answer = shown.get("/", params={"label": label}, follow_redirects=False)
        assert answer.headers["location"] == where
    assert shown.get("/builds/2.1/summary").status_code == 200


@pytest.mark.parametrize("index", ["old", "lost", "empty"])
def test_an_index_that_has_to_be_settled_does_not_stop_the_dashboard(index, client, tmp_path, monkeypatch):
    from mlsdk import store as stores
    from mlsdk.cli.dashboard.command import _store_place
    from mlsdk.store import Recipe, schema

    with stores.open(tmp_path / "store") as store:
        store.publish(Recipe("Emit", 1, {}, {}), {"x": b"x"}, label="net")
    if index == "old":
        monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
        monkeypatch.setitem(schema.MIGRATIONS, schema.VERSION, ("ALTER TABLE action ADD COLUMN extra TEXT",))
    elif index == "lost":
        (tmp_path / "store" / "index.sqlite").unlink()
    else:
        os.truncate(tmp_path / "store" / "index.sqlite", 0)
    assert _store_place(str(tmp_path / "store")) == str(tmp_path / "store")
    shown = client(None, store=tmp_path / "store").get("/store.json").json()
    assert [row["label"] for row in shown["artifacts"]["rows"]] == ["net"]


def test_files_in_both_forms(whole, compiled):
    stored = whole.get("/files/model.vsm.zst")
    assert stored.content == (compiled / "a" / "model.vsm.zst").read_bytes()
    assert "attachment" in stored.headers["content-disposition"]
    plain = whole.get("/files/model.vsm.zst?plain=1")
    assert plain.text.startswith("#@ ")
    assert whole.get("/files/model.vsm?plain=1").text == plain.text
    head = whole.head("/files/report.json")
    assert head.status_code == 200 and head.content == b""
    assert int(head.headers["content-length"]) == (compiled / "a" / "report.json").stat().st_size


def test_labels_follow_the_language_of_the_browser(whole):
    japanese = whole.get("/summary", headers={"accept-language": "ja,en;q=0.5"}).text
    assert '<html lang="ja">' in japanese and "コンパイル状況" in japanese
    english = whole.get("/summary", headers={"accept-language": "fr, en;q=0.9, ja;q=0.1"}).text
    assert '<html lang="en">' in english and "Compile statuses" in english


def test_every_label_of_the_menu_has_a_translation():
    from mlsdk.cli.dashboard.words import JAPANESE

    assert all(page.title in JAPANESE for page in PAGES)


def test_what_the_planner_tried_is_not_taken_for_a_value(client, compiled):
    """Every link of the planner's history leads to a layout; rows of trials have none."""
    shown = client(compiled / "b")
    text = shown.get("/tools?file=layout_plan_history.html").text
    links = set(re.findall(r'href="(/tools/layout\?[^"]*)"', text))
    assert links and all(shown.get(link.replace("&amp;", "&")).status_code == 200 for link in links)
    tried = [trial["what"] for trial in shown.get("/search.json").json()["trials"]["rows"]]
    assert all(f"?{urlencode({'value': what})}" not in link for link in links for what in tried)


def test_a_build_of_the_store_knows_its_options(client, compiled):
    """Those of its keys are those that the folder of the same compile records."""
    shown = client(None, compiled / "store")
    for build, name in (("1.0", "a"), ("2.0", "b")):
        given = json.loads((compiled / name / "option.json").read_bytes())["options"]
        rows = {
            row["name"]: row["value"] for row in shown.get(f"/builds/{build}/summary.json").json()["options"]["rows"]
        }
        assert {"float_dtype", "scheduler", "layout_planner", "envs"} <= rows.keys()
        assert rows == {option: given[option] for option in rows}
    page = shown.get("/builds/1.0/compare.json?a=build:1.0&b=build:2.0").json()
    folders = client(compiled / "a", others=(compiled / "b",)).get("/compare.json").json()
    assert page["options"]["rows"] == folders["options"]["rows"]
    assert not page["troubles"]


def test_advice_from_the_builds_of_the_store(client, compiled):
    steps = {name: json.loads((compiled / name / "report.json").read_bytes())["steps"] for name in ("a", "b")}
    slow, fast = sorted(steps, key=lambda name: -steps[name])
    page = client(compiled / slow, compiled / "store").get("/advice.json").json()
    found = [(one["saves"], one["options"]["float_dtype"]) for one in page["advice"] if one["measured"]]
    wanted = json.loads((compiled / fast / "option.json").read_bytes())["options"]["float_dtype"]
    assert found == [(steps[slow] - steps[fast], wanted)]
    page = client(compiled / fast, compiled / "store").get("/advice.json").json()
    assert not [one for one in page["advice"] if one["measured"]]
