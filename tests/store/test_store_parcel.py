"""Export and import: one file, verified to the last byte."""

from __future__ import annotations

import json
import os
import zipfile

import invariants
import pytest

from mlsdk import store as stores
from mlsdk.store import BadParcel, NonDeterministic, NotFound, ObjectLost, Recipe, query
from mlsdk.store.files import read_regular


@pytest.fixture
def filled(store):
    first = store.publish(Recipe("First", 1, {"n": 1}), {"a.txt": b"a" * 5000, "b": os.urandom(3000)}, label="net")
    second = store.publish(Recipe("Second", 1, {}, {"a": first.outputs["a.txt"].digest}), {"c": b"c"}, label="net",
                           volatile=["c"])  # fmt: skip
    other = store.publish(Recipe("Other", 1), {"d": b"d"}, label="other")
    return store, first, second, other


@pytest.fixture
def parcel(filled, tmp_path):
    filled[0].export(filled[2].digest, tmp_path / "net.parcel")
    return tmp_path / "net.parcel"


def test_a_result_travels_with_all_that_it_was_made_from(filled, parcel, tmp_path):
    _store, first, second, other = filled
    with stores.open(tmp_path / "new") as new:
        facts = new.import_(parcel)
        assert (facts["results"], facts["new"], facts["labels"]) == (2, 2, ["net"])
        assert new.get(first.digest) == first
        assert new.get(second.digest).outputs == second.outputs
        assert new.get(other.digest) is None
        assert new.read(first.outputs["a.txt"]) == b"a" * 5000
        assert query.find(new, "net/Second").action.digest == second.digest
        assert new.log()[0]["phases"][0]["reason"].startswith("imported from")
        assert new.import_(parcel)["new"] == 0
    invariants.check(tmp_path / "new")


def test_equal_results_give_equal_files(filled, parcel, tmp_path):
    filled[0].export(filled[2].digest, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == parcel.read_bytes()


def test_damage_is_found_and_nothing_is_taken(parcel, tmp_path):
    data = parcel.read_bytes()
    new = stores.open(tmp_path / "new")
    refused = 0
    for offset in invariants.positions(len(data), 40):
        bad = bytearray(data)
        bad[offset] ^= 1
        parcel.write_bytes(bytes(bad))
        try:
            new.import_(parcel)
        except BadParcel:
            refused += 1
            assert new.ls() == []
        else:  # a bit of the archive that says nothing (a date, an attribute): then all is there, and whole
            assert query.cat(new, "net/Second") == b"c"
            new.close()
            new = stores.open(tmp_path / f"after {offset}")
    assert refused > 30
    for length in invariants.positions(len(data) - 1, 20):
        parcel.write_bytes(data[:length])
        with pytest.raises(BadParcel):
            new.import_(parcel)
    assert new.ls() == []
    new.close()


def rewritten(parcel, change, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(parcel) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(parcel, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def larger(members):
    name = next(name for name in members if name.startswith("objects/"))
    members[name] += bytes(100_000)


def other_manifest(members):
    one, two = sorted(name for name in members if name.startswith("manifests/"))
    members[one] = members[two]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda members: members.pop("parcel.json"), "parcel.json is missing"),
        (lambda members: members.update({"../../x": b"x"}), "do not fit together"),
        (lambda members: members.update({"parcel.json": b"[]"}), "no file of"),
        (lambda members: members.update({"parcel.json": b'{"format": 99}'}), "has format 99"),
        (lambda members: members.pop(next(name for name in members if name.startswith("objects/"))), "missing"),
        (larger, "too large"),
        (other_manifest, "is damaged"),
    ],
)
def test_a_forged_file_is_refused(parcel, tmp_path, change, told):
    rewritten(parcel, change)
    with stores.open(tmp_path / "new") as new, pytest.raises(BadParcel, match=told):
        new.import_(parcel)


def test_a_bomb_is_refused_before_it_is_unpacked(parcel, tmp_path):
    rewritten(parcel, lambda members: members.update({"parcel.json": bytes(1 << 22)}), zipfile.ZIP_DEFLATED)
    with stores.open(tmp_path / "new") as new, pytest.raises(BadParcel, match="packed in another way"):
        new.import_(parcel)


def test_another_result_for_a_known_key_is_refused(filled, parcel, tmp_path):
    _store, first, second, _other = filled
    with stores.open(tmp_path / "new") as new:
        new.publish(first.recipe, {"a.txt": b"differs", "b": b""})
        with pytest.raises(NonDeterministic, match=r"a\.txt differs from the store's own"):
            new.import_(parcel)
        assert new.get(second.digest) is None


def test_what_is_not_there_is_said(filled, tmp_path):
    with pytest.raises(NotFound, match="nothing in the store is named"):
        filled[0].export("nothing", tmp_path / "x")
    assert not (tmp_path / "x").exists()
    with pytest.raises(NotFound, match="there is no file"):
        filled[0].import_(tmp_path / "absent")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(BadParcel, match="no file of `mlsdk store export`"):
        filled[0].import_(tmp_path / "text")


def test_damage_is_found_by_the_export(filled, tmp_path):
    store, first, second, _other = filled
    invariants.flip(store.objects.path(first.outputs["b"].digest), 200)
    with pytest.raises(ObjectLost, match="build .* again and export then"):
        store.export(second.digest, tmp_path / "x")
    assert os.listdir(tmp_path) == ["store"] or not (tmp_path / "x").exists()


def test_the_file_says_what_it_is(parcel):
    with zipfile.ZipFile(parcel) as archive:
        head = json.loads(archive.read("parcel.json"))
    assert (head["format"], head["results"]) == (1, 2)
    assert read_regular(parcel)[:2] == b"PK"
