"""What the rules between instructions promise: old data, forwarding, masks, zero flush, T, j, base addresses."""

from __future__ import annotations

import numpy as np
import pytest

K = 1234  # any PE


def words(machine, space: str, addr: int, count: int = 1, k: int = K) -> list[int]:
    return [int(v) for v in machine.read(space, addr, count)[:, k]]


def count_up(machine, space: str, count: int = 64) -> None:
    machine.write(space, 0, np.arange(100, 100 + count))


# --- reads and writes ----------------------------------------------------------------------------------------------------
def test_reads_deliver_old_data_in_every_cycle(machine, run):
    count_up(machine, "grf0")
    run("ipassa $r0v $r1v")  # cycle 1 writes what cycle 2 reads
    assert words(machine, "grf0", 0, 6) == [100, 100, 101, 102, 103, 105]


def test_two_units_exchange_memories(machine, run):
    count_up(machine, "grf0")
    machine.write("grf1", 0, np.arange(8))
    run("ipassa $ls0v $lr0v; fvadd $lr0v $lr0v $ls0v")  # the MAU reads GRF0 as it was
    assert words(machine, "grf0", 0, 4) == [0, 1, 2, 3]


def test_the_last_cycle_wins_without_increment(machine, run):
    count_up(machine, "grf0")
    run("ipassa $r0v $m5")
    assert words(machine, "lm0", 5) == [103]


def test_flat_addresses_and_increments(machine, run):
    count_up(machine, "grf0")
    run("ipassa $r[3,1,0,7] $m0v\nipassa $r1v2 $n0v3")
    assert words(machine, "lm0", 0, 4) == [103, 101, 100, 107]
    assert words(machine, "lm1", 0, 10) == [101, 0, 0, 103, 0, 0, 105, 0, 0, 107]


def test_widths(machine, run):
    """A narrow read lands in the MSB part with zeros below it; a narrow write takes the MSB part."""
    count_up(machine, "grf0")
    machine.write("lm0", 0, [7] * 8)
    machine.write("lm1", 0, [7] * 8)
    run("ipassa $r3 $lln0\nipassa $llr4 $m1")
    assert words(machine, "lm1", 0, 5) == [103, 0, 0, 0, 7]
    assert words(machine, "lm0", 0, 3) == [7, 104, 7]


def test_addresses_wrap(machine, run):
    count_up(machine, "grf0")
    run("ipassa $lr0v $ln4094v")
    assert words(machine, "lm1", 4094, 4) == [100, 101, 102, 103]
    assert words(machine, "lm1", 0, 2) == [102, 103]


def test_several_destinations(machine, run):
    count_up(machine, "grf0")
    run("ipassa $lr0v $ls0v $lm8v $n0v $lt")
    assert words(machine, "grf1", 0, 2) == [100, 101] and words(machine, "lm0", 8, 2) == [100, 101]
    assert words(machine, "lm1", 0, 4) == [100, 102, 104, 106] and words(machine, "t", 0, 4) == [100, 101, 0, 0]


# --- forward registers ---------------------------------------------------------------------------------------------------
def test_forward_registers_hold_the_latest_result_of_their_unit(machine, run):
    machine.write("grf0", 0, [1, 2])
    run("iadd $lr0 $lr0 $nowrite\nnop/5\nfvpassa $lr0 $nowrite\nipassa $aluf $ln0\nfpassa $mauf $ln2")
    assert words(machine, "lm1", 0, 4) == [2, 4, 0, 0]  # 1 and 2 as singles have exponent 0


def test_forward_registers_survive_an_overwritten_destination(machine, run):
    machine.write("grf0", 0, [1, 2])
    machine.write("grf1", 0, [50, 60])
    run("iadd $lr0 $lr0 $ln0\nnop/2\nfvpassa $ls0 $ln0\nipassa $aluf $lm0")
    assert words(machine, "lm0", 0, 2) == [2, 4]


def test_noforward(machine, run):
    machine.write("grf0", 0, [1, 2])
    run("iadd $lr0 $lr0 $nowrite\nnoforward; ipassa $lr0 $ln0\nipassa $aluf $lm0")
    assert words(machine, "lm1", 0, 2) == [1, 2] and words(machine, "lm0", 0, 2) == [2, 4]


def test_forward_values_of_one_step_are_those_of_the_step_before(machine, run):
    machine.write("grf0", 0, [5, 6])
    run("ipassa $lr0 $nowrite; fvpassa $lr0 $nowrite\niinc $aluf $lm0; fvadd $aluf $aluf $nowrite\niinc $aluf $ln0")
    assert words(machine, "lm0", 0, 2) == [6, 7] and words(machine, "lm1", 0, 2) == [7, 8]


