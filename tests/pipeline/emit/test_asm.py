"""The emitters' assembler: what it makes of loops."""

import numpy as np
import pytest
from emulated import move_between

from mlsdk.device.isa import model as m
from mlsdk.pipeline.ir.layout import Layout
from mlsdk.pipeline.ops.emitters.asm import Asm
from mlsdk.pipeline.ops.emitters.bring import targets


def addresses(outer, inner):
    """Addresses that a move in two loops reads, strides 100 and 1."""
    asm = Asm()
    with asm.loop(outer), asm.loop(inner):
        src = m.Operand(m.DRAM, 0, m.LW, symbol="in0", strides=(100, 1))
        asm.wait(asm.move("mvb", src, m.Operand(m.L2BM, 0, m.LW), 64))
    asm.quiesce()
    return [s.src.addr for s in m.unroll(asm.statements) if isinstance(s, m.Move)]


@pytest.mark.parametrize(("outer", "inner"), [(1, 1), (2, 1), (1, 3), (2, 3)])
def test_a_loop_of_one_turn_keeps_the_strides_of_the_others(outer, inner):
    assert addresses(outer, inner) == [100 * i + j for i in range(outer) for j in range(inner)]


@pytest.mark.parametrize(
    "target",
    [
        "((4:2,2:1024,2:1),(4_PE:1,2:8,2_W:1),(8:128),(8:16);B@[L2B,L1B,MAB])",
        "((4_PE:1,2:1,2_W:1),(3:128),(8:16),(8:2);B@[L2B,L1B,MAB])",
    ],
)
def test_a_move_that_repeats_itself_twice(target):
    """Its inner loop has one turn, as the last turn is written out."""
    x = np.arange(4 * 3 * 8 * 8, dtype=np.float32).reshape(4, 3, 8, 8)
    source = Layout.parse("((4_PE:1,2:1,2_W:1),(2_L2B:4,2:64),(4_L2B:1,2:32),(16:2);B@[L1B,MAB])")
    np.testing.assert_array_equal(move_between(x, "single", source, Layout.parse(target)), x)


@pytest.mark.parametrize(
    "blocks", [{0, 2, 4, 6}, {5}, {0, 1, 2}, {1, 3, 4, 6, 7}, set(range(8)), {0, 7}, {4, 5, 6, 7, 1}]
)
def test_few_targets_reach_just_the_l1bs_that_are_meant(blocks):
    reached = []
    for target in targets(blocks):
        first, free = (*map(int, target[1:].split("/")), 0)[:2] if target else (0, 7)
        reached += [b for b in range(8) if b & ~free == first & ~free]
    assert sorted(reached) == sorted(blocks)
    assert targets({0, 2, 4, 6}) == ["@0/6"] and targets(range(8)) == [""] and len(targets(blocks)) <= 3
