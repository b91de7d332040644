"""Transfers between PEs, L1BM and L2BM. Every LW of L1BM first holds (L1B << 32 | address), of L2BM (L2B << 40 |
address), so that a
result says where it came from; addresses are worked out by hand from the mapping of each instruction."""

from __future__ import annotations

import numpy as np
import pytest

COVERS = {
    "l1bmp",
    "l1bmm",
    "l1bmm@n",
    "l1bmm4",
    "l1bmm4@n",
    "l1bmr{op}{r}",
    "l1bmr4{op}{r}",
    "l1bmd",
    "l1bmd+n",
    "l1bmd-n",
    "l2bmb",
    "l2bmb2",
    "l2bmd",
    "l2bm@n",
    "l2bmr{op}",
    "l2bmr2{op}",
    "l2bmi@set",
    "l2bmdars",
    "l2bmdarw",
}


@pytest.fixture
def filled(machine):
    state = machine.state
    state.l1bm[:] = (np.arange(64, dtype=np.uint64)[:, None] << np.uint64(32)) | np.arange(8192, dtype=np.uint64)
    state.l2bm[:] = (np.arange(8, dtype=np.uint64)[:, None] << np.uint64(40)) | np.arange(32768, dtype=np.uint64)
    return machine


def pe(l1b: int, mab: int, p: int) -> int:
    return l1b * 64 + mab * 4 + p


def lw(machine, space: str, addr: int, k: int) -> int:
    words = machine.read(space, addr, 2)[:, k]
    return int(words[0]) << 32 | int(words[1])


# instruction, PE (L1B, MAB, PE), address of the LW that arrives in ($ln<2c>) for each cycle c
TO_PE = [
    ("l1bmp $lb100 $ln0v", (5, 3, 2), [100, 101, 102, 103]),
    ("l1bmm $lb96 $ln0v", (63, 15, 2), [98, 102, 106, 110]),
    ("l1bmm4 $lb64 $ln0v", (2, 6, 3), [64 + 4 + 3, 64 + 16 + 7, 64 + 32 + 7, 64 + 48 + 7]),
    ("l1bmd $lb256 $ln0v", (7, 9, 1), [256 + 37, 256 + 64 + 37, 256 + 128 + 37, 256 + 192 + 37]),
    ("l1bmd+1 $lb256 $ln0v", (7, 9, 1), [256 + 33, 256 + 97, 256 + 161, 256 + 225]),  # the slot of MAB 8
    ("l1bmd+1 $lb0 $ln0v", (7, 0, 1), [61, 125, 189, 253]),  # MAB 0 takes that of MAB 15
    ("l1bmd-1 $lb0 $ln0v", (7, 15, 1), [1, 65, 129, 193]),  # MAB 15 takes that of MAB 0
]


@pytest.mark.parametrize("case", TO_PE, ids=lambda c: c[0])
def test_l1bm_to_pe(filled, run, case):
    text, (l1b, mab, p), addresses = case
    run(text)
    assert [lw(filled, "lm1", 2 * c, pe(l1b, mab, p)) for c in range(4)] == [l1b << 32 | a for a in addresses]


TO_PE_2LW = [
    ("l1bmp $llb100 $lln0v", (5, 3, 2), [(100, 104), (101, 105), (102, 106), (103, 107)]),
    ("l1bmm $llb32 $lln0v", (1, 2, 3), [(35, 39), (43, 47), (51, 55), (59, 63)]),
    ("l1bmm4 $llb128 $lln0v", (1, 13, 0), [(152, 156), (184, 188), (216, 220), (248, 252)]),
]


@pytest.mark.parametrize("case", TO_PE_2LW, ids=lambda c: c[0])
def test_l1bm_to_pe_two_long_words(filled, run, case):
    text, (l1b, mab, p), addresses = case
    run(text)
    got = [(lw(filled, "lm1", 4 * c, pe(l1b, mab, p)), lw(filled, "lm1", 4 * c + 2, pe(l1b, mab, p))) for c in range(4)]
    assert got == [(l1b << 32 | a, l1b << 32 | b) for a, b in addresses]


def spread(machine) -> None:
    """$lm<2i> of PE k holds (i << 32 | k), for i < 8."""
    k = np.arange(4096, dtype=np.uint32)
    machine.write("lm0", 0, np.stack([row for i in range(8) for row in (np.full(4096, i, np.uint32), k)]))