def test_forward_registers_outlive_a_program(machine, run):
    machine.write("grf0", 0, [5, 6])
    run("iinc $lr0 $lr4")
    run("ipassa $aluf $ln0")
    assert words(machine, "lm1", 0, 2) == [6, 7]


def test_mread_forward(machine, run):
    machine.write("lm0", 0, np.arange(8))
    run("gmwrite $lm0v $lx0\ngmread $lx0 $nowrite\nipassa $mreadf $ln0v")
    assert words(machine, "lm1", 0, 2, 0) == [0, 2]  # column 0 of rows 0 and 1


# --- masks ---------------------------------------------------------------------------------------------------------------
def test_single_line_masks_by_cycle(machine, run):
    count_up(machine, "grf0")
    run("ipassa $lr0v $lm0v/1000\nipassa $lr0v $ln0v/0110")
    assert words(machine, "lm0", 0, 4) == [100, 101, 0, 0]
    assert words(machine, "lm1", 0, 8) == [0, 0, 102, 103, 104, 105, 0, 0]


def test_long_masks_do_not_guard_the_lsb_long_word(machine, run):
    run('imm f"1" $llr0v/1000\nimm f"1" $lls0v/ll1000')
    one = 0x3F800000
    assert words(machine, "grf0", 0, 16) == [one] * 4 + [0, 0, one, one] * 3
    assert words(machine, "grf1", 0, 16) == [one] * 4 + [0] * 12


def test_masks_from_flags(machine, run):
    """Where the PE number is 7 the flag of the exclusive or is 1."""
    run('imm ui"7" $lr0\nimm ui"9" $ls0\nnop\nixor $peid $lr0 $omr1\nipassa $ls0 $ln0/$imr1')
    assert words(machine, "lm1", 0, 2, 7) == [9, 9] and words(machine, "lm1", 0, 2, 8) == [0, 0]


def test_bits_of_an_entry_guard_quarters_of_the_msb_long_word(machine, run):
    # halves 0, 1, 0, 1 give the flags 1010: quarters 0 and 2 are written
    machine.write("grf0", 0, [0x00000001, 0x00000001])
    machine.write("grf1", 0, [0xAAAABBBB, 0xCCCCDDDD])
    run("spassa $lr0 $omr1\nipassa $ls0 $ln0/$imr1\nipassa $s1 $n3/$imr1")
    assert [hex(w) for w in words(machine, "lm1", 0, 4)] == ["0xaaaa0000", "0xcccc0000", "0x0", "0xcccc0000"]


def test_two_long_masks_guard_words(machine, run):
    machine.write("grf0", 0, [0, 1, 0, 1])  # flags of h operations with single results: one bit a word; signs here
    machine.write("lm0", 0, [0x3E00BE00, 0x3E00BE00])
    machine.write("grf1", 0, [1, 2, 3, 4])
    run("hvpassa $lm0 $omr2\nipassa $lls0 $lln0/$llimr2")
    assert words(machine, "lm1", 0, 4) == [1, 0, 3, 0]


def test_a_mask_register_under_a_mask(machine, run):
    run(
        'imm ui"5" $lr0\nimm ui"2" $lr2\nnop/2\nixor $peid $lr0 $omr1\nipassa $lr0 $omr2\n'
        "ixor $mabid $lr2 $omr2/$imr1\nipassa $lr0 $ln0/$imr2"
    )
    got = machine.read("lm1", 0, 1)[0]
    # entry 2 was cleared by a value that is not zero; it is set only where PE = 5 lies in MAB 2, which is nowhere
    assert not got.any()
    run('imm ui"9" $lr0\nnop/2\nixor $peid $lr0 $omr1\nixor $mabid $lr2 $omr2/$imr1\nipassa $lr0 $ln0/$imr2')
    assert np.flatnonzero(machine.read("lm1", 0, 1)[0]).tolist() == [64 * b + 9 for b in range(64)]


def test_fixed_entries(machine, run):
    count_up(machine, "grf0")
    run("ipassa $lr0v $ln0v/$imr24\nipassa $lr0v $lm0v/$imr17")
    assert words(machine, "lm1", 0, 8) == [100, 101, 0, 0, 0, 0, 0, 0]
    assert words(machine, "lm0", 0, 8) == [0, 0, 0, 0, 0, 0, 106, 107]


