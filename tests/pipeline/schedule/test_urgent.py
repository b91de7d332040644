"""The order for nodes that overlap: legal, the longest chain first, others while its data are on their way."""

import random

import pytest

from mlsdk.pipeline.ops.simulation import DRAM_LW
from mlsdk.pipeline.schedule.auto_recompute_sa import legal
from mlsdk.pipeline.schedule.problem import Cost, Item, Problem, Turn
from mlsdk.pipeline.schedule.urgent import urgent


def problem(rows):
    """(name, what it reads by name, steps, steps of DRAM traffic); a name that begins with `load` brings something to LM."""
    number = {row[0]: t for t, row in enumerate(rows)}
    turns = [
        Turn(name, reads, (True,) * len(reads), (t,), tuple(sorted(set(reads))), name.startswith("load"))
        for t, (name, names, _, _) in enumerate(rows)
        for reads in [tuple(number[n] for n in names)]
    ]
    costs = [Cost(steps, moved * DRAM_LW) for _, _, steps, moved in rows]
    return Problem(turns, [Item(row[0], 1) for row in rows], lambda turn, lives: costs[turn])


def names(rows):
    return [rows[t][0] for t in urgent(problem(rows))]


def test_what_much_waits_for_comes_first_and_labels_while_weights_come():
    rows = [
        ("load w", (), 0, 0), ("product", ("load w",), 900, 700), ("loss", ("product", "labels"), 50, 0),
        ("report", ("loss",), 30, 0), ("labels", (), 40, 5), ("gradient", ("loss",), 100, 0),
        ("update", ("gradient", "load w"), 600, 500), ("check", ("product",), 20, 0),
    ]  # fmt: skip
    assert names(rows) == ["labels", "load w", "product", "loss", "gradient", "update", "report", "check"]


def test_what_does_not_fit_into_the_time_comes_later():
    rows = [("product", (), 200, 100), ("end", ("product",), 300, 0), ("long", (), 150, 5), ("short", (), 50, 5)]
    assert names(rows) == ["short", "product", "end", "long"]


@pytest.mark.parametrize("seed", range(20))
def test_every_order_is_legal(seed):
    rng = random.Random(seed)
    rows = [(f"{rng.choice(('', '', 'load '))}{t}", (), rng.randint(1, 99), rng.randint(0, 99)) for t in range(25)]
    rows = [
        (
            name,
            () if name.startswith("load") else tuple(r[0] for r in rng.sample(rows[:t], min(t, rng.randint(0, 3)))),
            *rest,
        )
        for t, (name, _, *rest) in enumerate(rows)
    ]
    read = {n for row in rows for n in row[1]}
    rows = [row for row in rows if row[0] in read or not row[0].startswith("load")]  # loads are read
    found = urgent(problem(rows))
    assert legal(problem(rows), found) and sorted(found) == list(range(len(rows)))
