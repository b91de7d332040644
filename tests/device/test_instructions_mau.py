"""Each MAU instruction against values worked out by hand. Bits of some numbers: single 1 3F800000, 2 40000000, 3
40400000; half 1 3E00,
2 4000, 3 4100; double 1 3FF0.., 2 4000.., 3 4008..."""

from __future__ import annotations

import numpy as np
import pytest

ONE, TWO, THREE, FOUR = 0x3F800000, 0x40000000, 0x40400000, 0x40800000

# row, instruction, $lr0 (long words), $ls0, $lm0, words of $lln0
VECTORS = [
    (
        "fvfma{r}",
        "fvfma $lr0 $ls0 $lm0 $lln0",
        [0x4000000040400000],
        [0x40400000BF800000],
        [0x4080000000000000],
        [0x41200000, 0xC0400000, 0, 0],
    ),
    (
        "fvfma{r}",
        "fvfma -$lr0 $ls0 -$lm0 $lln0",
        [0x4000000040400000],
        [0x40400000BF800000],
        [0x4080000000000000],
        [0xC1200000, THREE, 0, 0],
    ),
    # (1 + 2^-23)^2 - 1: the omitted product of the last bits is replaced by 2^-38; exact arithmetic gives 0x34800000
    (
        "fvfma{r}",
        "fvfma $lr0 $ls0 $lm0 $ln0",
        [0x3F8000013F800000],
        [0x3F8000013F800000],
        [0xBF80000000000000],
        [0x34800080, ONE],
    ),
    (
        "fvfma{r}",
        "fvfmar $lr0 $ls0 $lm0 $n0",
        [0x4000000040400000],
        [0x40400000BF800000],
        [0x4080000000000000],
        [0x4480C100],
    ),  # 10, -3 as halves
    ("fvmul{r}", "fvmul $lr0 $ls0 $ln0", [0x4000000000000001], [0x4040000040400000], [0], [0x40C00000, 0]),
    (
        "fvmul{r}",
        "fvmul $lr0 $ls0 $ln0",
        [0x7F00000080800000],
        [0x4080000000800000],
        [0],
        [0x7F800000, 0],
    ),  # overflow; underflow to +0
    (
        "fvadd{r}",
        "fvadd $lr0 $ls0 $ln0",
        [0x3F80000080000000],
        [0x3380000080000000],
        [0],
        [0x3F800000, 0],
    ),  # 1 + 2^-24: a tie, to even; -0 gives +0
    (
        "fvadd{r}",
        "fvadd $lr0 -$ls0 $ln0",
        [0x3F80000140000000],
        [0x3380000040000000],
        [0],
        [0x3F800000, 0],
    ),  # 1 + 2^-23 - 2^-24: a tie, to even
    ("fvpassa{r}", "fvpassa $lr0 $ln0", [0x0000004280000000], [0], [0], [0, 0]),
    ("fvpassa{r}", "fvpassa $lr0 $ln0", [0xFF812345C0000000], [0], [0], [0xFF800000, 0xC0000000]),
    ("fvpassa{r}", "fvpassa $r0e $ln0", [0x3E00C10000000000], [0], [0], [ONE, 0xC0400000]),  # two halves of a word
    ("fvpassa{r}", "fvpassar $lr0 $n0", [0x3F802000C0400000], [0], [0], [0x3E00C100]),
    (
        "hvfma{r}",
        "hvfma $lr0 $ls0 $llm0 $lln0",
        [0x3E00400041003F00],
        [0x40004000C0004000],
        [0x3E80000000000000, 0x3F80000000000000],
        [0x40100000, FOUR, 0xC0A00000, THREE],
    ),  # 1*2 + 1/4, 2*2, 3*-2 + 1, 1.5*2
    (
        "hvfma{r}",
        "hvfma $lr0 $ls0 $lm0e $lln0",
        [0x3E003E003E003E00],
        [0x3E003E003E003E00],
        [0x3E0040004100BE00],
        [TWO, THREE, FOUR, 0],
    ),
    (
        "hvmul{r}",
        "hvmul $lr0 $ls0 $lln0",
        [0x3E00400041000000],
        [0x3E0140004100C000],
        [0],
        [0x3F804000, FOUR, 0x41100000, 0],
    ),
    ("hvmul{r}", "hvmulr $lr0 $ls0 $ln0", [0x3E00400041000000], [0x3E0140004100C000], [0], [0x3E014200, 0x44400000]),
    (
        "hvadd{r}",
        "hvadd $lr0 $lls0 $lln0",
        [0x3E004000C1000000],
        [0x3F80000040000000, 0x4040000000000001],
        [0],
        [TWO, FOUR, 0, 0],
    ),
    ("hvpassa{r}", "hvpassa $lr0 $lln0", [0x3E00C10080007E00], [0], [0], [ONE, 0xC0400000, 0, 0x7F800000]),
    (
        "dvadd{r}",
        "dvadd $lr0 $ls0 $ln0",
        [0x3FF0000000000000],
        [0x3CA0000000000000],
        [0],
        [0x3FF00000, 0],
    ),  # 1 + 2^-53: a tie
    ("dvadd{r}", "dvaddr $lr0 $ls0 $n0", [0x3FF0000000000000], [0x4000000000000000], [0], [THREE]),
    ("dvpassa{r}", "dvpassa $lr0 $ln0", [0x8000000000000001], [0], [0], [0, 0]),
    ("dvpassa{r}", "dvpassa $r0e $ln0", [0xC040000000000000], [0], [0], [0xC0080000, 0]),
    ("dvpassa{r}", "dvpassar $lr0 $n0", [0x3FF0000010000000], [0], [0], [ONE]),  # 1 + 2^-24: a tie, to even
]
COVERS = {case[0] for case in VECTORS} | {
    "dvfma{ud}{r}",
    "dvmul{ud}{r}",
    "{p}mfma{r}",
    "{p}mmul{r}",
    "dmfma{ud}{r}",
    "dmmul{ud}{r}",
    "{p}mwrite",
    "{p}mread",
}


