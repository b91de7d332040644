"""MV instructions. DRAM of group g first holds (g << 40 | address), PDM (16 + g) << 40 | address, L2BM (L2B << 48 | address)."""

from __future__ import annotations

import numpy as np
import pytest

COVERS = {"mvp", "mvb", "mvb2", "mvb4", "mvr{op}", "mvr2{op}", "mvr4{op}", "mvd", "mvnop", "nop", "noforward", "wait"}


@pytest.fixture
def filled(machine):
    n = np.arange(8192, dtype=np.uint64)
    for g in range(4):
        machine.state.dram[g].write(0, n | np.uint64(g << 40))
        machine.state.pdm[g].write(0, n | np.uint64((16 + g) << 40))
    machine.state.l2bm[:, :8192] = n | (np.arange(8, dtype=np.uint64)[:, None] << np.uint64(48))
    return machine


def dram(g: int, a: int) -> int:
    return g << 40 | a


def pdm(a: int, g: int = 0) -> int:
    return 16 + g << 40 | a


def l2bm(n: int, a: int) -> int:
    return n << 48 | a


def at(machine, place: tuple) -> int:
    kind, which, address = place
    if kind == "l2bm":
        return int(machine.state.l2bm[which, address])
    return int(getattr(machine.state, kind)[which].read(address, 1)[0])


# move, {(memory, instance, address): value}; instances of L2BM are 2g + l
MOVES = [
    (
        "mvp/n64i01 $p32@0 $d128@2",
        {("dram", 2, 128): pdm(32), ("dram", 2, 191): pdm(95), ("dram", 2, 192): dram(2, 192)},
    ),
    ("mvp/i01n64 $p0@1 $p512@0", {("pdm", 0, 512): pdm(0, 1)}),
    ("mvp/n128 $p64@0 $lc256@3.1", {("l2bm", 7, 256): pdm(64), ("l2bm", 7, 383): pdm(191)}),
    ("mvp/n64 $lc64@2.0 $p0@0", {("pdm", 0, 0): l2bm(4, 64)}),
    ("mvp/n64 $d16@1 $lc0@0.0", {("l2bm", 0, 0): dram(1, 16)}),
    ("mvp/n64p3 $lc8@1.1 $d0@0", {("dram", 0, 63): l2bm(3, 71)}),
    (
        "mvp/n64 $d256 $lc0@.1",
        {("l2bm", 1, 0): dram(0, 256), ("l2bm", 7, 63): dram(3, 319), ("l2bm", 0, 0): l2bm(0, 0)},
    ),
    ("mvp/n64 $lc0@.0 $d1024", {("dram", 3, 1024): l2bm(6, 0)}),
    ("mvb/n64 $p128@0 $lc64", {("l2bm", n, 64): pdm(128) for n in range(8)}),
    ("mvb/n64 $d128@3 $lc64", {("l2bm", n, 127): dram(3, 191) for n in range(8)}),
    ("mvb2/n64 $d64 $lc0", {("l2bm", 4, 0): dram(2, 64), ("l2bm", 5, 63): dram(2, 127), ("l2bm", 0, 1): dram(0, 65)}),
    # LC[g'][l][64i + 16g + k] = DRAM_g[32i + 16l + k]
    (
        "mvb4/n128 $d0 $lc0",
        {
            ("l2bm", 3, 64 + 16 * 2 + 5): dram(2, 32 + 16 + 5),
            ("l2bm", 6, 16 * 3): dram(3, 0),
            ("l2bm", 7, 0): dram(0, 16),
        },
    ),
    (
        "mvd/n256 $p0@0 $lc0",
        {("l2bm", 5, 16 + 3): pdm(128 + 80 + 3), ("l2bm", 0, 0): pdm(0), ("l2bm", 7, 31): pdm(255)},
    ),
    ("mvd/n256 $lc0 $p0@0", {("pdm", 0, 128 + 16 * 6 + 2): l2bm(6, 18)}),
    ("mvd/n128 $p0@0 $d2048", {("dram", 2, 2048 + 16 + 1): pdm(64 + 32 + 1), ("dram", 3, 2048): pdm(48)}),
    ("mvd/n128 $d0 $p0@0", {("pdm", 0, 64 + 48 + 9): dram(3, 25)}),
    ("mvnop", {("dram", 0, 0): dram(0, 0)}),
]


@pytest.mark.parametrize("case", MOVES, ids=lambda c: c[0])
def test_copies(filled, run, case):
    text, expected = case
    run(text)
    assert {place: at(filled, place) for place in expected} == expected


