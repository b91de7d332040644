"""Forms that programs seldom use, with results worked out by hand from the text: widths that do not match, sets, indirect
moves, base addresses with T and j, suffixes of matrix writes, masks of the low half, flags, dumps of every type."""

from __future__ import annotations

import numpy as np
import pytest

from mlsdk.device.errors import AssemblyError
from mlsdk.device.isa.parser import parse

K = 1234  # any PE
ONE, TWO, THREE, FOUR = 0x3F800000, 0x40000000, 0x40400000, 0x40800000


def pe(l1b: int, mab: int, p: int) -> int:
    return l1b * 64 + mab * 4 + p


def words(machine, space: str, addr: int, count: int, k: int = K) -> list[int]:
    return [int(v) for v in machine.read(space, addr, count)[:, k]]


def lws(machine, space: str, addr: int, count: int, k: int = K) -> list[int]:
    found = words(machine, space, addr, 2 * count, k)
    return [high << 32 | low for high, low in zip(found[0::2], found[1::2])]


def hexes(values) -> list[str]:
    return [hex(int(v)) for v in values]


@pytest.fixture
def filled(machine):
    """LW a of L1BM b holds b << 32 | a, of L2BM n n << 40 | a; $lm<2i> of PE k holds i << 32 | k for i < 8."""
    state = machine.state
    state.l1bm[:] = (np.arange(64, dtype=np.uint64)[:, None] << np.uint64(32)) | np.arange(8192, dtype=np.uint64)
    state.l2bm[:] = (np.arange(8, dtype=np.uint64)[:, None] << np.uint64(40)) | np.arange(32768, dtype=np.uint64)
    k = np.arange(4096, dtype=np.uint32)
    machine.write("lm0", 0, np.stack([row for i in range(8) for row in (np.full(4096, i, np.uint32), k)]))
    machine.write("lm1", 0, np.full(16, 7, np.uint32))
    return machine


# --- widths that do not match: zero fill and truncation ------------------------------------------------------------------
B, P = 3, pe(3, 2, 1)
#: instruction, LW of LM1 of PE P afterwards
TO_PE = [
    ("l1bmm $lb32 $lln0v", [v for c in range(4) for v in (B << 32 | 32 + 4 * c + 1, 0)]),
    ("l1bmm $llb32 $ln0v", [B << 32 | 32 + 8 * c + 1 for c in range(4)]),
    ("l1bmm $lb32 $n0v", [B << 32 | B] * 2),  # the MSB words of two cycles
    ("l1bmd $llb256 $lln0v", [v for c in range(4) for v in (B << 32 | 256 + 64 * c + 9, 0)]),
    ("l1bmp $llb8190 $lln0v", [B << 32 | a for a in (8190, 2, 8191, 3, 0, 4, 1, 5)]),  # wraps
]


@pytest.mark.parametrize("text,expected", TO_PE)
def test_widths_on_the_way_to_the_pes(filled, run, text, expected):
    run(text)
    assert lws(filled, "lm1", 0, len(expected), P) == expected