def put(machine, space: str, lws: list[int], addr: int = 0) -> None:
    machine.write(space, addr, [w for lw in lws for w in (lw >> 32, lw & 0xFFFFFFFF)])


def hexes(words) -> list[str]:
    return [hex(int(w)) for w in words]


@pytest.mark.parametrize("case", VECTORS, ids=lambda c: c[1])
def test_vectors(machine, run, case):
    _, text, r, s, lm, expected = case
    put(machine, "grf0", r)
    put(machine, "grf1", s)
    put(machine, "lm0", lm)
    run(text)
    assert hexes(machine.read("lm1", 0, len(expected))[:, 1234]) == hexes(expected)


def test_double_products_on_two_pes_at_a_time(machine, run):
    put(machine, "grf0", [0x4000000000000000])
    put(machine, "grf1", [0x4008000000000000])
    put(machine, "lm0", [0x3FF0000000000000])
    run(
        "dvfmau $lr0 $ls0 $lm0 $ln0\ndvfmad $lr0 $ls0 $lm0 $ln2\ndvmulu $lr0 $ls0 $ln4\n"
        "dvmuld $lr0 $ls0 $ln6\ndvfmaur $lr0 $ls0 $lm0 $n8"
    )
    upper = machine.read("lm1", 0, 9)[[0, 2, 4, 6, 8], 400:404]
    seven, one, six = 0x401C0000, 0x3FF00000, 0x40180000
    assert upper.tolist() == [
        [seven, seven, one, one],
        [one, one, seven, seven],
        [six, six, 0, 0],
        [0, 0, six, six],
        [0x40E00000, 0x40E00000, ONE, ONE],
    ]


def test_pair_of_double_products(machine, run):
    put(machine, "grf0", [0x4000000000000000])
    put(machine, "grf1", [0x4008000000000000])
    run("dvmulu $lr0 $ls0 $nowrite\ndvfmad $lr0 $ls0 $mauf $ln0")
    assert np.unique(machine.read("lm1", 0, 1)).tolist() == [0x40180000]


