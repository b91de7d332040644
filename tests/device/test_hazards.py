"""Hazards: what a step misses, and how far it has to be from each write before it, say the same."""

from __future__ import annotations

import random

import pytest

from mlsdk.device.isa.footprint import use_of
from mlsdk.device.isa.hazards import Hazards
from mlsdk.device.isa.parser import parse

STEPS = parse(
    """ipassa $lr0v $ls0v
ipassa $ls0v $lr2v
ipassa $ls8v $lr[6,0,2,4]
ipassa $lr0v $ls8v/$imr1
fvadd $lr0v $ls4v $ln6v
ipassa $lr4v $lm0v
ipassa $lm0v $ln8v
ipassa $ln8v $lt
ipassa $t $lr8v
ipassa $mt0 $lr8v
imm ui"4" $lnb
imm f"1" $lr0/0010
l1bmm@2 $lr0v $lb0
l1bmm $lb0 $ls0v
l1bmm $lb64 $ls0v
l2bmb $lc0 $lb0
l2bm@0 $lb0 $lc0
l2bmi@0/1 $lb0 $lb1024"""
)


@pytest.mark.parametrize("seed", range(40))
def test_distances_say_what_is_missing(seed):
    rng = random.Random(seed)
    close, far, at = Hazards(), Hazards(), []
    for _ in range(60):
        bundle = rng.choice(STEPS)
        use = use_of(bundle)
        far.now += rng.choice((0, 0, 0, 1, 2))
        missing = max((h.steps for h in far.missing(use)), default=0)
        needed = max((at[step] + distance - far.now for step, distance in close.behind(use)), default=0)
        assert missing == max(0, needed)
        at.append(far.now)
        for hazards in (close, far):
            hazards.record(use, bundle)
            hazards.now += 1
