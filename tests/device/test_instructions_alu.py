"""Each ALU instruction against values worked out by hand from its description. x is `$lr0`, y is `$ls0`, the result `$ln0`."""

from __future__ import annotations

import numpy as np
import pytest

# row of the table, instruction, x, y, result: long words
CASES = [
    ("{p}passa", "lpassa $lr0 $ln0", 0x8000000000000042, 0, 0x8000000000000042),
    ("{p}passa", "fpassa $lr0 $ln0", 0x0000004280000000, 0, 0x0000004280000000),  # a bit copy: nothing is normalised
    ("{u}{p}inc", "iinc $lr0 $ln0", 0xFFFFFFFF00000001, 0, 0x0000000000000002),
    ("{u}{p}inc", "linc $lr0 $ln0", 0x00000000FFFFFFFF, 0, 0x0000000100000000),
    ("{u}{p}inc", "sinc $lr0 $ln0", 0xFFFF00017FFF0000, 0, 0x0000000280000001),
    ("{u}{p}inc", "usinc $lr0 $ln0", 0xFFFF00017FFF0000, 0, 0x0000000280000001),
    ("{u}{p}dec", "ldec $lr0 $ln0", 0x0000000100000000, 0, 0x00000000FFFFFFFF),
    ("{u}{p}dec", "uidec $lr0 $ln0", 0x0000000000000005, 0, 0xFFFFFFFF00000004),
    ("{p}not", "inot $lr0 $ln0", 0x0F0F0F0FFFFF0000, 0, 0xF0F0F0F00000FFFF),
    ("{p}lnot", "ilnot $lr0 $ln0", 0x0000000000000005, 0, 0x0000000100000000),
    ("{p}lnot", "llnot $lr0 $ln0", 0x0000000000000000, 0, 0x0000000000000001),
    ("{p}lnot", "slnot $lr0 $ln0", 0x0000123400000001, 0, 0x0001000000010000),
    ("{p}and", "iand $lr0 $ls0 $ln0", 0xF0F0F0F0FFFF0000, 0x0FF00FF012345678, 0x00F000F012340000),
    ("{p}or", "lor $lr0 $ls0 $ln0", 0xF0F0F0F0FFFF0000, 0x0FF00FF012345678, 0xFFF0FFF0FFFF5678),
    ("{p}xor", "sxor $lr0 $ls0 $ln0", 0xF0F0F0F0FFFF0000, 0x0FF00FF012345678, 0xFF00FF00EDCB5678),
    ("{u}{p}add", "iadd $lr0 $ls0 $ln0", 0xFFFFFFFF7FFFFFFF, 0x0000000200000001, 0x0000000180000000),
    ("{u}{p}add", "uladd $lr0 $ls0 $ln0", 0x00000000FFFFFFFF, 0x0000000000000001, 0x0000000100000000),
    ("{u}{p}add", "sadd $lr0 $ls0 $ln0", 0xFFFF000100020003, 0x0001000100010001, 0x0000000200030004),
    ("{u}{p}sub", "isub $lr0 $ls0 $ln0", 0x0000000100000005, 0x0000000200000003, 0xFFFFFFFF00000002),
    ("{u}{p}sub", "lsub $lr0 $ls0 $ln0", 0x0000000100000000, 0x0000000000000001, 0x00000000FFFFFFFF),
    (
        "{p}lsl",
        "ilsl $lr0 $ls0 $ln0",
        0x0000000180000001,
        0x0000004400000020,
        0x0000001000000000,
    ),  # 68 mod 64 = 4; 32: all out
    ("{p}lsl", "llsl $lr0 $ls0 $ln0", 0x0000000000000001, 0x0000000300000003, 0x0000000000000008),  # 2^33.. mod 128 = 3
    ("{u}{p}lsr", "ilsr $lr0 $ls0 $ln0", 0x8000000080000000, 0x0000000400000028, 0xF8000000FFFFFFFF),
    ("{u}{p}lsr", "uilsr $lr0 $ls0 $ln0", 0x8000000080000000, 0x0000000400000028, 0x0800000000000000),
    ("{u}{p}lsr", "slsr $lr0 $ls0 $ln0", 0x8000800080008000, 0x0000000100080010, 0x8000C000FF80FFFF),
    ("{p}bsl", "ibsl $lr0 $ls0 $ln0", 0x8000000180000001, 0x0000000400000024, 0x0000001800000018),
    ("{p}bsl", "lbsl $lr0 $ls0 $ln0", 0x0123456789ABCDEF, 0x0000002000000020, 0x89ABCDEF01234567),
    ("{p}bsr", "ibsr $lr0 $ls0 $ln0", 0x8000000180000001, 0x0000000400000024, 0x1800000018000000),
    ("{p}packbit", "ipackbit $lr0 $ls0 $ln0", 0x4000000000000001, 0x800000007FFFFFFF, 0x8000000100000002),
    ("{p}packbit", "lpackbit $lr0 $ls0 $ln0", 0x4000000000000001, 0x8000000000000000, 0x8000000000000003),
    ("{u}{p}max", "imax $lr0 $ls0 $ln0", 0xFFFFFFFF00000005, 0x0000000100000003, 0x0000000100000005),
    ("{u}{p}max", "uimax $lr0 $ls0 $ln0", 0xFFFFFFFF00000005, 0x0000000100000003, 0xFFFFFFFF00000005),
    (
        "{u}{p}max",
        "fmax $lr0 $ls0 $ln0",
        0xBF80000080000000,
        0xC000000000000000,
        0xBF80000080000000,
    ),  # -1 over -2; -0 = +0: x
    ("{u}{p}max", "dmax $lr0 $ls0 $ln0", 0x3FF0000000000000, 0x4000000000000000, 0x4000000000000000),
    (
        "{u}{p}max",
        "hmax $lr0 $ls0 $ln0",
        0x3E00BE0000000001,
        0x4000C00080000000,
        0x4000BE0000000001,
    ),  # exponent 0 is zero: x
    ("{u}{p}min", "ulmin $lr0 $ls0 $ln0", 0xFFFFFFFFFFFFFFFF, 0x0000000000000005, 0x0000000000000005),
    ("{u}{p}min", "lmin $lr0 $ls0 $ln0", 0xFFFFFFFFFFFFFFFF, 0x0000000000000005, 0xFFFFFFFFFFFFFFFF),
    ("{u}{p}min", "fmin $lr0 $ls0 $ln0", 0x7F80000000000000, 0x3F80000080000001, 0x3F80000000000000),
    ("{p}relu", "frelu $lr0 $ls0 $ln0", 0xBF8000003F800000, 0x4000000040400000, 0x8000000040400000),
    ("{p}relu0", "hrelu0 $lr0 $ls0 $ln0", 0x8000000080007FFF, 0x3E003E003E003E00, 0x80003E0080003E00),
    ("{p}relu1", "frelu1 $lr0 $ls0 $ln0", 0x400000003FFFFFFF, 0x4000000040400000, 0x8000000040400000),
    ("{p}relu2", "frelu2 $lr0 $ls0 $ln0", 0x20000000DFFFFFFF, 0x4000000040400000, 0x8000000040400000),
    ("{p}relu3", "drelu3 $lr0 $ls0 $ln0", 0x1000000000000000, 0x4000000040400000, 0x8000000000000000),
    (
        "{p}lrelud",
        "flrelud $lr0 $ls0 $ln0",
        0x8000000080000000,
        0x4080000000800000,
        0x4000000080000000,
    ),  # 4 -> 2; 2^-126 -> -0
    ("{p}lrelud", "flrelud $lr0 $ls0 $ln0", 0x0000000080000000, 0x4080000000000000, 0x4080000080000000),
    ("{p}lreluo", "flreluo $lr0 $ls0 $ln0", 0x80000000BF800000, 0x41000000C1000000, 0x3F800000BF800000),  # 8 -> 1
    ("{p}ilrelud", "filrelud $lr0 $ls0 $ln0", 0x8000000080000000, 0x3F80000000000000, 0x4000000000800000),
    (
        "{p}ilrelud",
        "hilrelud $msb1 $ls0 $ln0",
        0,
        0x3E00400000007C00,
        0x400042000200 << 16 | 0x7E00,
    ),  # each half doubled
    ("{p}floor", "ffloor $lr0 $ln0", 0xC02000003F000000, 0, 0xC040000000000000),  # -2.5 -> -3; 0.5 -> 0
    ("{p}floor", "dfloor $lr0 $ln0", 0xBFE0000000000000, 0, 0xBFF0000000000000),  # -0.5 -> -1
    ("{p}floor", "ffloor $lr0 $ln0", 0x8000000340133333, 0, 0x8000000040000000),  # a zero loses its mantissa; 2.3 -> 2
    ("{u}{p}ftoi", "fftoi $lr0 $ln0", 0xC02000004F800000, 0, 0xFFFFFFFE7FFFFFFF),  # -2.5 -> -2; 2^32 saturates
    ("{u}{p}ftoi", "ufftoi $lr0 $ln0", 0xC02000004F800000, 0, 0x00000002FFFFFFFF),
    ("{u}{p}ftoi", "dftoi $lr0 $ln0", 0xC059000000000000, 0, 0xFFFFFFFFFFFFFF9C),  # -100
    ("{u}{p}ftoi", "hftoi $lr0 $ln0", 0x3E00BE0041003C00, 0, 0x0001FFFF00030000),  # 1, -1, 3, 0.5
    ("{p}rsqrt", "drsqrt $lr0 $ln0", 0x3FF0000000000000, 0, 0x3FEF800000000000),  # 1 -> 63/64
    ("{p}rsqrt", "frsqrt $lr0 $ln0", 0x40000000C0800000, 0, 0x3F3400003EFC0000),  # 2 -> 45/64; |-4| -> 63/128
    ("{p}rsqrt", "frsqrt $lr0 $ln0", 0x000000013F900000, 0, 0x7F8000003F700000),  # 0 -> inf; 1.125 (i = 2) -> 60/64
    ("{p}bfn", "dbfn $lr0 $ln0", 0x3FF0000000000000, 0, 0x3FF8000000000000),  # 1.0 = 0.1b under the exponent of 1
    ("{p}bfn", "gbfn $lr0 $ln0", 0x3F8000003F000000, 0, 0x3FC000003FA00000),  # 1.0 and 0.5 in one block
    ("{p}bfn", "fbfn $lr0 $ln0", 0x3F8000003F000000, 0, 0x3FC000003F400000),  # in two blocks
    ("{p}bfn", "hbfn/9 $lr0 $ln0", 0x3E003C00BE000000, 0, 0x3F003E80BF003E00),  # 1, 1/2, -1, 0
    ("{p}bfn", "hbfn/8 $lr0 $ln0", 0x3E003C00BE000000, 0, 0x408040 << 40 | 0x40C0804000),  # one bit less: exponent + 1
    (
        "hbfe",
        "hbfe/9 $lr0 $ln0",
        0x3E00300000003E00,
        0,
        0x3F00008000003F00,
    ),  # 2^-7: 512 >> (1 + 7 - 6) = 128, exponent field 0
]