def test_low_products_left_out_in_double(machine, run):
    # (1 + 2^-52)^2 - 1 = 2^-51 + 2^-104; the last term is left out, 2^-74 is added: 2^-51 (1 + 2^-23)
    put(machine, "grf0", [0x3FF0000000000001])
    put(machine, "lm0", [0xBFF0000000000000])
    run("dvfmau $lr0 $lr0 $lm0 $ln0")
    assert hexes(machine.read("lm1", 0, 2)[:, 0]) == ["0x3cc00000", "0x20000000"]


# --- matrices --------------------------------------------------------------------------------------------------------------
def test_half_matrix(machine, run):
    """A has 1.0 everywhere, x = (1, 2, 1, 2, ...): 16 columns give 24."""
    put(machine, "grf0", [0x3E003E003E003E00] * 2)  # 1.0
    put(machine, "grf1", [0x3E0040003E004000])
    run(
        "hbfn/9 $llr0 $lls8v\nnop\nhmwrite $lls8v $llx0\nhmwrite $lls8v $llx8\nhbfn/9 $ls0 $nowrite\nhmmul $lx $aluf $lln0"
    )
    assert np.unique(machine.read("lm1", 0, 4)).tolist() == [0x41C00000]


def test_half_matrix_sum_and_half_results(machine, run):
    put(machine, "grf0", [0x3E003E003E003E00] * 2)
    put(machine, "grf1", [0x3E0040003E004000])
    put(machine, "lm0", [0x3F0000003F000000] * 2)  # 0.5
    run(
        "hbfn/9 $llr0 $lls8v\nnop\nhmwrite $lls8v $lly0\nhmwrite $lls8v $lly8\nhbfn/9 $ls0 $nowrite\n"
        "hmfma $ly $aluf $llm0 $lln0\n"
        "hmfmar $ly $aluf -$llm0 $ln4\nhmmulr $ly -$aluf $ln6"
    )
    words = machine.read("lm1", 0, 8)[:, 77]
    assert hexes(words) == hexes([0x41C40000] * 4 + [0x46F046F0] * 2 + [0xC700C700] * 2)  # 24.5; 23.5; -24


def test_rows_and_columns_of_a_half_matrix(machine, run):
    """Row i holds i in every column as a block float; x picks all columns, so that element i is 16 i: PE p holds
    rows 4p..4p+3."""
    for i in range(16):
        machine.write("lm0", 2 * i, [_half(i) * 0x10001] * 2)
    put(machine, "grf0", [0x3E003E003E003E00])
    lines = (
        [f"hbfn/9 $lm{8 * c}v $ln{8 * c}v" for c in range(4)]
        + ["nop/2"]
        + [f"hmwrite $ln{8 * c}v $lx{4 * c}" for c in range(4)]
    )
    run("\n".join([*lines, "hbfn/9 $lr0 $nowrite", "hmmul $lx $aluf $llm64"]))
    words = machine.read("lm0", 64, 4).view(np.float32)[:, 8:12]
    assert words.T.reshape(-1).tolist() == [16.0 * i for i in range(16)]


def _half(i: int) -> int:
    if i == 0:
        return 0
    e = i.bit_length() - 1
    return (31 + e) << 9 | (i << (9 - e)) & 511


@pytest.mark.parametrize("precision,total", [("g", 12.0), ("f", 4.0)])
def test_single_matrices(machine, run, precision, total):
    """A of ones, x = (1, 2, 1, 2, ..): g sums 8 columns to 12, f only the even ones to 4."""
    put(machine, "grf0", [0x3F8000003F800000])
    put(machine, "grf1", [0x3F80000040000000])
    put(machine, "lm0", [0x3F0000003F000000])
    p = precision
    run(
        f"{p}bfn $lr0 $ls8v\nnop\n{p}mwrite $ls8v $lx0\n{p}mwrite $ls8v $lx4\n{p}bfn $ls0 $nowrite\n{p}mmul $lx $aluf $ln0\n"
        f"{p}mfma $lx $aluf $lm0 $ln2\n{p}mfmar $lx $aluf $lm0 $n4"
    )
    words = machine.read("lm1", 0, 5)[:, 500]
    assert words[:4].view(np.float32).tolist() == [total, total, total + 0.5, total + 0.5]
    assert hex(int(words[4])) == {"g": "0x45204520", "f": "0x42404240"}[p]  # 12.5, 4.5 as halves