@pytest.fixture
def numbers(machine):
    """LW a of L2BM n holds (n + 1) * 1000 + a."""
    state = machine.state
    state.l2bm[:, :256] = (np.arange(1, 9, dtype=np.uint64) * np.uint64(1000))[:, None] + np.arange(
        256, dtype=np.uint64
    )
    return machine


def test_reduction_of_all_l2bms(numbers, run):
    run("mvrliadd/n128 $lc0 $p64@0\nmvrliadd/n128 $lc0 $d512")
    assert at(numbers, ("pdm", 0, 64 + 100)) == 36000 + 8 * 100
    # DRAM_g[16i + k] = R[64i + 16g + k]
    assert at(numbers, ("dram", 2, 512 + 16 + 3)) == 36000 + 8 * (64 + 32 + 3)


def test_reduction_of_pairs_and_of_groups(numbers, run):
    run("mvr2liadd/n64 $lc0 $d0\nmvr2liadd/n64 $lc0 $p0\nmvr4liadd/n128 $lc0 $d1024")
    assert at(numbers, ("dram", 1, 5)) == 3000 + 4000 + 10 and at(numbers, ("pdm", 3, 63)) == 7000 + 8000 + 126
    # DRAM_g[32i + 16l + k] = R_l[64i + 16g + k]; R_1 = 2 + 4 + 6 + 8 thousand
    assert at(numbers, ("dram", 3, 1024 + 32 + 16 + 2)) == 20000 + 4 * (64 + 48 + 2)


def test_float_reductions(machine, run):
    """1.0 in L2BMs 0..6 and 2^-24 in L2BM 7: pair sums 2, 2, 2, 1 + 2^-24 -> 1 (a tie), then 7."""
    machine.state.l2bm[:, :64] = np.uint64(0x3F8000003F800000)
    machine.state.l2bm[7, :64] = np.uint64(0x3380000033800000)
    run("mvrffadd/n64 $lc0 $p0@0\nmvrfmax/n64 $lc0 $p64@0\nmvrfmin/n64 $lc0 $p128@0")
    assert [hex(at(machine, ("pdm", 0, a))) for a in (0, 64, 128)] == [
        "0x40e0000040e00000",
        "0x3f8000003f800000",
        "0x3380000033800000",
    ]


# --- time -------------------------------------------------------------------------------------------------------------------
# program, PE steps, total steps: cycles worked out from the rules (issue every 8 cycles, latency 64, rates of the table)
TIMES = [
    ("nop/3\nfvadd $lr0 $lr0 $ln0", 4, 4),
    (
        "nop\nmvp/n64i01 $d0 $lc0@.0\nnop; wait i01",
        2,
        19,
    ),  # issue at 4, 64/16 cycles, done at 4 + 4 + 64 = 72; the step ends at 76
    (
        "mvp/n64i01 $d0 $lc0@.0\nmvp/n64i02 $d64 $lc64@.0\nnop; wait i02",
        1,
        20,
    ),  # second: issue 8, ports free at 4, done 76 -> 80
    (
        "mvp/n1024i01 $d0 $lc0@.0\nmvp/n64i02 $d0@0 $lc64@0.1\nnop; wait i02",
        1,
        34,
    ),  # shares dram0: starts at 64, 68 + 64 = 132 -> 136
    (
        "mvp/n1024i01 $d0@0 $lc0@0.0\nmvp/n64i02 $d0@1 $lc64@1.1\nnop; wait i02\nnop/12",
        13,
        32,
    ),  # other ports: waits to 76, not to 132
    ("mvp/n64i01 $p0@0 $lc0@1.0\nnop; wait i01", 1, 19),  # between groups 8 a cycle: 8 + 64 = 72 -> 76
    ("mvp/n64i01 $d0 $lc0@.0", 0, 17),  # the program ends when its moves are done: 68 cycles
    ("mvp/n64i01 $d0 $lc0@.0\nnop/30\nnop; wait i01", 31, 31),  # done long before
    ("mvnop\nmvnop\nmvnop", 0, 4),  # issues at 0, 8, 16
    ("mvd/n128i01 $p0@0 $lc0\nnop; wait i01", 1, 21),  # 128/8 = 16 + 64 = 80 -> 84
    ("mvrffadd/n64i01 $lc0 $d0\nnop; wait i01", 1, 18),  # 64/32 = 2 + 64 = 66 -> 68, 72
]


@pytest.mark.parametrize("case", TIMES, ids=lambda c: c[0].replace("\n", " | "))
def test_time(machine, run, case):
    text, pe_steps, total = case
    stats = run(text)
    assert (stats.pe_steps, stats.total_steps) == (pe_steps, total)
    assert stats.stall_steps == total - pe_steps
