"""Tags, differences, SQL, and the same from Python as from the command line."""

from __future__ import annotations

import inspect
import json
import time

import pytest

from mlsdk import store as stores
from mlsdk.store import BadName, BadQuery, Build, Event, NotFound, Recipe, StoreBusy, compare, query, schema, sql
from mlsdk.store.questions import Questions


def built(store, scheduler, steps, preset="O1", device="mncore2:0"):
    """A build of two phases that differ by an option."""
    one = Recipe("Schedule", 1, {"scheduler": scheduler})
    first = store.get(one) or store.publish(
        one, {"plan.json": scheduler.encode()}, kinds={"plan.json": "json"}, label="net"
    )
    two = Recipe("Simulate", 1, {}, {"plan.json": first.outputs["plan.json"].digest})
    report = json.dumps({"steps": steps, "by_operator": {}}).encode()
    second = store.get(two) or store.publish(two, {"report.json": report}, label="net", seconds=0.5)
    events = [Event(a.phase, "net", a.digest, a.parts, "built", "", 0.25) for a in (first, second)]
    facts = {"options": {"scheduler": scheduler}, "preset": preset, "device": device}
    return store.record(Build("net", time.time(), 1.0, events=events, facts=facts)), first, second


def test_a_tag_names_a_result_and_keeps_it(store):
    _number, first, second = built(store, "a", 10)
    assert store.tag("best", "net/Simulate")["recipe"] == second.digest
    assert query.find(store, "best").action == second
    store.release()
    for _collection in range(4):
        store.gc(grace=0)
    assert store.get(second.digest)
    assert store.get(first.digest), "what a tagged result was made from stays, too"
    assert [row["name"] for row in store.tags()] == ["best"]
    store.tag("best", first.digest)
    assert store.tags()[0]["recipe"] == first.digest
    store.untag("best")
    assert store.tags() == []
    with pytest.raises(NotFound, match="there is no tag 'best'"):
        store.untag("best")


@pytest.mark.parametrize("name", ["", "a/b", "@1", "deadbeef", "-x", "a b", "x" * 200, "é", "a\n"])
def test_a_tag_is_a_plain_word(store, name):
    built(store, "a", 10)
    with pytest.raises(BadName, match="no name for a tag"):
        store.tag(name, "net/Simulate")


def test_two_builds_are_compared(store):
    one, first, second = built(store, "a", 10)
    other, *_ = built(store, "b", 15, "O3", "mncore2:1")
    found = store.diff(f"@{one}", f"@{other}")
    parts = {(row["phase"], row["part"]): (row["a"], row["b"]) for row in found["options"]}
    assert parts["Schedule", "option scheduler"] == ("a", "b")
    assert parts["", "preset"] == ("O1", "O3")
    assert parts["", "device"] == ("mncore2:0", "mncore2:1")
    assert [(row["phase"], row["part"]) for row in found["inputs"]] == [("Simulate", "input plan.json")]
    assert {row["name"] for row in found["artifacts"]} == {"plan.json", "report.json"}
    assert found["numbers"] == [{"artifact": "report.json", "name": "steps", "a": 10, "b": 15}]
    assert [row["phase"] for row in found["seconds"]] == ["Schedule", "Simulate"]
    assert store.diff("net", f"@{other}")["options"] == []  # a label is its newest build
    results = compare.diff(store, second.digest, "net/Simulate")
    assert {row["part"] for row in results["options"]} == {"option scheduler"}
    assert store.diff(first.digest, first.digest)["artifacts"] == []


def test_what_made_a_build_slower_stands_first(store):
    _number, first, second = built(store, "a", 10)
    times = {"quick": [("Schedule", "built", 5.0), ("Simulate", "built", 1.0), ("Load", "cached", 0.0)],
             "slow": [("Schedule", "built", 5.5), ("Simulate", "cached", 0.0), ("Load", "built", 40.0)]}  # fmt: skip
    numbers = [
        store.record(Build("net", 1.0, 50.0, events=[Event(phase, "net", second.digest, second.parts, outcome, "", spent)
                                                     for phase, outcome, spent in rows]))
        for rows in times.values()
    ]  # fmt: skip
    found = store.diff(*(f"@{number}" for number in numbers))["seconds"]
    assert [(row["phase"], row["outcome_a"], row["outcome_b"]) for row in found] == [
        ("Load", "cached", "built"), ("Simulate", "built", "cached"), ("Schedule", "built", "built")]  # fmt: skip


def test_builds_of_two_machines_are_told_apart(store):
    one, *_ = built(store, "a", 10)
    other, *_ = built(store, "a", 10)
    assert store.diff(f"@{one}", f"@{other}")["options"] == []
    with store.index.write() as connection:
        connection.execute(schema.builds.update().where(schema.builds.c.id == other).values(host="slow"))
    (row,) = store.diff(f"@{one}", f"@{other}")["options"]
    assert (row["part"], row["b"]) == ("host", "slow")


