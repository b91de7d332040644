from __future__ import annotations

import pytest
import sqlalchemy as sa

from mlsdk import store as stores
from mlsdk.store import BadName, schema

KEYS = [{"op": "Add", "shape": (number, 64), "dtype": "half"} for number in range(1500)]


def test_answers_are_remembered_in_bulk(root):
    with stores.open(root) as store, store.memory("simulation") as memory:
        assert memory.recall_many(KEYS) == [None] * len(KEYS)
        memory.remember_many((key, {"steps": number}) for number, key in enumerate(KEYS))
    with stores.open(root) as store:
        memory = store.memory("simulation")
        assert memory.recall_many(KEYS) == [{"steps": number} for number in range(len(KEYS))]
        assert memory.recall(KEYS[7]) == {"steps": 7}
        assert (memory.hits, memory.misses) == (len(KEYS) + 1, 0)
        assert store.memory("other").recall(KEYS[7]) is None


def test_the_type_of_a_key_counts(store):
    memory = store.memory("m")
    memory.remember([1], "int")
    assert memory.recall([1.0]) is None
    assert memory.recall([True]) is None
    assert memory.recall((1,)) is None
    with pytest.raises(BadName):
        memory.recall([float("nan")])


def test_an_answer_is_a_copy(store):
    memory = store.memory("m")
    value = {"steps": [1, 2]}
    memory.remember("key", value)
    value["steps"].append(3)
    assert memory.recall("key") == {"steps": [1, 2]}


def test_a_damaged_answer_is_forgotten(root):
    with stores.open(root) as store, store.memory("m") as memory:
        memory.remember("key", {"steps": 12})
    with stores.open(root) as store:
        with store.index.write() as connection:
            connection.execute(sa.update(schema.memories).values(value='{"steps":13}'))
        assert store.memory("m").recall("key") is None


def test_a_read_only_store_remembers_for_the_process(root):
    with stores.open(root):
        pass
    with stores.open(root, read_only=True) as store, store.memory("m") as memory:
        memory.remember("key", 1)
        assert memory.recall("key") == 1


def test_what_is_used_stays_and_what_is_not_goes(root):
    def recalled(*keys):
        with stores.open(root) as store, store.memory("m") as memory:
            return memory.recall_many(list(keys))

    with stores.open(root) as store:
        with store.memory("m") as memory:
            memory.remember_many([("used", 1), ("idle", 2)])
        with store.memory("other") as memory:
            memory.remember("used", 3)  # the same key of another kind
        for _collection in range(2):
            assert store.gc().memories == 0
            assert recalled("used") == [1]
        assert store.gc(dry_run=True).memories == 2
        assert recalled("used") == [1]
        assert store.gc().memories == 2
        assert recalled("used", "idle") == [1, None]
        with store.memory("m") as memory:
            memory.remember("idle", 4)
        assert store.gc().memories == 0
    assert recalled("idle") == [4]