#: Rows of the instruction table that have a worked example here.
COVERS = {case[0] for case in CASES} | {"zero", "imm", "immu", "msl", "msr"}


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[1].split()[0]}-{c[2]:x}")
def test_value(machine, run, case):
    _, text, x, y, expected = case
    machine.write("grf0", 0, [x >> 32, x & 0xFFFFFFFF])
    machine.write("grf1", 0, [y >> 32, y & 0xFFFFFFFF])
    run(text)
    words = machine.read("lm1", 0, 2)
    got = {int(a) << 32 | int(b) for a, b in words.T}
    assert got == {expected}, [hex(v) for v in got]


def test_all_ones_mantissa_carries_in_a_block(machine, run):
    # 1.111111111b rounds up to 2.0 when it is shifted: the exponent of the block grows by one, 1.0 then is 0.01b
    machine.write("grf0", 0, [0x3FFF3E00, 0x3E003E00])
    run("hbfn/9 $lr0 $ln0")
    assert hex(int(machine.read("lm1", 0, 1)[0, 0])) == "0x41004080"


def test_zero_clears_a_2lw(machine, run):
    machine.write("lm1", 0, [1, 2, 3, 4])
    run("zero $lln0")
    assert not machine.read("lm1", 0, 4).any()


IMMEDIATES = [
    ("imm", 'imm f"1.5" $lln0', [0x3FC00000] * 4),
    ("imm", 'imm f"inf" $lln0', [0x7F800000] * 4),
    ("imm", 'imm h"1" $lln0', [0x3E003E00] * 4),
    ("imm", 'imm h"-0.1" $lln0', [0xB733B733] * 4),  # 0.1 = 1.6 2^-4: 27 << 9 | 0.6 * 512 = 307.2
    ("imm", 'imm s"-2" $lln0', [0xFFFEFFFE] * 4),
    ("imm", 'imm i"-1" $lln0', [0xFFFFFFFF] * 4),
    ("imm", 'imm ui"0xFF" $lln0', [0xFF] * 4),
    ("imm", 'imm us"0b101" $lln0', [0x00050005] * 4),
    ("immu", 'immu i"0x40180000" $lln0', [0x40180000, 0, 0x40180000, 0]),  # the double 6.0
]