def test_a_label_that_is_not_there_is_said(store):
    built(store, "a", 10)
    query.check_label(store, "net")
    with pytest.raises(NotFound, match="is named 'nett'; did you mean 'net'"):
        query.check_label(store, "nett")


def test_the_log_is_filtered_and_tells_steps_and_boards(store):
    built(store, "a", 10)
    built(store, "b", 15, "O3")
    assert [(row["preset"], row["steps"], row["device"]) for row in store.log()] == [
        ("O3", {"net": 15}, "mncore2:0"),
        ("O1", {"net": 10}, "mncore2:0"),
    ]
    assert [row["preset"] for row in store.log("net", preset="O3")] == ["O3"]
    assert [row["preset"] for row in store.log(options={"scheduler": "a"})] == ["O1"]
    assert store.log(since=time.time() + 100) == store.log(status="failed") == store.log("other") == []


def test_builds_are_references(store):
    number, first, second = built(store, "a", 10)
    assert query.find(store, f"@{number}").action == second
    assert query.find(store, f"@{number}/Schedule").action == first
    assert query.cat(store, f"@{number}/Schedule/plan.json") == b"a"
    for text, told in ((f"@{number + 1}", "no such build"), ("@x", "number of a build"), (f"@{number}/Emit", "phase")):
        with pytest.raises(NotFound, match=told):
            query.find(store, text)


def test_the_views_answer_sql(store):
    built(store, "a", 10)
    built(store, "b", 15, "O3")
    rows = store.query("SELECT phase, count(*) AS n FROM actions GROUP BY phase ORDER BY phase")
    assert rows == [{"phase": "Schedule", "n": 2}, {"phase": "Simulate", "n": 2}]
    assert store.query("SELECT DISTINCT preset, device FROM runs ORDER BY preset")[1]["preset"] == "O3"
    assert store.query("SELECT count(*) AS n FROM node_simulations") == [{"n": 0}]
    assert store.query("SELECT name, size, workflow FROM artifacts ORDER BY size LIMIT 1")[0]["workflow"] == "net"
    for view, columns in sql.COLUMNS.items():
        found = sql.run(store, f"SELECT {', '.join(columns.split())} FROM {view}")
        assert found["columns"] == columns.split()
    assert sql.run(store, "SELECT 1 AS x FROM artifacts", limit=2)["more"]
    with store.memory("node_simulation") as memory:
        memory.remember({"op": "Add", "inputs": ["float16[8] x"]}, {"steps": 3, "dram_lw": 1 << 40})
        memory.remember({"op": "Mul"}, {"steps": 40, "dram_lw": 0})
    with store.memory("other") as memory:
        memory.remember({"op": "Add"}, {"steps": 7})
    rows = store.query("SELECT op, steps, dram_lw, node FROM node_simulations ORDER BY steps")
    assert [(row["op"], row["steps"], row["dram_lw"]) for row in rows] == [("Add", 3, 1 << 40), ("Mul", 40, 0)]
    assert json.loads(rows[0]["node"])["op"] == "Add"


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM action",
        "UPDATE build SET label = 'x'",
        "DROP VIEW runs",
        "CREATE TABLE x (y INTEGER)",
        "SELECT 1; DROP TABLE action",
        "INSERT INTO tag VALUES ('a', 'b')",
        "SELECT * FROM nothing",
        "SELECT",
        "",
    ],
)
def test_a_query_cannot_write(store, text):
    built(store, "a", 10)
    with pytest.raises(BadQuery, match="write one SELECT over the views artifacts, actions, runs"):
        store.query(text)
    assert len(store.ls()) == 2


@pytest.mark.backends("folder")
@pytest.mark.parametrize(
    "text", ["PRAGMA journal_mode = OFF", "ATTACH '/tmp/x' AS x", "SELECT load_extension('x')", "VACUUM"]
)
def test_a_query_stays_in_the_index(store, text):
    with pytest.raises(BadQuery):
        store.query(text)


def test_a_query_has_an_end(store):
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    clock = time.monotonic()
    with pytest.raises(StoreBusy, match="took more than 0.2 s"):
        store.query(endless, seconds=0.2)
    assert time.monotonic() - clock < 10


def test_everything_can_be_asked_from_python(store):
    """Each verb of the command line is a method of a store."""
    from mlsdk.cli.store import store as group

    other = {"import": "import_"}
    for verb in group.commands:
        method = getattr(store, other.get(verb, verb))
        assert inspect.getdoc(method), verb
    assert {name for name in vars(Questions) if not name.startswith("_")} >= {"tags", "untag"}
    assert isinstance(stores.Store.ls(store), list)