def test_multi_line_masks_replace_the_whole_setting(machine, run):
    count_up(machine, "grf0")
    text = "maskm 24\nipassa $lr0v $lm0v $ln0v\nmask 0\nipassa $lr0v $lm8v $ln8v\nmaskmn 24\nipassa $lr0v $lm16v/0001 $ln16v"
    run(text)
    assert words(machine, "lm0", 0, 4) == [100, 101, 0, 0]
    assert words(machine, "lm1", 0, 8) == [0] * 8  # not listed: switched off
    assert words(machine, "lm0", 8, 4) == [100, 101, 102, 103]
    assert words(machine, "lm0", 16, 8) == [0] * 6 + [106, 107]  # the mask of the operand replaces the line's
    assert words(machine, "lm1", 16, 4) == [100, 101, 0, 0]
    run("mask 0")


def test_a_mask_line_outlives_a_program(machine, run):
    count_up(machine, "grf0")
    run("maskm 24")
    run("ipassa $lr0v $lm0v")
    assert words(machine, "lm0", 0, 4) == [100, 101, 0, 0]
    run("mask 0")


def test_zero_flush(machine, run):
    machine.write("grf0", 0, [0x3F800000] * 8)
    run("fvadd/1000 $lr0v $lr0v $ln0v $omr1\nipassa $aluf $lm0")
    two = 0x40000000
    assert words(machine, "lm1", 0, 8) == [two, two, 0, 0, 0, 0, 0, 0]
    assert np.unique(machine.state.masks[4:8]).tolist() == [15]  # flags come from the unflushed result


def test_zero_flush_by_a_register(machine, run):
    run('imm ui"7" $lr0\nimm f"1" $ls0\nnop\nixor $peid $lr0 $omr1\nipassa/$imr1 $ls0 $ln0')
    one_hot = machine.read("lm1", 0, 1)[0, :64]
    assert one_hot.tolist() == [0x3F800000 if k == 7 else 0 for k in range(64)]


# --- T, j, base addresses --------------------------------------------------------------------------------------------------
def test_gather_through_t(machine, run):
    count_up(machine, "lm0", 256)
    machine.write("grf0", 0, [0, 5, 0, 7, 0, 40, 0, 9])  # the index is the low part of the MSB LW
    run("lpassa $lr0v $lt\nnop\nipassa $mt3 $n0v\nipassa $mt0v2 $n8v")
    assert words(machine, "lm1", 0, 4) == [108, 110, 143, 112]
    assert words(machine, "lm1", 8, 4) == [105, 109, 144, 115]


def test_gather_with_an_index_per_pe(machine, run):
    count_up(machine, "lm0", 256)
    run("lpassa $peid $lt\nnop\nipassa $lmt10 $ln0")
    assert words(machine, "lm1", 0, 2, 64 * 3 + 6) == [116, 117]
    assert words(machine, "lm1", 0, 2, 64 * 3 + 7) == [116, 117]  # cut to the access width


def test_scatter_through_t(machine, run):
    machine.write("grf0", 0, [0, 8, 0, 20, 0, 8, 0, 30])
    machine.write("grf1", 0, [1, 0, 2, 0, 3, 0, 4, 0])
    run("lpassa $lr0v $lt\nnop\nipassa $ls0v $mt0")
    assert words(machine, "lm0", 8) == [3] and words(machine, "lm0", 20) == [2] and words(machine, "lm0", 30) == [4]


def test_the_pe_dependent_offset(machine, run):
    count_up(machine, "lm0")
    run("ipassa $m10j1 $n0")  # one width further on PE 0 and 1
    assert [words(machine, "lm1", 0, 1, 40 + p)[0] for p in range(4)] == [111, 111, 110, 110]


def test_base_addresses(machine, run):
    """LM1 base address 4: $ln0 reads words 4 and 5."""
    count_up(machine, "lm1")
    run('imm ui"4" $lnb\nnop\nipassa $ln0 $lr0\nimm ui"0" $lnb')
    assert words(machine, "grf0", 0, 2) == [104, 105]


def test_base_addresses_per_pe_and_masked_writes(machine, run):
    count_up(machine, "grf0")
    run("ipassa $subpeid $mb\nnop\nipassa $r0 $m8\nzero $mb")
    assert [words(machine, "lm0", 8 + p, 1, 400 + p)[0] for p in range(4)] == [100] * 4
    assert words(machine, "lm0", 8, 1, 401) == [0]


# --- known results -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("text,expected", [("frsqrt $lr0 $ln0", 0x3F7C0000), ("fvpassa $lr0 $ln0", 0x3F800000)])
def test_one(machine, run, text, expected):
    machine.write("grf0", 0, [0x3F800000] * 2)
    run(text)
    assert words(machine, "lm1", 0) == [expected]