# instruction, L1B, {address: (long word index, PE)}
FROM_PE = [
    (
        "l1bmm@5 $lm0v $lb32",
        3,
        {32: (0, pe(3, 5, 0)), 35: (0, pe(3, 5, 3)), 36: (1, pe(3, 5, 0)), 47: (3, pe(3, 5, 3))},
    ),
    (
        "l1bmm@5 $llm0v $llb32",
        3,
        {32: (0, pe(3, 5, 0)), 36: (1, pe(3, 5, 0)), 40: (2, pe(3, 5, 0)), 63: (7, pe(3, 5, 3))},
    ),
    ("l1bmm4@2 $lm0v $lb0", 0, {0: (0, pe(0, 2, 0)), 4: (0, pe(0, 6, 0)), 15: (0, pe(0, 14, 3)), 16: (1, pe(0, 2, 0))}),
    (
        "l1bmm4@2 $llm0v $llb0",
        0,
        {0: (0, pe(0, 2, 0)), 4: (1, pe(0, 2, 0)), 8: (0, pe(0, 6, 0)), 127: (7, pe(0, 14, 3))},
    ),
    ("l1bmd $lm0v $lb512", 60, {512: (0, pe(60, 0, 0)), 512 + 64 + 41: (1, pe(60, 10, 1)), 767: (3, pe(60, 15, 3))}),
    ("l1bmd+2 $lm0v $lb0", 1, {8: (0, pe(1, 0, 0)), 0: (0, pe(1, 14, 0)), 255: (3, pe(1, 13, 3))}),
    ("l1bmd-1 $lm0v $lb0", 1, {0: (0, pe(1, 1, 0)), 60: (0, pe(1, 0, 0))}),
]


@pytest.mark.parametrize("case", FROM_PE, ids=lambda c: c[0])
def test_pe_to_l1bm(filled, run, case):
    text, l1b, expected = case
    spread(filled)
    run(text)
    got = {a: int(filled.state.l1bm[l1b, a]) for a in expected}
    assert got == {a: i << 32 | k for a, (i, k) in expected.items()}


def test_the_turnaround_register(filled, run):
    spread(filled)
    # what one step sends, the next one reads, beside another transfer to L1BM
    run("l1bmm@3 $lm0v $lbi\nl1bmm $lbi $ln0v; l1bmm@4 $lm0v $lb0\nl1bmm $lbi $lr0v")
    assert lw(filled, "lm1", 2, pe(9, 0, 2)) == 1 << 32 | pe(9, 3, 2)
    assert lw(filled, "grf0", 2, pe(9, 0, 2)) == 1 << 32 | pe(9, 4, 2)
    assert int(filled.state.l1bm[9, 0]) == pe(9, 4, 0)


def test_noforward_keeps_the_turnaround_register(filled, run):
    spread(filled)
    run("l1bmm@3 $lm0v $lbi\nnoforward; l1bmm@4 $lm0v $lb0\nl1bmm $lbi $ln0v")
    assert lw(filled, "lm1", 0, pe(0, 7, 1)) == pe(0, 3, 1)


def test_rows_move_to_the_next_mab(filled, run):
    spread(filled)
    run("l1bmd $lm0v $lbi\nl1bmd+1 $lbi $ln0v")
    assert lw(filled, "lm1", 0, pe(4, 8, 2)) == pe(4, 7, 2) and lw(filled, "lm1", 0, pe(4, 0, 2)) == pe(4, 15, 2)


def test_l1bm_forward_register_and_zero_flush(filled, run):
    run("l1bmp $lb100 $nowrite\nlpassa $lbf $ln0v\nl1bmp/1000 $lb100 $ln8v\nl1bmp $lb100 $ln16v/0001")
    k = pe(1, 0, 0)
    assert [lw(filled, "lm1", 2 * c, k) for c in range(4)] == [1 << 32 | 100 + c for c in range(4)]
    assert [lw(filled, "lm1", 8 + 2 * c, k) for c in range(4)] == [1 << 32 | 100, 0, 0, 0]
    assert [lw(filled, "lm1", 16 + 2 * c, k) for c in range(4)] == [0, 0, 0, 1 << 32 | 103]


