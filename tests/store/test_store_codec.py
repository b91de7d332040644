from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsdk.store import BadName, Recipe, canonical, changes, decode, digest_of
from mlsdk.store.digest import of_value

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=12,
)

DIFFERENT = [1, 1.0, True, "1", b"1", [1], (1,), {"1": 1}, None, 0, 0.0, -0.0, False, "", [], (), {}, [[]], ["list", 1]]


@settings(deadline=None)
@given(values)
def test_canonical_text_decodes_to_the_same_value(value):
    assert canonical(decode(canonical(value))) == canonical(value)
    assert repr(decode(canonical(value))) == repr(_sorted(value))


def test_values_of_another_type_have_another_text():
    texts = [canonical(value) for value in DIFFERENT]
    assert len(set(texts)) == len(DIFFERENT)


def test_order_of_names_does_not_matter():
    assert canonical({"a": 1, "b": {"c": 2, "d": 3}}) == canonical({"b": {"d": 3, "c": 2}, "a": 1})


def test_sets_and_dataclasses_have_a_text():
    @dataclass
    class Point:
        x: int
        y: float

    assert canonical({3, 1, 2}) == canonical({2, 3, 1})
    assert canonical(Point(1, 2.0)) == b'["data","Point",{"x":1,"y":["float","0x1.0000000000000p+1"]}]'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), object(), {1: 2}, {"a": [object()]}])
def test_what_has_no_place_in_a_key_is_refused(value):
    with pytest.raises(BadName, match="a key cannot hold"):
        canonical(value)


def test_digests_stay_what_they_are_pinned_to():
    assert digest_of(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert of_value("test", {"a": 1.5}) == PINNED["value"]
    recipe = Recipe("Phase", 3, {"x": 1, "y": -0.0, "z": True}, {"in": digest_of(b"in")}, {"torch": "2.13.0"})
    assert recipe.digest == PINNED["recipe"]


PINNED = {
    "value": "2783d3bda4147fff87b09f1c04c5175dd7968673083b2f10c21bc950b471e37e",
    "recipe": "94232514b35635eed64df3c9494e0601b67068d7bbcdd07c100d54a17d4cd4c9",
}


@pytest.mark.parametrize("other", [1.0, True, "1", None, -1])
def test_each_part_of_a_recipe_is_in_its_key(other):
    base = Recipe("Phase", 1, {"x": 1}, {"in": "a" * 64}, {"torch": "1"})
    others = [
        Recipe("Phase", 1, {"x": other}, base.inputs, base.tools),
        Recipe("Phase", 2, base.options, base.inputs, base.tools),
        Recipe("Other", 1, base.options, base.inputs, base.tools),
        Recipe("Phase", 1, base.options, {"in": "b" * 64}, base.tools),
        Recipe("Phase", 1, base.options, {"other": "a" * 64}, base.tools),
        Recipe("Phase", 1, base.options, base.inputs, {"torch": "2"}),
    ]
    assert len({recipe.digest for recipe in [base, *others]}) == 7


def test_changes_name_the_part_and_both_values():
    one = Recipe("Phase", 1, {"x": 1, "same": 2}, {"in": "a" * 64})
    other = Recipe("Phase", 2, {"x": 1.0, "same": 2, "new": "v"}, {"in": "b" * 64})
    told = [str(change) for change in changes(one.text, other.text)]
    assert told == [
        "version: 1 -> 2",
        "option new: absent -> v",
        "option x: 1 -> 1.0",
        "input in: aaaaaaaaaaaa -> bbbbbbbbbbbb",
    ]


def _sorted(value):
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    if isinstance(value, (list, tuple)):
        return type(value)(_sorted(item) for item in value)
    return value