def test_double_matrix(machine, run):
    put(machine, "grf0", [0x3FF0000000000000])  # 1.0
    put(machine, "grf1", [0x4000000000000000])  # 2.0
    put(machine, "lm0", [0x3FE0000000000000])  # 0.5
    run(
        "dbfn $lr0 $ls8v\nnop\ndmwrite $ls8v $lx0\ndbfn $ls0 $nowrite\ndmmulu $lx $aluf $ln0\n"
        "dmmuld $lx $aluf $ln2\ndmfmau $lx $aluf $lm0 $ln4\n"
        "dmfmad $lx $aluf $lm0 $ln6\ndmfmaur $lx $aluf $lm0 $n8"
    )
    upper = machine.read("lm1", 0, 9)[[0, 2, 4, 6, 8], 8:12]
    eight, both, half = 0x40200000, 0x40210000, 0x3FE00000
    assert upper.tolist() == [
        [eight, eight, 0, 0],
        [0, 0, eight, eight],
        [both, both, half, half],
        [half, half, both, both],
        [0x41080000, 0x41080000, 0x3F000000, 0x3F000000],
    ]


def test_transposed_reads(machine, run):
    """Row r holds (r, column) in each element; mread delivers columns."""
    pe = np.arange(4096) % 4
    for r in range(8):
        machine.write("lm0", 2 * r, np.stack([r * 256 + 2 * pe, r * 256 + 2 * pe + 1]))
    run("gmwrite $lm0v $lx0\ngmwrite $lm8v $lx4\ngmread $lx4 $ln0v\nnop\nfmread $lx0 $ln8v")
    out = machine.read("lm1", 0, 16)[:, 40:44]
    # cycle c: column 4 + c; PE p: rows 2p, 2p + 1
    assert [[int(v) for v in out[2 * c]] for c in range(4)] == [
        [(2 * p) * 256 + 4 + c for p in range(4)] for c in range(4)
    ]
    assert [int(v) for v in out[1]] == [(2 * p + 1) * 256 + 4 for p in range(4)]
    assert [int(v) for v in out[8 + 6]] == [(2 * p) * 256 + 3 for p in range(4)]


def test_transposed_reads_of_halves_and_doubles(machine, run):
    pe = np.arange(4096) % 4
    for r in range(16):
        e = r * 16 + 4 * pe
        machine.write("lm0", 2 * r, np.stack([e << 16 | e + 1, e + 2 << 16 | e + 3]))
    lines = [f"hmwrite $llm{16 * i}v $lly{8 * i}" for i in range(2)] + ["hmread $lly2 $lln0v"]
    run("\n".join(lines))
    out = machine.read("lm1", 0, 16)[:, 4:8]
    # cycle 1, LSB LW: column 2 + 2 + 1 = 5; PE 2 holds rows 8..11
    assert [hex(int(v)) for v in out[6:8, 2]] == [
        hex(8 * 16 + 5 << 16 | 9 * 16 + 5),
        hex(10 * 16 + 5 << 16 | 11 * 16 + 5),
    ]
    for r in range(4):
        machine.write("lm0", 2 * r, np.stack([np.full(4096, r), pe]))
    run("dmwrite $lm0v $lx0\ndmread $lx0 $ln0v")
    out = machine.read("lm1", 0, 8)
    assert out[2 * 3 : 8, 4:8].tolist() == [[0, 1, 2, 3], [3, 3, 3, 3]]  # cycle 3: column 3, PE p holds row p


def test_matrix_rows_wrap(machine, run):
    put(machine, "lm0", [0x0000000100000001, 0x0000000200000002, 0x0000000300000003, 0x0000000400000004])
    run("gmwrite $lm0v $lx6\ngmread $lx0 $ln0v")  # rows 6, 7, 0, 1
    assert machine.read("lm1", 0, 2)[:, 0].tolist() == [3, 4] and machine.read("lm1", 0, 2)[:, 3].tolist() == [1, 2]
