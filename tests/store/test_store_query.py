from __future__ import annotations

import time

import pytest

from mlsdk import store as stores
from mlsdk.store import Build, Event, NotFound, Recipe, query


def built(store, label, options, outcome="built", data=None):
    """A chain of two phases, as a build would leave it."""
    first = Recipe("Layout", 1, options)
    known = store.get(first)
    reason = "" if known else store.reason(first, label)
    one = known or store.publish(
        first,
        {"placed.json": data or b"placed %r" % sorted(options.items())},
        kinds={"placed.json": "json"},
        label=label,
    )
    second = Recipe("Emit", 2, {}, {"placed.json": one.outputs["placed.json"].digest})
    other = store.get(second) or store.publish(second, {"a.vsm": b"nop" * 500, "b.log": b"log"}, label=label)
    store.record(
        Build(
            label,
            time.time(),
            0.5,
            events=[
                Event("Layout", label, one.digest, one.parts, "cached" if known else "built", reason, 0.25),
                Event("Emit", label, other.digest, other.parts, outcome, "", 0.25),
            ],
        )
    )
    return one, other


@pytest.fixture
def history(store):
    first = built(store, "digits", {"float_dtype": "float", "n": 1})
    second = built(store, "digits", {"float_dtype": "half", "n": 1})
    other = built(store, "digits/train", {"float_dtype": "float", "n": 1.0})
    return store, first, second, other


def test_ls_lists_the_newest_first_and_filters(history):
    store = history[0]
    rows = query.ls(store)
    assert len(rows) == 7 + 2
    assert rows[0]["created"] >= rows[-1]["created"]
    assert {row["name"] for row in query.ls(store, kind="json")} == {"placed.json"}
    assert {row["phase"] for row in query.ls(store, phase="Emit")} == {"Emit"}
    assert {row["label"] for row in query.ls(store, label="digits")} == {"digits"}
    assert len(query.ls(store, name="a.vsm")) == 3
    assert len(query.ls(store, limit=2)) == 2
    assert query.ls(store, since=time.time() + 100) == []
    assert len(query.ls(store, options={"float_dtype": "half"})) == 1
    assert len(query.ls(store, options={"n": 1})) == 2
    assert len(query.ls(store, options={"n": 1.0})) == 1


def test_a_result_is_found_by_many_names(history):
    store, _first, (layout, emit), _other = history
    for text in (layout.digest, layout.digest[:10], "digits/Layout"):
        assert query.find(store, text).action == layout
    vsm = emit.outputs["a.vsm"]
    for text in (f"{emit.digest[:9]}:a.vsm", "digits/Emit/a.vsm"):
        assert query.find(store, text).output == vsm
    assert query.find(store, layout.outputs["placed.json"].digest[:8]).output.name == "placed.json"
    assert query.find(store, "digits/train/Layout").action.recipe.options["n"] == 1.0
    assert query.find(store, "digits").action == emit
    assert query.cat(store, "digits/Emit/a.vsm") == b"nop" * 500
    assert query.cat(store, "digits/Layout").startswith(b"placed")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nothing", "nothing in the store is named 'nothing'"),
        ("0123abc", "no key and no digest starts with 0123abc"),
        ("digits/Emit/c.txt", "has no artifact c.txt; it has a.vsm, b.log"),
        ("digits/Nothing", "nothing in the store is named"),
    ],
)
def test_what_is_not_found_is_said(history, text, told):
    with pytest.raises(NotFound, match=told):
        query.find(history[0], text)


def test_cat_of_many_artifacts_names_them(history):
    with pytest.raises(NotFound, match="has 2 artifacts; write .*:NAME, NAME one of a.vsm, b.log"):
        query.cat(history[0], "digits/Emit")


def test_an_ambiguous_start_is_said(store):
    starts = {}
    number = 0
    while True:
        recipe = Recipe("P", 1, {"n": number})
        twin = starts.setdefault(recipe.digest[:4], recipe)
        if twin is not recipe:
            break
        number += 1
    for one in (recipe, twin):
        store.publish(one, {"out": b"x"})
    with pytest.raises(NotFound, match="is the start of 2 digests"):
        query.find(store, recipe.digest[:4])


def test_show_tells_everything(history):
    facts = query.show(history[0], "digits/Layout")
    assert facts["options"] == {"float_dtype": "half", "n": 1}
    assert facts["outputs"][0]["name"] == "placed.json"
    assert facts["outputs"][0]["stored"] > 0
    assert facts["phase"] == "Layout"