def test_sums_over_the_mabs(machine, run):
    """PE k of an L1B holds its MAB number in an integer and as a single."""
    mab = np.arange(4096) // 4 % 16
    machine.write("lm0", 0, np.stack([mab.astype(np.uint32)] * 2))
    machine.write("lm0", 2, np.stack([mab.astype(np.float32).view(np.uint32)] * 2))
    run(
        "l1bmriiadd $lm0 $lb0\nl1bmrffadd $lm2 $lb16\nl1bmriband $lm0 $lb32\nl1bmribor $lm0 $lb48\n"
        "l1bmrfmax $lm2 $lb64\nl1bmrfmin $lm2 $lb80\n"
        "l1bmriand $lm0 $lb96\nl1bmrior $lm0 $lb112\nl1bmr4iiadd $lm0 $lb128\nl1bmr4ffadd $llm0 $llb224"
    )
    state = machine.state
    read = lambda a: int(state.l1bm[17, a])  # noqa: E731
    pair = lambda w: w << 32 | w  # noqa: E731
    one_to_15 = 120
    assert read(3) == pair(one_to_15) and read(16) == pair(0x42F00000)  # 120.0
    assert read(32) == 0 and read(48) == pair(15) and read(64) == pair(0x41700000) and read(80) == 0  # max 15.0
    assert read(96) == 0 and read(112) == pair(1)  # logical: MAB 0 has 0; some are not 0
    # quarters 0..3 sum 0+1+2+3, 4+5+6+7, ... at a + 16c + 4 quarter + p
    assert [read(128 + 16 * c + 4 * q + 1) for c in (0, 3) for q in range(4)] == [pair(s) for s in (6, 22, 38, 54)] * 2
    # 2LW: k = 1 is $lm2, at a + 32c + 8 quarter + 4k + p
    assert [read(224 + 32 + 8 * q + 4 + 2) for q in range(4)] == [
        pair(s) for s in (0x40C00000, 0x41B00000, 0x42180000, 0x42580000)
    ]


def test_sums_that_end_in_halves(machine, run):
    """The four words of a PE become the four halves of one LW; half sums run on the single circuit."""
    ones = np.full(4096, 0x3F800000, np.uint32)
    machine.write(
        "lm0",
        0,
        np.stack(
            [
                ones,
                2 * 0 + np.full(4096, 0x40000000, np.uint32),
                np.full(4096, 0x40400000, np.uint32),
                np.full(4096, 0x40800000, np.uint32),
            ]
        ),
    )
    machine.write("lm0", 4, np.full((2, 4096), 0x3E004000, np.uint32))  # halves 1, 2, 1, 2
    run("l1bmrffaddr $llm0 $lb0\nl1bmrhfadd $lm4 $lb16\nl1bmrffaddr $lm4e $lb32")
    got = [f"{int(machine.state.l1bm[40, a]):016x}" for a in (2, 18, 34)]
    # 16, 32, 48, 64 and 16, 32, 16, 32: exponents 35, 36, 36 (1.5), 37
    assert got == ["4600480049004a00", "4600480046004800", "4600480046004800"]


def test_three_extra_bits_of_the_adder(machine, run):
    """1 + 15 times 2^-26: each small term has 1/8 unit in the last place and fits the extra bits; 15/8 round to 2 units.

    Stage 1 adds MABs 0-3: 1 + 3/8 rounds to 1; the other stages give 4/8 units each, and 1 + 12/8 rounds to 2 units (1.5, even).
    """
    mab = np.arange(4096) // 4 % 16
    x = np.where(mab == 0, 1.0, 2.0**-26).astype(np.float32).view(np.uint32)
    machine.write("lm0", 0, np.stack([x, x]))
    run("l1bmrffadd $lm0 $lb0")
    assert hex(int(machine.state.l1bm[0, 0]) >> 32) == "0x3f800002"


# --- L2BM ------------------------------------------------------------------------------------------------------------------
# instruction, (L2B, L1B in it), {L1BM address: L2BM address}
DOWN = [
    ("l2bmb $lc128 $lb64", (3, 5), {64: 128, 127: 191, 128: None}),
    ("l2bmb@1 $lc128 $lb64", (3, 1), {64: 128}),
    ("l2bmb@1 $lc128 $lb64", (3, 2), {64: None}),
    ("l2bmb@0/6 $lc128 $lb64", (3, 4), {64: 128}),
    ("l2bmb@0/6 $lc128 $lb64", (3, 5), {64: None}),
    ("l2bmb@4,5,6,7 $lc128 $lb64", (3, 4), {64: 128}),
    ("l2bmb@4,5,6,7 $lc128 $lb64", (3, 3), {64: None}),
    ("l2bmb2 $lc64 $lb16", (2, 5), {16: 64 + 32, 32: 64 + 64 + 32, 16 + 63: 64 + 192 + 47}),  # pair 2
    ("l2bmd $lc256 $lb8", (7, 6), {8: 256 + 48, 15: 256 + 55, 16: 256 + 64 + 48, 39: 256 + 192 + 55, 40: None}),
    ("l2bmd@6 $lc256 $lb8", (7, 6), {8: 256 + 48}),
    ("l2bmd@6 $lc256 $lb8", (7, 5), {8: None}),
]


