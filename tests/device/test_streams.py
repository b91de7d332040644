"""Streams of matrix products and moves of data between PEs, as listings of known cost, on all 4096 PEs."""

from __future__ import annotations

import numpy as np
import pytest

from mlsdk.device.isa import model as m
from mlsdk.device.isa.checks import check, count_steps
from mlsdk.device.isa.parser import parse
from mlsdk.device.numerics.formats import FORMATS, round_to

BITS = {"h": 16, "g": 32, "f": 32, "d": 64}
SIZE = {"h": 16, "g": 8, "f": 8, "d": 4}  # rows and columns of a block; f uses the even columns
NUMBERS = range(-8, 9)


def encoder(precision: str):
    """Small integers -> bit patterns."""
    fmt = FORMATS["f" if precision == "g" else precision]
    return np.vectorize({n: round_to(n, fmt) for n in NUMBERS}.__getitem__, otypes=[np.uint64])


def long_words(rows: np.ndarray, precision: str) -> np.ndarray:
    """Integers [..., columns] -> LW [..., 4]: each holds 64 / bits columns."""
    bits = BITS[precision]
    parts = encoder(precision)(rows).reshape(*rows.shape[:-1], 4, 64 // bits)
    shifts = np.arange(64 - bits, -1, -bits, dtype=np.uint64)
    return np.bitwise_or.reduce(parts << shifts, axis=-1)


def stream(p: str, blocks: int, rows: int) -> list[str]:
    """Steps: weight blocks go from L1BM through block-float conversion into one side while the other one multiplies.

    Block b: l1bmm, conversion and mwrite of its parts in three steps that end before its products. Row vectors 4q .. 4q+3 of
    block b are block floats in `$lm<8 (b rows/4 + q)>v`, sums in GRF0 (for 4 rows in `$mauf`), results in LM1.
    """
    parts, quarters = (1 if p == "d" else 2), rows // 4
    lead, stride = parts + 2, max(parts, quarters * (2 if p == "d" else 1))
    width, load, prefix = (8, 32, "ll") if p == "h" else (4, 16, "l")
    acc = 16 if p == "h" else 8
    convert = "hbfn/9" if p == "h" else f"{p}bfn"
    steps: list[list[str]] = [[] for _ in range(lead + stride * blocks)]
    for b in range(blocks):
        side, start = "xy"[b % 2], lead + stride * b
        for k in range(parts):
            steps[start - lead + k].append(f"l1bmm ${prefix}b{(parts * b + k) * load} $nowrite")
            steps[start - lead + 1 + k].append(f"{convert} $lbf $nowrite")
            steps[start - lead + 2 + k].append(f"{p}mwrite $aluf ${prefix}{side}{k * width}")
        for q in range(quarters):
            x = f"$lm{8 * (b * quarters + q)}v"
            sums = "$mauf" if rows == 4 else f"${prefix}r{acc * q}v"
            target = f"${prefix}n{acc * q}v" if b == blocks - 1 else "$nowrite" if rows == 4 else sums
            name, add = ("mmul", "") if b == 0 else ("mfma", f" {sums}")
            if p == "d":
                steps[start + 2 * q].append(f"d{name}u $l{side} {x}{add} $nowrite")
                steps[start + 2 * q + 1].append(f"dmfmad $l{side} {x} $mauf {target}")
            else:
                steps[start + q].append(f"{p}{name} $l{side} {x}{add} {target}")
    while not steps[-1]:  # with 4 rows the last block ends early
        steps.pop()
    return ["; ".join(step) or "nop" for step in steps]


#: precision, blocks, {rows: steps that are claimed}
STREAMS = [
    ("h", 8, {4: 19, 8: 20, 16: 36, 32: 68}), ("g", 6, {4: 15, 8: 16, 16: 28, 32: 52}),
    ("f", 12, {4: 27, 8: 28, 16: 52, 32: 100}), ("d", 6, {4: 15, 8: 27, 16: 51, 32: 99}),
]  # fmt: skip


@pytest.mark.parametrize("p,blocks,rows,claimed", [(p, b, r, s) for p, b, steps in STREAMS for r, s in steps.items()])
def test_streams_of_products(machine, p, blocks, rows, claimed):
    """Small integers: sums are exact. Each L1B has weights of its own, each MAB rows of its own."""
    rng, n = np.random.default_rng(50), SIZE[p]
    weights = rng.integers(-8, 9, (64, blocks, n, n))
    x = rng.integers(-8, 9, (1024, blocks, rows, n))
    stored = long_words(weights, p).reshape(64, -1)
    machine.state.l1bm[:, : stored.shape[1]] = stored
    vectors = long_words(x, p).reshape(1024, blocks * rows, 4).transpose(1, 0, 2).reshape(blocks * rows, 4096)
    machine.write(m.LM1, 0, np.stack([vectors >> np.uint64(32), vectors & np.uint64(2**32 - 1)], 1).reshape(-1, 4096))
    convert = "hbfn/9" if p == "h" else f"{p}bfn"
    prologue = "".join(f"{convert} $ln{8 * i}v $lm{8 * i}v\n" for i in range(blocks * rows // 4)) + "nop/2\n"
    lines = stream(p, blocks, rows)
    program = parse(prologue + "\n".join(lines) + "\n")
    assert [str(d) for d in check(program)] == [] and count_steps(program[-len(lines) :]) == claimed
    machine.run(program)
    used = x.copy()
    if p == "f":
        used[..., 1::2] = 0
    true = np.einsum("lbij,lmbrj->lmri", weights, used.reshape(64, 16, blocks, rows, n)).reshape(1024, rows, n)
    words = machine.read(m.LM1, 0, 4 * rows if p == "h" else 2 * rows)
    if p == "d":
        raw = words.astype(np.uint64)
        got = (raw[0::2] << np.uint64(32) | raw[1::2]).view(np.float64).reshape(rows, 1024, 4).transpose(1, 0, 2)
    else:
        got = words.view(np.float32).reshape(rows, -1, 1024, 4).transpose(2, 0, 3, 1).reshape(1024, rows, n)
    np.testing.assert_array_equal(got, true)


def test_products_with_weights_in_the_mabs(machine):
    """Each MAB another block, loaded once by l1bmd (16 rows of all MABs in 5 steps); rows stream from L1BM as block floats.

    16 rows, 4 blocks: 2 + 16 steps.
    """
    rng, blocks, rows = np.random.default_rng(51), 4, 16
    weights = rng.integers(-8, 9, (64, blocks, 16, 16, 16))  # L1B, block, row, MAB, column
    x = rng.integers(-8, 9, (64, blocks, rows, 16))
    stored = long_words(weights, "h").reshape(64, blocks, -1)  # LW 64 row + 4 MAB + p
    load, at = [], 4096
    for b in range(blocks):
        machine.state.l1bm[:, at + 1024 * b : at + 1024 * (b + 1)] = stored[:, b]
        a, to = at + 1024 * b, 32 * b
        load += [
            f"l1bmd $lb{a} $nowrite",
            *(f"l1bmd $lb{a + 256 * (k + 1)} $nowrite; hbfn/9 $lbf $lm{to + 8 * k}v" for k in range(3)),
            f"hbfn/9 $lbf $lm{to + 24}v",
        ]
    # rows as block floats: converted by MAB 0 and sent back
    machine.state.l1bm[:, 2048 : 2048 + 4 * blocks * rows] = long_words(x, "h").reshape(64, -1)
    convert = []
    for i in range(blocks * rows // 4):
        convert += [f"l1bmm $lb{2048 + 16 * i} $nowrite", "hbfn/9 $lbf $nowrite", f"l1bmm@0 $aluf $lb{16 * i}"]
    steps: list[list[str]] = [[] for _ in range(2 + 4 * blocks)]
    for b in range(blocks):
        side, start = "xy"[b % 2], 2 + 4 * b
        for k in range(2):
            steps[start - 2 + k].append(f"hmwrite $llm{32 * b + 16 * k}v $ll{side}{8 * k}")
        for q in range(4):
            steps[start - 1 + q].append(f"l1bmm $lb{16 * (4 * b + q)} $nowrite")
            name, add = ("hmmul", "") if b == 0 else ("hmfma", f" $llr{16 * q}v")
            target = f"$lln{16 * q}v" if b == blocks - 1 else f"$llr{16 * q}v"
            steps[start + q].append(f"{name} $l{side} $lbf{add} {target}")
    lines = ["; ".join(step) for step in steps]
    program = parse("\n".join([*load, *convert, "nop/2", *lines]) + "\n")
    assert [str(d) for d in check(program)] == [] and count_steps(program[-len(lines) :]) == 18
    machine.run(program)
    true = np.einsum("lbimj,lbrj->lmri", weights, x).reshape(1024, rows, 16)
    got = machine.read(m.LM1, 0, 4 * rows).view(np.float32).reshape(rows, 4, 1024, 4).transpose(2, 0, 3, 1)
    np.testing.assert_array_equal(got.reshape(1024, rows, 16), true)


# --- moves -------------------------------------------------------------------------------------------------------------------
def pe(l1b: int, mab: int, p: int) -> int:
    return l1b * 64 + mab * 4 + p


K = np.arange(4096)
#: name, steps, listing; constants: $ls100 = 32 as LW, $ls102 = 37 (PE 37 of an L1B)
MOVES = {
    "swap words": (1, "lbsl $lr0v $ls100 $ln0v"),
    "to the PE after the next": (2, "msl $lr0v $nowrite\nmsl $aluf $ln0v"),
    "zip": (2, "ipassa $r0v $n0v2\nipassa $r4v $n1v2"),
    "to the next MAB": (2, "l1bmd $lr0v $lbi\nl1bmd+1 $lbi $ln0v"),
    "MAB 5 to all": (2, "l1bmm@5 $lr0v $lbi\nl1bmm $lbi $ln0v"),
    "one PE to one PE": (5, "ixor $peid $ls102 $omr1\nl1bmm@9 $lr0v $lbi\nl1bmm $lbi $lr8v\nnop\nmsl $lr8v $ln0v/$imr1"),
}  # fmt: skip


@pytest.fixture
def numbered(machine):
    """Word w of GRF0 of PE k holds w << 16 | k."""
    machine.write(m.GRF0, 0, (np.arange(16)[:, None] << 16 | K).astype(np.uint32))
    machine.write(m.GRF1, 100, np.array([0, 32], np.uint32))
    machine.write(m.GRF1, 102, np.array([37, 37], np.uint32))
    return machine


def moved(machine, name: str) -> np.ndarray:
    """[word][PE] of LM1: (word of GRF0, PE it comes from)."""
    steps, text = MOVES[name]
    program = parse(text)
    assert [str(d) for d in check(program)] == [] and count_steps(program) == steps
    machine.run(program)
    got = machine.read(m.LM1, 0, 8)
    return np.stack([got >> 16, got & 0xFFFF])


WORDS = np.broadcast_to(np.arange(8)[:, None], (8, 4096))
FROM = {
    "swap words": (WORDS ^ 1, K), "to the PE after the next": (WORDS, K // 4 * 4 + (K + 2) % 4),
    "zip": (WORDS // 2 + 4 * (WORDS % 2), K), "to the next MAB": (WORDS, K // 64 * 64 + (K - 4) % 64),
    "MAB 5 to all": (WORDS, K // 64 * 64 + 20 + K % 4),
}  # fmt: skip


@pytest.mark.parametrize("name", FROM)
def test_moves(numbered, name):
    words, source = moved(numbered, name)
    np.testing.assert_array_equal(words, FROM[name][0])
    np.testing.assert_array_equal(source, np.broadcast_to(FROM[name][1], (8, 4096)))


def test_one_pe_to_one_pe(numbered):
    """PE 36 = (MAB 9, 0) to PE 37: MAB 9 goes to all, msl brings element 0 to PE 1 of each MAB, the mask keeps PE 37."""
    moved(numbered, "one PE to one PE")
    got = numbered.read(m.LM1, 0, 8)
    expected = np.zeros_like(got)
    for b in range(64):
        expected[:, pe(b, 9, 1)] = np.arange(8) << 16 | pe(b, 9, 0)
    np.testing.assert_array_equal(got, expected)


def test_one_pe_to_its_l1b(numbered):
    """4 steps for the LW of one cycle, which comes in the first cycle of l1bmp; that of cycle c lies 64 c further on."""
    text = "l1bmd $lr0v $lb0\nnop/2\n" + "".join(f"l1bmp $lb{37 + 64 * c} $ln{8 * c}v/1000\n" for c in range(4))
    program = parse(text)
    assert check(program) == []
    numbered.run(program)
    for c in range(4):
        source = K // 64 * 64 + 37
        np.testing.assert_array_equal(numbered.read(m.LM1, 8 * c, 2), [2 * c << 16 | source, 2 * c + 1 << 16 | source])


def test_rows_through_t(machine):
    """Rows of 8 words at the indices of the four cycles: 2 steps; the index is in words, in the MSB LW of T."""
    rng = np.random.default_rng(52)
    table, index = rng.integers(0, 2**32, (4096, 1)).astype(np.uint32), rng.integers(0, 500, (4, 4096))
    machine.write(m.LM0, 0, np.broadcast_to(table, (4096, 4096)))
    machine.write(m.GRF0, 0, np.stack([np.zeros_like(index), 8 * index], 1).reshape(8, 4096).astype(np.uint32))
    program = parse("lpassa $lr0v $lt\nnop\nipassa $llmt0 $lls[0,8,16,24]\nipassa $llmt4 $lls[4,12,20,28]\n")
    assert check(program) == []
    machine.run(program)
    got = machine.read(m.GRF1, 0, 32).reshape(4, 8, 4096)
    np.testing.assert_array_equal(got, table[8 * index[:, None, :] + np.arange(8)[:, None], 0])


def test_one_hot_and_scatter_add(machine):
    """Four rows of eight classes in 2 steps; `fvadd $lmt0 v $lmt0` adds where T points, equal indices lose."""
    rng = np.random.default_rng(53)
    classes = rng.integers(0, 8, (4, 1, 1024, 1))
    machine.write(m.GRF0, 0, np.broadcast_to(classes, (4, 2, 1024, 4)).reshape(8, 4096).astype(np.uint32))
    machine.write(m.GRF1, 0, np.stack([2 * (K % 4), 2 * (K % 4) + 1]).astype(np.uint32))  # the class of each lane
    machine.write(m.GRF1, 2, np.array([0x3F800000] * 2, np.uint32))
    program = parse("ixor $lr0v $ls0 $omr1\nipassa/$imr1 $ls2 $ln0v\n")
    assert check(program) == [] and count_steps(program) == 2
    machine.run(program)
    got = machine.read(m.LM1, 0, 8).view(np.float32).reshape(4, 2, 1024, 4)
    lanes = (2 * np.arange(4) + np.arange(2)[:, None])[None, :, None, :]
    np.testing.assert_array_equal(got, (classes == lanes).astype(np.float32))

    index = np.array([0, 2, 4, 6])
    machine.write(m.GRF0, 0, np.stack([np.zeros(4, int), index], 1).reshape(8).astype(np.uint32))
    values = rng.integers(-8, 9, (8, 4096)).astype(np.float32)
    machine.write(m.GRF1, 0, values.view(np.uint32))
    program = parse("lpassa $lr0v $lt\nnop\nfvadd $lmt0 $ls0v $lmt0\nnop/2\nfvadd $lmt0 $ls0v $lmt0\n")
    assert check(program) == []
    machine.run(program)
    np.testing.assert_array_equal(machine.read(m.LM0, 0, 8).view(np.float32), 2 * values)
    machine.write(m.LM0, 0, np.zeros(8, np.uint32))
    machine.write(m.GRF0, 0, np.zeros(8, np.uint32))  # four equal indices: the last cycle wins
    machine.run(parse("lpassa $lr0v $lt\nnop\nfvadd $lmt0 $ls0v $lmt0"))
    np.testing.assert_array_equal(machine.read(m.LM0, 0, 2).view(np.float32), values[6:])