def test_why_names_the_part_that_changed(history):
    store, first, second, _other = history
    layout, emit = query.why(store, "digits")
    assert (layout["phase"], emit["phase"]) == ("Layout", "Emit")
    assert layout["changes"] == [{"part": "option float_dtype", "before": "float", "after": "half"}]
    assert layout["previous"] == first[0].digest
    assert layout["reason"] == "option float_dtype: float -> half"
    assert [change["part"] for change in emit["changes"]] == ["input placed.json"]
    assert query.why(store, "digits/Layout") == [layout]
    assert query.why(store, second[0].digest[:12]) == [layout]
    first_of_all = query.why(store, first[0].digest[:12])[0]
    assert (first_of_all["changes"], first_of_all["reason"]) == ([], "first build of Layout for digits")
    assert query.why(store)[0]["label"] == "digits/train"


def test_why_of_something_cached_tells_why_it_was_built(history):
    store = history[0]
    built(store, "digits", {"float_dtype": "float", "n": 1}, outcome="cached")
    layout, _emit = query.why(store, "digits")
    assert layout["outcome"] == "cached"
    assert layout["reason"] == "first build of Layout for digits"
    # and back again: compared with what was before
    built(store, "digits", {"float_dtype": "half", "n": 2})
    assert [change["part"] for change in query.why(store, "digits/Layout")[0]["changes"]] == [
        "option float_dtype",
        "option n",
    ]


def test_why_of_an_unknown_thing_is_said(store):
    with pytest.raises(NotFound, match="no build of digits is in the history"):
        query.why(store, "digits")


def test_log_tells_what_ran(history):
    builds = query.log(history[0])
    assert [build["label"] for build in builds] == ["digits/train", "digits", "digits"]
    assert [phase["phase"] for phase in builds[0]["phases"]] == ["Layout", "Emit"]
    assert len(query.log(history[0], label="digits", limit=1)) == 1


def test_deps_go_up_and_down(history):
    store, _first, (layout, emit), _other = history
    up = query.deps(store, "digits/Emit")
    assert up["recipe"] == emit.digest
    assert up["up"][0]["action"]["recipe"] == layout.digest
    down = query.deps(store, "digits/Layout", down=True)
    assert down["down"][0]["action"]["recipe"] == emit.digest
    assert f'"{layout.digest[:12]}" -> "{emit.digest[:12]}" [label="placed.json"];' in query.dot(up)
    assert query.dot(down).startswith("digraph deps {")


def test_du_counts_what_sharing_and_compression_save(history):
    facts = query.du(history[0])
    assert (facts["actions"], facts["artifacts"], facts["objects"]) == (6, 9, 5)
    assert facts["saved_by_sharing"] == 2 * (1500 + 3)
    assert facts["unique"] - facts["stored"] == facts["saved_by_compression"]
    assert facts["size"] == facts["unique"] + facts["saved_by_sharing"]


def test_labels_with_markup_are_data(store):
    for label in ("<script>", "a\x1b[31mb", "%", "_"):
        built(store, label, {"n": label})
        assert query.why(store, label)[0]["label"] == label
    assert stores.Store(store.root, read_only=True)


def test_deps_stay_in_the_build(store):
    """Equal bytes of another configuration have a maker, too, and a newer one."""

    def build(n, recorded=True):
        layout = Recipe("Layout", 1, {"n": n})
        one = store.publish(layout, {"placed.json": b"the same"}, label="digits")
        emit = Recipe("Emit", 1, {}, {"placed.json": one.outputs["placed.json"].digest})
        two = store.publish(emit, {"a.vsm": b"nop"}, label="digits")
        events = [Event(a.phase, "digits", a.digest, a.parts, "built") for a in (one, two)]
        store.record(Build("digits", time.time(), 1.0, events=events))
        return one, two

    first, emit = build(1)
    second, same = build(2)
    assert (emit.digest, first.digest) != (emit.digest, second.digest) and emit.digest == same.digest
    assert query.deps(store, "@1/Emit")["up"][0]["action"]["recipe"] == first.digest
    assert query.deps(store, "@2/Emit")["up"][0]["action"]["recipe"] == second.digest
    assert query.deps(store, "digits/Emit")["up"][0]["action"]["recipe"] == second.digest


def test_why_folds_what_followed(history):
    _layout, emit = query.why(history[0], "digits")
    assert [(cause["phase"], cause["part"], cause["after"]) for cause in emit["causes"]] == [
        ("Layout", "option float_dtype", "half")
    ]


def test_what_a_killed_build_left_is_told_with_its_time(store):
    """Its results are there, and no build in the history made them."""
    action = store.publish(Recipe("Trace", 1, {}), {"x": b"x"}, label="net")
    store.record(Build("net", 5.0, 0.1, events=[Event("Trace", "net", action.digest, action.parts, "cached")]))
    (answer,) = query.why(store, "net")
    assert (answer["outcome"], answer["built_at"]) == ("cached", action.created)
    store.gc(grace=0)
    store.release()
    store.gc(grace=0)
    assert query.why(store, "net")[0]["built_at"] is None