S, LB = pe(1, 5, 2), 32
#: instruction, {L1BM address of L1B 1: LW}; the source is PE S = (1, 5, 2)
FROM_PE = [
    ("l1bmm@5 $lm0v $llb32", {LB + 8 * c + 4 * k + 2: (c << 32 | S) * (k == 0) for c in range(4) for k in range(2)}),
    ("l1bmm@5 $llm0v $lb32", {LB + 4 * c + 2: 2 * c << 32 | S for c in range(4)}),
    ("l1bmm@5 $m0v $lb32", {LB + 4 * c + 2: (c // 2, S)[c % 2] << 32 for c in range(4)}),
    ("l1bmd $llm0v $lb0", {64 * c + 22: 2 * c << 32 | S for c in range(4)}),
]


@pytest.mark.parametrize("text,expected", FROM_PE)
def test_widths_on_the_way_to_l1bm(filled, run, text, expected):
    run(text)
    assert {a: int(filled.state.l1bm[1, a]) for a in expected} == expected


def test_reduced_results_in_two_long_words(machine, run):
    """1, 2, 3, 4 in every PE: sums of 16 are 16, 32, 48, 64 (4600 4800 4900 4A00), of 4 4, 8, 12, 16. They are one LW:
    the k = 1 LW of `$llb` is zero."""
    machine.write("lm0", 0, np.array([ONE, TWO, THREE, FOUR], np.uint32))
    run("l1bmrffaddr $llm0 $llb0\nl1bmr4ffaddr $llm0 $llb128\nl1bmr4ffaddr $llm0 $lb64\nl1bmrfmaxr $llm0 $lb48")
    lb = machine.state.l1bm[5]
    sixteen, four, one = 0x4600480049004A00, 0x4200440045004600, 0x3E00400041004200
    assert [int(lb[8 * c + 4 * k + 3]) for c in range(4) for k in range(2)] == [sixteen, 0] * 4
    assert [int(lb[128 + 32 * c + 8 * q + 4 * k]) for c in (0, 3) for q in range(4) for k in range(2)] == [four, 0] * 8
    assert [int(lb[64 + 16 * c + 4 * q + 1]) for c in (0, 3) for q in range(4)] == [four] * 8
    assert int(lb[49]) == one


# --- sets of L1Bs ----------------------------------------------------------------------------------------------------------
def own(b: int, a: int) -> int:
    """What LW a of L1B b of L2B 1 holds first."""
    return 8 + b << 32 | a


#: instruction, {(L1B of L2B 1, L1BM address): LW}
SETS = [
    ("l2bmb $lc32736 $lb8160", {(1, a): 1 << 40 | s for a, s in ((8160, 32736), (8191, 32767), (0, 0), (31, 31))}),
    ("l2bmb2@2,3 $lc64 $lb16", {(b, 69): own(b, 69) if b in (1, 4) else 1 << 40 | 64 + 192 + 16 + 5 for b in (1, 2, 3, 4)}),
    ("l2bmi@5 $lb64 $lb1024", {(b, 1087): own(5, 127) for b in range(8)}),  # immode 0: to all
    ("l2bmi@0,2,4,6 $lb64 $lb64", {(b, 65): own(b & 6, 65) for b in range(8)}),  # immode 6, in place
    ("l2bmi@4/2 $lb64 $lb128", {(b, 130): own(4 | b & 2, 66) for b in range(8)}),  # L1Bs 4 and 6, immode 2
]  # fmt: skip


@pytest.mark.parametrize("text,expected", SETS)
def test_sets_of_l1bs(filled, run, text, expected):
    run(text)
    assert {at: int(filled.state.l1bm[8 + at[0], at[1]]) for at in expected} == expected


def test_a_set_on_the_way_up(filled, run):
    """l2bmd@1/6 replaces the slots of L1Bs 1, 3, 5, 7 only."""
    run("l2bmd@1/6 $lb8 $lc256")
    at = [256 + 64 * 2 + 8 * b + 3 for b in range(4)]
    assert [int(filled.state.l2bm[1, a]) for a in at] == [1 << 40 | at[0], own(1, 27), 1 << 40 | at[2], own(3, 27)]


# --- moves through the DAR -------------------------------------------------------------------------------------------------
@pytest.fixture
def board(machine):
    """DRAM of group g holds g << 40 | address, PDM (16 + g) << 40 | address; DAR entries differ in every group."""
    n = np.arange(8192, dtype=np.uint64)
    for g in range(4):
        machine.state.dram[g].write(0, n | np.uint64(g << 40))
        machine.state.pdm[g].write(0, n | np.uint64((16 + g) << 40))
    machine.state.dar[:, 4:8] = [[3, 1, 2, 0], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    machine.state.dar[3, [1023, 0]] = 7, 9
    machine.state.dar[2, 8:10] = 100, 50
    return machine


def at(machine, kind: str, which: int, address: int) -> int:
    if kind == "l2bm":
        return int(machine.state.l2bm[which, address])
    return int(getattr(machine.state, kind)[which].read(address, 1)[0])


def dram(g: int, a: int) -> int:
    return g << 40 | a


#: move, {(memory, instance, address): LW}; pieces of 16 LW, piece j at 16 DAR[e + j div nd]
INDIRECT = [
    # nd2: pieces 0, 1 from 1600, pieces 2, 3 from 800; piece j of group 2 is PDM 64 j + 32
    ("mvd/n256nd2 $p0 $di8", {("dram", 2, a): 16 << 40 | s for a, s in ((1603, 35), (1616, 96), (800, 160), (831, 239))}),
    ("mvd/n128 $di1023 $p512", {("pdm", 0, 512 + 49): dram(3, 113), ("pdm", 0, 512 + 114): dram(3, 146)}),  # wraps
    ("mvb/n64 $di4@0 $lc0", {("l2bm", n, 16 * i): dram(0, a) for n in (0, 7) for i, a in enumerate((48, 16, 32, 0))}),
    ("mvb2/n64 $di4 $lc1024", {("l2bm", 5, 1024 + 16 * i): dram(2, 128 + 16 * i) for i in range(4)}),
    # LC[64 + 64i + 16g + k] is piece 2i + l of group g
    ("mvb4/n128 $di4 $lc64", {("l2bm", 1, 64 + 21): dram(1, 85), ("l2bm", 0, 128 + 53): dram(3, 229)}),
]  # fmt: skip


@pytest.mark.parametrize("text,expected", INDIRECT)
def test_moves_through_the_dar(board, run, text, expected):
    run(text)
    assert {place: at(board, *place) for place in expected} == expected


def test_reductions_through_the_dar(board, run):
    """LW a of L2BM n is 1000 (n + 1) + a. Over the groups for l: 16000 or 20000, + 4a; piece 2i + l of DRAM_3."""
    board.state.l2bm[:, :128] = (np.arange(1000, 9000, 1000, dtype=np.uint64))[:, None] + np.arange(
        128, dtype=np.uint64
    )
    run("mvr4liadd/n128 $lc0 $di4\nmvr2dmin/n64 $lc0 $di8\nmvr2dmax/n64 $lc0 $d4096")
    got = [at(board, "dram", 3, 16 * (12 + 2 * i + l) + 2) for i in (0, 1) for l in (0, 1)]
    assert got == [16000 + 4 * 50, 20000 + 4 * 50, 16000 + 4 * 114, 20000 + 4 * 114]
    assert [at(board, "dram", 2, a) for a in (1602, 802, 4096 + 63)] == [5002, 5018, 6063]


def test_integer_reductions_of_moves(machine, run):
    """L2BM n holds n times (1, 2, 0, 3) as 16-bit elements: sums 28, 56, 0, 84; the bits of 0, 3, .., 21 are 11111."""
    machine.state.l2bm[:, :64] = (np.arange(8, dtype=np.uint64) * np.uint64(0x0001000200000003))[:, None]
    names = ("siadd", "sor", "sand", "sbor", "lor", "land")
    run("\n".join(f"mvr{name}/n64 $lc0 $p{64 * i}" for i, name in enumerate(names)))
    assert hexes(at(machine, "pdm", 0, 64 * i) for i in range(6)) == hexes(
        [0x001C003800000054, 0x0001000100000001, 0, 0x0007000E0000001F, 1, 0]
    )


def test_stages_of_half_moves(machine, run):
    """Groups hold (1, 2^-9), (1, 2^-10), (1, 1), (1, 1). Pairs: 1 + 2^-9, 1 (a tie), 2, 2; their sum 6 + 2^-9 rounds to 6.
    Over the groups: 4 for l = 0; for l = 1 2 + 3/1024, in units of 2^-8 one half and one quarter more: 2 + 2^-8."""
    machine.state.l2bm[:, :64] = np.uint64(0x3E003E003E003E00)
    machine.state.l2bm[1, :64], machine.state.l2bm[3, :64] = (
        np.uint64(0x2C002C002C002C00),
        np.uint64(0x2A002A002A002A00),
    )
    run("mvrhfadd/n64 $lc0 $p0\nmvr2hfadd/n64 $lc0 $d0\nmvr4hfadd/n64 $lc0 $d64")
    places = [("pdm", 0, 0), *(("dram", g, 0) for g in range(4)), ("dram", 2, 64), ("dram", 2, 80)]
    assert [at(machine, *p) >> 48 for p in places] == [0x4300, 0x3E01, 0x3E00, 0x4000, 0x4000, 0x4200, 0x4001]


def test_dar_writes(machine, run):
    """Entries wrap. l2bmdarw beside l2bmdars still sends the buffer as it was; the next one starts on the new one."""
    machine.state.l2bm[:, :4] = np.array([7 << 32 | 9, 11 << 32 | 13, 1 << 32 | 2, 3 << 32 | 4], np.uint64)
    run("l2bmdars $lc0@.0 $dar1022\nl2bmdarw\nl2bmdars $lc2@.1 $dar500; l2bmdarw\nl2bmdarw")
    assert machine.state.dar[1, [1022, 1023, 0, 1, 2, 3, 4, 5]].tolist() == [7, 9, 11, 13, 1, 2, 3, 4]
    assert machine.state.dar[1, 500:504].tolist() == [1, 2, 3, 4]


# --- addresses of the PEs --------------------------------------------------------------------------------------------------
def test_indices_in_t_wrap(machine, run):
    """T holds -1, 9, 4094, 4104 (only the low word counts): with 4 + c they name 3, 14, 4, 15; 2LW are cut to multiples of 4."""
    machine.write("lm0", 0, np.arange(4096, dtype=np.uint32))
    machine.write("grf0", 0, np.array([0, 0xFFFFFFFF, 9, 9, 0, 4094, 5, 4104], np.uint32))
    run("lpassa $lr0v $lt\nnop\nipassa $mt4v $n0v\nipassa $llmt4 $lln16v")
    assert words(machine, "lm1", 0, 4) == [3, 14, 4, 15]
    assert words(machine, "lm1", 16, 16) == [0, 1, 2, 3, 12, 13, 14, 15, 0, 1, 2, 3, 12, 13, 14, 15]


def test_base_addresses_with_t_and_j(machine, run):
    """The base is the low 12 bits, 6; T is 5. j adds one width on PEs 0..k, to flat addresses and to destinations too."""
    machine.write("lm0", 0, np.arange(64, dtype=np.uint32))
    machine.write("grf0", 0, np.array([0, 5] * 4, np.uint32))
    run(
        'imm ui"0x12345006" $mb\nlpassa $lr0v $lt\nnop\nipassa $mt1 $n0v\nipassa $m1j0 $n8\n'
        "ipassa $lm[0,2,4,6]j2 $ln16v\nipassa $r1 $n40j1/0100\nzero $mb"
    )
    assert words(machine, "lm1", 0, 4) == [12] * 4
    assert [words(machine, "lm1", 8, 1, k)[0] for k in range(4)] == [8, 7, 7, 7]
    assert [words(machine, "lm1", 16, 8, k) for k in (2, 3)] == [list(range(8, 16)), list(range(6, 14))]
    assert [words(machine, "lm1", 40, 2, k) for k in range(4)] == [[0, 5], [0, 5], [5, 0], [5, 0]]


# --- immediates, matrix writes ---------------------------------------------------------------------------------------------
IMMEDIATES = [
    ('immu h"1.5"', [0x3F003F00, 0, 0x3F003F00, 0]), ('imm s"-2"', [0xFFFEFFFE] * 4),
    ('immu i"0x40180000"', [0x40180000, 0] * 2), ('imm us"0b101"', [0x00050005] * 4), ('imm i"-1"', [0xFFFFFFFF] * 4),
    ('imm f"-1e-45"', [0x80000000] * 4), ('imm h"0.99999999"', [0x3E003E00] * 4), ('imm h"0x1p3"', [0x44004400] * 4),
    ('imm f"-inf"', [0xFF800000] * 4), ('imm h"1e10"', [0x7E007E00] * 4),
]  # fmt: skip


@pytest.mark.parametrize("text,expected", IMMEDIATES)
def test_immediates(machine, run, text, expected):
    run(f"{text} $llr0")
    assert hexes(words(machine, "grf0", 0, 4)) == hexes(expected)


#: matrix write, matrix read, words of GRF0 of every PE, words of LM1 of PEs 0 and 3 of a MAB
MATRIX_WRITES = [
    # W -> LW: row r holds (1, 2); column 1 is 2
    ("gmwrite $r0e $lx0\ngmwrite $r0e $lx4", "gmread $lx0 $ln0v", [0x3E004000], {2: [TWO] * 2}),
    ("dmwrite $r0e $lx0", "dmread $lx3 $ln0v", [0xBF800000], {0: [0xBFF00000, 0]}),
    # 2LW -> LW: every row holds 1, 2, 3, 4 of each PE; columns 4, 6 (cycles 0 and 1), 5 (LSB LW of cycle 0)
    ("hmwrite $llr0r $lx0\nhmwrite $llr0r $lx4\nhmwrite $llr0r $lx8\nhmwrite $llr0r $lx12", "hmread $llx4 $lln0v",
     [ONE, TWO, THREE, FOUR], {0: [0x3E003E00] * 2, 2: [0x40004000] * 2, 4: [0x41004100] * 2}),
]  # fmt: skip


@pytest.mark.parametrize("write,read,data,expected", MATRIX_WRITES)
def test_matrix_writes_with_suffixes(machine, run, write, read, data, expected):
    machine.write("grf0", 0, np.array(data, np.uint32))
    run(f"{write}\n{read}")
    for addr, wanted in expected.items():
        for p in (0, 3):
            assert hexes(words(machine, "lm1", addr, 2, 40 + p)) == hexes(wanted)


def test_matrix_reads_flush_and_forward(machine, run):
    run('imm f"1" $llr0\nfmwrite $lr0 $lx0\nfmwrite $lr0 $lx4\nfmread/1001 $lx0 $ln0v $lr8v\nipassa $mreadf $lm0v')
    assert words(machine, "lm1", 0, 8) == words(machine, "lm0", 0, 8) == [ONE, ONE, 0, 0, 0, 0, ONE, ONE]


# --- masks, flags ------------------------------------------------------------------------------------------------------------
def test_masks_and_the_low_long_word(machine, run):
    """Long masks never guard or flush the LSB LW, also in T; ll masks guard it."""
    run('imm f"1" $lt/1000\nimm f"1" $llr0\nipassa/0100 $llr0 $llm0v\nipassa/ll0100 $llr0 $lln0v')
    assert words(machine, "t", 0, 16) == [ONE] * 4 + [0, 0, ONE, ONE] * 3
    assert words(machine, "lm0", 0, 12) == [0, 0, ONE, ONE] + [ONE] * 4 + [0, 0, ONE, ONE]
    assert words(machine, "lm1", 0, 12) == [0] * 4 + [ONE] * 4 + [0] * 4
    run('zero $lt\nimm f"1" $t/ll0010')
    assert words(machine, "t", 0, 16) == [0] * 8 + [ONE] * 4 + [0] * 4


def test_flush_of_transfers(machine, run):
    machine.state.l1bm[:, :32] = 5
    run("l1bmm/ll1000 $llb0 $lln0v\nl1bmm/1000 $llb0 $llr0v")
    assert lws(machine, "lm1", 0, 4) == [5, 5, 0, 0] and lws(machine, "grf0", 0, 4) == [5, 5, 0, 5]


@pytest.mark.parametrize("text", ["l1bmd/1000 $lr0v $lb0", "l1bmd+1/1000 $lr0v $lb0", "l1bmm@3/1000 $lr0v $lb0"])
def test_nothing_is_flushed_on_its_way_to_l1bm(text):
    with pytest.raises(AssemblyError, match="takes no zero flush"):
        parse(text)
    parse("l1bmd/1000 $lb0 $lr0v")


def test_two_long_mask_lines_and_base_addresses(machine, run):
    """Entry 18 is 0010; what a line does not list is switched off, mask registers too."""
    machine.write("grf0", 0, np.arange(1, 17, dtype=np.uint32))
    machine.state.masks[4:8] = 6
    run('maskllrm 18\nipassa $llr0v $llm0v $lln0v $omr1\nmask 0\nimm ui"7" $nb/0000\nimm ui"9" $mb/0001')
    assert words(machine, "lm0", 0, 16) == [0] * 8 + [9, 10, 11, 12] + [0] * 4
    assert words(machine, "lm1", 0, 4) == [0] * 4 and machine.state.masks[4:8, K].tolist() == [6] * 4
    assert [int(machine.state.bar[side][K]) for side in ("bar1", "bar0")] == [0, 9]


#: instruction, bits of the entry that it writes. $lr0 = 1, -1, -1, 1 as halves, $lr2 the same, $ls0 four times 1
FLAGS = [
    ("hvmulr $lr0 $ls0", 0b1001), ("hvmul $lr0 $ls0", 0b1001), ("fvpassa $lr0", 0b1100), ("dvpassa $lr2", 0b1111),
    ("fvpassar $lr0", 0b1100), ("dvpassar $lr2", 0b1111), ("sinc $lr0", 0b1001),
    ("uiadd $lr0 $lr0", 0b1100),  # 3E00BE00 doubled: no carry; BE003E00: a carry
    ("uisub $ls0 $lr0", 0b0000), ("usdec $lr0", 0b1111),
    ("hrelu3 $lr0 $ls0", 0b0000),  # 0011, 1011
    ("hrelu1 $lr0 $ls0", 0b1111), ("imax $lr0 $ls0", 0b1100), ("uimax $lr0 $ls0", 0b1111), ("fmin $ls0 $lr0", 0b1100),
    ("spackbit $ls0 $lr0", 0b1001), ("llnot $lr0", 0b1111), ("hrsqrt $lr0", 0b1001),
]  # fmt: skip


@pytest.mark.parametrize("text,bits", FLAGS)
def test_flags(machine, run, text, bits):
    machine.write("grf0", 0, np.array([0x3E00BE00, 0xBE003E00] * 2, np.uint32))
    machine.write("grf1", 0, np.array([0x3E003E00] * 2, np.uint32))
    run(f"{text} $omr1")
    assert bin(machine.state.masks[4, K]) == bin(bits)


# --- forward registers -------------------------------------------------------------------------------------------------------
def test_forwards_hold_what_was_flushed_but_not_what_was_cut(machine, run):
    machine.write("grf0", 0, np.arange(1, 9, dtype=np.uint32))
    run("ipassa/1000 $lr0v $nowrite\nipassa $aluf $ln0v\nipassa $lr0v $nowrite\nipassa $aluf $r8v\nipassa $aluf $lm0v")
    assert words(machine, "lm1", 0, 8) == [1, 2, 0, 0, 0, 0, 0, 0]
    assert words(machine, "lm0", 0, 8) == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("line", ["l1bmm $lbi $ln0v; l1bmm $lb64 $lr0v", "l1bmm $lb64 $lr0v; l1bmm $lbi $ln0v"])
def test_the_order_in_a_line_does_not_count(filled, run, line):
    """Of two transfers to the PEs $lbf shows that of L1BM."""
    run(f"l1bmm@3 $lm0v $lbi\n{line}\nlpassa $lbf $ls0v")
    got = [lws(filled, space, 2, 1, P)[0] for space in ("lm1", "grf0", "grf1")]
    assert got == [1 << 32 | pe(3, 3, 1), B << 32 | 69, B << 32 | 69]


#: instruction, $lr0, result: what the choices about floor and ftoi say
CORNERS = [
    ("ffloor", 0x3F7FFFFF80000001, 0x0000000080000000),  # below 1: +0; a negative zero loses its mantissa only
    ("ffloor", 0xFF8000017F812345, 0xFF8000017F812345), ("ffloor", 0xBF000000CB000001, 0xBF800000CB000001),
    ("fftoi", 0x7F800000FF800000, 0x7FFFFFFF80000000), ("ufftoi", 0xFF800000C0700000, 0xFFFFFFFF00000003),
    ("fftoi", 0xCF00000080000001, 0x8000000000000000), ("hftoi", 0x7E00FE00BE004080, 0x7FFF8000FFFF0002),
    ("dftoi", 0xC3E0000000000000, 0x8000000000000000), ("udftoi", 0x43EFFFFFFFFFFFFF, 0xFFFFFFFFFFFFF800),
]  # fmt: skip


@pytest.mark.parametrize("name,x,expected", CORNERS)
def test_corners_of_rounding(machine, run, name, x, expected):
    machine.write("grf0", 0, np.array([x >> 32, x & 0xFFFFFFFF], np.uint32))
    run(f"{name} $lr0 $ln0")
    assert hexes(lws(machine, "lm1", 0, 1)) == hexes([expected])


# --- debug statements --------------------------------------------------------------------------------------------------------
#: statements that write, statement that reads, the lines without their comments. Block floats have no hidden bit: the
#: first mantissa bit is worth 2^(exponent - bias).
DUMPS = [
    ("d set $lm0n0c0b0m0p0 2 l3ff0000000000000l8000000000000001", "d get $lm0n0c0b0m0p0 2",
     ["LM0(n0c0b0m0p0,0):(f:1, i:{{0x3FF0,0x0},{0x0,0x0}}, v:0x3FF0000000000000)",
      "LM0(n0c0b0m0p0,2):(f:-0, i:{{0x8000,0x0},{0x0,0x1}}, v:0x8000000000000001)"]),
    ("d set $ln0n0c0b0m0p0 1 3fc0000080000001", "d getf $ln0n0c0b0m0p0 1",
     ["LM1(n0c0b0m0p0,0):(1.5, -0) (0x3fc00000, 0x80000001)"]),
    ("d set $lc5n1c1 1 C000000042000000", "d geth $lc5n1c1 1", ["L2BM(n1c1,5):(-2, 0, 4, 0) (0xc000, 0x0000, 0x4200, 0x0000)"]),
    ("d set $lb7n1c1b7 2 00010002000300044008000000000000", "d getd $lb7n1c1b7 2",
     ["L1BM(n1c1b7,7):(0) (0x0001000200030004)", "L1BM(n1c1b7,8):(3) (0x4008000000000000)"]),
    ("d set $lx2n0c0b0m1p3 1 3f00be803e003e01", "d getbh $lx2n0c0b0m1p3 1",  # 1, -0.5, 0, 2^-8
     ["MATX(n0c0b0m1p3,2):(1, -0.5, 0, 0.00390625) (0x3f00, 0xbe80, 0x3e00, 0x3e01)"]),
    ("d set $ly7n0c0b0m1p3 1 3fc00000bfe0001f", "d getbf $ly7n0c0b0m1p3 1",
     ["MATY(n0c0b0m1p3,7):(1, -1.50001) (0x3fc00000, 0xbfe0001f)"]),  # 1.5 + 31/2^22 = 1.5000074
    ("d set $ly7n0c0b0m1p3 1 3fc00000bfe0001f", "d getbg $ly7n0c0b0m1p3 1",
     ["MATY(n0c0b0m1p3,7):(1, -1.5) (0x3fc00000, 0xbfe0001f)"]),  # the low 5 bits are ignored
    ("d set $lr6n0c0b0m1p3 1 3ff8000000000000", "d getbd $lr6n0c0b0m1p3 1", ["GREG0(n0c0b0m1p3,6):(1) (0x3ff8000000000000)"]),
    ("d set $p3n2 1 7ff0000000000000", "d get $p3n2 1", ["PDM(n2,3):(f:inf, i:{{0x7FF0,0x0},{0x0,0x0}}, v:0x7FF0000000000000)"]),
    ("d set $t2n0c0b0m0p0 1 3f8000007f800000", "d getf $t2n0c0b0m0p0 1",
     ["TREG(n0c0b0m0p0,2):(1, inf) (0x3f800000, 0x7f800000)"]),
    ("d set $omr3n0c0b0m0p0 1 000000000000a5f0", "d get $omr3n0c0b0m0p0 1",
     [f"OMR(n0c0b0m0p0,3):Mask{{{bits}}}" for bits in (10, 5, 15, 0)]),
    ("r 2 00000001f 002 00000000000000014000000000000000", "d getd $d31n2 2",
     ["DRAM(n2,31):(0) (0x0000000000000001)", "DRAM(n2,32):(2) (0x4000000000000000)"]),
]  # fmt: skip


@pytest.mark.parametrize("write,read,expected", DUMPS)
def test_dumps(machine, run, write, read, expected):
    note = read.replace("$t", "$lt")  # T is always written $lt
    assert run(f"{write}\n{read}").dumps == [f"DEBUG-{line} #{note}" for line in expected]


def test_coordinates_that_are_left_out_stand_for_all(machine, run):
    stats = run("d set $ls4m3 1 0000000500000006\nd get $ls4n2c1b0m3 1\nd get $lc0n1 1")
    assert [line.split(":")[0] for line in stats.dumps] == [
        *(f"DEBUG-GREG1(n2c1b0m3p{p},4)" for p in range(4)), "DEBUG-L2BM(n1c0,0)", "DEBUG-L2BM(n1c1,0)",
    ]  # fmt: skip
    assert all(line.endswith("v:0x500000006) #d get $ls4n2c1b0m3 1") for line in stats.dumps[:4])
    assert int(machine.read("grf1", 4, 1).astype(bool).sum()) == 4096 // 16