@pytest.mark.parametrize("case", IMMEDIATES, ids=lambda c: c[1])
def test_immediates(machine, run, case):
    run(case[1])
    assert machine.read("lm1", 0, 4)[:, 17].tolist() == case[2]


def test_rotation_inside_a_mab(machine, run):
    run("lpassa $peid $lr0\nnop/2\nmsl $lr0 $lm0\nmsr $lr0 $ln0")
    left, right = machine.read("lm0", 0, 2)[1], machine.read("lm1", 0, 2)[1]
    assert left[4:8].tolist() == [7, 4, 5, 6]  # PE p has what PE p-1 had
    assert right[4:8].tolist() == [5, 6, 7, 4]


def test_fixed_values_are_replicated_per_element(machine, run):
    run(
        "lpassa $l1bid $lr0\nipassa $l1bid $lr2\nspassa $mabid $lr4\nlpassa $msb1 $lr6\n"
        "spassa $msb1 $lr8\nipassa $subpeid $lr10\nipassa $l2bid $lr12"
    )
    pe = (((2 * 2 + 1) * 8 + 3) * 16 + 9) * 4 + 2  # group 2, L2B 1, L1B 3, MAB 9, PE 2
    words = machine.read("grf0", 0, 14)[:, pe].tolist()
    assert words == [0, 3, 3, 3, 0x90009, 0x90009, 0x80000000, 0, 0x80008000, 0x80008000, 2, 2, 5, 5]