@pytest.mark.parametrize("case", DOWN, ids=lambda c: f"{c[0]}-{c[1]}")
def test_l2bm_to_l1bm(filled, run, case):
    text, (l2b, b), expected = case
    run(text)
    row = 8 * l2b + b
    for address, source in expected.items():
        got = int(filled.state.l1bm[row, address])
        assert got == (row << 32 | address if source is None else l2b << 40 | source), address


# instruction, L2B, {L2BM address: (L1B in it, L1BM address)}
UP = [
    ("l2bmd $lb8 $lc256", 1, {256: (0, 8), 256 + 8: (1, 8), 256 + 63: (7, 15), 256 + 64: (0, 16), 511: (7, 39)}),
    ("l2bm@5 $lb32 $lc1024", 6, {1024: (5, 32), 1087: (5, 95)}),
]


@pytest.mark.parametrize("case", UP, ids=lambda c: c[0])
def test_l1bm_to_l2bm(filled, run, case):
    text, l2b, expected = case
    run(text)
    assert {a: int(filled.state.l2bm[l2b, a]) for a in expected} == {
        a: (8 * l2b + b) << 32 | s for a, (b, s) in expected.items()
    }


def test_reductions_over_l1bs(machine, run):
    """L1B b of each L2B holds b + 1."""
    machine.state.l1bm[:, :64] = (np.arange(64, dtype=np.uint64) % np.uint64(8) + np.uint64(1))[:, None]
    run(
        "l2bmrliadd $lb0 $lc0\nl2bmrliadd@1/6 $lb0 $lc64\nl2bmr2liadd $lb0 $lc128\nl2bmrlmax@0,1,2,3 $lb0 $lc384".replace(
            "lmax", "dmax"
        )
    )
    lc = machine.state.l2bm[4]
    assert int(lc[0]) == 36 and int(lc[63]) == 36  # 1 + ... + 8
    assert int(lc[64]) == 2 + 4 + 6 + 8  # L1Bs 1, 3, 5, 7
    assert [int(lc[128 + 16 * pair]) for pair in range(4)] == [3, 7, 11, 15] and int(lc[128 + 192 + 63 - 48]) == 3
    assert int(lc[384]) == 4  # the unit value of max is all ones, the smallest as sign and magnitude


def test_exchange_between_l1bs(filled, run):
    """l2bmi@1/3: immode 3; b in {0, 1, 2, 3} goes to every b' that agrees in the low two bits."""
    run("l2bmi@1/3 $lb64 $lb1024")
    for target in range(8):
        assert int(filled.state.l1bm[16 + target, 1024 + 5]) == (16 + target % 4) << 32 | 69


def test_dram_addresses_from_l2bm(machine, run):
    """Entries 10.. of the DAR get two 32-bit words of each LW; a write takes four words. DRAM is then read through them."""
    state = machine.state
    state.l2bm[:, 0] = np.uint64(7 << 32 | 9)
    state.l2bm[:, 1] = np.uint64(11 << 32 | 13)
    state.l2bm[:, 2] = np.uint64(1 << 32 | 2)
    for g in range(4):
        state.dram[g].write(0, np.arange(1024, dtype=np.uint64) + np.uint64(g * 10000))
    run(
        "l2bmdars $lc0@.0 $dar10\nl2bmdarw\nl2bmdarw\nmvp/n64i01 $di10 $lc512@.1\nnop; wait i01\n"
        "mvp/n64nd2i02 $di12 $lc1024@.1\nnop; wait i02"
    )
    assert state.dar[2, 10:16].tolist() == [7, 9, 11, 13, 1, 2]
    lc = state.l2bm[5]  # group 2, L2B 1
    assert [int(lc[512 + 16 * i]) for i in range(4)] == [20000 + 16 * e for e in (7, 9, 11, 13)]
    assert [int(lc[1024 + 16 * i + 15]) for i in range(4)] == [20000 + 16 * e + 15 for e in (11, 12, 13, 14)]