def test_single_inputs_are_rounded_to_halves(machine, run):
    # 1.0, 1 + 2^-10 (a tie, to even), 1 + 3 2^-10 (a tie, up), 2^40 (overflow)
    machine.write("grf0", 0, [0x3F800000, 0x3F802000, 0x3F806000, 0x53800000])
    run("hpassa $llr0r $lln0")
    assert machine.read("lm1", 0, 4)[:, 0].tolist() == [0x3E003E00, 0x3E027E00, 0, 0]


FLAGS = [  # instruction, x, y, nibble of each cycle's mask entry
    ("lpassa $lr0 $omr1", 0, 0, 15),
    ("ipassa $lr0 $omr1", 0x0000000000000001, 0, 0b1100),
    ("spassa $lr0 $omr1", 0x0001000000010000, 0, 0b0101),
    ("iadd $lr0 $ls0 $omr1", 0x7FFFFFFF00000001, 0x0000000100000001, 0b0011),
    ("uiadd $lr0 $ls0 $omr1", 0xFFFFFFFF00000001, 0x0000000100000001, 0b0011),
    ("uisub $lr0 $ls0 $omr1", 0x0000000100000002, 0x0000000200000002, 0b0011),
    ("isub $lr0 $ls0 $omr1", 0x0000000100000002, 0x0000000200000002, 0b0011),
    ("uidec $lr0 $omr1", 0x0000000000000002, 0, 0b0011),
    ("uiinc $lr0 $omr1", 0xFFFFFFFF00000002, 0, 0b0011),
    ("ixor $lr0 $ls0 $omr1", 0x0000000500000006, 0x0000000500000007, 0b1100),
    ("ilsl $lr0 $ls0 $omr1", 0x8000000000000001, 0x0000000100000001, 0b1100),
    ("frelu $lr0 $ls0 $omr1", 0x8000000000000000, 0, 0b0011),
    ("frelu1 $lr0 $ls0 $omr1", 0x4000000000000000, 0, 0b0011),
    ("fmax $lr0 $ls0 $omr1", 0x3F80000040000000, 0x4000000040000000, 0b0011),
    ("imin $lr0 $ls0 $omr1", 0x0000000100000005, 0x0000000100000004, 0b1100),
    ("ipackbit $lr0 $ls0 $omr1", 0, 0x8000000000000000, 0b0011),
    ("frsqrt $lr0 $omr1", 0xBF8000003F800000, 0, 0b0011),
    ("fvadd $lr0 $ls0 $omr1", 0x3F8000003F800000, 0xC0000000BF800000, 0b0011),  # -1; +0
    ("dvadd $lr0 $ls0 $omr1", 0x3FF0000000000000, 0xC000000000000000, 0),
    ("hvpassa $lr0 $omr1", 0x3E00BE003E00BE00, 0, 0b1010),
    ("hvpassar $lr0 $omr1", 0x3E00BE003E003E00, 0, 0b1011),
    ("fvpassar $lr0 $omr1", 0x3F800000BF800000, 0, 0b1100),
]


@pytest.mark.parametrize("case", FLAGS, ids=lambda c: c[0].split()[0])
def test_flags(machine, run, case):
    text, x, y, expected = case
    machine.write("grf0", 0, [x >> 32, x & 0xFFFFFFFF])
    machine.write("grf1", 0, [y >> 32, y & 0xFFFFFFFF])
    run(text)
    assert np.unique(machine.state.masks[4:8]).tolist() == [expected]
